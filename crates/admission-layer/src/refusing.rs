//! What happens to a request that is not forwarded: the reply, and the record, which says what the client has got.
//!
//! First it is checked whether the user may make the request at all: messages of policies may contain what only users may see who are allowed to write
//! the object, and nothing is read for others. All of it ends shortly after the deadline of the request.

use bytes::Bytes;
use fairgate_admission::AdmissionRecord;
use fairgate_apihttp::{access, request::ApiRequest, response::ApiResponse};
use fairgate_call::{Call, Refusal, Reply};
use fairgate_upstream::access_review::Attributes;
use http::StatusCode;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    earlier::EarlierError,
    evaluate::{Evaluation, Unevaluated},
    limits::lack::Lack,
    passes::evaluation_job::EvaluatedWrite,
    replies::responses::{RefusedRequest, reasons},
    side::{AdmissionSide, GRACE},
};

impl AdmissionSide {
    /// The reply to a request that policies deny.
    pub(crate) async fn deny(
        &self,
        call: &Call,
        evaluation: &Evaluation,
        (code, status): (StatusCode, &Value),
        evaluated: &EvaluatedWrite,
        record: AdmissionRecord,
    ) -> Reply {
        let until = self.deadline(call, evaluation.started) + GRACE;
        let mut warnings = evaluation.plan.facts.findings.warnings.clone();
        let refused = match self
            .earlier_refusal(call, evaluation, Some(evaluated), until)
            .await
        {
            Err(forbidden) => {
                self.record_refusal(evaluation, &forbidden);
                return forbidden.reply(&[], &call.context);
            }
            Ok(Some(error)) => {
                if error.is_about_request {
                    evaluation.is_silent.set(true);
                    warnings.clear();
                }
                let refused = RefusedRequest::earlier(error.response);
                self.record_refusal(evaluation, &refused);
                refused
            }
            Ok(None) => {
                self.evaluator.recorder.record(record);
                warnings.extend_from_slice(&evaluated.warnings);
                let of_dry_run = &evaluation.dry_warnings;
                RefusedRequest::denied(code, status, of_dry_run, evaluation.output)
            }
        };
        refused.reply(&warnings, &call.context)
    }

    /// What happens to a request without a verdict.
    pub(crate) async fn not_evaluated(
        &self,
        unevaluated: Unevaluated,
        call: Call,
        evaluation: &Evaluation,
    ) -> Result<Reply, Refusal> {
        let until = self.deadline(&call, evaluation.started) + GRACE;
        let may_read = match &unevaluated {
            // Where memory is lacking, nothing is read for that.
            Unevaluated::Refused(refused) => refused.reason != reasons::NO_ROOM,
            unevaluated => matches!(unevaluated, Unevaluated::Failed(_) | Unevaluated::Absent),
        };
        if may_read {
            let refused = match self.earlier_refusal(&call, evaluation, None, until).await {
                Ok(Some(error)) => {
                    evaluation.is_silent.set(true);
                    Some(RefusedRequest::earlier(error.response))
                }
                Ok(None) => None,
                Err(refused) => {
                    // The gateway has read what the user may not know, such as the UID of the object.
                    let may_tell = matches!(&unevaluated, Unevaluated::Refused(refused) if refused.reason != reasons::MALFORMED);
                    let is_forbidden = refused.response.status == StatusCode::FORBIDDEN;
                    (is_forbidden || !may_tell).then_some(refused)
                }
            };
            if let Some(refused) = refused {
                self.record_refusal(evaluation, &refused);
                return Ok(refused.reply(&[], &call.context));
            }
        }
        if !matches!(
            unevaluated,
            Unevaluated::Absent | Unevaluated::Inner(Refusal::ClientGone)
        ) {
            let record = self.recorded(evaluation, Err(&unevaluated));
            self.evaluator.recorder.record(record);
        }
        let refused = match unevaluated {
            Unevaluated::Refused(refused) => *refused,
            // Forwarded, it would be carried out on an object that was created meanwhile, and that no policy has seen.
            Unevaluated::Absent => evaluation.absent(),
            Unevaluated::Inner(refusal) => return Err(refusal),
            Unevaluated::Lacking(lack) => lacking(lack, evaluation),
            Unevaluated::Failed(why) => {
                if let Some(left_out) = self
                    .evaluator
                    .failures
                    .next_line(self.evaluator.clock.now())
                {
                    tracing::warn!(%why, left_out, "cannot evaluate the admission policies for a request");
                }
                RefusedRequest::failed(&why, evaluation.output)
            }
        };
        Ok(refused.reply(&[], &call.context))
    }

    /// What a server would have said before its policies of a request that is refused: with its verdict if policies deny it. Nothing if that is
    /// not known, also because time is lacking.
    ///
    /// # Errors
    ///
    /// The refusal of a user who may not make the request, or of whom that is not known.
    async fn earlier_refusal(
        &self,
        call: &Call,
        evaluation: &Evaluation,
        denied: Option<&EvaluatedWrite>,
        until: Instant,
    ) -> Result<Option<EarlierError>, RefusedRequest> {
        self.authorized(call, evaluation, until).await?;
        let finding = evaluation.earlier_error(call, denied);
        Ok(timeout_at(until, finding).await.unwrap_or(None))
    }

    /// Checks that the user may make the request.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub(crate) async fn authorized(
        &self,
        call: &Call,
        evaluation: &Evaluation,
        until: Instant,
    ) -> Result<(), RefusedRequest> {
        let attributes = Attributes::of(&call.digest.info);
        let request = ApiRequest::of(call);
        let checking = access::authorize(&self.evaluator.authorizer, &request, &attributes);
        match timeout_at(until, checking).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(response)) => {
                let reason = reasons::FORBIDDEN;
                Err(RefusedRequest { response, reason })
            }
            Err(_elapsed) => Err(lacking(Lack::Time, evaluation)),
        }
    }

    /// Records that the request is refused, and not because of a verdict.
    fn record_refusal(&self, evaluation: &Evaluation, refused: &RefusedRequest) {
        let response = ApiResponse::text(refused.response.status, Bytes::new());
        let reason = refused.reason;
        let unevaluated = RefusedRequest { response, reason }.into();
        let record = self.recorded(evaluation, Err(&unevaluated));
        self.evaluator.recorder.record(record);
    }
}

fn lacking(lack: Lack, evaluation: &Evaluation) -> RefusedRequest {
    RefusedRequest::error(&lack.status(), reasons::FAILED, evaluation.output)
}
