//! Tests of reading scenarios.

use super::*;
use crate::scenario::{LoadSpec, parse};

const SMALL: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Small
clients:
- name: mouse
  load:
    open: {rate: 2}
  requests:
  - path: /api/v1/namespaces/default/pods/a
expect:
- mouse.p99 <= 1s
";

/// The findings about `text`.
fn findings(text: &str) -> Vec<String> {
    let reading = parse("s.yaml", "s", text.as_bytes());
    reading.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_minimal_scenario_is_valid() {
    let scenario = parse("s.yaml", "s", SMALL.as_bytes()).usable().unwrap();
    assert_eq!(scenario.duration, Duration::from_secs(10));
    assert_eq!(scenario.clients[0].requests[0].info.verb.as_str(), "get");
    assert_eq!(scenario.clients[0].user_names(), ["mouse"]);
}

#[test]
fn all_mistakes_are_reported_with_their_lines_and_remedies() {
    let text = SMALL
        .replace("title: Small", "title: Small\ndurration: 5s")
        .replace("rate: 2", "rate: -2, arrivals: even")
        .replace(
            "path: /api/v1/namespaces/default/pods/a",
            "verb: get\n    path: /api/v1/pods",
        )
        .replace("<= 1s", "<= 1 x ideal");
    let found = findings(&text);
    for expected in [
        "s.yaml, line 4: durration: unknown key; did you mean \"duration\"?",
        "s.yaml, line 8: clients[0].load.open.rate: -2 is not a rate; write requests a second",
        "clients[0].load.open.arrivals: \"even\" is not a known value; write one of constant, poisson",
        "s.yaml, line 11: clients[0].requests[0].path: GET /api/v1/pods is the verb \"list\", not \"get\"; write verb: list",
        "s.yaml, line 13: expect[0]: only share has an ideal; write it as",
    ] {
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "{expected}\n{}",
            found.join("\n")
        );
    }
    assert_eq!(found.len(), 5, "{}", found.join("\n"));
}

#[test]
fn rules_that_involve_several_keys_are_checked() {
    for (from, to, expected) in [
        (
            "- mouse.p99 <= 1s",
            "- cat.p99 <= 1s",
            "no client is called \"cat\"; write all or one of mouse",
        ),
        ("expect:\n- mouse.p99 <= 1s\n", "", "nothing is expected"),
        (
            "    open: {rate: 2}",
            "    open: {rate: 2}\n    closed: {threads: 1}",
            "it has two loads",
        ),
        (
            "    open: {rate: 2}\n",
            "    open: {rate: 2}\n  starts: 1h\n",
            "it never sends anything",
        ),
        (
            "expect:",
            "events: [{at: 11s, slowdown: 2}]\nexpect:",
            "it is after the end",
        ),
        (
            "expect:",
            "events: [{at: 1s}]\nexpect:",
            "it has 0 of policy, slowdown, upstream, gateway",
        ),
        (
            "expect:",
            "events: [{at: 1s, upstream: down, server: 2}]\nexpect:",
            "there is no such server: upstream.servers is 1",
        ),
        (
            "expect:",
            "events: [{at: 1s, gateway: restart, server: 1}]\nexpect:",
            "events[0].server: it has an effect with slowdown and upstream only",
        ),
        (
            "expect:",
            "upstream: {servers: 3, capacity: 10}\nexpect:",
            "it cannot be divided equally among 3 servers",
        ),
        (
            "expect:",
            "upstream: {servers: 10, capacity: 10}\nexpect:",
            "10 servers are too many for one machine",
        ),
        ("- name: mouse", "- name: all", "cannot be a name"),
        (
            "default/pods/a\n",
            "default/pods/a\n    hold: 1s\n",
            "only watches are held; write verb: watch, or remove it",
        ),
        (
            "default/pods/a\n",
            "default/pods\n    verb: watch\n    readRate: 1Ki\n",
            "a watch is read as it comes; remove it: hold says how long it is read",
        ),
    ] {
        let found = findings(&SMALL.replace(from, to)).join("\n");
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[test]
fn mistakes_in_policy_objects_are_reported_with_the_line_of_the_object() {
    let text = SMALL.replace(
        "clients:",
        "policy:\n- apiVersion: flowcontrol.apiserver.k8s.io/v1\n  kind: PriorityLevelConfiguration\n  \
         metadata: {name: a}\n  spec: {type: Unlimited}\nclients:",
    );
    let found = findings(&text).join("\n");
    assert!(
        found.contains("s.yaml, line 5: policy[0]: PriorityLevelConfiguration \"a\": spec.type"),
        "{found}"
    );
}

#[test]
fn writes_that_no_server_accepts_are_mistakes() {
    let get = "- path: /api/v1/namespaces/default/pods/a";
    for (write, expected) in [
        (
            "- {verb: create, path: /apis/example.com/v1/widgets, body: 10}",
            "requests[0].body: the kind of widgets is not known here; add object: with its kind",
        ),
        (
            "- {verb: create, path: /apis/example.com/v1/widgets, object: {spec: {}}}",
            "requests[0].object: it has no kind; add kind:",
        ),
        (
            "- {verb: create, path: /api/v1/pods, object: pod}",
            "requests[0].object: not a mapping",
        ),
        (
            "- {verb: update, path: /api/v1/namespaces/default/pods/a}",
            "requests[0].verb: API servers refuse updates of pods: fields of a pod",
        ),
        (
            "- {verb: create, path: /api/v1/namespaces/a/pods, body: 1Mi}",
            "requests[0].body: API servers refuse pods with 104",
        ),
    ] {
        let found = findings(&SMALL.replace(get, write)).join("\n");
        assert!(found.contains(expected), "{expected}: {found}");
    }
    for write in [
        "- {verb: create, path: /api/v1/namespaces/a/configmaps, body: 1000Ki}",
        "- {verb: create, path: /api/v1/namespaces/a/pods, body: 255Ki}",
        "- {verb: create, path: /apis/example.com/v1/widgets}",
        "- {verb: update, path: /api/v1/namespaces/a/pods/b, object: {metadata: {resourceVersion: '1'}}}",
    ] {
        let found = findings(&SMALL.replace(get, write)).join("\n");
        assert!(found.is_empty(), "{write}: {found}");
    }
}

#[test]
fn an_unreadable_scenario_is_one_mistake() {
    assert_eq!(findings("a: [").len(), 1);
    assert_eq!(findings("").len(), 1);
    assert_eq!(findings("[1]").len(), 1);
    assert_eq!(read(Path::new("/nonexistent/a.yaml")).findings.len(), 1);
}

#[test]
fn a_shortened_scenario_keeps_its_rates() {
    let text = SMALL.replace("{rate: 2}", "{rate: 2, burst: {size: 5, every: 2s}}");
    let scenario = parse("s.yaml", "s", text.as_bytes()).usable().unwrap();
    let LoadSpec::Open(load) = scenario.clients[0].load else {
        panic!("it is open");
    };
    assert_eq!(load.burst, Some((5, Duration::from_secs(2))));
    let short = scenario.shortened(Duration::from_secs(1));
    assert_eq!(
        (short.duration, short.warm_up),
        (Duration::from_secs(1), Duration::from_millis(200))
    );
    assert_eq!(short.clients[0].load, LoadSpec::Open(load));
}
