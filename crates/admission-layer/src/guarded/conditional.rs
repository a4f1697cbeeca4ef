//! Forwards a request that policies allow, if need be on the condition that the object is still the evaluated one.

use bytes::Bytes;
use fairgate_apihttp::status_error::StatusError;
use fairgate_call::{Call, Refusal, Reply, RequestProgress};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Limited};
use tower::Service;

use crate::{
    evaluate::Evaluation,
    limits::workers::LARGE,
    object::guard::{EvaluatedVersion, MAX_RETRIES, WriteCondition},
    object::object_errors,
    plan::EvaluationPlan,
    replies::dry_run::with_body,
    replies::responses::{RefusedRequest, reasons},
    upstream::old_read::OldRead,
};
use fairgate_admission::{AdmissionRecord, AdmissionRecorder, WriteGuard};

/// How much is read of a response that the client does not get.
pub(crate) const MAX_CONFLICT: usize = 1 << 20;

/// What became of a request.
pub(crate) enum CarriedOut {
    Reply(Reply),
    /// The stored object is not the one that it was evaluated by: it is to be evaluated again.
    Changed(Box<Call>, OldRead),
    /// There is an object with the name that was chosen for it: it is to be evaluated again with another one.
    NameTaken(Box<Call>),
    /// It is not carried out, because of what the gateway has read.
    Refused(Box<Call>, RefusedRequest),
}

/// A record that is made when the request has been carried out, or its client has disconnected.
pub(crate) struct RecordAtEnd<'r> {
    recorder: &'r dyn AdmissionRecorder,
    record: Option<AdmissionRecord>,
}

impl<'r> RecordAtEnd<'r> {
    pub(crate) fn new(recorder: &'r dyn AdmissionRecorder, record: AdmissionRecord) -> Self {
        Self {
            recorder,
            record: Some(record),
        }
    }

    pub(crate) fn guarded(&mut self, guard: WriteGuard) {
        if let Some(record) = &mut self.record {
            record.guard = Some(guard);
        }
    }

    /// The request is evaluated again.
    pub(crate) fn cancel(&mut self) {
        self.record = None;
    }
}

impl Drop for RecordAtEnd<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.recorder.record(record);
        }
    }
}

impl Evaluation {
    /// Forgets what was found out, before the request is evaluated again, but not what was deleted.
    pub(crate) fn begin_again(&mut self, plan: &EvaluationPlan) {
        self.plan = plan.clone();
        self.evaluated_version = None;
        self.evaluated_items.clear();
        self.dry_warnings.clear();
    }

    /// Forwards the request.
    pub(crate) async fn forward<S>(
        &self,
        call: Call,
        inner: &mut S,
        record: &mut RecordAtEnd<'_>,
        retries: u32,
    ) -> Result<CarriedOut, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let condition = match &self.evaluated_version {
            None => {
                return match self.chosen_name() {
                    Some(chosen) => self.forward_named(call, inner, record, chosen).await,
                    None => Ok(CarriedOut::Reply(inner.call(call).await?)),
                };
            }
            Some(_) if !self.evaluator.guard => WriteCondition::None,
            Some(evaluated) => {
                if let Some(error) = self.plan.facts.findings.unversioned() {
                    return Ok(self.refuse(call, error));
                }
                self.condition(evaluated).await
            }
        };
        record.guarded(match &condition {
            WriteCondition::OfClient(_) | WriteCondition::OtherVersion => WriteGuard::Client,
            WriteCondition::Inserted(_) if retries > 0 => WriteGuard::Repeated,
            WriteCondition::Inserted(_) => WriteGuard::Held,
            WriteCondition::Unreadable | WriteCondition::None => WriteGuard::None,
        });
        match condition {
            WriteCondition::None | WriteCondition::OfClient(None) => {
                Ok(CarriedOut::Reply(inner.call(call).await?))
            }
            WriteCondition::Unreadable => Ok(self.refuse(call, &Self::unguarded())),
            WriteCondition::OfClient(Some((body, content_type))) => {
                let guarded = guarded(&call, &body, content_type);
                Ok(CarriedOut::Reply(inner.call(guarded).await?))
            }
            WriteCondition::OtherVersion => {
                // A version that is newer than the evaluated one shows that the object has changed.
                if retries < MAX_RETRIES
                    && let Some(old) = self.changed().await
                {
                    record.cancel();
                    return Ok(CarriedOut::Changed(Box::new(call), old));
                }
                Ok(self.refuse(call, &object_errors::modified(&self.plan.facts)))
            }
            WriteCondition::Inserted((body, content_type)) => {
                let guarded = guarded(&call, &body, content_type);
                let reply = inner.call(guarded).await?;
                if reply.status() != StatusCode::CONFLICT || retries >= MAX_RETRIES {
                    return Ok(CarriedOut::Reply(reply));
                }
                let Some(old) = self.changed().await else {
                    return Ok(CarriedOut::Reply(reply));
                };
                forget(reply, &call).await;
                record.cancel();
                Ok(CarriedOut::Changed(Box::new(call), old))
            }
        }
    }

    /// The condition that keeps the write from changing another object than the evaluated one.
    async fn condition(&self, evaluated: &EvaluatedVersion) -> WriteCondition {
        let (facts, query) = (&self.plan.facts, &self.plan.query);
        if self.body.len() <= LARGE {
            return evaluated.condition(facts, &self.content_type, &self.body, query);
        }
        let (evaluated, facts, query) = (evaluated.clone(), facts.clone(), query.clone());
        let (content_type, body) = (self.content_type.clone(), self.body.clone());
        let making = move || evaluated.condition(&facts, &content_type, &body, &query);
        let made = self.off_core(self.body.len(), making).await;
        made.unwrap_or(WriteCondition::Unreadable)
    }

    /// The stored object, if it is not the one that the request was evaluated by.
    async fn changed(&self) -> Option<OldRead> {
        let found = self.start_read().end().await.ok()?;
        let version = found
            .as_ref()
            .map(|found| EvaluatedVersion::of(&found.value));
        let version = version.unwrap_or_else(EvaluatedVersion::absent);
        (self.evaluated_version.as_ref() != Some(&version)).then_some(OldRead::Known(found))
    }

    fn refuse(&self, call: Call, error: &StatusError) -> CarriedOut {
        let refused = RefusedRequest::error(error, reasons::MALFORMED, self.output);
        CarriedOut::Refused(Box::new(call), refused)
    }

    fn unguarded() -> StatusError {
        StatusError::bad_request(
            "the body cannot be made conditional on the stored object (admission.guard of fairgate): \
             send JSON without duplicate members",
        )
    }
}

/// Forgets the reply to a request that was not carried out.
pub(crate) async fn forget(reply: Reply, call: &Call) {
    let _ = Limited::new(reply.into_body(), MAX_CONFLICT)
        .collect()
        .await;
    // The upstream is done with it, and nothing has been changed.
    call.context.progress.set(RequestProgress::NotSent);
}

/// The request with another body.
pub(crate) fn guarded(call: &Call, body: &Bytes, content_type: Option<&'static str>) -> Call {
    let mut guarded = with_body(call, body);
    let headers = guarded.request.headers_mut();
    headers.insert(CONTENT_LENGTH, body.len().into());
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    guarded
}
