//! Objects that change between the evaluation and the write.

use fairgate_admission::{AdmissionDecision, AdmissionMode, WriteGuard};
use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fairgate_core::digest::User;
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
fn g02_a_write_whose_object_has_changed_is_evaluated_again() {
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
fn a_write_that_a_server_refuses_for_want_of_a_version_is_not_given_one() {
    World::run(|| async {
        let world = World::guarded();
        world.enforce(&[policy("p", "policy poddisruptionbudgets", "true")]);
        let path = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b";
        let budget = |version: &str| {
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 1},
                "metadata": {"name": "b", "namespace": "ns", "resourceVersion": version}})
        };
        let mut stored = budget("7");
        stored["metadata"]["uid"] = json!("u");
        world.store(path, stored);
        for version in ["", "0"] {
            let got = world.json("PUT", path, &budget(version)).await;
            assert_eq!(got.code, 422, "{version:?}: {got:?}");
            let message = got.message();
            assert!(
                message.ends_with("Invalid value: 0: must be specified for an update"),
                "{message}"
            );
        }
        assert!(world.sent().iter().all(|one| one.method == "GET"));
        assert_eq!(world.json("PUT", path, &budget("7")).await.code, 200);
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
        // Forwarded, it would be carried out as soon as the object has that version.
        let other = json!({"metadata": {"name": "m", "resourceVersion": "2"}});
        for method in ["PUT", "PATCH"] {
            let got = world.json(method, MAP, &other).await;
            let text = "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; \
                        please apply your changes to the latest version and try again";
            assert_eq!((got.code, &*got.message()), (409, text));
        }
        assert!(world.sent().is_empty());
        let current = json!({"metadata": {"name": "m", "resourceVersion": "1"}});
        assert_eq!(world.json("PUT", MAP, &current).await.code, 200);
        assert_eq!(world.records.all()[2].guard, Some(WriteGuard::Client));
        // A conflict of another kind: the object has not changed.
        world.inside.answer = Rc::new(|_: &Sent| conflict());
        let body = json!({"metadata": {"name": "m"}});
        assert_eq!(world.json("PUT", MAP, &body).await.code, 409);
        assert_eq!(world.sent().len(), 2);
    });
}

#[test]
fn versions_that_the_server_ignores_are_no_condition() {
    World::run(|| async {
        for (method, version) in [
            ("PUT", "0"),
            ("PUT", ""),
            ("PUT", "00"),
            ("PATCH", "0"),
            ("PATCH", ""),
        ] {
            let mut world = World::guarded();
            contended(&mut world, 1, "yes");
            unless_locked(&world);
            let body = json!({"metadata": {"name": "m", "resourceVersion": version}});
            let got = world.json(method, MAP, &body).await;
            assert_eq!(got.code, 422, "{method} {version:?}: {got:?}");
            assert_eq!(versions(&world), ["1"]);
        }
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
fn an_object_that_was_deleted_meanwhile_is_not_created() {
    World::run(|| async {
        let mut world = World::guarded();
        world.store(MAP, stored(1, "no"));
        world.enforce(&[policy("p", " configmaps", "true")]);
        let objects = Arc::clone(&world.objects);
        world.inside.answer = Rc::new(move |_: &Sent| {
            objects.lock().unwrap().remove(MAP);
            conflict()
        });
        let body = json!({"metadata": {"name": "m"}});
        let got = world.json("PUT", MAP, &body).await;
        assert_eq!(got.code, 404, "{got:?}");
        assert_eq!(world.sent().len(), 1);
        let sent: Value = serde_json::from_slice(&world.sent()[0].body).unwrap();
        assert_eq!(sent["metadata"]["uid"], "u", "a PUT may create it");
    });
}

/// A server that has no such path, or a proxy before it, says nothing about the object: another server may have it.
#[test]
fn a_404_that_names_no_object_is_no_absence() {
    World::run(|| async {
        for guard in [false, true] {
            let world = if guard {
                World::guarded()
            } else {
                World::new(AdmissionMode::Enforce)
            };
            world.enforce(&[
                policy("p", " configmaps", "false"),
                policy("q", " configmaps/status", "false"),
            ]);
            // Here discovery says so, too.
            let status = format!("{MAP}/status");
            let no_route = json!({"kind": "Status", "reason": "NotFound", "details": {}});
            world.fail(&status, 404, &no_route);
            let got = world.json("PATCH", &status, &json!({"status": {}})).await;
            assert_eq!(got.code, 404, "{got:?}");
            for status in [
                no_route,
                json!({"kind": "Status"}),
                json!("404 page not found"),
            ] {
                world.fail(MAP, 404, &status);
                for method in ["DELETE", "PATCH", "PUT"] {
                    let body = match method {
                        "DELETE" => json!({}),
                        _ => json!({"metadata": {"name": "m"}}),
                    };
                    let got = world.json(method, MAP, &body).await;
                    assert_eq!(got.code, 500, "{method} {status}: {got:?}");
                }
            }
            assert!(world.sent().is_empty());
        }
    });
}

#[test]
fn writes_of_absent_objects_are_answered_here() {
    World::run(|| async {
        let mut world = World::guarded();
        world.enforce(&[policy("p", "* *", "true")]);
        let body = json!({"metadata": {"name": "m"}});
        let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/m";
        for (method, path, code, text) in [
            ("PATCH", MAP, 404, "configmaps \"m\" not found"),
            ("DELETE", MAP, 404, "configmaps \"m\" not found"),
            ("PUT", MAP, 404, "configmaps \"m\" not found"),
            (
                "PATCH",
                lease,
                404,
                "leases.coordination.k8s.io \"m\" not found",
            ),
            (
                "PUT",
                lease,
                409,
                "Operation cannot be fulfilled on leases.coordination.k8s.io \"m\": the object does not exist, and a PUT \
                 cannot be kept from changing one that is created meanwhile (admission.guard of fairgate): create it with POST",
            ),
        ] {
            let got = world.json(method, path, &body).await;
            assert_eq!((got.code, &*got.message()), (code, text), "{method}");
        }
        assert!(world.sent().is_empty());
        world.user = User::new("mallory", ["devs"]);
        let got = world.json("PATCH", MAP, &body).await;
        assert_eq!((got.code, got.reason()), (403, "forbidden"));
    });
}

#[test]
fn an_apply_creates_an_object_and_changes_none() {
    World::run(|| async {
        let mut world = World::guarded();
        world.enforce(&[policy("p", " configmaps", "oldObject == null")]);
        let objects = Arc::clone(&world.objects);
        world.inside.answer = Rc::new(move |sent: &Sent| {
            if sent.target.contains("dryRun") {
                return Response::new(String::from_utf8(sent.body.to_vec()).unwrap());
            }
            objects
                .lock()
                .unwrap()
                .insert(MAP.to_owned(), stored(1, "no"));
            conflict()
        });
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        let apply = "application/apply-patch+yaml";
        let call = world.call("PATCH", MAP, apply, body.to_string().into());
        let got = world.send(call).await;
        assert_eq!(got.code, 422, "it is evaluated again, as a change: {got:?}");
        let sent: Value = serde_json::from_slice(&world.sent()[1].body).unwrap();
        let version = &sent["metadata"]["resourceVersion"];
        assert_eq!(*version, "9223372036854775807");
    });
}

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

/// A collection of maps of these names, versions and locks.
fn collection(maps: &[(&str, u64, &str)]) -> Value {
    let item = |(name, version, locked): &(&str, u64, &str)| {
        json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": version.to_string()},
            "data": {"locked": locked}})
    };
    let items: Vec<Value> = maps.iter().map(item).collect();
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": items})
}

#[test]
fn a_collection_is_deleted_object_by_object() {
    World::run(|| async {
        let world = World::guarded();
        unless_locked(&world);
        world.store(MAPS, collection(&[("a", 3, "no"), ("b", 4, "no")]));
        let target = format!("{MAPS}?labelSelector=x%3Dy&fieldSelector=metadata.name!%3Dc&limit=5");
        let got = world.json("DELETE", &target, &Value::Null).await;
        assert_eq!((got.code, &got.json()["status"]), (200, &json!("Success")));
        let one = |name: &str| {
            format!(
                "DELETE {MAPS}?labelSelector=x%3Dy&fieldSelector=metadata.name%21%3Dc%2Cmetadata.name%3D{name}"
            )
        };
        assert_eq!(world.targets(), [one("a"), one("b")]);
        let sent: Value = serde_json::from_slice(&world.sent()[1].body).unwrap();
        assert_eq!(
            sent["preconditions"],
            json!({"uid": "u-b", "resourceVersion": "4"})
        );
        // Parameters are known by their decoded names.
        world.store(MAPS, collection(&[("a", 3, "no")]));
        let target =
            format!("{MAPS}?field%53elector=metadata.name!%3Dc&limi%74=5&label%53elector=&x=1");
        assert_eq!(world.json("DELETE", &target, &Value::Null).await.code, 200);
        let last = world.targets().pop().unwrap();
        let selected = "fieldSelector=metadata.name%21%3Dc%2Cmetadata.name%3Da";
        assert_eq!(
            last,
            format!("DELETE {MAPS}?label%53elector=&x=1&{selected}")
        );
        // The reply to one is that of the server.
        world.store(MAPS, collection(&[("a", 3, "no")]));
        let got = world.json("DELETE", MAPS, &Value::Null).await;
        assert_eq!(got.json()["kind"], "Done");
    });
}

#[test]
fn a_collection_that_has_changed_is_evaluated_again() {
    World::run(|| async {
        for before in [&[("a", 3, "no")][..], &[]] {
            let mut world = World::guarded();
            unless_locked(&world);
            world.store(MAPS, collection(before));
            let objects = Arc::clone(&world.objects);
            world.inside.answer = Rc::new(move |_: &Sent| {
                let now = collection(&[("a", 5, "yes")]);
                objects.lock().unwrap().insert(MAPS.to_owned(), now);
                conflict()
            });
            let got = world.json("DELETE", MAPS, &Value::Null).await;
            assert_eq!(got.code, 422, "{before:?}: {got:?}");
            assert_eq!(world.sent().len(), 1);
        }
    });
}

/// The name of the map that a deletion selects.
fn deleted_name(sent: &Sent) -> &str {
    sent.target.rsplit_once("%3D").map_or("", |(_, name)| name)
}

/// The names in all deletions.
fn deleted_names(world: &World) -> String {
    world.sent().iter().map(deleted_name).collect()
}

/// Ten maps, of which the fourth has another version when it is deleted, after `change`. Deleted ones are gone, or stay for their finalizers.
fn ten_maps(world: &mut World, stays: bool, change: fn(&mut Vec<Value>)) {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    world.store(MAPS, collection(&names.map(|name| (name, 3, "no"))));
    let objects = Arc::clone(&world.objects);
    let is_changed = Cell::new(false);
    world.inside.answer = Rc::new(move |sent: &Sent| {
        let name = deleted_name(sent);
        let mut objects = objects.lock().unwrap();
        let maps = objects.get_mut(MAPS).unwrap();
        let maps = maps["items"].as_array_mut().unwrap();
        let at = maps.iter().position(|map| map["metadata"]["name"] == name);
        let at = at.unwrap();
        if name == "d" && !is_changed.replace(true) {
            maps[at]["metadata"]["resourceVersion"] = json!("9");
            change(maps);
            return conflict();
        }
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        if body["preconditions"]["resourceVersion"] != maps[at]["metadata"]["resourceVersion"] {
            return conflict();
        }
        if stays {
            maps[at]["metadata"]["resourceVersion"] = json!("10");
        } else {
            maps.remove(at);
        }
        Response::new("{}".to_owned())
    });
}

#[test]
fn a_deletion_of_a_collection_that_is_evaluated_again_keeps_to_its_limit() {
    World::run(|| async {
        for stays in [false, true] {
            for (query, expected) in [
                ("?limit=5", "abcdde"),
                ("?limit=4", "abcdd"),
                ("", "abcddefghij"),
            ] {
                let mut world = World::guarded();
                unless_locked(&world);
                ten_maps(&mut world, stays, |_| ());
                let target = format!("{MAPS}{query}");
                let got = world.json("DELETE", &target, &Value::Null).await;
                assert_eq!(got.code, 200, "{query:?} {stays}: {got:?}");
                assert_eq!(got.json()["status"], "Success");
                assert_eq!(deleted_names(&world), expected, "{query:?} {stays}");
                let records = world.records.all();
                let guards: Vec<_> = records.iter().map(|one| one.guard).collect();
                let expected = [WriteGuard::Held, WriteGuard::Repeated].map(Some);
                assert_eq!(guards, expected);
            }
        }
    });
}

#[test]
fn a_deletion_of_a_collection_of_which_nothing_is_left_succeeds() {
    World::run(|| async {
        let mut world = World::guarded();
        unless_locked(&world);
        ten_maps(&mut world, false, Vec::clear);
        let got = world.json("DELETE", MAPS, &Value::Null).await;
        assert_eq!((got.code, &got.json()["status"]), (200, &json!("Success")));
        assert_eq!(deleted_names(&world), "abcd");
    });
}

#[test]
fn what_was_deleted_of_a_collection_is_recorded_although_the_rest_is_denied() {
    World::run(|| async {
        let mut world = World::guarded();
        unless_locked(&world);
        ten_maps(&mut world, false, |maps| {
            maps[0]["data"]["locked"] = json!("yes");
        });
        let got = world.json("DELETE", MAPS, &Value::Null).await;
        assert_eq!(got.code, 422, "{got:?}");
        assert_eq!(deleted_names(&world), "abcd");
        let records = world.records.all();
        let decisions: Vec<_> = records.iter().map(|one| one.decision).collect();
        let expected = [AdmissionDecision::Allowed, AdmissionDecision::Denied];
        assert_eq!(decisions, expected);
    });
}
