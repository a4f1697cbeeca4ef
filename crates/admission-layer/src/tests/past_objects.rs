//! Audited writes that are carried out before the stored object is read: they are evaluated by what was stored before.

use std::{rc::Rc, sync::Arc};

use fairgate_admission::{
    AdmissionDecision::{self, Allowed, Denied, NotEvaluated},
    AdmissionMode, AdmissionRecord,
};
use fairgate_core::time::Time;
use http::Response;
use serde_json::{Value, json};

use super::world::{Sent, World, policy, write};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const MAP: &str = "/api/v1/namespaces/ns/configmaps/m";
const PODS: &str = "/api/v1/namespaces/ns/pods";
const POD: &str = "/api/v1/namespaces/ns/pods/p";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const SAME: &str = "oldObject.data.a == object.data.a";

fn map(a: &str) -> Value {
    let metadata = json!({"name": "m", "namespace": "ns", "uid": "u"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": a}})
}

fn versioned(mut object: Value, version: u64) -> Value {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object
}

/// A world with policies about these resources, and an object that was stored at revision 5.
fn world(resource: &str, expression: &str, path: &str, object: Value) -> World {
    let world = World::new(AdmissionMode::Audit);
    world.enforce(&[policy("p", resource, expression)]);
    world.write(5, path, Some(object));
    world
}

/// A request, what the upstream makes of it, and when the stored object is read.
struct Audited<'a> {
    /// Method, target, media type and body.
    request: [&'a str; 4],
    /// What it writes, and what others do meanwhile.
    writes: Vec<(u64, String, Option<Value>)>,
    code: u16,
    answer: Value,
    is_read_before: bool,
}

impl<'a> Audited<'a> {
    /// A request that makes a version of its object, and is answered with that.
    fn new(request: [&'a str; 4], revision: u64, made: Value) -> Self {
        let target = request[1]
            .split('?')
            .next()
            .unwrap_or_default()
            .replace("%2F", "/");
        let path = target.strip_suffix("/status").unwrap_or(&target).to_owned();
        Self {
            request,
            answer: versioned(made.clone(), revision),
            writes: vec![(revision, path, Some(made))],
            code: 200,
            is_read_before: false,
        }
    }

    fn read_before(mut self) -> Self {
        self.is_read_before = true;
        self
    }

    async fn send(self, world: &mut World) -> AdmissionRecord {
        let (objects, revisions) = (Arc::clone(&world.objects), Arc::clone(&world.revisions));
        let (writes, code, answer) = (self.writes, self.code, self.answer.to_string());
        world.inside.answer = Rc::new(move |_: &Sent| {
            for (revision, path, object) in &writes {
                write(&objects, &revisions, *revision, path, object.clone());
            }
            let response = Response::builder().status(code);
            response.body(answer.clone()).unwrap()
        });
        world.inside.answers_when_idle.set(self.is_read_before);
        let held = (!self.is_read_before).then(|| Arc::clone(&world.reading));
        let held = match &held {
            Some(reading) => Some(reading.lock().await),
            None => None,
        };
        let before = world.records.all().len();
        let [method, target, media, body] = self.request;
        let call = world.call(method, target, media, body.to_owned().into());
        assert_eq!(world.send(call).await.code, code);
        drop(held);
        world.records.at_least(before + 1).await;
        world.records.all().pop().unwrap()
    }
}

/// Makes a revision of config maps one that has been known for long.
async fn know(world: &World, revision: u64) {
    know_of(world, ["", "configmaps"], revision).await;
}

/// The same of a resource of a group.
async fn know_of(world: &World, [group, resource]: [&str; 2], revision: u64) {
    let evaluator = &world.layer.side().unwrap().evaluator;
    let revisions = &evaluator.revisions;
    revisions.note(group, resource, revision, Time::ZERO);
    let is_settled = || revisions.of(group, resource, evaluator.clock.now()).settled == revision;
    while !is_settled() {
        tokio::task::yield_now().await;
    }
}

async fn decision(world: &mut World, audited: Audited<'_>) -> AdmissionDecision {
    let record = audited.send(world).await;
    let decision = record.decision;
    assert_eq!(
        decision == NotEvaluated,
        !record.failure.is_empty(),
        "{record:?}"
    );
    decision
}

#[test]
fn an_update_that_states_a_version_is_evaluated_by_that() {
    World::run(|| async {
        let put = versioned(map("2"), 5).to_string();
        let patch = r#"{"metadata":{"resourceVersion":"5"},"data":{"a":"2"}}"#;
        let operations = r#"[{"op":"replace","path":"/data/a","value":"2"},{"op":"test","path":"/data/a","value":"2"},
            {"op":"add","path":"/metadata/resourceVersion","value":"5"}]"#;
        for request in [
            ["PUT", MAP, "application/json", &*put],
            ["PUT", MAP, "application/yaml", &put],
            ["PATCH", MAP, MERGE, patch],
            [
                "PATCH",
                MAP,
                "application/strategic-merge-patch+json",
                patch,
            ],
            ["PATCH", MAP, JSON_PATCH, operations],
            // For a server, an escaped slash is one.
            [
                "PUT",
                "/api/v1/namespaces/ns/configmaps%2Fm",
                "application/json",
                &put,
            ],
        ] {
            for expression in [SAME, "oldObject.metadata.resourceVersion != '5'"] {
                let mut world = world(" configmaps", expression, MAP, map("1"));
                // Others have changed it since.
                let mut late = Audited::new(request, 9, map("2"));
                late.writes.push((11, MAP.to_owned(), Some(map("2"))));
                assert_eq!(decision(&mut world, late).await, Denied, "{request:?}");
                // The answer may say nothing.
                let mut world = self::world(" configmaps", expression, MAP, map("1"));
                let mut late = Audited::new(request, 9, map("2"));
                late.answer = Value::Null;
                assert_eq!(decision(&mut world, late).await, Denied, "{request:?}");
            }
        }
    });
}

#[test]
fn revisions_that_have_gone_back_are_forgotten() {
    World::run(|| async {
        let request = ["PATCH", MAP, MERGE, r#"{"data":{"a":"2"}}"#];
        let mut world = world(" configmaps", SAME, MAP, map("1"));
        // Of the store as it was before it was restored.
        know(&world, 1000).await;
        let change = Audited::new(request, 9, map("2"));
        assert_eq!(decision(&mut world, change.read_before()).await, Denied);
        let evaluator = &world.layer.side().unwrap().evaluator;
        let known = evaluator
            .revisions
            .of("", "configmaps", evaluator.clock.now());
        assert!(known.latest <= 9, "{known:?}");
    });
}

#[test]
fn another_update_is_evaluated_by_what_was_stored_before_its_version() {
    World::run(|| async {
        for request in [
            ["PUT", MAP, "application/json", &*map("2").to_string()],
            ["PATCH", MAP, MERGE, r#"{"data":{"a":"2"}}"#],
            [
                "PUT",
                MAP,
                "application/json",
                &*versioned(map("2"), 0).to_string(),
            ],
        ] {
            let change = || Audited::new(request, 9, map("2"));
            let mut seen = world(" configmaps", SAME, MAP, map("1"));
            assert_eq!(decision(&mut seen, change().read_before()).await, Denied);
            // It may have changed nothing, if that was there before.
            let mut late = world(" configmaps", SAME, MAP, map("1"));
            assert_eq!(decision(&mut late, change()).await, NotEvaluated);
            let mut alike = world(" configmaps", "oldObject.data.a == '7'", MAP, map("1"));
            assert_eq!(decision(&mut alike, change()).await, Denied);
            // Another write comes in between: the server may have seen either.
            for (between, expected) in [("1", Denied), ("2", NotEvaluated)] {
                let mut two = change().read_before();
                two.writes
                    .insert(0, (8, MAP.to_owned(), Some(map(between))));
                let mut world = world(" configmaps", SAME, MAP, map("1"));
                assert_eq!(decision(&mut world, two).await, expected);
            }
        }
    });
}

#[test]
fn what_changes_nothing_is_evaluated_by_what_is_stored() {
    World::run(|| async {
        let same = map("1").to_string();
        let request = ["PUT", MAP, "application/json", &*same];
        let unchanged = || {
            let mut audited = Audited::new(request, 5, map("1"));
            audited.writes.clear();
            audited
        };
        for audited in [unchanged(), unchanged().read_before()] {
            let mut world = world(
                " configmaps",
                "object.data.a != '1' || oldObject.data.a != '1'",
                MAP,
                map("1"),
            );
            // What was there one revision before is something else.
            world
                .revisions
                .lock()
                .unwrap()
                .insert(0, (3, MAP.to_owned(), Some(map("1"))));
            assert_eq!(decision(&mut world, audited).await, Denied);
        }
        // A conflict is found before policies.
        let mut world = world(" configmaps", "false", MAP, map("1"));
        let mut conflict = unchanged();
        conflict.code = 409;
        assert_eq!(decision(&mut world, conflict).await, NotEvaluated);
    });
}

#[test]
fn what_is_known_before_a_write_says_what_it_is_based_on() {
    World::run(|| async {
        let patch = ["PATCH", MAP, MERGE, r#"{"data":{"a":"2"}}"#];
        // It has changed nothing, which is known however late it is read.
        let mut unchanged = Audited::new(patch, 9, map("2"));
        unchanged.writes.clear();
        let mut same = world(" configmaps", SAME, MAP, map("1"));
        same.write(9, MAP, Some(map("2")));
        know(&same, 9).await;
        assert_eq!(decision(&mut same, unchanged).await, Allowed);
        // It has changed what a server has in its cache, or has not yet.
        for (known, expected) in [(8, Denied), (7, NotEvaluated)] {
            let mut world = world(" configmaps", SAME, MAP, map("2"));
            world.write(8, MAP, Some(map("1")));
            know(&world, known).await;
            let change = Audited::new(patch, 9, map("2")).read_before();
            assert_eq!(decision(&mut world, change).await, expected, "{known}");
        }
    });
}

#[test]
fn a_subresource_is_evaluated_by_the_whole_object_and_none_of_another_kind() {
    World::run(|| async {
        let path = "/apis/apps/v1/namespaces/ns/deployments/d";
        let of = |replicas: u32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"},
                "spec": {"replicas": 1}, "status": {"replicas": replicas}})
        };
        let put = versioned(of(2), 5).to_string();
        for (subresource, expected) in [("status", Denied), ("scale", NotEvaluated)] {
            let target = format!("{path}/{subresource}");
            let resource = format!("apps deployments/{subresource}");
            let expression = "oldObject.status.replicas == object.status.replicas";
            let mut world = world(&resource, expression, path, of(1));
            world.store(&target, versioned(of(1), 5));
            let request = ["PUT", &*target, "application/json", &*put];
            let mut audited = Audited::new(request, 9, of(2));
            audited.writes = vec![
                (9, path.to_owned(), Some(of(2))),
                (9, target.clone(), Some(of(2))),
            ];
            assert_eq!(
                decision(&mut world, audited).await,
                expected,
                "{subresource}"
            );
        }
    });
}

#[test]
fn an_object_that_cannot_be_listed_and_has_just_changed_is_not_what_a_write_is_surely_based_on() {
    World::run(|| async {
        let target = "/apis/apps/v1/namespaces/ns/deployments/d/scale";
        let of = |replicas: u32| {
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "ns"},
                "spec": {"replicas": replicas}})
        };
        // A server may have the object in its cache as it was before the last change, and keeps what policies said of that.
        for (known, expected) in [(8, Denied), (7, NotEvaluated)] {
            let mut world = world("apps deployments/scale", "false", target, of(1));
            world.write(8, target, Some(of(2)));
            know_of(&world, ["apps", "deployments"], known).await;
            let patch = ["PATCH", target, MERGE, r#"{"spec":{"replicas":3}}"#];
            let change = Audited::new(patch, 9, of(3)).read_before();
            assert_eq!(decision(&mut world, change).await, expected, "{known}");
        }
    });
}

#[test]
fn a_deletion_is_evaluated_by_what_was_stored_before_it() {
    World::run(|| async {
        let request = ["DELETE", MAP, "", ""];
        let deleted = |revision: u64, uid: &str| {
            let mut audited = Audited::new(request, revision, map("1"));
            audited.answer = json!({"apiVersion": "v1", "kind": "Status", "status": "Success", "details": {"name": "m", "uid": uid}});
            audited.writes = vec![(revision, MAP.to_owned(), None)];
            audited
        };
        let expression = "oldObject.data.a != '2'";
        // It was changed, and others have written other objects since.
        for later in [0, 1, 2, 3, 9, 40] {
            let mut world = world(" configmaps", expression, MAP, map("1"));
            let mut audited = deleted(1019, "u");
            audited
                .writes
                .insert(0, (1018, MAP.to_owned(), Some(map("2"))));
            let other = format!("{MAPS}/other");
            audited.writes.push((1019 + later, other, Some(map("1"))));
            know(&world, 1018).await;
            assert_eq!(decision(&mut world, audited).await, Denied, "{later}");
        }
        // It may have changed just before, and a server have seen it as it was then.
        let mut new = world(" configmaps", expression, MAP, map("1"));
        let mut audited = deleted(1019, "u");
        let change = (1018, MAP.to_owned(), Some(map("2")));
        audited.writes.insert(0, change);
        assert_eq!(decision(&mut new, audited).await, NotEvaluated);
        // Too many of them, another object, and one with a condition.
        let mut many = deleted(1019, "u");
        many.writes
            .push((2000, format!("{MAPS}/other"), Some(map("1"))));
        for audited in [many, deleted(1019, "v"), deleted(1019, "")] {
            let mut world = world(" configmaps", "false", MAP, map("1"));
            assert_eq!(decision(&mut world, audited).await, NotEvaluated);
        }
        // It was carried out when it was read, and answered after that.
        for (later, expected) in [(1020, Denied), (2000, NotEvaluated)] {
            let mut world = world(" configmaps", "false", MAP, map("1"));
            world.write(1019, MAP, None);
            world.write(later, &format!("{MAPS}/other"), Some(map("1")));
            let mut audited = deleted(1019, "u").read_before();
            audited.writes.clear();
            assert_eq!(decision(&mut world, audited).await, expected, "{later}");
        }
        let options = r#"{"preconditions":{"resourceVersion":"5"}}"#;
        let mut many = deleted(1019, "u");
        many.request = ["DELETE", MAP, "application/json", options];
        many.writes
            .push((2000, format!("{MAPS}/other"), Some(map("1"))));
        let mut world = world(" configmaps", "false", MAP, map("1"));
        assert_eq!(decision(&mut world, many).await, Denied);
    });
}

/// A pod that is deleted immediately is marked first, and policies see it before that.
#[test]
fn a_deletion_of_a_pod_is_evaluated_by_what_was_stored_before_it_was_marked() {
    World::run(|| async {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"}});
        let mut marked = pod.clone();
        marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        let deletion = |is_marked: bool| {
            let mut audited = Audited::new(
                [
                    "DELETE",
                    POD,
                    "application/json",
                    r#"{"gracePeriodSeconds":0}"#,
                ],
                9,
                marked.clone(),
            );
            audited.writes = vec![(9, POD.to_owned(), None)];
            if is_marked {
                audited
                    .writes
                    .insert(0, (8, POD.to_owned(), Some(marked.clone())));
            }
            audited
        };
        let not_marked = "has(oldObject.metadata.deletionTimestamp)";
        let mut seen = world(" pods", not_marked, POD, pod.clone());
        assert_eq!(
            decision(&mut seen, deletion(true).read_before()).await,
            Denied
        );
        // It may have been marked by another deletion.
        let mut late = world(" pods", not_marked, POD, pod.clone());
        assert_eq!(decision(&mut late, deletion(true)).await, NotEvaluated);
        let mut alike = world(
            " pods",
            "oldObject.metadata.uid != 'u' && request.options.gracePeriodSeconds != 0",
            POD,
            pod.clone(),
        );
        assert_eq!(decision(&mut alike, deletion(true)).await, Denied);
        let mut before = world(
            " pods",
            "!has(oldObject.metadata.deletionTimestamp)",
            POD,
            marked.clone(),
        );
        assert_eq!(decision(&mut before, deletion(false)).await, Denied);
        assert_eq!(PODS.len() + 2, POD.len());
    });
}

/// A longer grace period than the pending one changes nothing, and the server asks no policy.
#[test]
fn a_deletion_that_is_pending_is_not_recorded() {
    World::run(|| async {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}});
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let mut world = world(" pods", "false", POD, pod.clone());
        let answer = versioned(pod, 5).to_string();
        world.inside.answer = Rc::new(move |_: &Sent| Response::new(answer.clone()));
        for seconds in [None, Some(30), Some(31), Some(29)] {
            let options = json!({"gracePeriodSeconds": seconds});
            assert_eq!(world.json("DELETE", POD, &options).await.code, 200);
        }
        world.records.at_least(1).await;
        while world.inside.is_busy() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.records.all().len(), 1);
    });
}

/// Its response is compressed, or too large, and has no version that says so.
#[test]
fn what_may_be_the_object_after_a_write_is_not_taken_for_the_one_before() {
    World::run(|| async {
        let put = map("2").to_string();
        let put = ["PUT", MAP, "application/json", &*put];
        let patch = ["PATCH", MAP, MERGE, r#"{"data":{"a":"2"}}"#];
        let deletion = ["DELETE", MAP, "", ""];
        let status =
            |details: Value| json!({"apiVersion": "v1", "kind": "Status", "details": details});
        for (request, code, answer, expected) in [
            (put, 200, Value::Null, NotEvaluated),
            (patch, 200, Value::Null, NotEvaluated),
            // It may have finalizers.
            (deletion, 200, Value::Null, NotEvaluated),
            // It is gone since, or another object is.
            (deletion, 200, status(json!({})), Denied),
            (deletion, 200, status(json!({"uid": "v"})), NotEvaluated),
            // What is refused changes nothing.
            (put, 422, Value::Null, Denied),
            // What fails may have been carried out.
            (put, 500, Value::Null, NotEvaluated),
            (patch, 504, Value::Null, NotEvaluated),
            (deletion, 500, Value::Null, NotEvaluated),
        ] {
            let mut world = world(" configmaps", "false", MAP, map("1"));
            // It was carried out when the object was read, and answered after that.
            world.write(9, MAP, Some(map("2")));
            let mut audited = Audited::new(request, 9, map("2")).read_before();
            audited.writes.clear();
            (audited.code, audited.answer) = (code, answer.clone());
            let decision = decision(&mut world, audited).await;
            assert_eq!(decision, expected, "{request:?} {code} {answer}");
        }
        // That the version was known before does not say that this object was the one that was deleted.
        let mut world = world(" configmaps", "false", MAP, map("1"));
        world.write(9, MAP, Some(map("2")));
        know(&world, 9).await;
        let mut audited = Audited::new(deletion, 9, map("2")).read_before();
        audited.writes.clear();
        audited.answer = status(json!({"uid": "v"}));
        assert_eq!(decision(&mut world, audited).await, NotEvaluated);
        // A version that was known before the request is not one that it has made.
        let mut world = self::world(" configmaps", "false", MAP, map("1"));
        know(&world, 5).await;
        let mut audited = Audited::new(put, 9, map("2")).read_before();
        audited.writes.clear();
        (audited.code, audited.answer) = (500, Value::Null);
        assert_eq!(decision(&mut world, audited).await, Denied);
    });
}

#[test]
fn without_what_was_stored_a_late_write_is_not_evaluated() {
    World::run(|| async {
        let put = versioned(map("2"), 5).to_string();
        for request in [
            ["PUT", MAP, "application/json", &*put],
            ["PATCH", MAP, MERGE, "{}"],
        ] {
            let gone = json!([
                410,
                json!({"message": "too old resource version"}).to_string()
            ]);
            let current = json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "12"},
                "items": [versioned(map("1"), 5)]});
            let forbidden = json!([403, json!({"message": "no"}).to_string()]);
            for (list, why) in [(gone, "410"), (current, "as they were"), (forbidden, "403")] {
                let mut world = world(" configmaps", "false", MAP, map("1"));
                world.store(MAPS, list);
                let record = Audited::new(request, 9, map("2")).send(&mut world).await;
                assert_eq!(record.decision, NotEvaluated);
                assert!(record.failure.contains(why), "{}", record.failure);
                // What was read in time counts, as far as it is known.
                world.write(5, MAP, Some(map("1")));
                let early = Audited::new(request, 9, map("2")).read_before();
                assert_eq!(decision(&mut world, early).await, Denied);
            }
        }
    });
}

#[test]
fn the_record_of_a_evaluated_write_names_its_object() {
    World::run(|| async {
        let mut world = world(" configmaps", "true", MAP, map("1"));
        let request = ["PATCH", MAP, MERGE, "{}"];
        let record = Audited::new(request, 9, map("1")).send(&mut world).await;
        assert_eq!((record.decision, &*record.request.name), (Allowed, "m"));
    });
}
