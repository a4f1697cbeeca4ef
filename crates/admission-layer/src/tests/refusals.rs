//! Refusals that are not verdicts: who may know of them, how long they take, and what is recorded.

use std::time::Duration;

use fairgate_admission::{AdmissionDecision, AdmissionMode};
use serde_json::{Value, json};

use super::world::{Got, World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
/// A resource that nobody has defined.
const NOWHERE: &str = "/apis/x.io/v1/namespaces/ns/trinkets";

/// The time after which a test that hangs fails. It is shorter than the one for which the resources of the upstream are awaited.
const HANG: Duration = Duration::from_secs(8);

/// A world whose upstream does not say any more which resources it has.
fn world() -> World {
    let world = World::new(AdmissionMode::Enforce);
    world.enforce(&[
        policy("p", "x.io trinkets", "false"),
        policy("q", " configmaps", "false"),
    ]);
    let undefined = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trinkets.x.io";
    world.fail(
        undefined,
        404,
        &json!({"kind": "Status", "reason": "NotFound", "details": {"name": "trinkets.x.io"}}),
    );
    world
}

async fn create(world: &World, deadline: Option<Duration>) -> Got {
    let body = json!({"apiVersion": "x.io/v1", "kind": "Trinket", "metadata": {"name": "t"}});
    let mut call = world.call("POST", NOWHERE, "application/json", body.to_string().into());
    if let Some(deadline) = deadline {
        call.deadline = Some(call.received.plus(deadline));
    }
    let sending = tokio::time::timeout(HANG, world.send(call));
    sending.await.expect("it does not wait for the resources")
}

#[test]
fn nothing_is_read_for_the_refusal_of_a_user_who_may_not_make_the_request() {
    World::run(|| async {
        let mut world = world();
        world.user.name = "mallory".to_owned();
        let got = create(&world, None).await;
        assert_eq!((got.code, got.reason()), (403, "forbidden"));
        let record = world.records.all().pop().unwrap();
        let found = (record.decision, &*record.failure);
        assert_eq!(found, (AdmissionDecision::Failed, "forbidden (403)"));
        assert!(record.checks.is_empty(), "{record:?}");
    });
}

#[test]
fn what_a_server_would_have_said_first_is_looked_for_until_the_deadline() {
    World::run(|| async {
        let got = create(&world(), Some(Duration::from_millis(1500))).await;
        assert_eq!((got.code, got.reason()), (422, "admission-denied"));
    });
}

#[test]
fn the_record_of_a_request_that_could_not_be_evaluated_says_what_the_client_got() {
    World::run(|| async {
        let world = world();
        // What is stored cannot be read, and the method is not allowed.
        world.store(MAPS, Value::String("broken".to_owned()));
        let body = json!({"metadata": {"name": "m"}});
        let got = world.json("PUT", MAPS, &body).await;
        assert_eq!(got.code, 405, "{got:?}");
        let records = world.records.all();
        let failures: Vec<_> = records.iter().map(|one| &*one.failure).collect();
        assert_eq!(failures, ["admission-malformed (405)"]);
    });
}
