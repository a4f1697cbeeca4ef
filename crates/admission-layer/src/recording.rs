//! Makes the records of judged requests.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    admitter::Admitter,
    evaluate::{Evaluated, Unjudged},
    judge_job::JudgedWrite,
    plan::JudgePlan,
};
use fairgate_admission::{AdmissionDecision, AdmissionMode, AdmissionRecord, RecordedRequest};
use fairgate_core::time::Time;

/// The record of a request with this ID, which was judged from `started` until now. It takes from the verdict what only records have.
pub(crate) fn record_of(
    admitter: &Admitter,
    plan: &JudgePlan,
    id: u128,
    started: Time,
    end: Result<&mut Evaluated, &Unjudged>,
) -> AdmissionRecord {
    let facts = &plan.facts;
    let (judged, judging, decision, failure) = match end {
        Ok(end) => {
            let decision = if end.judged.refusal.is_some() {
                AdmissionDecision::Denied
            } else {
                AdmissionDecision::Allowed
            };
            let judged = end.judged.take_recorded();
            (judged, end.judging, decision, String::new())
        }
        Err(unjudged) => {
            let decision = if admitter.mode == AdmissionMode::Enforce {
                AdmissionDecision::Failed
            } else {
                AdmissionDecision::NotJudged
            };
            let nothing = JudgedWrite::default();
            (nothing, Duration::ZERO, decision, failure_of(unjudged))
        }
    };
    AdmissionRecord {
        audit_id: Uuid::from_u128(id).to_string(),
        mode: admitter.mode,
        operation: facts.operation,
        request: RecordedRequest {
            group: facts.group.clone(),
            version: facts.version.clone(),
            resource: facts.resource.clone(),
            subresource: facts.subresource.clone(),
            namespace: facts.namespace.clone(),
            name: facts.name.clone(),
            user: facts.user.name.clone(),
            groups: facts.user.groups.clone(),
            dry_run: facts.dry_run,
        },
        fidelity: Some(plan.fidelity),
        decision,
        guard: None,
        failure,
        checks: judged.checks,
        warnings: judged.warnings,
        annotations: judged.annotations,
        usage: judged.usage,
        secret_params: judged.secret_params,
        set_by_server: judged.set_by_server,
        judging,
        total: admitter.clock.now().since(started),
    }
}

/// Why a request could not be judged. Texts of clients are not in it.
fn failure_of(unjudged: &Unjudged) -> String {
    match unjudged {
        Unjudged::Refused(refused) if refused.reason.is_empty() => {
            let code = refused.response.status.as_u16();
            format!("the upstream answered its dry run with {code}")
        }
        Unjudged::Refused(refused) => {
            format!("{} ({})", refused.reason, refused.response.status.as_u16())
        }
        Unjudged::Lacking(lack) => lack.to_string(),
        Unjudged::Failed(why) => why.clone(),
        Unjudged::Absent => "there is no such object".to_owned(),
        Unjudged::Inner(refusal) => refusal.reason().to_owned(),
    }
}
