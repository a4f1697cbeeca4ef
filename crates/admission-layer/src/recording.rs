//! Makes the records of evaluated requests.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    evaluate::{EvaluationEnd, Unevaluated},
    passes::evaluation_job::EvaluatedWrite,
    passes::request_evaluator::RequestEvaluator,
    plan::EvaluationPlan,
};
use fairgate_admission::{AdmissionDecision, AdmissionMode, AdmissionRecord, RecordedRequest};
use fairgate_core::time::Time;

/// The record of a request with this ID, which was evaluated from `started` until now. It takes from the verdict what only records have.
pub(crate) fn record_of(
    evaluator: &RequestEvaluator,
    plan: &EvaluationPlan,
    id: u128,
    started: Time,
    end: Result<&mut EvaluationEnd, &Unevaluated>,
) -> AdmissionRecord {
    let facts = &plan.facts;
    let (evaluated, evaluating, decision, failure) = match end {
        Ok(end) => {
            let decision = if end.evaluated.refusal.is_some() {
                AdmissionDecision::Denied
            } else {
                AdmissionDecision::Allowed
            };
            let evaluated = end.evaluated.take_recorded();
            (evaluated, end.evaluating, decision, String::new())
        }
        Err(unevaluated) => {
            let decision = if evaluator.mode == AdmissionMode::Enforce {
                AdmissionDecision::Failed
            } else {
                AdmissionDecision::NotEvaluated
            };
            let nothing = EvaluatedWrite::default();
            (nothing, Duration::ZERO, decision, failure_of(unevaluated))
        }
    };
    AdmissionRecord {
        audit_id: Uuid::from_u128(id).to_string(),
        mode: evaluator.mode,
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
        checks: evaluated.checks,
        warnings: evaluated.warnings,
        annotations: evaluated.annotations,
        usage: evaluated.usage,
        secret_params: evaluated.secret_params,
        set_by_server: evaluated.set_by_server,
        evaluating,
        total: evaluator.clock.now().since(started),
    }
}

/// Why a request could not be evaluated. Texts of clients are not in it.
fn failure_of(unevaluated: &Unevaluated) -> String {
    match unevaluated {
        Unevaluated::Refused(refused) if refused.reason.is_empty() => {
            let code = refused.response.status.as_u16();
            format!("the upstream answered its dry run with {code}")
        }
        Unevaluated::Refused(refused) => {
            format!("{} ({})", refused.reason, refused.response.status.as_u16())
        }
        Unevaluated::Lacking(lack) => lack.to_string(),
        Unevaluated::Failed(why) => why.clone(),
        Unevaluated::Absent => "there is no such object".to_owned(),
        Unevaluated::Inner(refusal) => refusal.reason().to_owned(),
    }
}
