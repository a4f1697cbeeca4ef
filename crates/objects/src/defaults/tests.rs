//! `cases.jsonl.gz` is what Kubernetes' defaults make of objects; tests/cluster/defaults writes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{DefaultedKinds, apply, apply_times, apply_to_metadata};
use crate::schema::{
    Presence, Struct, Type, UnreadParts, built_in,
    canonical::{self, EmptyValues},
    null_places,
};

/// The time of defaulting in the corpus.
const NOW: &str = "2001-02-03T04:05:06Z";

/// A line of the corpus.
struct DefaultedObject {
    group: String,
    version: String,
    kind: String,
    object: Value,
    defaulted: Value,
}

impl DefaultedObject {
    fn read(line: &str) -> Self {
        let case: Value = serde_json::from_str(line).unwrap();
        let [api_version, kind] =
            ["apiVersion", "kind"].map(|name| case["object"][name].as_str().unwrap());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let in_canonical_form = |object: &Value| match built_in(group, version, kind) {
            Some(shape) => canonical::decode(shape, object).unwrap().value,
            // Kinds of servers that extend Kubernetes have no table.
            None => object.clone(),
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            object: in_canonical_form(&case["object"]),
            defaulted: in_canonical_form(&case["defaulted"]),
        }
    }

    fn apply_to(&self, object: &mut Value) {
        apply(&self.group, &self.version, &self.kind, object);
        apply_times(&self.group, &self.version, &self.kind, object, NOW);
    }

    fn name(&self) -> String {
        format!("{}/{} {}", self.group, self.version, self.kind)
    }
}

fn corpus() -> Vec<DefaultedObject> {
    let mut text = String::new();
    let mut corpus = GzDecoder::new(&include_bytes!("cases.jsonl.gz")[..]);
    corpus.read_to_string(&mut text).unwrap();
    text.lines().map(DefaultedObject::read).collect()
}

#[test]
fn objects_get_the_defaults_that_kubernetes_gives_them() {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut faults = Vec::new();
    for case in corpus() {
        let (equal, total) = kinds.entry(case.name()).or_default();
        let mut object = case.object.clone();
        case.apply_to(&mut object);
        *total += 1;
        if object == case.defaulted {
            *equal += 1;
        } else {
            let (is, wanted) = (&object, &case.defaulted);
            faults.push(format!(
                "{}: {}\n  is     {is}\n  wanted {wanted}",
                case.name(),
                case.object
            ));
        }
    }
    for (kind, (equal, total)) in &kinds {
        println!("{equal:>4} of {total:>4}: {kind}");
    }
    let (equal, total) =
        (kinds.values()).fold((0, 0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1));
    println!("{equal} of {total} in {} kinds", kinds.len());
    assert!(total > 2_500, "{total} cases");
    let some = faults[..faults.len().min(5)].join("\n");
    assert!(
        faults.is_empty(),
        "{} differ, such as\n{some}",
        faults.len()
    );
}

/// The places of all values in a value, as JSON pointers.
fn places(value: &Value, place: &str, places: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (index.to_string(), item))
                .collect()
        }
        Value::Object(entries) => (entries.iter())
            .map(|(name, entry)| (name.replace('~', "~0").replace('/', "~1"), entry))
            .collect(),
        _ => Vec::new(),
    };
    for (name, inner) in inner {
        let place = format!("{place}/{name}");
        self::places(inner, &place, places);
        places.push(place);
    }
}

/// Whether defaults set a field whatever it has.
fn is_overwritten(place: &str) -> bool {
    place.contains("/sessionAffinityConfig") || place.ends_with("~1metadata.name")
}

#[test]
fn what_has_another_type_is_left_as_it_is() {
    let plain = [json!(true), json!(7), json!("x")];
    let odd = [
        json!([null, 1, "", [], {}, {"name": 1}]),
        json!({"": {"b": ""}, "cpu": 1, "spec": []}),
        json!({}),
        json!(null),
    ];
    let mut checked = 0;
    for (index, case) in corpus().iter().enumerate() {
        let mut all = Vec::new();
        places(&case.object, "", &mut all);
        // Another quarter of the places in each object, because all would take long.
        for (number, place) in all.iter().enumerate().skip(index % 4).step_by(4) {
            let turn = index / 4 + number / 4;
            let with = |value: &Value| {
                let mut object = case.object.clone();
                *object.pointer_mut(place).unwrap() = value.clone();
                case.apply_to(&mut object);
                object
            };
            // That it ends is enough: what is in these may have defaults.
            with(&odd[turn % odd.len()]);
            let value = &plain[turn % plain.len()];
            let object = with(value);
            if !is_overwritten(place) {
                checked += 1;
                let what = case.name();
                assert_eq!(
                    object.pointer(place),
                    Some(value),
                    "{what}: {place}: {object}"
                );
            }
        }
    }
    assert!(checked > 15_000, "{checked} values");
    for value in plain.iter().chain(&odd) {
        let mut object = value.clone();
        apply("", "v1", "Secret", &mut object);
        assert_eq!(object.is_object(), value.is_object());
    }
}

/// Removes what canonical form has without being asked for.
fn shorten(shape: &Struct, object: &mut Value) {
    let Value::Object(object) = object else {
        return;
    };
    for field in shape.fields {
        let Some(value) = object.get_mut(field.name) else {
            continue;
        };
        match (&field.ty, &mut *value) {
            (Type::Object(shape), value) => shorten(shape, value),
            (Type::List(list), Value::Array(items)) => {
                if let Type::Object(shape) = list.item {
                    for item in items {
                        shorten(shape, item);
                    }
                }
            }
            _ => {}
        }
        if field.presence == Presence::Always && *value == canonical::zero(&field.ty) {
            object.remove(field.name);
        }
    }
}

#[test]
fn objects_that_lack_parts_get_the_same_defaults() {
    let mut shorter = 0;
    for case in corpus() {
        let Some(shape) = built_in(&case.group, &case.version, &case.kind) else {
            continue;
        };
        let mut object = case.object.clone();
        shorten(shape, &mut object);
        shorter += usize::from(object != case.object);
        case.apply_to(&mut object);
        let object = canonical::decode(shape, &object).unwrap().value;
        assert_eq!(object, case.defaulted, "{}: {}", case.name(), case.object);
    }
    assert!(shorter > 2_000, "{shorter} objects");
}

#[test]
fn an_object_with_its_defaults_is_not_changed() {
    for case in corpus() {
        let mut object = case.defaulted.clone();
        case.apply_to(&mut object);
        assert_eq!(object, case.defaulted, "{}", case.name());
    }
}

#[test]
fn defaults_in_metadata_can_be_set_alone() {
    let mut changed = BTreeMap::new();
    for case in corpus() {
        let mut object = case.object.clone();
        apply_to_metadata(&case.group, &case.kind, &mut object);
        let (name, wanted) = (case.name(), &case.defaulted["metadata"]);
        assert_eq!(
            object.get("metadata").unwrap_or(&Value::Null),
            wanted,
            "{name}: {}",
            case.object
        );
        if let Some(metadata) = object.get_mut("metadata") {
            *metadata = case.object["metadata"].clone();
        }
        assert_eq!(object, case.object, "{name}");
        if case.object["metadata"] != *wanted {
            *changed.entry(case.kind).or_insert(0) += 1;
        }
    }
    assert_eq!(
        changed.into_keys().collect::<Vec<_>>(),
        ["Job", "Namespace", "ReplicationController"]
    );
}

/// Each of these runs along with all that come after it. Adding them up anew for each would take minutes here.
#[test]
fn what_many_init_containers_ask_for_is_added_up_once() {
    let init: Vec<_> = (0..20_000)
        .map(|number| {
            let requests = json!({"cpu": "1", format!("hugepages-{number}"): "1"});
            json!({"restartPolicy": "Always", "resources": {"requests": requests, "limits": requests}})
        })
        .collect();
    let mut pod = json!({"spec": {"containers": [], "initContainers": init, "resources": {"limits": {"memory": "1"}}}});
    apply("", "v1", "Pod", &mut pod);
    let resources = &pod["spec"]["resources"];
    assert_eq!(resources["requests"]["cpu"], "20k");
    assert_eq!(resources["limits"]["hugepages-19999"], "1");
}

/// Removes what is at a path, in which `*` is any element.
fn remove(value: &mut Value, path: &[&str]) {
    match (value, path) {
        (Value::Object(members), [last]) => {
            members.remove(*last);
        }
        (Value::Object(members), [name, rest @ ..]) => {
            if let Some(value) = members.get_mut(*name) {
                remove(value, rest);
            }
        }
        (Value::Array(items), ["*", rest @ ..]) => {
            for item in items {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

#[test]
fn nothing_depends_on_parts_that_may_be_left_out() {
    let paths: Vec<_> = UnreadParts::paths().collect();
    let mut parts: Vec<UnreadParts> = paths.iter().map(|(part, _)| *part).collect();
    parts.dedup();
    let mut left_out = BTreeMap::<String, usize>::new();
    for one in corpus() {
        let Some(shape) = built_in(&one.group, &one.version, &one.kind) else {
            continue;
        };
        for part in parts.iter().copied().chain([UnreadParts::ALL]) {
            let [mut whole, mut without] = [UnreadParts::NONE, part].map(|unread| {
                let (version, empty) = (&one.version, EmptyValues::Kept);
                let decoded = canonical::decode_read(shape, version, &one.object, empty, unread);
                let mut object = decoded.unwrap().value;
                one.apply_to(&mut object);
                object
            });
            let is_without = whole != without;
            for (_, path) in paths.iter().filter(|(of, _)| part.without(*of) != part) {
                remove(&mut whole, path);
                remove(&mut without, path);
            }
            assert_eq!(without, whole, "{} {part:?}", one.name());
            *left_out.entry(format!("{part:?}")).or_default() += usize::from(is_without);
        }
    }
    assert!(left_out.values().all(|count| *count > 5), "{left_out:?}");
}

/// Where two values differ: the shortest paths, with `*` for the elements of lists. What is in a map is seen as a member.
fn changed_places(
    before: &Value,
    after: &Value,
    place: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            let gone = before.keys().filter(|name| !after.contains_key(*name));
            for name in after.keys().chain(gone) {
                place.push(name.clone());
                match (before.get(name), after.get(name)) {
                    (Some(before), Some(after)) => changed_places(before, after, place, found),
                    _ => found.push(place.clone()),
                }
                place.pop();
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            place.push("*".to_owned());
            for (before, after) in before.iter().zip(after) {
                changed_places(before, after, place, found);
            }
            place.pop();
        }
        _ => found.push(place.clone()),
    }
}

#[test]
fn defaults_change_objects_at_the_places_of_their_kinds_alone() {
    let all: Vec<_> = DefaultedKinds::places().collect();
    let mut used: Vec<&[&str]> = Vec::new();
    let mut unknown: BTreeMap<String, String> = BTreeMap::new();
    for case in corpus() {
        let mut found = Vec::new();
        changed_places(&case.object, &case.defaulted, &mut Vec::new(), &mut found);
        let kind = DefaultedKinds::of(&case.group, &case.kind);
        for place in found {
            let covers = |of: &[&str]| {
                let mut steps = of.iter().zip(&place);
                of.len() <= place.len() && steps.all(|(one, other)| *one == "*" || one == other)
            };
            let covering: Vec<_> = (all.iter())
                .filter(|(of, path)| *of == kind && covers(path))
                .map(|(_, path)| *path)
                .collect();
            if covering.is_empty() {
                let place = format!("{} {}", case.name(), place.join("."));
                unknown.insert(place, case.object.to_string());
            }
            used.extend(covering);
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    // Pods and all kinds of templates have the same places, of which no single kind has an example of each.
    let end = |path: &[&str]| path[path.len().saturating_sub(2)..].join(".");
    let nulls: BTreeSet<String> = null_places().map(|(_, path)| end(&path)).collect();
    let used: BTreeSet<String> = used.into_iter().map(end).collect();
    let unused = all.iter().map(|(_, path)| end(path));
    let unused: BTreeSet<String> = unused
        .filter(|end| !used.contains(end) && !nulls.contains(end))
        .collect();
    assert!(unused.is_empty(), "nothing is changed at {unused:?}");
}

#[test]
fn each_kind_with_defaults_is_told_from_all_others() {
    let kinds: Vec<_> = DefaultedKinds::places().map(|(kind, _)| kind).collect();
    assert!(!kinds.iter().any(|kind| kind.meets(DefaultedKinds::UNKNOWN)));
    let pods = DefaultedKinds::of("", "Pod");
    let templates = DefaultedKinds::of("", "PodTemplate");
    assert!(pods.meets(pods.or(templates)) && !pods.meets(templates));
    assert!(pods.meets(DefaultedKinds::ALL) && DefaultedKinds::UNKNOWN.meets(DefaultedKinds::ALL));
    assert_eq!(DefaultedKinds::of("", "ConfigMap"), DefaultedKinds::NONE);
    assert_eq!(DefaultedKinds::of("x.io", "Pod"), DefaultedKinds::NONE);
}
