//! The bodies of requests: objects that an API server accepts, of the size that the scenario says.
//!
//! A server stores nothing if an update changes nothing. So each request carries another number, which [`LoadBody::numbered`]
//! puts into the finished body.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value, json};

use super::{RequestSpec, kinds::WrittenKind};
use fairgate_core::digest::RequestInfo;

/// Stands for the filling until the rest of the object is known.
const MARK: &str = "fairgate-loadtest-filling";
/// The digits of a request's number.
const DIGITS: usize = 16;

/// The label of everything that load tests write.
pub(crate) const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "fairgate-loadtest");

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadBody {
    bytes: Bytes,
    pub(crate) media_type: Option<&'static str>,
    /// In an object, where the filling is, which begins with the number of the request.
    filling: Range<usize>,
}

impl LoadBody {
    /// The body of `request` to `info`, which is its path with the number of the user.
    pub(crate) fn of(request: &RequestSpec, info: &RequestInfo) -> Self {
        let size = request.body_bytes as usize;
        match (info.verb.as_str(), &request.written) {
            ("create" | "update", Some(kind)) => {
                Self::object(object(kind, info), kind, size, "application/json")
            }
            ("patch", Some(kind)) => {
                let patch = Value::Object(substituted(&kind.patch, info));
                Self::object(patch, kind, size, "application/merge-patch+json")
            }
            ("delete" | "deletecollection", _) if size > 0 => {
                // Blanks after a JSON value belong to it.
                let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"}).to_string();
                options += &" ".repeat(size.saturating_sub(options.len()));
                Self::plain(options)
            }
            _ if size > 0 => Self::plain(" ".repeat(size)),
            _ => Self {
                bytes: Bytes::new(),
                media_type: None,
                filling: 0..0,
            },
        }
    }

    fn plain(text: String) -> Self {
        Self {
            bytes: text.into(),
            media_type: Some("application/json"),
            filling: 0..0,
        }
    }

    /// `object` with as much filling as it takes to make it `size` bytes, but at least the number.
    fn object(
        mut object: Value,
        kind: &WrittenKind,
        size: usize,
        media_type: &'static str,
    ) -> Self {
        *place(&mut object, &kind.filling) = MARK.into();
        let text = object.to_string();
        let (before, after) = text.split_once(MARK).unwrap_or((&text, ""));
        let filling = size.saturating_sub(before.len() + after.len()).max(DIGITS);
        let text = ["x".repeat(filling), after.to_owned()].concat();
        Self {
            bytes: format!("{before}{text}").into(),
            media_type: Some(media_type),
            filling: before.len()..before.len() + filling,
        }
    }

    /// The bytes of text that make the object as large as it should be.
    pub(crate) fn filling(&self) -> usize {
        self.filling.len()
    }

    /// The body of the request with this number.
    pub(crate) fn numbered(&self, number: u64) -> Bytes {
        if self.filling.is_empty() {
            return self.bytes.clone();
        }
        let mut bytes = BytesMut::from(&*self.bytes);
        let at = self.filling.start;
        bytes[at..at + DIGITS].copy_from_slice(format!("{number:016x}").as_bytes());
        bytes.freeze()
    }
}

/// The object of `kind` at the path of `info`, of `size` bytes or more.
pub(crate) fn sized_object(kind: &WrittenKind, info: &RequestInfo, size: usize) -> Value {
    let mut object = object(kind, info);
    *place(&mut object, &kind.filling) = "".into();
    let filling = size.saturating_sub(object.to_string().len());
    *place(&mut object, &kind.filling) = "x".repeat(filling.min(kind.most_filling())).into();
    object
}

/// An object of `kind` for a write to `info`: what is at its path, or one with a name that the server gives.
pub(crate) fn object(kind: &WrittenKind, info: &RequestInfo) -> Value {
    let mut object = substituted(&kind.object, info);
    let of_path = || match info.group() {
        b"" => text(info.version()),
        group => format!("{}/{}", text(group), text(info.version())),
    };
    let api_version = kind.api_version.clone().unwrap_or_else(of_path);
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.kind.clone().into());
    if kind.bare {
        return object.into();
    }
    let mut object = Value::Object(object);
    let metadata = &mut object["metadata"];
    metadata["labels"][LABEL.0] = LABEL.1.into();
    if info.name().is_empty() {
        metadata["generateName"] = "loadtest-".into();
    } else {
        metadata["name"] = text(info.name()).into();
    }
    if !kind.cluster_scoped && !info.namespace().is_empty() {
        metadata["namespace"] = text(info.namespace()).into();
    }
    object
}

/// `object` with the namespace of the path where its texts say `{namespace}`.
fn substituted(object: &Map<String, Value>, info: &RequestInfo) -> Map<String, Value> {
    let namespace = text(info.namespace());
    let value = |value: &Value| substitute(value, &namespace);
    object
        .iter()
        .map(|(key, inner)| (key.clone(), value(inner)))
        .collect()
}

fn substitute(value: &Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => text.replace("{namespace}", namespace).into(),
        Value::Array(items) => items
            .iter()
            .map(|item| substitute(item, namespace))
            .collect(),
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, inner)| (key.clone(), substitute(inner, namespace)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}

/// The value at a JSON pointer; mappings that are missing are made.
fn place<'a>(object: &'a mut Value, pointer: &str) -> &'a mut Value {
    let keys = pointer.split('/').skip(1);
    keys.fold(object, |value, key| {
        // An index makes a mapping of null only.
        if !value.is_object() {
            *value = json!({});
        }
        &mut value[key.replace("~1", "/")]
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, parse};

    /// The requests of a scenario with this mix.
    fn requests(mix: &str) -> Vec<RequestSpec> {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\nkind: Scenario\ntitle: Bodies\nclients:\n- name: a\n  \
             load: {{closed: {{threads: 1}}}}\n  requests: {mix}\nexpect: [all.errors == 0]\n"
        );
        let scenario: Scenario = parse("s.yaml", "s", text.as_bytes()).usable().unwrap();
        scenario.clients.into_iter().next().unwrap().requests
    }

    /// The body of the first request of a mix, for the second user.
    fn sent(mix: &str) -> (LoadBody, Value) {
        let request = requests(mix).swap_remove(0);
        let body = LoadBody::of(&request, &request.info_of(2));
        let value = serde_json::from_slice(&body.numbered(7)).unwrap();
        (body, value)
    }

    #[test]
    fn a_created_object_is_of_the_kind_of_the_path_and_as_large_as_asked_for() {
        let (body, value) =
            sent("[{verb: create, path: '/api/v1/namespaces/team-{user}/configmaps', body: 4Ki}]");
        assert_eq!(body.numbered(7).len(), 4096);
        assert_eq!(body.media_type, Some("application/json"));
        assert_eq!(
            (&value["apiVersion"], &value["kind"]),
            (&json!("v1"), &json!("ConfigMap"))
        );
        let expected = json!({
            "namespace": "team-2", "generateName": "loadtest-",
            "labels": {"app.kubernetes.io/managed-by": "fairgate-loadtest"},
        });
        assert_eq!(value["metadata"], expected);
        let filling = value["data"]["filling"].as_str().unwrap();
        assert!(filling.starts_with("0000000000000007xxx"), "{filling}");
    }

    #[test]
    fn an_update_names_its_object_and_a_patch_only_changes_it() {
        let deployment = "path: /apis/apps/v1/namespaces/a/deployments/d";
        let (_, value) = sent(&format!("[{{verb: update, {deployment}}}]"));
        assert_eq!(value["apiVersion"], "apps/v1");
        assert_eq!(value["metadata"]["name"], "d");
        assert_eq!(value["spec"]["replicas"], 0);
        let (body, value) = sent("[{verb: patch, path: /api/v1/namespaces/a/pods/p, body: 100}]");
        assert_eq!(body.media_type, Some("application/merge-patch+json"));
        assert_eq!(body.numbered(7).len(), 100);
        assert_eq!(
            value["metadata"]["annotations"].as_object().unwrap().len(),
            1
        );
        assert_eq!(value["metadata"]["name"], Value::Null);
        let (_, value) = sent("[{verb: update, path: /api/v1/nodes/n/status}]");
        assert_eq!(
            (&value["kind"], &value["metadata"]["namespace"]),
            (&json!("Node"), &Value::Null)
        );
        let (_, value) =
            sent("[{verb: update, path: /apis/apps/v1/namespaces/a/deployments/d/scale}]");
        assert_eq!(
            (&value["kind"], &value["apiVersion"]),
            (&json!("Scale"), &json!("autoscaling/v1"))
        );
    }

    #[test]
    fn every_request_has_another_number_and_the_same_size() {
        let (body, _) = sent("[{verb: patch, path: /api/v1/namespaces/a/secrets/s}]");
        let (one, other) = (body.numbered(1), body.numbered(u64::MAX));
        assert!(one != other && one.len() == other.len());
    }

    #[test]
    fn a_scenario_may_say_what_its_objects_are() {
        let widget = "{kind: Widget, spec: {owner: '{namespace}', sizes: [1, '{namespace}']}}";
        let (_, value) = sent(&format!(
            "[{{verb: create, path: /apis/example.com/v2/namespaces/a/widgets, object: {widget}}}]"
        ));
        assert_eq!(
            (&value["apiVersion"], &value["kind"]),
            (&json!("example.com/v2"), &json!("Widget"))
        );
        assert_eq!(value["spec"], json!({"owner": "a", "sizes": [1, "a"]}));
        let (_, value) = sent(
            "[{verb: patch, path: /apis/apps/v1/namespaces/a/deployments/d, object: {spec: {replicas: 3}}}]",
        );
        assert_eq!(value["spec"], json!({"replicas": 3}));
    }

    #[test]
    fn what_is_not_stored_has_no_metadata() {
        let (_, value) =
            sent("[{verb: create, path: /apis/authorization.k8s.io/v1/subjectaccessreviews}]");
        assert_eq!(value["metadata"], Value::Null);
        assert_eq!(value["spec"]["nonResourceAttributes"]["verb"], "get");
    }

    #[test]
    fn a_deletion_has_options_and_other_requests_blanks() {
        let (body, value) = sent("[{verb: delete, path: /api/v1/namespaces/a/pods/p, body: 500}]");
        assert_eq!(
            (body.numbered(7).len(), &value["kind"]),
            (500, &json!("DeleteOptions"))
        );
        let request = requests("[{path: /api/v1/namespaces/a/pods/p, body: 9}]").swap_remove(0);
        let body = LoadBody::of(&request, &request.info);
        assert_eq!(body.numbered(7), Bytes::from("         "));
        let request = requests("[{path: /api/v1/namespaces/a/pods/p}]").swap_remove(0);
        let body = LoadBody::of(&request, &request.info);
        assert_eq!((body.numbered(7), body.media_type), (Bytes::new(), None));
    }

    #[test]
    fn an_object_that_is_to_be_there_is_of_the_same_size() {
        let request = requests("[{path: /api/v1/namespaces/a/pods/p}]").swap_remove(0);
        let object = sized_object(request.written.as_ref().unwrap(), &request.info, 2000);
        assert_eq!(
            (object.to_string().len(), &object["metadata"]["name"]),
            (2000, &json!("p"))
        );
    }
}
