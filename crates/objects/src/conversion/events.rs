//! Events: the core group and `events.k8s.io` name the same fields differently.

use serde_json::{Map, Value};

/// The members of events in the core group, and what `events.k8s.io` calls them.
const MEMBERS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event of the core group as one of `events.k8s.io`.
pub(super) fn of_core(event: Value) -> Value {
    renamed(event, |core, _| core, |_, other| other)
}

/// The other way.
pub(super) fn to_core(event: Value) -> Value {
    renamed(event, |_, other| other, |core, _| core)
}

/// The event with other names for its members.
fn renamed(
    event: Value,
    from: fn(&'static str, &'static str) -> &'static str,
    to: fn(&'static str, &'static str) -> &'static str,
) -> Value {
    let Value::Object(members) = event else {
        return event;
    };
    let renamed = members.into_iter().map(|(key, value)| {
        let pair = MEMBERS
            .iter()
            .find(|(core, other)| from(core, other) == key);
        let key = pair.map_or(key, |(core, other)| to(core, other).to_owned());
        (key, value)
    });
    Value::Object(renamed.collect::<Map<_, _>>())
}
