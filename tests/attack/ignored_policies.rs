//! `failurePolicy: Ignore` beside load that an attacker makes itself: what cannot be evaluated in time is not ignored.

use http::Method;
use serde_json::json;

use crate::{
    Attack,
    hard_bodies::{JSON, WIDGETS, resource},
    hostile::{HostileClients, HostileRequest},
    policies::{CLIENTS, cheap, end, median, policy, scene_with},
    report::Outcome,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "policy-ignore",
        point: "policies",
        about: "one user keeps the gateway busy, to have a forbidden write pass a policy with `failurePolicy: Ignore`",
        play: || median(|| play(1)),
    },
    Attack {
        name: "policy-ignore-users",
        point: "policies",
        about: "the same by 20 users",
        play: || median(|| play(20)),
    },
];

/// Objects that a policy forbids, unless it cannot be evaluated. Lack of time, of a worker or of memory is no error of evaluation.
fn play(users: usize) -> Outcome {
    /// Resident memory: as for [`costs`].
    const MEMORY: u64 = (3 * 128) << 20;
    const HASTY: &str = "/apis/x.io/v1/namespaces/a/texts?timeout=1s";
    let clients = HostileClients { users, ..CLIENTS };
    let forbidden = |length| {
        let object = resource("Text", json!({"s": "forbidden".repeat(length)}));
        HostileRequest {
            name: "a forbidden object",
            method: Method::POST,
            path: HASTY.into(),
            content_type: JSON.into(),
            more: None,
            body: object.to_string().into(),
            // Denied, or not evaluated in time; never created.
            codes: &[422, 504],
        }
    };
    let entries: serde_json::Map<_, _> = (0..24_000)
        .map(|number| (format!("key-{number}"), json!("v")))
        .collect();
    let load = HostileRequest {
        name: "load of the attacker's own",
        method: Method::POST,
        path: WIDGETS.into(),
        content_type: JSON.into(),
        more: None,
        body: resource("Widget", json!({"l": [], "data": entries}))
            .to_string()
            .into(),
        codes: &[201, 422],
    };
    let ignoring = |policies: String| {
        let failure = "\"spec\":{\"failurePolicy\":\"Ignore\",\"matchConstraints\"";
        policies.replace("\"spec\":{\"matchConstraints\"", failure)
    };
    let mut policies = cheap();
    policies.push_str(&ignoring(policy(
        "no-forbidden-texts",
        "x.io",
        "texts",
        &["!object.s.contains('forbidden')"],
    )));
    policies.push_str(&policy(
        "all-keys",
        "x.io",
        "widgets",
        &["object.data.all(key, object.data.exists(other, other == key))"],
    ));
    assert_eq!(policies.matches("Ignore").count(), 1);
    let requests = vec![load, forbidden(1), forbidden(4_000)];
    let played =
        scene_with(policies, users).play(async |scene| clients.attack(scene, requests).await);
    let denied = played.found.with_code(422);
    let mut outcome = end(played, MEMORY);
    outcome.check("forbidden objects are denied", denied > 0, "none was");
    outcome
}
