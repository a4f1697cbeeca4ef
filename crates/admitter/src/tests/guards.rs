//! Objects that change between the judgement and the write.

use fairgate_admission::{AdmissionDecision, AdmissionMode, WriteGuard};
use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::Response;
use serde_json::{Value, json};

use super::world::{Objects, Sent, World, policy};

const MAP: &str = "/api/v1/namespaces/ns/configmaps/m";

fn stored(version: u64, locked: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"locked": locked},
        "metadata": {"name": "m", "uid": "u", "resourceVersion": version.to_string()}})
}

fn conflict() -> Response<String> {
    let status = json!({"kind": "Status", "reason": "Conflict", "code": 409});
    let mut response = Response::new(status.to_string());
    *response.status_mut() = http::StatusCode::CONFLICT;
    response
}

/// A server that checks versions. Before it looks at each of the first `times` writes, somebody else writes the object.
fn contended(world: &mut World, times: u64, locked: &'static str) {
    let objects: Objects = Arc::clone(&world.objects);
    let writes = AtomicU64::new(0);
    world.store(MAP, stored(1, "no"));
    world.inside.answer = Rc::new(move |sent: &Sent| {
        let number = writes.fetch_add(1, Ordering::Relaxed) + 1;
        let mut objects = objects.lock().unwrap();
        if number <= times {
            objects.insert(MAP.to_owned(), stored(number + 1, locked));
        }
        let current = &objects[MAP]["metadata"]["resourceVersion"];
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        let wanted = match sent.method.as_str() {
            "DELETE" => &body["preconditions"]["resourceVersion"],
            _ => &body["metadata"]["resourceVersion"],
        };
        if wanted.is_null() || wanted == current {
            Response::new(body.to_string())
        } else {
            conflict()
        }
    });
}

fn unless_locked(world: &World) {
    world.enforce(&[policy("p", " configmaps", "oldObject.data.locked != 'yes'")]);
}

fn versions(world: &World) -> Vec<String> {
    let sent = world.sent();
    let version = |one: &Sent| {
        let body: Value = serde_json::from_slice(&one.body).unwrap();
        let at = [&body["metadata"], &body["preconditions"]];
        let found = at.iter().find_map(|at| at["resourceVersion"].as_str());
        found.unwrap_or_default().to_owned()
    };
    sent.iter().map(version).collect()
}

#[test]
fn g02_a_write_whose_object_has_changed_is_judged_again() {
    World::run(|| async {
        for method in ["PUT", "PATCH", "DELETE"] {
            // Now the policy protects the object.
            let mut world = World::guarded();
            contended(&mut world, 1, "yes");
            unless_locked(&world);
            let body = json!({"metadata": {"name": "m"}});
            let got = world.json(method, MAP, &body).await;
            assert_eq!(got.code, 422, "{method}: {got:?}");
            assert_eq!(versions(&world), ["1"], "{method}");
            let records = world.records.all();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].decision, AdmissionDecision::Denied);

            // It does not, so the client sees nothing of the conflict.
            let mut world = World::guarded();
            contended(&mut world, 2, "no");
            unless_locked(&world);
            let got = world.json(method, MAP, &body).await;
            assert_eq!(got.code, 200, "{method}: {got:?}");
            assert_eq!(versions(&world), ["1", "2", "3"], "{method}");
            let records = world.records.all();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].guard, Some(WriteGuard::Repeated));
        }
    });
}

#[test]
fn g02_without_the_guard_the_write_is_forwarded_as_it_is_and_counted() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        contended(&mut world, 1, "yes");
        unless_locked(&world);
        let got = world
            .json("PUT", MAP, &json!({"metadata": {"name": "m"}}))
            .await;
        assert_eq!(got.code, 200);
        assert_eq!(versions(&world), [""]);
        assert_eq!(world.records.all()[0].guard, Some(WriteGuard::None));
    });
}

#[test]
fn an_object_that_changes_all_the_time_ends_with_the_conflict() {
    World::run(|| async {
        let mut world = World::guarded();
        contended(&mut world, u64::MAX, "no");
        unless_locked(&world);
        let got = world
            .json("PUT", MAP, &json!({"metadata": {"name": "m"}}))
            .await;
        assert_eq!(got.code, 409);
        assert_eq!(versions(&world).len(), 6);
    });
}

#[test]
fn conflicts_that_are_the_clients_own_are_its_own() {
    World::run(|| async {
        let mut world = World::guarded();
        contended(&mut world, 0, "no");
        unless_locked(&world);
        let stale = json!({"metadata": {"name": "m", "resourceVersion": "0"}});
        assert_eq!(world.json("PUT", MAP, &stale).await.code, 409);
        assert_eq!(versions(&world), ["0"]);
        let current = json!({"metadata": {"name": "m", "resourceVersion": "1"}});
        assert_eq!(world.json("PUT", MAP, &current).await.code, 200);
        assert_eq!(world.records.all()[1].guard, Some(WriteGuard::Client));
        // A conflict of another kind: the object has not changed.
        world.inside.answer = Rc::new(|_: &Sent| conflict());
        let body = json!({"metadata": {"name": "m"}});
        assert_eq!(world.json("PUT", MAP, &body).await.code, 409);
        assert_eq!(world.sent().len(), 3);
    });
}

#[test]
fn a_body_with_duplicate_members_is_made_conditional_without_them() {
    World::run(|| async {
        let mut world = World::guarded();
        contended(&mut world, 0, "no");
        unless_locked(&world);
        let body = r#"{"metadata": {"resourceVersion": "0"}, "metadata": {"name": "m", "resourceVersion": ""}}"#;
        let call = world.call("PUT", MAP, "application/json", body.into());
        let got = world.send(call).await;
        assert_eq!((got.code, versions(&world)), (200, vec!["1".to_owned()]));
        // Members that are no objects cannot be made conditional.
        let body = r#"{"metadata": 1}"#;
        let call = world.call("PUT", MAP, "application/json", body.into());
        let got = world.send(call).await;
        assert_eq!((got.code, got.reason()), (400, "admission-malformed"));
        assert_eq!(world.sent().len(), 1);
    });
}

#[test]
fn an_object_that_was_deleted_meanwhile_is_created() {
    World::run(|| async {
        let mut world = World::guarded();
        world.store(MAP, stored(1, "no"));
        world.enforce(&[policy("p", " configmaps", "request.operation == 'UPDATE'")]);
        let objects = Arc::clone(&world.objects);
        world.inside.answer = Rc::new(move |_: &Sent| {
            objects.lock().unwrap().remove(MAP);
            conflict()
        });
        let got = world
            .json("PUT", MAP, &json!({"metadata": {"name": "m"}}))
            .await;
        assert_eq!(
            got.code, 422,
            "as a creation, which the policy denies: {got:?}"
        );
        assert_eq!(world.sent().len(), 1);
    });
}
