//! Server-side apply to an object whose `managedFields` anybody may have written: a JSON text
//! `{"live": …, "config": …, "manager": …, "force": …}`.
//!
//! Properties: equal inputs give equal results; a forced apply that succeeded has no conflicts when it is repeated, and changes nothing
//! that the first one left; entries are bounded by what they came from.

use fairgate_objects::{
    kind::Kind,
    kinds::KINDS,
    object,
    schema::canonical,
    ssa::{ApplyError, ManagedKind, ObjectType, WriteContext, apply, track_update},
};
use serde_json::Value;

use crate::{Outcome, Target};

/// The target `applies`.
pub const TARGET: Target = Target {
    name: "applies",
    run,
    dictionary: &[
        "{\"live\":",
        "\"config\":",
        "\"manager\":\"a\"",
        "\"force\":true",
        "\"managedFields\":[",
        "{\"manager\":\"b\",\"operation\":\"Apply\",",
        "\"operation\":\"Update\"",
        "\"apiVersion\":\"flowcontrol.apiserver.k8s.io/v1\"",
        "\"apiVersion\":\"flowcontrol.apiserver.k8s.io/v1beta3\"",
        "\"fieldsType\":\"FieldsV1\"",
        "\"fieldsV1\":{",
        "\"f:spec\":{",
        "\"f:matchingPrecedence\":{}",
        "\"f:metadata\":{\"f:labels\":{\"f:a\":{}}}",
        "\"k:{\\\"type\\\":\\\"a\\\"}\":{",
        "\"v:1\":{}",
        "\"i:0\":{}",
        "\".\":{}",
        "\"subresource\":\"status\"",
        "\"time\":\"2026-01-01T00:00:00Z\"",
        "null",
        "{}",
        "[]",
        "1",
        "\"labels\":{\"a\":\"b\"}",
        "\"conditions\":[{\"type\":\"a\",\"status\":\"True\"}]",
        "\"spec\":{\"matchingPrecedence\":5}",
        ",",
        "}",
        "]",
    ],
};

const NOW: &str = "2026-01-01T00:00:00Z";

/// The first hosted kind, in its versions.
struct FirstKind(&'static Kind);

impl FirstKind {
    fn version(&self, api_version: &str) -> Option<&'static fairgate_objects::kind::KindVersion> {
        let mut versions = self.0.versions.iter();
        versions.find(|version| self.0.api_version(version.name) == api_version)
    }
}

impl ManagedKind for FirstKind {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let version = self.version(api_version)?;
        Some(ObjectType::Table(version.shape))
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let from = object["apiVersion"].as_str()?;
        if from == to {
            return Some(object.clone());
        }
        let (from, to) = (self.version(from)?, self.version(to)?);
        let stored = object::to_stored(self.0, from, object.clone());
        let versioned = object::versioned(self.0, to, &stored);
        Some(canonical::decode(to.shape, &versioned).ok()?.value)
    }

    fn reset_fields(&self, _: &str, _: &str) -> &'static [&'static str] {
        &["status"]
    }
}

fn run(data: &[u8]) -> Outcome {
    let Ok(input) = serde_json::from_slice::<Value>(data) else {
        return Outcome::of("no JSON");
    };
    let kinds = FirstKind(KINDS[0]);
    let version = kinds.0.stored();
    let api_version = kinds.0.api_version(version.name);
    // What is stored is canonical, and of its kind; its managed fields are the client's own.
    let live = canonical::decode(version.shape, &input["live"])
        .ok()
        .map(|decoded| {
            let mut live = decoded.value;
            live["apiVersion"] = api_version.clone().into();
            live["kind"] = kinds.0.kind.into();
            live
        });
    let actor = WriteContext {
        manager: input["manager"].as_str().unwrap_or("a"),
        subresource: "",
        api_version: &api_version,
        now: NOW,
    };
    let force = input["force"] == true;
    let attempt =
        |live: Option<&Value>, force| apply(&kinds, live, &input["config"], &actor, force);

    let applied = attempt(live.as_ref(), force);
    assert_eq!(
        text(&attempt(live.as_ref(), force)),
        text(&applied),
        "equal inputs give equal results"
    );
    if let Ok(applied) = &applied {
        let entries = applied["metadata"]["managedFields"].to_string().len();
        assert!(
            entries <= 64 * (data.len() + 64),
            "{entries} bytes of entries"
        );
    }
    if let Some(stored) = applied
        .as_ref()
        .ok()
        .and_then(|applied| canonical::decode(version.shape, applied).ok())
    {
        let stored = stored.value;
        let again = attempt(Some(&stored), force);
        let again = again.unwrap_or_else(|error| panic!("{error} when applied again to {stored}"));
        // Where no entry was left, tracking begins again.
        if !stored["metadata"]["managedFields"].is_null()
            && let Ok(again) = canonical::decode(version.shape, &again)
        {
            assert_eq!(again.value, stored, "applied again");
        }
    }
    if let Some(live) = &live {
        let mut new = live.clone();
        track_update(&kinds, Some(live), &mut new, &actor);
        let mut same = live.clone();
        track_update(&kinds, Some(live), &mut same, &actor);
        assert_eq!(same, new, "equal inputs give equal results");
    }
    Outcome::of((live.is_some(), force, kind(&applied)))
}

/// The result or the error, as text.
fn text(applied: &Result<Value, ApplyError>) -> String {
    match applied {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

fn kind(applied: &Result<Value, ApplyError>) -> String {
    match applied {
        Ok(value) => value["metadata"]["managedFields"]
            .as_array()
            .map_or(0, Vec::len)
            .min(5)
            .to_string(),
        Err(error) => error
            .to_string()
            .chars()
            .filter(char::is_ascii_alphabetic)
            .take(40)
            .collect(),
    }
}
