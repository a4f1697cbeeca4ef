//! Makes writes conditional on the stored object by which they were judged (`admission.guard`).
//!
//! Without that, somebody else may change the object between the judgement and the write, which then does what no policy
//! has seen. A guarded write fails in this case with 409, and is judged again.
//!
//! Not guarded, because the API has no condition for it: that an object does not exist yet, and deletions of collections.

use bytes::Bytes;
use fairgate_objects::codec::{
    BodyFormat, envelope, json,
    request_document::{insert_text, prepend},
};
use serde_json::{Value, json};

use crate::{
    objects::{self, PatchFormat},
    options::QueryParameters,
    write_request::WriteVerb,
};

/// How often a request is judged again because its object has changed.
pub(crate) const MAX_RETRIES: u32 = 5;
/// The longest resource version that can be inserted; those of etcd have 19 digits.
const MAX_VERSION: usize = 100;

/// The stored object that a request was judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JudgedVersion {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// What keeps a write from changing another object than the judged one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// The client's own condition, on this resource version.
    OfClient(String),
    /// This body, with this content type if it is not that of the request.
    Inserted(Bytes, Option<&'static str>),
    /// The body is not understood.
    Unreadable,
    /// Nothing: the object has no version, or there is none.
    None,
}

impl JudgedVersion {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |key: &str| {
            object["metadata"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }
    }

    /// The condition of a write with this body.
    pub(crate) fn condition(
        &self,
        verb: WriteVerb,
        content_type: &str,
        body: &Bytes,
        query: &QueryParameters,
    ) -> WriteCondition {
        let length = self.resource_version.len();
        if length == 0 || length > MAX_VERSION {
            return WriteCondition::None;
        }
        let condition = match verb {
            WriteVerb::Update => self.in_object(objects::body_format(content_type).ok(), body),
            WriteVerb::Patch => match objects::patch_format(content_type) {
                Ok(PatchFormat::Json) => self.in_json_patch(body),
                Ok(PatchFormat::Merge | PatchFormat::Strategic | PatchFormat::Apply) => {
                    self.in_document(body)
                }
                Err(_) => None,
            },
            WriteVerb::Delete => self.in_options(content_type, body, query),
            WriteVerb::Create | WriteVerb::DeleteCollection | WriteVerb::Connect => {
                return WriteCondition::None;
            }
        };
        condition.unwrap_or(WriteCondition::Unreadable)
    }

    fn in_object(&self, format: Option<BodyFormat>, body: &[u8]) -> Option<WriteCondition> {
        match format? {
            BodyFormat::Json => self.in_document(body),
            // The body of a write is JSON once it was read.
            BodyFormat::Yaml => None,
            BodyFormat::Protobuf => self.in_protobuf(body),
        }
    }

    fn in_document(&self, body: &[u8]) -> Option<WriteCondition> {
        let object = undoubled(body).filter(Value::is_object)?;
        match object["metadata"]["resourceVersion"].as_str() {
            Some(version) if !version.is_empty() => {
                Some(WriteCondition::OfClient(version.to_owned()))
            }
            _ => {
                let path = ["metadata", "resourceVersion"];
                let body = insert_text(body, &path, &self.resource_version)?;
                Some(WriteCondition::Inserted(body.into(), None))
            }
        }
    }

    /// A message that occurs twice is merged, so that the version can be appended.
    fn in_protobuf(&self, body: &[u8]) -> Option<WriteCondition> {
        const METADATA: u8 = 0x0a;
        const RESOURCE_VERSION: u8 = 0x32;
        let opened = envelope::open(body).ok()?;
        let version = self.resource_version.as_bytes();
        let length = u8::try_from(version.len()).ok()?;
        let mut message = opened.raw.to_vec();
        message.extend([METADATA, length + 2, RESOURCE_VERSION, length]);
        message.extend(version);
        let body = envelope::seal(&opened.api_version, &opened.kind, &message);
        Some(WriteCondition::Inserted(body.into(), None))
    }

    /// An operation that comes first: a version that the patch itself sets later is the client's own condition.
    fn in_json_patch(&self, body: &[u8]) -> Option<WriteCondition> {
        undoubled(body)?;
        let version = &self.resource_version;
        let first = json!({"op": "add", "path": "/metadata/resourceVersion", "value": version});
        let body = prepend(body, &first.to_string())?;
        Some(WriteCondition::Inserted(body.into(), None))
    }

    fn in_options(
        &self,
        content_type: &str,
        body: &[u8],
        query: &QueryParameters,
    ) -> Option<WriteCondition> {
        // Options in a body are all that counts.
        let mut options = if body.is_empty() {
            query.delete_options()
        } else {
            objects::delete_options(content_type, body).ok()?
        };
        options["apiVersion"] = json!("meta.k8s.io/v1");
        options["kind"] = json!("DeleteOptions");
        let own = &options["preconditions"]["resourceVersion"];
        if let Some(version) = own.as_str().filter(|version| !version.is_empty()) {
            return Some(WriteCondition::OfClient(version.to_owned()));
        }
        options["preconditions"]["resourceVersion"] = json!(self.resource_version);
        if options["preconditions"]["uid"].is_null() && !self.uid.is_empty() {
            options["preconditions"]["uid"] = json!(self.uid);
        }
        let body = options.to_string().into();
        Some(WriteCondition::Inserted(body, Some("application/json")))
    }
}

/// The value of a text without duplicate members: of those, servers differ in which counts.
fn undoubled(body: &[u8]) -> Option<Value> {
    let read = json::parse(body).ok()?;
    read.duplicates.is_empty().then_some(read.value)
}

#[cfg(test)]
mod tests {
    use fairgate_objects::{codec::protobuf, schema::core_v1};

    use super::*;

    const JSON: &str = "application/json";

    fn condition(verb: WriteVerb, content_type: &str, body: &str, query: &str) -> WriteCondition {
        let judged = JudgedVersion {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
        };
        let body = Bytes::from(body.to_owned());
        judged.condition(verb, content_type, &body, &QueryParameters::parse(query))
    }

    fn inserted(verb: WriteVerb, content_type: &str, body: &str) -> Value {
        match condition(verb, content_type, body, "gracePeriodSeconds=5&dryRun=All") {
            WriteCondition::Inserted(body, _) => serde_json::from_slice(&body).unwrap(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn the_version_is_inserted_where_the_client_has_none() {
        let with = json!({"metadata": {"name": "m", "resourceVersion": "7"}});
        let body = r#"{"metadata": {"name": "m"}}"#;
        assert_eq!(inserted(WriteVerb::Update, JSON, body), with);
        let empty = r#"{"metadata": {"name": "m", "resourceVersion": ""}}"#;
        assert_eq!(inserted(WriteVerb::Update, JSON, empty), with);
        let apply = "application/apply-patch+yaml";
        assert_eq!(inserted(WriteVerb::Patch, apply, empty), with);
        let merge = "application/merge-patch+json";
        let only = json!({"metadata": {"resourceVersion": "7"}});
        for body in ["{}", r#"{"metadata": null}"#] {
            assert_eq!(inserted(WriteVerb::Patch, merge, body), only);
        }
        let patch = "application/json-patch+json";
        assert_eq!(
            inserted(
                WriteVerb::Patch,
                patch,
                r#"[{"op":"remove","path":"/data"}]"#
            ),
            json!([{"op": "add", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "remove", "path": "/data"}])
        );
    }

    #[test]
    fn deletions_keep_their_options() {
        let preconditions = json!({"uid": "u", "resourceVersion": "7"});
        assert_eq!(
            inserted(WriteVerb::Delete, "", ""),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "dryRun": ["All"],
                "gracePeriodSeconds": 5, "preconditions": preconditions})
        );
        // The query does not count beside a body.
        let body = r#"{"preconditions": {"uid": "w"}, "propagationPolicy": "Orphan"}"#;
        assert_eq!(
            inserted(WriteVerb::Delete, JSON, body),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
                "propagationPolicy": "Orphan",
                "preconditions": {"uid": "w", "resourceVersion": "7"}})
        );
    }

    #[test]
    fn a_message_in_protobuf_gets_the_version_and_keeps_the_rest() {
        let object = json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"k": "v"}});
        let sealed = protobuf::encode(&core_v1::CONFIG_MAP, &object);
        let body = Bytes::from(envelope::seal("v1", "ConfigMap", &sealed));
        let judged = JudgedVersion {
            resource_version: "7".to_owned(),
            ..JudgedVersion::default()
        };
        let query = QueryParameters::parse("");
        let media = "application/vnd.kubernetes.protobuf";
        let WriteCondition::Inserted(body, None) =
            judged.condition(WriteVerb::Update, media, &body, &query)
        else {
            panic!("not inserted");
        };
        let opened = envelope::open(&body).unwrap();
        let read = protobuf::decode(&core_v1::CONFIG_MAP, opened.raw).unwrap();
        assert_eq!(read["metadata"]["resourceVersion"], "7");
        assert_eq!(read["metadata"]["labels"], object["metadata"]["labels"]);
        assert_eq!(
            (&read["metadata"]["name"], &read["data"]),
            (&json!("m"), &object["data"])
        );
    }

    #[test]
    fn the_clients_own_condition_stays_and_bad_bodies_have_none() {
        let own = r#"{"metadata": {"resourceVersion": "6"}}"#;
        let options = r#"{"preconditions": {"resourceVersion": "6"}}"#;
        for (verb, body) in [(WriteVerb::Update, own), (WriteVerb::Delete, options)] {
            let found = condition(verb, JSON, body, "");
            assert_eq!(found, WriteCondition::OfClient("6".to_owned()));
        }
        for body in [
            "",
            "{",
            "[]",
            r#"{"metadata": 1}"#,
            r#"{"metadata": {}, "metadata": {}}"#,
        ] {
            let found = condition(WriteVerb::Update, JSON, body, "");
            assert_eq!(found, WriteCondition::Unreadable, "{body}");
        }
        let created = condition(WriteVerb::Create, JSON, "{}", "");
        assert_eq!(created, WriteCondition::None);
    }
}
