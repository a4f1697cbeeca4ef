//! Writes while the resources of the upstream were never read: its discovery fails, or does not answer.

use std::time::Duration;

use bytes::Bytes;
use fairgate_admission::AdmissionMode;
use fairgate_objects::{
    codec::{envelope, protobuf},
    schema::{Struct, autoscaling_v1, core_v1},
};
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::world::{Got, World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/ns/deployments/d";

/// The time after which a test that hangs fails.
const HANG: Duration = Duration::from_secs(10);

/// A world whose upstream has told no resources.
fn world(policies: &[Value]) -> World {
    let world = World::new(AdmissionMode::Enforce);
    world.cluster.forget_resources();
    world.enforce(policies);
    world
}

async fn protobuf(
    world: &World,
    (method, target): (&str, &str),
    (api_version, kind, shape): (&str, &str, &'static Struct),
    object: &Value,
) -> Got {
    let body: Bytes = envelope::seal(api_version, kind, &protobuf::encode(shape, object)).into();
    let media = "application/vnd.kubernetes.protobuf";
    world.send(world.call(method, target, media, body)).await
}

async fn map(world: &World, value: &str) -> Got {
    let object = json!({"metadata": {"name": "m"}, "data": {"a": value}});
    let kind = ("v1", "ConfigMap", &core_v1::CONFIG_MAP);
    protobuf(world, ("POST", MAPS), kind, &object).await
}

/// Ends a reading of the resources once somebody waits for it.
async fn end_reading(world: &World, end: Result<(), String>) {
    let somebody_waits = async {
        while world.cluster.reading.receiver_count() == 0 {
            yield_now().await;
        }
    };
    let waited = tokio::time::timeout(HANG, somebody_waits).await;
    waited.expect("the request waits");
    assert!(world.sent().is_empty(), "it waits");
    if end.is_ok() {
        world.cluster.read_resources();
    }
    let _before = world.cluster.reading.send_replace(end);
}

#[test]
fn built_in_kinds_are_evaluated_in_protobuf() {
    World::run(|| async {
        let expression = "object.kind == 'ConfigMap' && object.data.a == 'good' && \
                          request.kind == request.requestKind && request.kind.kind == 'ConfigMap'";
        let world = world(&[policy("p", " configmaps", expression)]);
        for (value, code) in [("good", 200), ("bad", 422)] {
            let got = map(&world, value).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        assert_eq!(world.sent().len(), 1);
        // So are those in JSON: a member that is there twice is read as the server reads it.
        let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"bad"},"data":{"b":""}}"#;
        let call = world.call("POST", MAPS, "application/json", body.into());
        let got = world.send(call).await;
        assert_eq!(got.code, 422, "{got:?}");
    });
}

/// The server may be newer than what was last read of it, and drops nulls: what it would store has no selector.
#[test]
fn what_discovery_does_not_list_is_read_as_every_server_of_kubernetes_does() {
    World::run(|| async {
        let expression = "has(object.spec.selector) && request.kind.kind == 'Service'";
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " services", expression)]);
        for (selector, code) in [("{\"a\":\"b\"}", 200), ("null", 422)] {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s"}},"spec":{{"ports":[{{"port":1}}],"selector":{selector}}}}}"#
            );
            let target = "/api/v1/namespaces/ns/services";
            let call = world.call("POST", target, "application/json", body.into());
            let got = world.send(call).await;
            assert_eq!(got.code, code, "{selector}: {got:?}");
        }
    });
}

#[test]
fn subresources_of_built_in_kinds_have_their_own_kinds() {
    World::run(|| async {
        let scale = "object.kind == 'Scale' && object.spec.replicas < 5 && request.kind.group == 'autoscaling'";
        let exec = "object.kind == 'PodExecOptions' && object.command == ['ls'] && request.kind.kind == 'PodExecOptions'";
        let world = world(&[
            policy("scale", "apps deployments/scale", scale),
            policy("exec", " pods/exec", exec),
        ]);
        world.store(
            &format!("{DEPLOYMENT}/scale"),
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "ns", "resourceVersion": "5"},
                   "spec": {"replicas": 1}, "status": {"replicas": 1}}),
        );
        for (replicas, code) in [(4, 200), (5, 422)] {
            let object = json!({"metadata": {"name": "d", "namespace": "ns", "resourceVersion": "5"}, "spec": {"replicas": replicas}});
            let (target, kind) = (
                format!("{DEPLOYMENT}/scale"),
                ("autoscaling/v1", "Scale", &autoscaling_v1::SCALE),
            );
            let got = protobuf(&world, ("PUT", &target), kind, &object).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        for (command, code) in [("ls", 200), ("rm", 422)] {
            let target = format!("/api/v1/namespaces/ns/pods/p/exec?command={command}");
            let got = world.json("POST", &target, &Value::Null).await;
            assert_eq!(got.code, code, "{got:?}");
        }
    });
}

#[test]
fn others_wait_until_the_resources_have_been_read() {
    World::run(|| async {
        for (size, code) in [(4, 200), (5, 422)] {
            let world = world(&[policy("p", "x.io widgets", "object.size < 5")]);
            let schema = json!({"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": true}});
            world.store(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.x.io",
                json!({"spec": {"versions": [{"name": "v1", "schema": schema}]}}),
            );
            let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": size});
            let (sent, end) = (
                world.json("POST", WIDGETS, &widget),
                end_reading(&world, Ok(())),
            );
            let (got, ()) = tokio::join!(sent, end);
            assert_eq!(got.code, code, "{got:?}");
        }
    });
}

#[test]
fn without_discovery_they_are_refused_and_told_why() {
    World::run(|| async {
        let policies = [policy("p", "x.io widgets", "true")];
        let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
        let world = world(&policies);
        let down = Err("/apis: the upstream answered 500".to_owned());
        let (sent, end) = (
            world.json("POST", WIDGETS, &widget),
            end_reading(&world, down),
        );
        let (got, ()) = tokio::join!(sent, end);
        let text = "fairgate: the resources of the upstream cannot be read: /apis: the upstream answered 500";
        assert_eq!((got.code, &*got.message()), (503, text));

        let world = World::impatient(AdmissionMode::Enforce);
        world.cluster.forget_resources();
        world.enforce(&policies);
        let kind = ("x.io/v1", "Widget", &core_v1::CONFIG_MAP);
        let got = protobuf(&world, ("POST", WIDGETS), kind, &json!({})).await;
        let text = "fairgate: the resources of the upstream have not been read yet, so it is not known whether an admission policy matches this request";
        assert_eq!((got.code, &*got.message()), (503, text));
        assert_eq!(got.reason(), "admission-failed");
        assert!(world.sent().is_empty());
        // What no policy is about does not wait.
        let other = json!({"apiVersion": "x.io/v1", "kind": "Other", "metadata": {"name": "o"}});
        let got = world.json("POST", "/apis/x.io/v1/others", &other).await;
        assert_eq!(got.code, 200);
    });
}

#[test]
fn a_policy_about_another_version_makes_built_in_kinds_wait() {
    World::run(|| async {
        let mut one = policy("p", " configmaps", "object.data.a == 'good'");
        one["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v2"]);
        let world = world(&[one]);
        // Only the upstream knows which versions it has.
        let (got, ()) = tokio::join!(map(&world, "bad"), end_reading(&world, Ok(())));
        assert_eq!(got.code, 200, "{got:?}");
    });
}

#[test]
fn params_of_kinds_that_are_not_known_make_built_in_kinds_wait() {
    World::run(|| async {
        let of = |api_version: &str, kind: &str| {
            let mut one = policy("p", " configmaps", "object.data.a == params.data.a");
            one["spec"]["failurePolicy"] = json!("Ignore");
            one["spec"]["paramKind"] = json!({"apiVersion": api_version, "kind": kind});
            one["paramRef"] =
                json!({"name": "m", "namespace": "ns", "parameterNotFoundAction": "Deny"});
            one
        };
        let param = json!({"metadata": {"namespace": "ns", "name": "m"}, "data": {"a": "good"}});
        for (value, code) in [("good", 200), ("bad", 422)] {
            let world = world(&[of("v1", "ConfigMap")]);
            world.cluster.params.lock().unwrap().push(param.clone());
            assert_eq!(map(&world, value).await.code, code);

            let world = self::world(&[of("x.io/v1", "Widget")]);
            world.cluster.params.lock().unwrap().push(param.clone());
            let (got, ()) = tokio::join!(map(&world, value), end_reading(&world, Ok(())));
            assert_eq!(got.code, code, "{got:?}");
        }
    });
}

#[test]
fn in_audit_mode_nothing_waits_and_built_in_kinds_are_evaluated_nevertheless() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.cluster.forget_resources();
        world.enforce(&[
            policy("p", " configmaps", "object.data.a == 'good'"),
            policy("q", "x.io widgets", "false"),
        ]);
        assert_eq!(map(&world, "bad").await.code, 200);
        world.records.at_least(1).await;
        let all = world.records.all();
        assert_eq!(all[0].failure, "", "{all:?}");
        assert_eq!(all[0].checks[0].policy, "p");
        let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
        assert_eq!(world.json("POST", WIDGETS, &widget).await.code, 200);
    });
}
