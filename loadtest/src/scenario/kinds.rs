//! The kinds of objects that writes can send: those of `kinds.yaml`, and what a scenario says itself.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use fairgate_core::digest::RequestInfo;
use fairgate_manifest::yaml;

/// Where the text is that makes an object large, unless its kind has a better place.
const ANNOTATION: &str = "/metadata/annotations/loadtest.fairgate.dev~1filling";

/// A kind of object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenKind {
    /// The resource of the path, with its subresource if the object is that of the subresource.
    #[serde(default)]
    resource: String,
    /// The group of the path.
    #[serde(default)]
    group: String,
    pub(crate) kind: String,
    /// If it is not the group and version of the path.
    pub(crate) api_version: Option<String>,
    /// What there is besides apiVersion, kind and metadata.
    #[serde(default)]
    pub(crate) object: Map<String, Value>,
    /// What a patch contains besides the filling: nothing unless the scenario says it.
    #[serde(skip)]
    pub(crate) patch: Map<String, Value>,
    /// Where the text is that makes the object as large as it should be, as a JSON pointer.
    #[serde(default = "annotation")]
    pub(crate) filling: String,
    /// Why a server refuses to replace an object by one that it has not returned.
    pub(crate) no_update: Option<String>,
    #[serde(default)]
    pub(crate) cluster_scoped: bool,
    /// It has no metadata, and is not stored.
    #[serde(default)]
    pub(crate) bare: bool,
}

static KINDS: LazyLock<Vec<WrittenKind>> = LazyLock::new(|| {
    let documents = yaml::documents(include_bytes!("kinds.yaml")).expect("kinds.yaml is YAML");
    let kinds = Value::Array(documents.into_iter().next().map_or_else(Vec::new, items));
    serde_json::from_value(kinds).expect("kinds.yaml has kinds")
});

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn annotation() -> String {
    ANNOTATION.to_owned()
}

impl WrittenKind {
    /// The kind of object that a write to the path of `info` sends; `None` if it is not known. An object's status is written
    /// as the whole object.
    pub(crate) fn of(info: &RequestInfo) -> Option<&'static Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (resource, subresource) = (text(info.resource()), text(info.subresource()));
        let resource = match subresource.as_str() {
            "" | "status" => resource,
            subresource => format!("{resource}/{subresource}"),
        };
        let group = text(info.group());
        KINDS
            .iter()
            .find(|kind| kind.resource == resource && kind.group == group)
    }

    /// The kind of an object that a scenario has. Only its kind, apiVersion and place of the filling are taken from `known`
    /// where it does not say them.
    ///
    /// # Errors
    ///
    /// If it has no kind.
    pub(crate) fn written(
        mut object: Map<String, Value>,
        known: Option<&Self>,
    ) -> Result<Self, &'static str> {
        let mut text = |key: &str| match object.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        let known = known.cloned().unwrap_or_else(|| Self {
            filling: annotation(),
            ..Self::default()
        });
        let kind = match kind {
            Some(kind) => kind,
            None if known.kind.is_empty() => return Err("it has no kind"),
            None => known.kind,
        };
        Ok(Self {
            kind,
            api_version: api_version.or(known.api_version),
            patch: object.clone(),
            object,
            no_update: None,
            ..known
        })
    }

    /// The most bytes of text that a server accepts as filling: of all annotations together, or of the data of a `ConfigMap` or
    /// `Secret`; 1 MiB elsewhere.
    pub(crate) fn most_filling(&self) -> usize {
        if self.filling == ANNOTATION {
            (256 << 10) - "loadtest.fairgate.dev/filling".len()
        } else {
            1 << 20
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::parse;

    /// Each kind with the verbs that a server accepts for it.
    fn writes() -> BTreeSet<String> {
        let mut writes = BTreeSet::new();
        for kind in KINDS.iter() {
            let place = format!("{}/{}", kind.group, kind.resource);
            let is_part = kind.resource.contains('/');
            let (create, update, patch) = match kind.kind.as_str() {
                "Scale" => (false, true, true),
                "TokenRequest" => (true, false, false),
                _ => (!is_part, !kind.bare && kind.no_update.is_none(), !kind.bare),
            };
            let verbs = [("create", create), ("update", update), ("patch", patch)];
            let verbs = verbs.into_iter().filter(|(_, is_possible)| *is_possible);
            writes.extend(verbs.map(|(verb, _)| format!("{verb} {place}")));
        }
        writes
    }

    /// A scenario with every kind is played against a real server, so its file must have them all.
    #[test]
    fn every_kind_is_written_to_a_real_server() {
        let text = include_bytes!("../../../tests/cluster/loadtest/every-kind.yaml");
        let scenario = parse("s.yaml", "s", text).usable().unwrap();
        let written = scenario
            .clients
            .iter()
            .flat_map(|client| &client.requests)
            .map(|request| {
                let info = &request.info;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let resource = match text(info.subresource()).as_str() {
                    "" => text(info.resource()),
                    part => format!("{}/{part}", text(info.resource())),
                };
                format!("{} {}/{resource}", info.verb.as_str(), text(info.group()))
            });
        let written: BTreeSet<String> = written.collect();
        let missing: Vec<_> = writes()
            .into_iter()
            .filter(|write| !written.contains(write))
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
