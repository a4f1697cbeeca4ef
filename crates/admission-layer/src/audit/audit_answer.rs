//! What the upstream answers to an audited request, which is sent to the client meanwhile: the status, and what the body says of the object.

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_call::{Refusal, Reply};
use fairgate_objects::{
    codec::{BodyFormat, envelope, protobuf},
    schema::meta_v1,
};
use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::{
    limits::body_budget::BodyShare,
    object::objects,
    replies::reply_copy::{CountedReply, ReplyCopy},
    request::facts::WriteFacts,
};

/// Which bodies of responses are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBodies {
    /// None.
    Never,
    /// Those that say why it is refused, as far as that matters.
    Refusals,
    /// These, and those of successes.
    Successes,
}

/// Hands the upstream's answer over.
pub(crate) struct AnswerSender {
    status: oneshot::Sender<StatusCode>,
    copy: Box<ReplyCopy>,
    bodies: ReadBodies,
}

/// The upstream's answer. To wait for it takes as long as the call does.
pub(crate) struct AuditAnswer {
    receiver: Option<oneshot::Receiver<StatusCode>>,
    status: Option<StatusCode>,
    body: Option<oneshot::Receiver<CountedReply>>,
}

impl AnswerSender {
    /// What hands an answer over, and what receives it. A copy of its body is counted in `share`.
    pub(crate) fn new(bodies: ReadBodies, share: BodyShare) -> (Self, AuditAnswer) {
        let (status, receiver) = oneshot::channel();
        let (copy, body) = ReplyCopy::new(share);
        let sender = Self {
            status,
            copy,
            bodies,
        };
        let answer = AuditAnswer {
            receiver: Some(receiver),
            status: None,
            body: Some(body),
        };
        (sender, answer)
    }

    /// Hands over what the call ended with.
    pub(crate) fn send(self, end: &mut Result<Reply, Refusal>) {
        let Ok(reply) = end else {
            return;
        };
        let status = reply.status();
        let refusals = [
            StatusCode::FORBIDDEN,
            StatusCode::CONFLICT,
            StatusCode::UNPROCESSABLE_ENTITY,
        ];
        let is_read = match self.bodies {
            ReadBodies::Never => false,
            ReadBodies::Refusals => refusals.contains(&status),
            ReadBodies::Successes => status.is_success() || refusals.contains(&status),
        };
        if is_read {
            reply.body_mut().hold(self.copy);
        }
        // Nobody may wait for it.
        let _ = self.status.send(status);
    }
}

impl AuditAnswer {
    /// Whether it has not come yet.
    pub(crate) fn is_awaited(&mut self) -> bool {
        let Some(receiver) = &mut self.receiver else {
            return false;
        };
        match receiver.try_recv() {
            Err(TryRecvError::Empty) => true,
            end => {
                self.status = end.ok();
                self.receiver = None;
                false
            }
        }
    }

    /// The status; `None` if there is none, because the upstream does not respond for example.
    pub(crate) async fn status(&mut self) -> Option<StatusCode> {
        if let Some(receiver) = self.receiver.take() {
            self.status = receiver.await.ok();
        }
        self.status
    }

    /// The body, once the client has it; `None` if it is not read, or not whole.
    pub(crate) async fn body(&mut self) -> Option<CountedReply> {
        self.body.take()?.await.ok()
    }
}

/// What the body of an answer says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AnsweredObject {
    /// The version of the object after the request; none if it does not say that.
    pub(crate) version: Option<u64>,
    /// Whether it is a `Status`.
    pub(crate) is_status: bool,
    /// Its reason.
    pub(crate) reason: String,
    /// Whether it says which fields of the object are invalid.
    pub(crate) is_validation: bool,
    /// Whether it says that the user has no permission, and not that an admission plugin forbids it.
    pub(crate) is_unauthorized: bool,
    /// The UID of the object.
    pub(crate) uid: String,
}

/// What every object has. A custom resource may have any other member, with any meaning.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnsweredBody {
    api_version: String,
    kind: String,
    metadata: AnsweredMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredStatus {
    reason: String,
    message: String,
    details: AnsweredDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredTable {
    rows: Vec<AnsweredRow>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredDetails {
    uid: String,
    causes: Vec<AnsweredCause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredCause {
    field: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredRow {
    object: Option<AnsweredPart>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredPart {
    metadata: AnsweredMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnsweredMetadata {
    resource_version: String,
    uid: String,
}

impl AnsweredObject {
    /// What a body in JSON or protobuf says; nothing if it is another one, or compressed.
    pub(crate) fn read(body: &Bytes, facts: &WriteFacts) -> Self {
        if !body.starts_with(&envelope::PREFIX) {
            return Self::of_json(body);
        }
        let decoded = of_protobuf(body, facts);
        decoded.map_or_else(Self::default, |value| {
            Self::of_json(value.to_string().as_bytes())
        })
    }

    fn of_json(text: &[u8]) -> Self {
        let head: AnsweredBody = read_part(text);
        if (&*head.api_version, &*head.kind) == ("v1", "Status") {
            let AnsweredStatus {
                reason,
                message,
                details,
            } = read_part(text);
            // As servers write it: `pods is forbidden: User "bob" cannot create resource "pods" in ...`.
            let is_of_authorizer =
                |(_, why): (&str, &str)| why.starts_with("User \"") && why.contains("\" cannot ");
            return Self {
                is_unauthorized: reason == "Forbidden"
                    && message
                        .split_once(" forbidden: ")
                        .is_some_and(is_of_authorizer),
                version: None,
                is_status: true,
                reason,
                is_validation: details.causes.iter().any(|cause| !cause.field.is_empty()),
                uid: details.uid,
            };
        }
        let is_table = head.kind == "Table" && head.api_version.starts_with("meta.k8s.io/");
        let metadata = if is_table {
            let AnsweredTable { rows } = read_part(text);
            let object = rows.into_iter().next().and_then(|row| row.object);
            object.unwrap_or_default().metadata
        } else {
            head.metadata
        };
        let version = metadata.resource_version.parse().ok();
        Self {
            version: version.filter(|version| *version > 0),
            uid: metadata.uid,
            ..Self::default()
        }
    }
}

/// Some members of an object in JSON; none if they cannot be read.
fn read_part<T: Default + DeserializeOwned>(text: &[u8]) -> T {
    serde_json::from_slice(text).unwrap_or_default()
}

fn of_protobuf(body: &[u8], facts: &WriteFacts) -> Option<Value> {
    let opened = envelope::open(body).ok()?;
    if opened.kind != "Status" {
        return objects::decode(BodyFormat::Protobuf, body, facts, Fidelity::AsSent).ok();
    }
    let mut status = protobuf::decode(&meta_v1::STATUS, opened.raw).ok()?;
    if let Some(members) = status.as_object_mut() {
        members.insert("apiVersion".to_owned(), opened.api_version.into());
        members.insert("kind".to_owned(), opened.kind.into());
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> AnsweredObject {
        AnsweredObject::of_json(body.to_string().as_bytes())
    }

    #[test]
    fn members_of_a_custom_resource_are_taken_for_no_table_and_no_status() {
        let metadata = json!({"resourceVersion": "7", "uid": "u"});
        let forged = json!([{"object": {"metadata": {"resourceVersion": "18446744073709551615"}}}]);
        for others in [
            json!({"rows": forged, "reason": "AlreadyExists"}),
            json!({"kind": "Table", "rows": forged}),
            json!({"kind": "Status", "details": {"uid": "other"}}),
            json!({"rows": 1, "reason": {}, "details": []}),
        ] {
            let mut body =
                json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata});
            for (key, value) in others.as_object().unwrap() {
                body[key] = value.clone();
            }
            let expected = AnsweredObject {
                version: Some(7),
                uid: "u".to_owned(),
                ..AnsweredObject::default()
            };
            assert_eq!(read(&body), expected, "{body}");
        }
        let table = json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {"resourceVersion": "9"},
            "rows": [{"cells": [1], "object": {"metadata": metadata}}]});
        assert_eq!(read(&table).version, Some(7));
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "reason": "Invalid",
            "details": {"uid": "u", "causes": [{"field": "spec"}]}});
        let status = read(&status);
        assert!(status.is_status && status.is_validation && status.version.is_none());
        assert_eq!((&*status.reason, &*status.uid), ("Invalid", "u"));
    }
}
