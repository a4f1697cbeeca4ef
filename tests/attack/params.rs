//! Policies with very many params, and with a large one: each write is evaluated by all of them.

use http::Method;
use serde_json::json;

use crate::{
    Attack,
    cluster::SMALL_PARAMS,
    hard_bodies::{JSON, TEXTS, resource},
    hostile::{HostileClients, HostileRequest},
    policies::{CLIENTS, cheap, end, median, scene_with},
    report::Outcome,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "params",
        point: "27.2",
        about: "one user's writes are evaluated by policies with 300 params of 100 entries and one of 1 MB",
        play: || median(|| play(1)),
    },
    Attack {
        name: "params-users",
        point: "27.2",
        about: "the same by 20 users",
        play: || median(|| play(20)),
    },
];

/// A policy about texts, whose binding selects params, as YAML.
fn with_params(name: &str, param_ref: &serde_json::Value, expressions: &[&str]) -> String {
    let api_version = "admissionregistration.k8s.io/v1";
    let validations: Vec<_> = (expressions.iter())
        .map(|expression| json!({"expression": expression}))
        .collect();
    let policy = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["x.io"],
                "apiVersions": ["*"], "resources": ["texts"]}]},
            "validations": validations,
        },
    });
    let binding = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "paramRef": param_ref, "validationActions": ["Deny"]},
    });
    format!("---\n{policy}\n---\n{binding}\n")
}

fn play(users: usize) -> Outcome {
    /// Resident memory: the bodies of both cores, three times over.
    const MEMORY: u64 = (3 * 128) << 20;
    let clients = HostileClients { users, ..CLIENTS };
    let mut policies = cheap();
    let many =
        json!({"selector": {"matchLabels": {"param": "true"}}, "parameterNotFoundAction": "Deny"});
    policies.push_str(&with_params(
        "many-params",
        &many,
        &["!has(params.data) || params.data.all(key, params.data[key] != object.s)"],
    ));
    let large = json!({"name": "large", "parameterNotFoundAction": "Deny"});
    policies.push_str(&with_params(
        "a-large-param",
        &large,
        &[
            "!params.data.long.contains(object.s)",
            "size(params.data.long) > 1000",
        ],
    ));
    let text = |name, text: String, codes| HostileRequest {
        name,
        method: Method::POST,
        path: TEXTS.into(),
        content_type: JSON.into(),
        more: None,
        body: resource("Text", json!({"s": text})).to_string().into(),
        codes,
    };
    let requests = vec![
        text("a text that no param has", "other".to_owned(), &[201]),
        text("a text of the first param", "value-0-7".to_owned(), &[422]),
        text(
            "a text of the last param",
            format!("value-{}-7", SMALL_PARAMS - 1),
            &[422],
        ),
        // As long as the smallest body of which the budget takes note.
        text("a long text", "y".repeat(1 << 20), &[201, 422]),
    ];
    let played =
        scene_with(policies, users).play(async |scene| clients.attack(scene, requests).await);
    let [denied, allowed] = [422, 201].map(|code| played.found.with_code(code));
    let mut outcome = end(played, MEMORY);
    outcome.check(
        "writes are evaluated by every param",
        denied > 0 && allowed > 0,
        format!("{denied} are denied, {allowed} are allowed"),
    );
    outcome
}
