//! Tests that nothing which the simulation leaves out is missing from its remarks.

use fairgate_manifest::yaml;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::{
    scenario::{ScenarioReading, known_keys, parse},
    simulate::play,
    verdict::Evidence,
};

/// Keys that are there for readers and for the verdict: no figure depends on them.
const WITHOUT_FIGURES: &[&str] = &["apiVersion", "kind", "title", "about", "expect"];

/// Two values of a key.
#[derive(Deserialize)]
struct KeyProbe {
    key: String,
    /// Where the values are put.
    #[serde(default)]
    at: Option<String>,
    values: [Value; 2],
}

impl KeyProbe {
    fn place(&self) -> String {
        let of_key = || format!("/{}", self.key.replace("[]", ".0").replace('.', "/"));
        self.at.clone().unwrap_or_else(of_key)
    }
}

fn document(text: &str) -> Value {
    yaml::documents(text.as_bytes()).unwrap().swap_remove(0)
}

fn varied() -> Value {
    document(include_str!("varied.yaml"))
}

fn probes() -> Vec<KeyProbe> {
    serde_json::from_value(document(include_str!("probes.yaml"))).unwrap()
}

/// A flow schema for everybody.
fn schema(distinguisher: &str) -> Value {
    let mut schema = varied()["policy"][1].take();
    schema["spec"]["distinguisherMethod"]["type"] = distinguisher.into();
    schema
}

/// `scenario` with `value` at `place`, whose parents are made where they are missing.
fn with(mut scenario: Value, place: &str, value: Value) -> Value {
    let mut at = &mut scenario;
    for part in place.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Err(_) => &mut at[part],
            Ok(index) => {
                if at.is_null() {
                    *at = json!([]);
                }
                let items = at.as_array_mut().unwrap();
                items.resize(items.len().max(index + 1), Value::Null);
                &mut items[index]
            }
        };
    }
    *at = value;
    scenario
}

/// Reads a scenario that must be valid.
fn reading(scenario: &Value) -> ScenarioReading {
    let reading = parse("s.yaml", "s", scenario.to_string().as_bytes());
    assert!(reading.findings.is_empty(), "{:?}", reading.findings);
    reading
}

fn evidence(scenario: &Value) -> Evidence {
    play(&reading(scenario).scenario).unwrap()
}

fn figures(scenario: &Value) -> String {
    format!("{:?}", evidence(scenario))
}

fn remarks_of(scenario: &Value) -> String {
    let ScenarioReading { scenario, keys, .. } = reading(scenario);
    remarks(&scenario, &keys).unwrap().join("\n")
}

/// The entry of [`IGNORED`] for a key.
fn ignored(key: &str) -> Option<&'static str> {
    let mut entries = IGNORED.iter();
    entries.find(|entry| is_below(key, entry)).copied()
}

#[test]
fn every_key_has_an_effect_or_is_named_as_ignored() {
    let mut wrong = Vec::new();
    for probe in probes() {
        let (key, place) = (&probe.key, &probe.place());
        let [one, other] = probe.values.map(|value| with(varied(), place, value));
        let has_effect = figures(&one) != figures(&other);
        match ignored(key) {
            None if !has_effect => {
                wrong.push(format!("{key} has no effect, and is not in IGNORED"));
            }
            Some(_) if has_effect => wrong.push(format!("{key} has an effect, and is in IGNORED")),
            Some(entry) if !remarks_of(&other).contains(entry) => {
                wrong.push(format!("no remark names {entry}"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_key_is_probed() {
    let probes = probes();
    let probed: BTreeSet<&str> = probes.iter().map(|probe| &*probe.key).collect();
    let known = known_keys();
    let is_section = |key: &str| {
        known
            .iter()
            .any(|other| other != key && is_below(other, key))
    };
    let values = known
        .iter()
        .map(String::as_str)
        .filter(|key| !is_section(key));
    let values: BTreeSet<&str> = values
        .filter(|key| !WITHOUT_FIGURES.contains(key))
        .collect();
    assert_eq!(probed, values, "each key needs two values in probes.yaml");
    for entry in IGNORED {
        assert!(known.contains(*entry), "{entry} is not a key");
    }
}

#[test]
fn keys_that_are_not_used_are_not_named() {
    let keys = [
        "events[].at",
        "upstream.capacity",
        "clients[].connection.protocol",
        "events[].policy",
        "eventsPerSecond",
    ];
    let keys = keys.map(str::to_owned).into_iter().collect();
    assert_eq!(ignored_keys(&keys), ["clients[].connection", "events[].at"]);
}

/// A scenario of which the simulation leaves out nothing.
fn plain() -> Value {
    let mut scenario = varied();
    scenario["upstream"] =
        json!({"capacity": 20, "service": {"mean": "20ms", "distribution": "constant"}});
    scenario["clients"] = json!([{
        "name": "busy", "users": 2, "load": {"closed": {"threads": 30}},
        "requests": [{"path": "/api/v1/namespaces/a/pods/b"}],
    }]);
    scenario
}

#[test]
fn nothing_is_said_about_a_scenario_of_which_nothing_is_left_out() {
    assert_eq!(remarks_of(&plain()), "");
}

/// Asserts that nothing is said about `before`, that `expected` is said with `value` at `place`, and that this is true: the
/// figures with fairness are the same as with `like` there.
fn assert_partly(before: &Value, (place, value): (&str, Value), like: Value, expected: &str) {
    assert!(!remarks_of(before).contains(expected), "{expected}");
    let [there, like] = [value, like].map(|value| with(before.clone(), place, value));
    let found = remarks_of(&there);
    assert!(
        found.lines().any(|line| line == expected),
        "{expected}\n{found}"
    );
    let clients = |scenario| format!("{:?}", evidence(scenario).clients);
    assert_eq!(clients(&there), clients(&like), "{expected}");
}

#[test]
fn keys_with_another_effect_than_over_sockets_are_explained() {
    let path = |path: &str| json!({"path": path});
    assert_partly(
        &plain(),
        ("/gateway/requestTimeout", json!("40ms")),
        json!("60s"),
        "gateway.requestTimeout ends no waits of closed loops (busy)",
    );
    assert_partly(
        &plain(),
        ("/upstream/capacity", json!(5)),
        json!(20),
        "upstream.capacity has an effect without fairness only: with it, executing requests do not slow each other down",
    );
    let open = with(plain(), "/clients/0/load", json!({"open": {"rate": 40}}));
    assert_partly(
        &open,
        (
            "/clients/0/load/open",
            json!({"rate": 40, "burst": {"size": 20, "every": "1s"}}),
        ),
        json!({"rate": 60}),
        "busy: its bursts only raise the mean rate",
    );
    let watch =
        |hold: &str| json!({"verb": "watch", "path": "/api/v1/namespaces/a/pods", "hold": hold});
    assert_partly(
        &open,
        ("/clients/0/requests/0", watch("9s")),
        watch("1ms"),
        "busy: its watches end at once, since its loop is open (hold)",
    );
    let nodes =
        json!([{"resources": ["nodes"], "service": {"mean": "20ms", "distribution": "bimodal"}}]);
    let constant = with(nodes.clone(), "/0/service/distribution", json!("constant"));
    let two = with(plain(), "/clients/0/requests/1", path("/api/v1/nodes/a"));
    assert_partly(
        &two,
        ("/upstream/rules", nodes),
        constant,
        "busy: all its requests have the mean service time of the mix and the distribution of the first one",
    );
}

#[test]
fn clients_that_read_slowly_are_explained() {
    let get = |rate: u32| json!({"path": "/api/v1/namespaces/a/pods/b", "readRate": rate});
    let one = with(plain(), "/clients/0/requests/0", get(2048));
    assert_eq!(remarks_of(&one), "");
    let two = with(one, "/clients/0/requests/1", get(2048));
    let mixed = json!([get(0), get(1024)]);
    let mixed_place = ("/clients/0/requests", mixed);
    assert_partly(
        &two,
        mixed_place,
        json!([get(2048), get(2048)]),
        "busy: it reads all its responses in the mean time of the mix (readRate)",
    );
    let list = |count: u32| {
        let objects = json!([{"resource": "pods", "count": count, "bytes": 1024}]);
        let scenario = with(plain(), "/upstream/objects", objects);
        let list = json!({"verb": "list", "path": "/api/v1/pods", "readRate": "1Mi"});
        remarks_of(&with(scenario, "/clients/0/requests/0", list))
    };
    assert_eq!(list(900), "");
    let expected = "busy: its responses keep no seats while it reads them, though they are larger than \
                    limits.spoolPerAnswer of a gateway (readRate)";
    assert_eq!(list(1100), expected);
}

#[test]
fn a_client_whose_requests_differ_for_the_policy_is_explained() {
    let path = |path: &str| json!({"path": path});
    let by_namespace = with(plain(), "/policy/1", schema("ByNamespace"));
    assert_partly(
        &by_namespace,
        ("/clients/0/requests/1", path("/api/v1/namespaces/c/pods/b")),
        path("/api/v1/namespaces/a/pods/b"),
        "busy: all its requests count for the namespace of the first one",
    );
    let mut other = schema("ByUser");
    other["metadata"]["name"] = json!("second");
    other["spec"]["matchingPrecedence"] = json!(900);
    other["spec"]["priorityLevelConfiguration"]["name"] = json!("catch-all");
    other["spec"]["rules"][0]["subjects"] = json!([{"kind": "User", "user": {"name": "busy-2"}}]);
    let nobody = with(
        other.clone(),
        "/spec/rules/0/subjects/0/user/name",
        json!("nobody"),
    );
    assert_partly(
        &plain(),
        ("/policy/2", other),
        nobody,
        "busy: all its requests count for the level work",
    );
    let mut wide = plain();
    wide["upstream"]["objects"] = json!([{"resource": "pods", "count": 1000}]);
    let list = json!({"verb": "list", "path": "/api/v1/namespaces/a/pods"});
    let found = remarks_of(&with(wide, "/clients/0/requests/1", list));
    assert!(found.contains("the first one, and 1 to "), "{found}");
}

#[test]
fn only_the_policy_that_is_in_force_longest_is_played() {
    let with_schema = |distinguisher| with(plain(), "/policy/1", schema(distinguisher));
    let [by_user, by_namespace] = ["ByUser", "ByNamespace"].map(with_schema);
    assert_ne!(figures(&by_user), figures(&by_namespace));
    // Of three seconds, the new policy is in force for one, or for two.
    for (at, like) in [("2s", &by_user), ("1s", &by_namespace)] {
        let event = json!({"at": at, "policy": by_namespace["policy"]});
        let changed = with(by_user.clone(), "/events/0", event);
        assert_eq!(figures(&changed), figures(like), "{at}");
        let expected = "the policy does not change: the one that is in force for the longest part of the measured time";
        assert!(remarks_of(&changed).contains(expected));
    }
}

#[test]
fn requests_of_several_schemas_of_one_level_are_explained() {
    let mut other = schema("ByUser");
    other["metadata"]["name"] = json!("second");
    other["spec"]["matchingPrecedence"] = json!(900);
    other["spec"]["rules"][0]["resourceRules"][0]["resources"] = json!(["secrets"]);
    let scenario = with(plain(), "/policy/2", other);
    let path = |path: &str| json!({"path": path});
    assert_partly(
        &scenario,
        (
            "/clients/0/requests/1",
            path("/api/v1/namespaces/a/secrets/b"),
        ),
        path("/api/v1/namespaces/a/pods/b"),
        "busy: all its requests count for the FlowSchema of the first one",
    );
}

#[test]
fn the_documentation_marks_exactly_the_ignored_keys() {
    let readme = include_str!("../../README.md");
    let (_, keys) = readme.split_once("## Keys of a scenario").unwrap();
    let last = |key: &str| {
        let key = key.trim_end_matches("[]");
        key.rsplit('.').next().unwrap_or_default().to_owned()
    };
    let mut expected: Vec<String> = IGNORED.iter().map(|key| last(key)).collect();
    let pieces: Vec<&str> = keys.split("` #").collect();
    let marked = pieces[..pieces.len() - 1].iter().map(|text| {
        let (_, key) = text.rsplit_once('`').unwrap();
        last(key)
    });
    let mut marked: Vec<String> = marked.collect();
    marked.sort();
    expected.sort();
    assert_eq!(marked, expected);
}
