//! Errors that kube-apiserver returns only after admission: that an object exists already, and what prevents an eviction
//! or a binding.
//!
//! Source: the order of checks in Kubernetes `apiserver/pkg/registry/generic/registry/store.go` and
//! `kubernetes/pkg/registry/core/pod/storage`.

use bytes::Bytes;
use fairgate_call::Call;
use fairgate_objects::codec;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::{
    evaluate::{DrySeen, EarlyReply, Evaluation, Unevaluated},
    limits::body_budget::BodyShare,
    object::evaluated_object::Fresh,
    object::objects,
    replies::dry_run::{DryRunEnd, DryRunRefusal, DryRuns},
    replies::responses::RefusedRequest,
    request::facts::WriteFacts,
    request::write_request::WriteVerb,
};
use fairgate_admission::Fidelity;

impl Evaluation {
    /// What an error response to a dry run means.
    pub(crate) fn refused_dry_run(
        &mut self,
        status: StatusCode,
        refusal: DryRunRefusal,
    ) -> Result<DrySeen, Unevaluated> {
        let is_late = is_late(&self.plan.facts, status, &refusal.body);
        if is_late {
            self.dry_warnings.clone_from(&refusal.warnings);
        }
        let error = Box::new(RefusedRequest::by_upstream(status, refusal, self.output));
        if is_late {
            return Ok(DrySeen {
                object: None,
                reply: Some(EarlyReply::Error(error)),
            });
        }
        Err(Unevaluated::Refused(error))
    }

    /// The object of a request whose dry run ended with a late error, as policies would have seen it; `None` if that cannot
    /// be found out.
    pub(crate) async fn object_of_late<D: DryRuns>(
        &mut self,
        dry: Option<(&mut D, &Call)>,
    ) -> Option<Value> {
        let object = self.object().await.ok()?;
        if is_about_pods(&self.plan.facts) {
            return Some(object);
        }
        let (dry, call) = dry?;
        let object = under_another_name(dry, call, object, &mut self.share).await?;
        self.plan.fidelity = Fidelity::DryRun;
        Some(object)
    }
}

/// What a dry run makes of an object whose name is taken: it is made under another one, which is then changed back.
async fn under_another_name<D: DryRuns>(
    dry: &mut D,
    call: &Call,
    mut object: Value,
    share: &mut BodyShare,
) -> Option<Value> {
    let name = objects::name_of(&object).to_owned();
    let other = another_name(&name, Fresh::new(0).uid.as_u128())?;
    object["metadata"]["name"] = json!(other);
    let body = Bytes::from(object.to_string());
    let json = HeaderValue::from_static("application/json");
    let end = dry.dry_run(call, &body, Some(json), share).await;
    let DryRunEnd::Object(found, ..) = end.ok()? else {
        return None;
    };
    // The name may be in labels and in other fields, too.
    let quoted = json!(name).to_string();
    let escaped = quoted.trim_start_matches('"').strip_suffix('"')?;
    let renamed = found.to_string().replace(&other, escaped);
    let read = codec::json::parse(renamed.as_bytes()).ok()?;
    Some(read.value)
}

/// A name of about the same form and length that no object has; `None` without a name.
fn another_name(name: &str, id: u128) -> Option<String> {
    const NUMBER: usize = 16;
    if name.is_empty() {
        return None;
    }
    let kept = name.len().saturating_sub(NUMBER).max(1);
    let kept = name.get(..kept)?;
    #[expect(clippy::cast_possible_truncation, reason = "one half is enough")]
    let number = id as u64;
    Some(format!("{kept}{number:016x}"))
}

/// Whether an error of a dry run is one that policies come before.
fn is_late(facts: &WriteFacts, status: StatusCode, body: &[u8]) -> bool {
    if facts.verb != WriteVerb::Create {
        return false;
    }
    let read = serde_json::from_slice::<Value>(body).ok();
    let Some(error) = read.filter(|read| read["kind"] == "Status") else {
        return false;
    };
    if is_about_pods(facts) {
        return match status {
            StatusCode::NOT_FOUND => error["details"]["kind"] == "pods",
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => true,
            status => status.is_server_error(),
        };
    }
    status == StatusCode::CONFLICT && error["reason"] == "AlreadyExists"
}

/// Whether a request evicts or binds a pod. Its body is no stored object.
pub(crate) fn is_about_pods(facts: &WriteFacts) -> bool {
    facts.group.is_empty()
        && matches!(
            (&*facts.resource, &*facts.subresource),
            ("pods", "eviction" | "binding") | ("bindings", "")
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_begins_alike_and_is_hardly_longer() {
        let long = "a".repeat(63);
        assert_eq!(another_name(&long, 5).unwrap().len(), 63);
        assert_eq!(another_name("web", 5).unwrap(), "w0000000000000005");
        assert_eq!(another_name("", 5), None);
        assert_eq!(another_name("é", 5), None, "no name is so");
    }
}
