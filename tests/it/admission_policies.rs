//! Where the admission policies for forwarded requests come from: files, the hosted API, the upstream.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    process::{GatewayProcess, ProcessOptions, wait_until, write_at_once},
    upstream::{self, Speaks, TestReply, TestUpstream},
};

const GROUP: &str = "admissionregistration.k8s.io";

type WatchSender = UnboundedSender<std::io::Result<Bytes>>;

/// An upstream with namespaces, policies and bindings, of which the test adds some.
#[derive(Clone, Default)]
struct Objects(Arc<Mutex<Vec<ObjectList>>>);

struct ObjectList {
    path: String,
    items: Vec<Value>,
    watches: Vec<WatchSender>,
}

impl Objects {
    fn start() -> (Self, TestUpstream) {
        let objects = Self::default();
        let paths = [
            "/api/v1/namespaces".to_owned(),
            format!("/apis/{GROUP}/v1/validatingadmissionpolicies"),
            format!("/apis/{GROUP}/v1/validatingadmissionpolicybindings"),
        ];
        let list = |path| ObjectList {
            path,
            items: Vec::new(),
            watches: Vec::new(),
        };
        *objects.0.lock().unwrap() = paths.map(list).into();
        let server = objects.clone();
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let query = request.uri().query().unwrap_or_default();
            let response = server.respond(request.uri().path(), query);
            async move { response }
        });
        (objects, upstream)
    }

    /// Creates an object of the list whose path ends with `plural`.
    fn add(&self, plural: &str, mut object: Value) {
        let mut lists = self.0.lock().unwrap();
        let list = lists
            .iter_mut()
            .find(|list| list.path.ends_with(plural))
            .unwrap();
        let version = (list.items.len() + 2).to_string();
        object["metadata"]["resourceVersion"] = version.into();
        for watch in &list.watches {
            send(watch, &object);
        }
        list.items.push(object);
    }

    fn respond(&self, path: &str, query: &str) -> TestReply {
        let json = |value: Value| Response::new(upstream::full(value.to_string()));
        match path {
            "/api" => return json(json!({"kind": "APIVersions", "versions": []})),
            "/apis" => return json(discovery()),
            _ => {}
        }
        let mut lists = self.0.lock().unwrap();
        let Some(list) = lists.iter_mut().find(|list| list.path == path) else {
            let mut absent = json(json!({"kind": "Status", "reason": "NotFound", "code": 404}));
            *absent.status_mut() = http::StatusCode::NOT_FOUND;
            return absent;
        };
        if query.contains("watch=true") {
            let from = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("resourceVersion="));
            let from: u64 = from.unwrap().parse().unwrap();
            let (sender, body) = upstream::streamed();
            for item in &list.items {
                let version = item["metadata"]["resourceVersion"].as_str().unwrap();
                if version.parse::<u64>().unwrap() > from {
                    send(&sender, item);
                }
            }
            list.watches.push(sender);
            return Response::new(body);
        }
        let version = (list.items.len() + 1).to_string();
        json(
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": list.items}),
        )
    }
}

fn send(watch: &WatchSender, added: &Value) {
    let event = json!({"type": "ADDED", "object": added});
    let _ = watch.send(Ok(format!("{event}\n").into()));
}

fn discovery() -> Value {
    let resource = |plural: &str, kind: &str| json!({"resource": plural, "scope": "Cluster", "responseKind": {"group": GROUP, "version": "v1", "kind": kind}});
    json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": GROUP}, "versions": [
        {"version": "v1", "resources": [
            resource("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
            resource("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")]}]}]})
}

fn policy(name: &str, expression: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": expression}],
        },
    })
}

fn binding(policy: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{policy}-everywhere")},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

/// Documents of a file.
fn file(documents: &[Value]) -> String {
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

fn configuration(upstream: &TestUpstream, policies: &Value) -> Value {
    json!({
        "upstream": {"url": format!("http://{}", upstream.address), "tokenFile": "tokens"},
        "admission": {"mode": "audit", "policies": policies},
        "dataCores": 1,
    })
}

fn in_force(gateway: &GatewayProcess) -> Option<u64> {
    gateway.metric("fairgate_admission_policies")
}

#[test]
fn policies_in_files_take_effect_when_they_change_and_invalid_ones_never() {
    let (_objects, upstream) = Objects::start();
    let options = ProcessOptions {
        tokens: "gateway",
        files: vec![("p.yaml", file(&[policy("one", "true"), binding("one")]))],
        ..ProcessOptions::default()
    };
    let configuration = configuration(&upstream, &json!({"files": ["p.yaml"]}));
    let gateway = GatewayProcess::with(configuration, &options);
    wait_until("the policy is in force", || in_force(&gateway) == Some(1));

    let both = [
        policy("one", "true"),
        binding("one"),
        policy("two", "1 < 2"),
        binding("two"),
    ];
    gateway.write("p.yaml", &file(&both));
    wait_until("both are in force", || in_force(&gateway) == Some(2));
    assert_eq!(gateway.metric("fairgate_admission_synced"), Some(1));

    gateway.write(
        "p.yaml",
        &file(&[
            policy("one", "1 +"),
            policy("two", "nonsense"),
            binding("two"),
        ]),
    );
    gateway.wait_for_log("the admission policies are invalid", 1);
    // All mistakes are reported, and the last good policies stay in force.
    for name in ["one", "two"] {
        let text = format!("ValidatingAdmissionPolicy \"{name}\": spec.validations[0].expression");
        let mut lines = gateway.logged(&text);
        // The line about the whole set names the first of them, too.
        lines.retain(|line| line.contains(": error: "));
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
    }
    assert_eq!(in_force(&gateway), Some(2));
    assert_eq!(gateway.metric("fairgate_admission_synced"), Some(0));
    let ready = gateway.admin_get("/readyz?verbose");
    is_named(&ready);
    assert!(
        ready.contains("(and 1 more); the last good policies stay in force (digest sha256:"),
        "{ready}"
    );
    let log = gateway
        .logged("the admission policies are invalid")
        .remove(0);
    assert!(
        log.contains("p.yaml") && log.contains("digest=sha256:"),
        "{log}"
    );

    gateway.write("p.yaml", &file(&[policy("two", "true"), binding("two")]));
    wait_until("the corrected one is in force", || {
        in_force(&gateway) == Some(1)
    });
    assert_eq!(gateway.metric("fairgate_admission_synced"), Some(1));
}

#[test]
fn the_last_good_policies_are_in_force_after_a_start_with_invalid_ones() {
    let (_objects, upstream) = Objects::start();
    let options = ProcessOptions {
        tokens: "gateway",
        files: vec![("p.yaml", file(&[policy("one", "true"), binding("one")]))],
        ..ProcessOptions::default()
    };
    let mut configuration = configuration(&upstream, &json!({"files": ["p.yaml"]}));
    configuration["state"] = json!({"directory": "state"});
    let gateway = GatewayProcess::with(configuration, &options);
    wait_until("the policy is in force", || in_force(&gateway) == Some(1));
    wait_until("it is kept", || is_kept(&gateway));

    let broken = file(&[policy("one", "1 +"), binding("one")]);
    let gateway = gateway
        .restart(|directory| write_at_once(&directory.join("p.yaml"), &broken))
        .unwrap();
    wait_until("the last good one is in force", || {
        in_force(&gateway) == Some(1)
    });
    gateway.wait_for_log("the admission policies are invalid", 1);
    assert_eq!(
        (
            in_force(&gateway),
            gateway.metric("fairgate_admission_synced")
        ),
        (Some(1), Some(0))
    );
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    is_named(&ready);
    assert!(
        ready.contains("; the last good policies stay in force (digest sha256:")
            && ready.contains(", kept "),
        "{ready}"
    );
    let logged = gateway.wait_for_log("the last good admission policies are in force", 1);
    assert!(
        logged.len() == 1 && logged[0].contains("digest=sha256:"),
        "{logged:?}"
    );

    let gateway = gateway
        .restart(|directory| std::fs::remove_file(directory.join("p.yaml")).unwrap())
        .unwrap();
    wait_until("it is in force without the file", || {
        in_force(&gateway) == Some(1)
    });

    // Valid ones win, even if they are none.
    let gateway = gateway
        .restart(|directory| write_at_once(&directory.join("p.yaml"), ""))
        .unwrap();
    wait_until("they are in force", || {
        gateway.metric("fairgate_admission_synced") == Some(1)
    });
    assert_eq!(in_force(&gateway), Some(0));
}

#[test]
fn valid_policies_are_kept_although_the_upstream_has_never_been_reached() {
    let options = ProcessOptions {
        files: vec![("p.yaml", file(&[policy("one", "true"), binding("one")]))],
        ..ProcessOptions::default()
    };
    let configuration = json!({
        "upstream": {"url": "http://127.0.0.1:9"},
        "admission": {"mode": "enforce", "policies": {"files": ["p.yaml"]}},
        "state": {"directory": "state"},
        "dataCores": 1,
    });
    let gateway = GatewayProcess::with(configuration, &options);
    wait_until("it is kept", || is_kept(&gateway));
    assert_eq!(in_force(&gateway), Some(0));

    let broken = file(&[policy("one", "1 +"), binding("one")]);
    let gateway = gateway
        .restart(|directory| write_at_once(&directory.join("p.yaml"), &broken))
        .unwrap();
    gateway.wait_for_log("the admission policies are invalid", 1);
    let ready = gateway.admin_get("/readyz?verbose");
    is_named(&ready);
    let waits = ") come into force when the upstream's namespaces are known; until then, requests that may be subject to them wait";
    assert!(
        ready.contains("; the last good policies (digest sha256:") && ready.contains(waits),
        "{ready}"
    );
}

/// The health check names the file, the policy and the field.
#[track_caller]
fn is_named(ready: &str) {
    for words in [
        "[!]admission: invalid for ",
        "p.yaml, document 1: ValidatingAdmissionPolicy \"one\": spec.validations[0].expression: ",
    ] {
        assert!(ready.contains(words), "{words}: {ready}");
    }
}

/// Whether policies have been kept for the next start.
fn is_kept(gateway: &GatewayProcess) -> bool {
    let entries = std::fs::read_dir(gateway.directory.join("state"));
    let mut paths = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    paths.any(|path| path.extension().is_some_and(|ending| ending == "json"))
}

#[test]
fn policies_of_the_upstream_are_followed() {
    let (objects, upstream) = Objects::start();
    objects.add("policies", policy("one", "true"));
    objects.add("bindings", binding("one"));
    let options = ProcessOptions {
        tokens: "gateway",
        ..ProcessOptions::default()
    };
    let configuration = configuration(&upstream, &json!({"source": "upstream"}));
    let gateway = GatewayProcess::with(configuration, &options);
    wait_until("the policy is in force", || in_force(&gateway) == Some(1));
    objects.add("policies", policy("two", "true"));
    objects.add("bindings", binding("two"));
    wait_until("both are in force", || in_force(&gateway) == Some(2));
    wait_until("everything is watched", || {
        gateway.metric("fairgate_admission_synced") == Some(1)
    });
    let lines = gateway.metrics();
    assert!(
        lines.contains("\nfairgate_admission_policies_age_seconds 0\n"),
        "{lines}"
    );
    assert!(gateway.logged("would be enforced twice").is_empty());
}
