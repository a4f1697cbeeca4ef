//! Makes writes conditional on the stored object by which they were evaluated (`admission.guard`).
//!
//! Without that, somebody else may change the object between the evaluation and the write, which then does what no policy
//! has seen. A guarded write fails in this case with 409, and is evaluated again.
//!
//! A client that states a version has a condition of its own, but not with a version that the server ignores, such as `0`. One
//! that is not the evaluated version is a conflict: forwarded, the write would succeed if the object got that version meanwhile.
//!
//! Not here: writes of objects that do not exist (`absent`), and deletions of collections (`collection_guard`).

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_apihttp::content_type::{PatchType, patch_type};
use fairgate_objects::codec::{
    BodyFormat, envelope, json,
    request_document::{enclose, insert_text},
};
use serde_json::{Value, json};

use crate::{
    object::objects, request::facts::WriteFacts, request::json_patch_version::PatchedVersion,
    request::options::QueryParameters, request::write_request::WriteVerb,
};

/// How often a request is evaluated again because its object has changed.
pub(crate) const MAX_RETRIES: u32 = 5;
/// The longest resource version that can be inserted; those of etcd have 19 digits.
const MAX_VERSION: usize = 100;
/// A version that no stored object has. A server-side apply with it creates an object, and changes none.
const NO_VERSION: &str = "9223372036854775807";

/// The stored object that a request was evaluated by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvaluatedVersion {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// An object of a collection whose deletion is evaluated.
#[derive(Clone, Debug)]
pub(crate) struct EvaluatedItem {
    pub(crate) name: String,
    pub(crate) version: EvaluatedVersion,
}

impl EvaluatedItem {
    pub(crate) fn of(object: &Value) -> Self {
        Self {
            name: objects::name_of(object).to_owned(),
            version: EvaluatedVersion::of(object),
        }
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [
            &self.name,
            &self.version.uid,
            &self.version.resource_version,
        ];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// A body that is conditional, and its content type if that is not the one of the request.
pub(crate) type ConditionalBody = (Bytes, Option<&'static str>);

/// What keeps a write from changing another object than the evaluated one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// The client's own condition, which is the evaluated version; with this body if that says more.
    OfClient(Option<ConditionalBody>),
    /// The client's own condition is another version.
    OtherVersion,
    /// This body.
    Inserted(ConditionalBody),
    /// The body is not understood.
    Unreadable,
    /// Nothing: the object has no version, or there is none.
    None,
}

impl EvaluatedVersion {
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

    /// That of an object that does not exist.
    pub(crate) fn absent() -> Self {
        Self {
            uid: String::new(),
            resource_version: NO_VERSION.to_owned(),
        }
    }

    /// The condition of a write with this body.
    pub(crate) fn condition(
        &self,
        facts: &WriteFacts,
        content_type: &str,
        body: &Bytes,
        query: &QueryParameters,
    ) -> WriteCondition {
        let length = self.resource_version.len();
        if length == 0 || length > MAX_VERSION {
            return WriteCondition::None;
        }
        let condition = match facts.verb {
            WriteVerb::Update => self.in_object(facts, content_type, body),
            WriteVerb::Patch => match patch_type(content_type) {
                Ok(PatchType::Json) => self.in_json_patch(body),
                Ok(PatchType::Merge | PatchType::Strategic) => self.in_patch(body),
                // An apply creates the object if it is gone, unless it states the UID.
                Ok(PatchType::Apply) => self.in_document(body, true),
                Err(_) => None,
            },
            WriteVerb::Delete => self.in_options(content_type, body, query),
            WriteVerb::Create | WriteVerb::DeleteCollection | WriteVerb::Connect => {
                return WriteCondition::None;
            }
        };
        condition.unwrap_or(WriteCondition::Unreadable)
    }

    fn in_object(
        &self,
        facts: &WriteFacts,
        content_type: &str,
        body: &[u8],
    ) -> Option<WriteCondition> {
        // A PUT of some kinds creates the object if it is gone, unless it states the UID.
        let with_uid = facts.subresource.is_empty();
        match objects::body_format(content_type).ok()? {
            BodyFormat::Json => self.in_document(body, with_uid),
            // The body of a write is JSON once it was read.
            BodyFormat::Yaml => None,
            BodyFormat::Protobuf => self.in_protobuf(facts, body, with_uid),
        }
    }

    /// A merge patch, or a strategic one. One that removes all metadata would be another patch with a version in them.
    fn in_patch(&self, body: &[u8]) -> Option<WriteCondition> {
        let patch = json_object(body)?;
        let has_metadata = patch.get("metadata").is_none_or(Value::is_object);
        has_metadata.then_some(())?;
        self.in_document(body, false)
    }

    /// An object in JSON, or a patch of that form. All else in it keeps its text.
    fn in_document(&self, body: &[u8], with_uid: bool) -> Option<WriteCondition> {
        let object = json_object(body)?;
        let metadata = &object["metadata"];
        let needs_uid = match &metadata["uid"] {
            Value::Null => true,
            Value::String(uid) => uid.is_empty(),
            _ => return None,
        };
        let needs_uid = with_uid && needs_uid && !self.uid.is_empty();
        let stated = self.stated(metadata.get("resourceVersion"))?;
        if stated == Stated::EvaluationEnd && !needs_uid {
            return Some(WriteCondition::OfClient(None));
        }
        let version = ["metadata", "resourceVersion"];
        let mut body = insert_text(body, &version, &self.resource_version)?;
        if needs_uid {
            body = insert_text(&body, &["metadata", "uid"], &self.uid)?;
        }
        Some(stated.with((body.into(), None)))
    }

    fn in_protobuf(
        &self,
        facts: &WriteFacts,
        body: &[u8],
        with_uid: bool,
    ) -> Option<WriteCondition> {
        const RESOURCE_VERSION: u32 = 6;
        const UID: u32 = 5;
        let read = objects::decode(BodyFormat::Protobuf, body, facts, Fidelity::AsSent).ok()?;
        let own = &read["metadata"];
        let stated = self.stated(own.get("resourceVersion"))?;
        let mut fields = vec![(RESOURCE_VERSION, &*self.resource_version)];
        if with_uid && own["uid"].as_str().is_none_or(str::is_empty) && !self.uid.is_empty() {
            fields.push((UID, &*self.uid));
        }
        let body = envelope::with_metadata(body, &fields).ok()?;
        Some(stated.with((body.into(), None)))
    }

    /// The version stands first, so that the patch sees the evaluated one, and last, so that the patch cannot change it.
    fn in_json_patch(&self, body: &[u8]) -> Option<WriteCondition> {
        let Value::Array(operations) = undoubled(body)? else {
            return None;
        };
        let set = |operation: &str| json!({"op": operation, "path": "/metadata/resourceVersion", "value": self.resource_version});
        let (stated, last) = match PatchedVersion::after(&operations) {
            PatchedVersion::Unchanged | PatchedVersion::Removed => (Stated::Nothing, "add"),
            PatchedVersion::Set(version) => (self.stated(Some(&json!(version)))?, "add"),
            // Only the server knows it: it must be the evaluated one.
            PatchedVersion::Unknown => (Stated::Nothing, "test"),
        };
        let [first, last] = ["add", last].map(|operation| set(operation).to_string());
        let body = enclose(body, &first, &last)?;
        Some(stated.with((body.into(), None)))
    }

    /// What a client says of the version; `None` if that is no text.
    fn stated(&self, version: Option<&Value>) -> Option<Stated> {
        let version = match version {
            None | Some(Value::Null) => "",
            Some(version) => version.as_str()?,
        };
        // kube-apiserver reads versions as numbers, and takes 0 for none.
        let number = |text: &str| text.parse::<u64>().ok();
        let is_nothing = version.is_empty() || number(version) == Some(0);
        // An apply of an object that does not exist creates it, whatever version it states.
        if is_nothing || self.resource_version == NO_VERSION {
            return Some(Stated::Nothing);
        }
        let evaluated = &self.resource_version;
        let is_evaluated = version == evaluated
            || number(version).is_some() && number(version) == number(evaluated);
        Some(if is_evaluated {
            Stated::EvaluationEnd
        } else {
            Stated::Other
        })
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
        // Preconditions are texts, and those that are there count, also empty ones.
        let own = &options["preconditions"]["resourceVersion"];
        if !own.is_null() && own != self.resource_version.as_str() {
            return Some(WriteCondition::OtherVersion);
        }
        options["preconditions"]["resourceVersion"] = json!(self.resource_version);
        if options["preconditions"]["uid"].is_null() && !self.uid.is_empty() {
            options["preconditions"]["uid"] = json!(self.uid);
        }
        let body = options.to_string().into();
        Some(WriteCondition::Inserted((body, Some("application/json"))))
    }
}

/// What a client says of the version of the object that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stated {
    /// Nothing, or what the server ignores.
    Nothing,
    /// It is the evaluated one.
    EvaluationEnd,
    /// It is another one.
    Other,
}

impl Stated {
    /// The condition of a write with this body, which has the evaluated version.
    fn with(self, body: ConditionalBody) -> WriteCondition {
        match self {
            Self::Nothing => WriteCondition::Inserted(body),
            Self::EvaluationEnd => WriteCondition::OfClient(Some(body)),
            Self::Other => WriteCondition::OtherVersion,
        }
    }
}

fn json_object(body: &[u8]) -> Option<Value> {
    undoubled(body).filter(Value::is_object)
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
    const MERGE: &str = "application/merge-patch+json";
    const JSON_PATCH: &str = "application/json-patch+json";
    const APPLY: &str = "application/apply-patch+yaml";

    fn facts(verb: WriteVerb) -> WriteFacts {
        let write = crate::request::write_request::ForwardedWrite {
            operation: fairgate_admission::AdmissionOperation::Update,
            resource: fairgate_admission::GroupVersionResource {
                group: "",
                version: "v1",
                resource: "configmaps",
            },
            subresource: "",
            namespace: "ns",
            name: "m",
            verb,
        };
        let user = std::sync::Arc::new(fairgate_core::digest::User::new("alice", ["devs"]));
        let mut facts = WriteFacts::new(&write, &user, None);
        facts.set_kind("v1", "ConfigMap");
        facts
    }

    fn evaluated() -> EvaluatedVersion {
        EvaluatedVersion {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
        }
    }

    fn condition(verb: WriteVerb, content_type: &str, body: &str, query: &str) -> WriteCondition {
        let body = Bytes::from(body.to_owned());
        let query = QueryParameters::parse(query);
        evaluated().condition(&facts(verb), content_type, &body, &query)
    }

    fn inserted(verb: WriteVerb, content_type: &str, body: &str) -> Value {
        match condition(verb, content_type, body, "gracePeriodSeconds=5&dryRun=All") {
            WriteCondition::Inserted((body, _)) => serde_json::from_slice(&body).unwrap(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn the_version_is_inserted_where_the_client_has_none() {
        let with = json!({"metadata": {"name": "m", "resourceVersion": "7", "uid": "u"}});
        for stated in ["", r#","resourceVersion":"""#, r#","resourceVersion":"0""#] {
            let body = format!(r#"{{"metadata":{{"name":"m"{stated}}}}}"#);
            assert_eq!(inserted(WriteVerb::Update, JSON, &body), with);
            assert_eq!(inserted(WriteVerb::Patch, APPLY, &body), with);
            let patched = json!({"metadata": {"name": "m", "resourceVersion": "7"}});
            assert_eq!(inserted(WriteVerb::Patch, MERGE, &body), patched);
        }
        let zeros = r#"{"metadata": {"name": "m", "uid": "", "resourceVersion": "000"}}"#;
        assert_eq!(inserted(WriteVerb::Update, JSON, zeros), with);
        let only = json!({"metadata": {"resourceVersion": "7"}});
        assert_eq!(inserted(WriteVerb::Patch, MERGE, "{}"), only);
        // That patch removes all labels, and with a version in it would keep them.
        let removed = condition(WriteVerb::Patch, MERGE, r#"{"metadata": null}"#, "");
        assert_eq!(removed, WriteCondition::Unreadable);
    }

    #[test]
    fn a_json_patch_cannot_change_the_version() {
        let path = "/metadata/resourceVersion";
        let set = |op: &str| json!({"op": op, "path": path, "value": "7"});
        for operation in [
            json!({"op": "remove", "path": "/data"}),
            json!({"op": "add", "path": path, "value": "0"}),
            json!({"op": "add", "path": path, "value": ""}),
            json!({"op": "remove", "path": path}),
            json!({"op": "replace", "path": "/metadata", "value": {"name": "m"}}),
        ] {
            let body = json!([operation]).to_string();
            let expected = json!([set("add"), operation, set("add")]);
            assert_eq!(inserted(WriteVerb::Patch, JSON_PATCH, &body), expected);
        }
        let copied = json!({"op": "copy", "from": "/data/v", "path": path});
        let expected = json!([set("add"), copied, set("test")]);
        let body = json!([copied]).to_string();
        assert_eq!(inserted(WriteVerb::Patch, JSON_PATCH, &body), expected);
        let own = |version: &str| {
            let body = json!([{"op": "replace", "path": path, "value": version}]).to_string();
            condition(WriteVerb::Patch, JSON_PATCH, &body, "")
        };
        assert_eq!(own("8"), WriteCondition::OtherVersion);
        assert!(matches!(own("7"), WriteCondition::OfClient(Some(_))));
    }

    #[test]
    fn an_apply_of_an_absent_object_changes_none() {
        let query = QueryParameters::parse("");
        for stated in ["", r#","resourceVersion":"0""#, r#","resourceVersion":"8""#] {
            let body = Bytes::from(format!(r#"{{"metadata":{{"name":"m"{stated}}}}}"#));
            let facts = facts(WriteVerb::Patch);
            let found = EvaluatedVersion::absent().condition(&facts, APPLY, &body, &query);
            let WriteCondition::Inserted((body, None)) = found else {
                panic!("{found:?}");
            };
            let body: Value = serde_json::from_slice(&body).unwrap();
            let expected = json!({"metadata": {"name": "m", "resourceVersion": NO_VERSION}});
            assert_eq!(body, expected);
        }
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
        let media = "application/vnd.kubernetes.protobuf";
        let condition = |version: &str| {
            let object = json!({"metadata": {"name": "m", "labels": {"a": "b"}, "resourceVersion": version},
                "data": {"k": "v"}});
            let sealed = protobuf::encode(&core_v1::CONFIG_MAP, &object);
            let body = Bytes::from(envelope::seal("v1", "ConfigMap", &sealed));
            let query = QueryParameters::parse("");
            evaluated().condition(&facts(WriteVerb::Update), media, &body, &query)
        };
        for version in ["", "0"] {
            let WriteCondition::Inserted((body, None)) = condition(version) else {
                panic!("not inserted");
            };
            let opened = envelope::open(&body).unwrap();
            let read = protobuf::decode(&core_v1::CONFIG_MAP, opened.raw).unwrap();
            let metadata =
                json!({"name": "m", "labels": {"a": "b"}, "resourceVersion": "7", "uid": "u"});
            for (key, value) in metadata.as_object().unwrap() {
                assert_eq!(&read["metadata"][key], value);
            }
            assert_eq!(read["data"], json!({"k": "v"}));
        }
        assert!(matches!(condition("7"), WriteCondition::OfClient(Some(_))));
        assert_eq!(condition("6"), WriteCondition::OtherVersion);
    }

    #[test]
    fn the_clients_own_condition_stays_and_bad_bodies_have_none() {
        let own = r#"{"metadata": {"resourceVersion": "6"}}"#;
        let options = r#"{"preconditions": {"resourceVersion": "6"}}"#;
        for (verb, body) in [(WriteVerb::Update, own), (WriteVerb::Delete, options)] {
            assert_eq!(
                condition(verb, JSON, body, ""),
                WriteCondition::OtherVersion
            );
        }
        let own = r#"{"metadata": {"resourceVersion": "7", "uid": "w"}}"#;
        let found = condition(WriteVerb::Update, JSON, own, "");
        assert_eq!(found, WriteCondition::OfClient(None));
        // Without a UID, it might create the object again.
        let own = r#"{"metadata": {"resourceVersion": "007"}}"#;
        let WriteCondition::OfClient(Some((body, None))) =
            condition(WriteVerb::Update, JSON, own, "")
        else {
            panic!("without a body");
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            json!({"metadata": {"resourceVersion": "7", "uid": "u"}})
        );
        for body in [
            "",
            "{",
            "[]",
            r#"{"metadata": 1}"#,
            r#"{"metadata": {}, "metadata": {}}"#,
            r#"{"metadata": {"resourceVersion": 0}}"#,
            r#"{"metadata": {"uid": 0}}"#,
        ] {
            let found = condition(WriteVerb::Update, JSON, body, "");
            assert_eq!(found, WriteCondition::Unreadable, "{body}");
        }
        let created = condition(WriteVerb::Create, JSON, "{}", "");
        assert_eq!(created, WriteCondition::None);
    }
}
