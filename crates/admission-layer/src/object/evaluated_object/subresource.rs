//! What subresources take from a body: all else is that of the stored object.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::{
    changes::{self, Spec},
    creation::Fresh,
    table::Taken,
    take,
    update::settle_metadata,
};

/// The generation of an object that a status, or a condition in it, is about.
const OBSERVED: &str = "observedGeneration";

/// Since when a volume is in its phase.
const PHASE_SINCE: &str = "lastPhaseTransitionTime";

impl Taken {
    /// The object of a PUT or patch of a subresource.
    pub(super) fn update(self, object: &mut Value, old: &Value, fresh: &Fresh) {
        match self {
            Self::Status { stored, kept, .. } => {
                status(object, old, stored, kept);
                if kept.contains(&PHASE_SINCE) {
                    phase_since(object, old, fresh);
                }
            }
            Self::Scale => from_body(object, old, &["/spec/replicas"]),
            Self::EphemeralContainers => {
                from_body(object, old, &["/spec/ephemeralContainers"]);
                changes::count(Some(Spec::Members(&["spec"])), object, old);
            }
            Self::Resize => {
                resize(object, old);
                changes::count(Some(Spec::Members(&["spec"])), object, old);
            }
            Self::Finalize => {
                settle_metadata(object, old, &[]);
                super::creation::named(object);
                if let Some(members) = object.as_object_mut() {
                    take(members, "status", Some(old));
                }
            }
            Self::Approval => {
                times_of_conditions(object, old, fresh);
                let conditions = object.pointer("/status/conditions").cloned();
                settle_metadata(object, old, &[]);
                all_but_metadata(object, old);
                set(object, "/status/conditions", conditions);
            }
            Self::CertificateStatus => {
                status(object, old, &[], &[]);
                for kind in ["Approved", "Denied"] {
                    keep_conditions(object, old, kind);
                }
                times_of_conditions(object, old, fresh);
            }
            // It has no stored object.
            Self::Posted(_) => {}
        }
    }
}

/// The status, and metadata but for these fields.
fn status(object: &mut Value, old: &Value, stored: &[&str], kept: &[&str]) {
    let mut status = object.get("status").cloned();
    settle_metadata(object, old, stored);
    if old
        .pointer("/metadata/labels/kubernetes.io~1metadata.name")
        .is_some()
    {
        super::creation::named(object);
    }
    all_but_metadata(object, old);
    if old["kind"] == "DaemonSet" {
        super::changes::count_templates(object, old);
    }
    if let (Some(Value::Object(new)), Some(old)) = (&mut status, old.get("status")) {
        for key in kept {
            if new
                .get(*key)
                .is_none_or(|value| *value == "" || *value == 0)
            {
                take(new, key, Some(old));
            }
        }
        if kept.contains(&OBSERVED) {
            keep_generations(new, old);
        }
    }
    set(object, "/status", status);
}

/// A volume is in another phase since now, unless the client says since when.
fn phase_since(volume: &mut Value, old: &Value, fresh: &Fresh) {
    let [new, old] = [&volume["status"], &old["status"]];
    if new["phase"] != old["phase"] && new[PHASE_SINCE] == old[PHASE_SINCE] {
        set(
            volume,
            "/status/lastPhaseTransitionTime",
            Some(json!(fresh.time())),
        );
    }
}

/// Conditions without the generation that they are about have that of the stored ones of their type, in their order. Linear in both.
fn keep_generations(status: &mut Map<String, Value>, old: &Value) {
    let mut stored: HashMap<&str, VecDeque<&Value>> = HashMap::new();
    for condition in old["conditions"].as_array().into_iter().flatten() {
        let of_type = stored.entry(member(condition, "type")).or_default();
        of_type.push_back(&condition[OBSERVED]);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let conditions = conditions.into_iter().flatten();
    for condition in conditions.filter(|condition| condition.is_object()) {
        let of_type = stored.get_mut(member(condition, "type"));
        let Some(generation) = of_type.and_then(VecDeque::pop_front) else {
            continue;
        };
        let is_unset = condition[OBSERVED].is_null() || condition[OBSERVED] == 0;
        if is_unset && !generation.is_null() {
            condition[OBSERVED] = generation.clone();
        }
    }
}

/// The text of a member; none is an empty one.
fn member<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// Takes all members but the metadata from the stored object.
fn all_but_metadata(object: &mut Value, old: &Value) {
    let Value::Object(members) = object else {
        return;
    };
    members.retain(|key, _| ["metadata", "apiVersion", "kind"].contains(&&**key));
    for (key, value) in old.as_object().into_iter().flatten() {
        if key != "metadata" {
            members.insert(key.clone(), value.clone());
        }
    }
}

/// Takes all from the stored object but what is at these places, and the version that the client knows.
fn from_body(object: &mut Value, old: &Value, places: &[&str]) {
    let mut made = stored(object, old);
    for place in places {
        set(&mut made, place, object.pointer(place).cloned());
    }
    *object = made;
}

/// The stored object with the version, the name and the type that the client says.
fn stored(object: &Value, old: &Value) -> Value {
    let mut made = old.clone();
    for place in ["/apiVersion", "/kind"] {
        set(&mut made, place, object.pointer(place).cloned());
    }
    for place in [
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/resourceVersion",
    ] {
        let sent = object.pointer(place).and_then(Value::as_str);
        if let Some(sent) = sent.filter(|sent| !sent.is_empty() && *sent != "0") {
            set(&mut made, place, Some(json!(sent)));
        }
    }
    made
}

/// The resources of the containers of a pod. Where other containers are sent, the server refuses the request.
fn resize(object: &mut Value, old: &Value) {
    let mut made = stored(object, old);
    for list in ["containers", "initContainers"] {
        let place = format!("/spec/{list}");
        let sent = object.pointer(&place).and_then(Value::as_array);
        let kept = made.pointer_mut(&place).and_then(Value::as_array_mut);
        let (sent, kept) = match (sent, kept) {
            (None, None) => continue,
            (sent, kept) => (sent.map_or(&[][..], Vec::as_slice), kept),
        };
        let kept = kept.map_or(&mut [][..], Vec::as_mut_slice);
        let pairs = || sent.iter().zip(kept.iter());
        if sent.len() != kept.len() || pairs().any(|(sent, kept)| sent["name"] != kept["name"]) {
            return;
        }
        for (sent, kept) in sent.iter().zip(kept) {
            if let Value::Object(kept) = kept {
                for key in ["resources", "resizePolicy"] {
                    take(kept, key, Some(sent));
                }
            }
        }
    }
    set(
        &mut made,
        "/spec/resources",
        object.pointer("/spec/resources").cloned(),
    );
    *object = made;
}

/// Gives conditions of a kind the values that are stored, if there are as many.
fn keep_conditions(object: &mut Value, old: &Value, kind: &str) {
    let of = |object: &Value| -> Vec<Value> {
        let all = object
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let all = all.into_iter().flatten();
        all.filter(|one| one["type"] == kind).cloned().collect()
    };
    let stored = of(old);
    if stored.len() != of(object).len() {
        return;
    }
    let all = object.pointer_mut("/status/conditions");
    let all = all.and_then(Value::as_array_mut).into_iter().flatten();
    for (one, stored) in all.filter(|one| one["type"] == kind).zip(stored) {
        *one = stored;
    }
}

/// Conditions of a request for a certificate without times are of now, or since the stored one of their type and status. Linear in both.
fn times_of_conditions(object: &mut Value, old: &Value, fresh: &Fresh) {
    const UPDATED: &str = "lastUpdateTime";
    const SINCE: &str = "lastTransitionTime";
    let now = json!(fresh.time());
    let stored = old.pointer("/status/conditions").and_then(Value::as_array);
    let mut since: HashMap<[&str; 2], &Value> = HashMap::new();
    for condition in stored.into_iter().flatten() {
        if !condition[SINCE].is_null() {
            let of = ["type", "status"].map(|name| member(condition, name));
            since.entry(of).or_insert(&condition[SINCE]);
        }
    }
    let all = object.pointer_mut("/status/conditions");
    let all = all.and_then(Value::as_array_mut).into_iter().flatten();
    for condition in all.filter(|condition| condition.is_object()) {
        if condition[UPDATED].is_null() {
            condition[UPDATED] = now.clone();
        }
        if condition[SINCE].is_null() {
            let of = ["type", "status"].map(|name| member(condition, name));
            condition[SINCE] = since.get(&of).copied().unwrap_or(&now).clone();
        }
    }
}

/// Sets the value at a place, or removes it. Objects on the way are made.
fn set(object: &mut Value, place: &str, value: Option<Value>) {
    let Some(mut members) = object.as_object_mut() else {
        return;
    };
    let mut keys = place.split('/').skip(1).peekable();
    while let Some(key) = keys.next() {
        if keys.peek().is_none() {
            put(members, key, value);
            return;
        }
        if value.is_none() && !members.contains_key(key) {
            return;
        }
        let next = members.entry(key).or_insert_with(|| json!({}));
        match next {
            Value::Object(next) => members = next,
            _ => return,
        }
    }
}

fn put(members: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => members.insert(key.to_owned(), value),
        None => members.remove(key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_certificate_have_times() {
        let condition = |of: &str, status: &str, since: Value| json!({"type": of, "status": status, "lastUpdateTime": "u", "lastTransitionTime": since});
        let old = json!({"status": {"conditions": [condition("A", "True", json!("then")), condition("B", "True", Value::Null)]}});
        let mut new = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "A", "status": "False"},
            {"type": "B", "status": "True"}, {"type": "A", "status": "True", "lastTransitionTime": "own"}, 7]}});
        let fresh = Fresh::new(0);
        times_of_conditions(&mut new, &old, &fresh);
        let now = fresh.time();
        let conditions = new["status"]["conditions"].as_array().unwrap();
        let times: Vec<_> = conditions
            .iter()
            .map(|one| &one["lastTransitionTime"])
            .collect();
        assert_eq!(
            times,
            [
                &json!("then"),
                &json!(now),
                &json!(now),
                &json!("own"),
                &Value::Null
            ]
        );
        assert_eq!(conditions[3]["lastUpdateTime"], json!(now));
    }

    #[test]
    fn the_status_of_a_pod_keeps_what_kubelets_leave_out() {
        let old = json!({"metadata": {"name": "p"}, "status": {"qosClass": "Burstable", "observedGeneration": 4, "conditions": [
            {"type": "Ready", "observedGeneration": 2}, {"type": "Ready", "observedGeneration": 3}, {"type": "Odd"}]}});
        let ready = |generation: u64| json!({"type": "Ready", "observedGeneration": generation});
        let mut pod = json!({"metadata": {"name": "p"}, "status": {"qosClass": "", "conditions": [
            {"type": "Ready"}, ready(9), {"type": "Odd"}, {"type": "New", "observedGeneration": 0}]}});
        status(&mut pod, &old, &[], &["qosClass", OBSERVED]);
        let conditions =
            json!([ready(2), ready(9), {"type": "Odd"}, {"type": "New", "observedGeneration": 0}]);
        let seen =
            json!({"qosClass": "Burstable", "observedGeneration": 4, "conditions": conditions});
        assert_eq!(pod["status"], seen);
    }
}
