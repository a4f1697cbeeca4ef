//! Objects in another version than the one of the request: policies see the version that their rules name.
//!
//! Known are events, whose two groups name the same fields differently, and custom resources whose versions have the same
//! fields. Others are converted by code that only the upstream has.
//!
//! Source: Kubernetes `kubernetes/pkg/apis/events/v1/conversion.go` and
//! `apiextensions-apiserver/pkg/apiserver/conversion/nop_converter.go`.

use std::sync::Arc;

use fairgate_objects::schema::{built_in, canonical};
use fairgate_upstream::path::push_segment;
use serde_json::{Map, Value, json};

use crate::{body_budget::BodyShare, facts::WriteFacts, upstream_objects::UpstreamReader};

/// Group, version and kind.
pub(crate) type KindParts = [String; 3];

/// The object and the old object of a request, in another version.
#[derive(Clone, Debug)]
pub(crate) struct ConvertedObjects {
    pub(crate) kind: KindParts,
    /// Or why they cannot be converted.
    pub(crate) objects: Result<[Option<Arc<Value>>; 2], String>,
}

/// How objects of one version become those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// All fields have the same names.
    SameFields,
    /// From the core group to `events.k8s.io`.
    EventOfCore,
    /// The other way.
    EventToCore,
}

/// The members of events in the core group, and what `events.k8s.io` calls them.
const EVENT_MEMBERS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Finds out how objects of a request are converted. For custom resources, their definition is read from the upstream.
///
/// # Errors
///
/// Why they cannot be converted.
pub(crate) async fn conversion(
    upstream: &UpstreamReader,
    facts: &WriteFacts,
    to: &KindParts,
    share: BodyShare,
) -> Result<Conversion, String> {
    let [group, version, kind] = &facts.kind;
    let [to_group, to_version, to_kind] = to;
    if kind == "Event" && to_kind == "Event" && facts.resource == "events" {
        match (&**group, &**version, &**to_group, &**to_version) {
            ("", "v1", "events.k8s.io", "v1") => return Ok(Conversion::EventOfCore),
            ("events.k8s.io", "v1", "", "v1") => return Ok(Conversion::EventToCore),
            _ => {}
        }
    }
    if group != to_group || kind != to_kind || group != &facts.group {
        return Err("its fields differ".to_owned());
    }
    let mut path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/".to_owned();
    push_segment(&mut path, &format!("{}.{group}", facts.resource));
    let definition = upstream.object(&path, share).await;
    let Some(definition) = definition.map_err(|why| format!("{path}: {why}"))? else {
        return Err("it is no custom resource".to_owned());
    };
    match definition.value["spec"]["conversion"]["strategy"].as_str() {
        None | Some("None") => Ok(Conversion::SameFields),
        Some(strategy) => Err(format!("its conversion strategy is {strategy}")),
    }
}

impl Conversion {
    /// An object in the other version.
    pub(crate) fn convert(self, object: &Value, [group, version, kind]: &KindParts) -> Value {
        let mut converted = match self {
            Self::SameFields => object.clone(),
            Self::EventOfCore => renamed(object, |core, _| core, |_, other| other),
            Self::EventToCore => renamed(object, |_, other| other, |core, _| core),
        };
        let shape = built_in(group, version, kind);
        if let Some(shape) = shape.filter(|_| self != Self::SameFields)
            && let Ok(decoded) = canonical::decode_version(shape, version, &converted)
        {
            converted = decoded.value;
        }
        let api_version = match &**group {
            "" => version.clone(),
            group => format!("{group}/{version}"),
        };
        converted["apiVersion"] = json!(api_version);
        converted["kind"] = json!(kind);
        converted
    }
}

/// The object with other names for its members.
fn renamed(
    object: &Value,
    from: fn(&'static str, &'static str) -> &'static str,
    to: fn(&'static str, &'static str) -> &'static str,
) -> Value {
    let members = object.as_object().into_iter().flatten();
    let renamed = members.map(|(key, value)| {
        let pair = EVENT_MEMBERS
            .iter()
            .find(|(core, other)| from(core, other) == key);
        let key = pair.map_or(&**key, |(core, other)| to(core, other));
        (key.to_owned(), value.clone())
    });
    Value::Object(renamed.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_fields_under_other_names() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "m", "reason": "R", "count": 3,
            "source": {"component": "c"}, "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": null,
            "eventTime": null, "reportingComponent": "r", "reportingInstance": ""});
        let kind = ["events.k8s.io", "v1", "Event"].map(str::to_owned);
        let converted = Conversion::EventOfCore.convert(&core, &kind);
        let mut expected = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "e", "creationTimestamp": null}, "regarding": {"kind": "Pod"}, "note": "m",
            "reason": "R", "deprecatedCount": 3, "deprecatedSource": {"component": "c"},
            "deprecatedFirstTimestamp": "2024-01-01T00:00:00Z", "deprecatedLastTimestamp": null,
            "eventTime": null, "reportingController": "r"});
        if let Some(metadata) = expected["metadata"].as_object_mut() {
            metadata.retain(|key, _| converted["metadata"].get(key).is_some());
        }
        assert_eq!(converted, expected);
        let kind = ["", "v1", "Event"].map(str::to_owned);
        let back = Conversion::EventToCore.convert(&converted, &kind);
        for (key, value) in core.as_object().unwrap() {
            if key != "metadata" {
                assert_eq!(&back[key], value, "{key}");
            }
        }
    }
}
