//! Policies of the gateway's own API, in force for forwarded requests.

use http::Method;
use serde_json::{Value, json};

use super::{MAPS, World, map, policy};
use crate::eviction::gateway::User;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn hosting(name: &str) -> World {
    let hosted = json!({
        "mode": "overlay",
        "store": {"type": "local", "local": {"path": "objects.redb"}},
        "admission": {"mode": "enforce", "policies": {"source": "hosted"}},
    });
    World::with("enforce", name, &[], hosted)
}

async fn create(user: &mut User, objects: &[Value; 2]) {
    let paths = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    for (path, object) in paths.iter().zip(objects) {
        let got = user.post(&format!("{GROUP}/{path}"), object).await;
        assert_eq!(got.code, 201, "{}", got.text());
    }
}

/// Sends the same write until it gets this code: changes are in force within a second.
async fn until(user: &mut User, code: u16) {
    let changed = async {
        while user.post(MAPS, &map("m")).await.code != code {
            tokio::task::yield_now().await;
        }
    };
    crate::client::soon(changed).await;
}

#[tokio::test]
async fn hosted_policies_evaluate_forwarded_requests_as_long_as_they_exist() {
    let world = hosting("hosted");
    let mut alice = world.alice().await;
    assert_eq!(alice.post(MAPS, &map("m")).await.code, 201);
    let expression = "object.metadata.name != 'm'";
    let objects = policy(["p", "configmaps", expression, "Deny", "completed"]);
    create(&mut alice, &objects).await;
    until(&mut alice, 422).await;
    let got = alice.post(MAPS, &map("m")).await;
    assert_eq!(got.header("x-fairgate-reason"), "admission-denied");
    let text = got.text();
    assert!(text.contains("'p' with binding 'p-b' denied"), "{text}");
    assert_eq!(alice.post(MAPS, &map("other")).await.code, 201);
    let binding = format!("{GROUP}/validatingadmissionpolicybindings/p-b");
    let got = alice.ask(Method::DELETE, &binding, &[], "").await;
    assert_eq!(got.code, 200, "{}", got.text());
    until(&mut alice, 201).await;
}

#[tokio::test]
async fn hostile_policies_get_a_clear_status_and_change_nothing() {
    let world = hosting("hosted-hostile");
    let mut alice = world.alice().await;
    let many = 1_000_000;
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    let chain = |text: &str, times: usize| format!("object{}", text.repeat(times));
    let regex = format!("'a'.matches('{}')", nested("(", "a", ")*", many / 4));
    for (name, expression) in [
        ("parentheses", nested("(", "true", ")", many)),
        ("lists", nested("[", "", "]", many)),
        ("maps", nested("{1:", "1", "}", many / 2)),
        ("not", nested("!", "true", "", many)),
        ("minus", nested("-", "1", "", many)),
        ("conditionals", nested("true?true:", "true", "", many / 5)),
        ("calls", nested("size(", "[]", ")", many / 4)),
        ("selections", chain(".a", many)),
        ("indexes", chain("[0]", many / 2)),
        ("macros", nested("[1].all(a,", "true", ")", many / 10)),
        ("sums", format!("1{}==1", "+1".repeat(many))),
        ("open-string", "'".repeat(many)),
        ("regex", regex),
    ] {
        let [hostile, _] = policy([name, "configmaps", &expression, "Deny", "completed"]);
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let got = alice.post(&path, &hostile).await;
        let text = got.text();
        let shown: String = text.chars().take(200).collect();
        assert_eq!(got.code, 422, "{name}: {shown}");
        assert_eq!(got.json()["kind"], "Status", "{name}");
    }
    assert_eq!(alice.post(MAPS, &map("m")).await.code, 201);
}
