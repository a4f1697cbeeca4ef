//! Policies for another version of a resource than the one that is asked for.

use std::rc::Rc;

use fairgate_admission::AdmissionMode;
use http::Response;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::world::{Sent, World, policy};

const GADGETS: &str = "/apis/x.io/v2/namespaces/ns/gadgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.x.io";

fn gadget(size: u32) -> Value {
    gadget_of("v2", size)
}

fn gadget_of(version: &str, size: u32) -> Value {
    let api_version = format!("x.io/{version}");
    json!({"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": size}})
}

/// The definition of gadgets, whose versions are converted in this way.
fn definition(strategy: &str) -> Value {
    let version = |name: &str| json!({"name": name, "schema": {"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": true}}});
    let versions = ["v1", "v2", "v3", "v4"].map(version);
    json!({"spec": {"conversion": {"strategy": strategy}, "versions": versions}})
}

fn of_v1(expression: &str) -> Value {
    let mut one = policy("p", "x.io gadgets", expression);
    one["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v1"]);
    one
}

#[test]
fn versions_of_a_custom_resource_with_the_same_fields_are_converted() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[of_v1(
            "object.apiVersion == 'x.io/v1' && request.kind.version == 'v1' && request.requestKind.version == 'v2' && \
             object.spec.size < 5 && (oldObject == null || oldObject.apiVersion == 'x.io/v1')",
        )]);
        world.store(DEFINITION, definition("None"));
        for (size, code) in [(4, 200), (5, 422)] {
            let got = world.json("POST", GADGETS, &gadget(size)).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        let path = format!("{GADGETS}/g");
        world.store(&path, gadget(1));
        for (size, code) in [(4, 200), (5, 422)] {
            let got = world.json("PUT", &path, &gadget(size)).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        assert_eq!(
            world.sent()[0].body,
            gadget(4).to_string(),
            "forwarded as it was sent"
        );
    });
}

#[test]
fn where_the_gateway_cannot_convert_the_policy_is_configured_wrongly() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[of_v1("true")]);
        let cannot = "failed to configure binding: failed to convert object version: the gateway cannot convert objects \
                      to x.io/v1, Kind=Gadget: ";
        let strategy = definition("Webhook");
        // As of a server that has no custom resources at all.
        let not_served = json!([404, "404 page not found"]);
        for (definition, why) in [
            (None, "it is no custom resource"),
            (Some(not_served), "it is no custom resource"),
            (Some(strategy), "its conversion strategy is Webhook"),
        ] {
            if let Some(definition) = definition {
                world.store(DEFINITION, definition);
            }
            let got = world.json("POST", GADGETS, &gadget(1)).await;
            assert_eq!(got.code, 422);
            let message = got.message();
            assert!(
                message.contains(cannot) && message.contains(why),
                "{message}"
            );
        }
        // The client chooses the version, and the upstream can convert: so that is no error to be ignored.
        let mut ignoring = of_v1("true");
        ignoring["spec"]["failurePolicy"] = json!("Ignore");
        world.enforce(std::slice::from_ref(&ignoring));
        let got = world.json("POST", GADGETS, &gadget(1)).await;
        assert_eq!(got.code, 422);
        let message = got.message();
        assert!(
            message.contains(cannot)
                && message
                    .ends_with("(a limit of fairgate; failurePolicy Ignore does not cover it)"),
            "{message}"
        );
        // A definition that cannot be read is no error of the policy.
        world.enforce(&[ignoring]);
        world.store(DEFINITION, json!("broken"));
        let got = world.json("POST", GADGETS, &gadget(1)).await;
        assert_eq!(got.code, 500);
        assert!(got.message().contains("the upstream answered 500"));
        assert!(world.sent().is_empty());
    });
}

#[test]
fn versions_of_a_built_in_kind_are_converted_with_the_defaults_of_the_version_that_was_sent() {
    World::run(|| async {
        let claims = "/apis/resource.k8s.io/v1beta1/namespaces/ns/resourceclaims";
        let claim = |more: &Value| {
            let mut request = json!({"name": "r", "deviceClassName": "gpu"});
            for (key, value) in more.as_object().unwrap() {
                request[key] = value.clone();
            }
            json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": [request]}}})
        };
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy(
            "p",
            "resource.k8s.io resourceclaims",
            "(object == null || object.apiVersion == 'resource.k8s.io/v1' && \
             object.spec.devices.requests.all(r, r.exactly.count == 1 && r.exactly.allocationMode == 'ExactCount')) && \
             (oldObject == null || oldObject.spec.devices.requests[0].exactly.deviceClassName == 'gpu')",
        );
        one["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v1"]);
        world.enforce(&[one]);
        let (plain, two) = (claim(&json!({})), claim(&json!({"count": 2})));
        for (claim, code) in [(&plain, 200), (&two, 422)] {
            let got = world.json("POST", claims, claim).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        let path = format!("{claims}/c");
        for (class, code) in [("gpu", 200), ("other", 422)] {
            world.store(&path, claim(&json!({"deviceClassName": class})));
            for verb in ["PUT", "DELETE"] {
                let body = if verb == "PUT" {
                    plain.clone()
                } else {
                    json!({})
                };
                let got = world.json(verb, &path, &body).await;
                assert_eq!(got.code, code, "{verb} {class}: {got:?}");
            }
        }
        assert_eq!(world.sent()[0].body, plain.to_string(), "as it was sent");
    });
}

#[test]
fn the_old_object_is_the_stored_one_where_the_version_of_the_request_lacks_something() {
    World::run(|| async {
        let path = |version: &str| {
            format!("/apis/autoscaling/{version}/namespaces/ns/horizontalpodautoscalers/h")
        };
        let of = |version: &str, number: &str| {
            json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "h", "namespace": "ns", "resourceVersion": number},
                "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}})
        };
        // Version 1 does not say that the processor comes first.
        let mut first = of("v1", "7");
        first["spec"]["targetCPUUtilizationPercentage"] = json!(50);
        first["metadata"]["annotations"] = json!({"autoscaling.alpha.kubernetes.io/metrics":
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]"#});
        let stored = |number| {
            let mut second = of("v2", number);
            let metric =
                |name: &str| json!({"type": "Resource", "resource": {"name": name, "target": {}}});
            second["spec"]["metrics"] = json!([metric("cpu"), metric("memory")]);
            second
        };
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy(
            "p",
            "autoscaling horizontalpodautoscalers",
            "object.spec.metrics[0].resource.name == 'memory' && oldObject.spec.metrics[0].resource.name == 'cpu'",
        );
        one["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v2"]);
        world.enforce(&[one]);
        world.store(&path("v1"), first.clone());
        // It may have changed meanwhile, or there may be no such version any more.
        for (number, code) in [(None, 422), (Some("8"), 422), (Some("7"), 200)] {
            if let Some(number) = number {
                world.store(&path("v2"), stored(number));
            }
            let got = world.json("PUT", &path("v1"), &first).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        world.store(&path("v2"), json!("broken"));
        let got = world.json("PUT", &path("v1"), &first).await;
        assert_eq!(got.code, 500, "{got:?}");
    });
}

#[test]
fn autoscalers_are_evaluated_as_a_server_reads_their_annotations() {
    const CPU: &str =
        r#"{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":1}}"#;
    World::run(|| async {
        let path = "/apis/autoscaling/v1/namespaces/ns/horizontalpodautoscalers";
        let scaler = |metrics: &str| {
            json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "h", "annotations": {"autoscaling.alpha.kubernetes.io/metrics": metrics}},
                "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}})
        };
        let world = World::new(AdmissionMode::Enforce);
        for (version, expression, metrics, code) in [
            (
                "v1",
                "object.spec.targetCPUUtilizationPercentage >= 50",
                format!("[{CPU}]"),
                422,
            ),
            (
                "v1",
                "object.spec.targetCPUUtilizationPercentage >= 50",
                format!("[{CPU}"),
                200,
            ),
            // Version 1 does not show the second of these.
            (
                "v2",
                "object.spec.metrics.size() == 2 && object.spec.metrics[0].resource.target.averageUtilization == 1 && \
              object.spec.metrics[1].resource.target.averageUtilization == 80",
                format!("[{CPU}]"),
                200,
            ),
            (
                "v2",
                "object.spec.metrics.all(m, m.type == 'Resource')",
                r#"[{"Type":"External","x":"\ud800"}]"#.to_owned(),
                422,
            ),
            (
                "v1",
                "true",
                r#"[{"type":"Pods","Type":"External"}]"#.to_owned(),
                400,
            ),
        ] {
            let mut one = policy("p", "autoscaling horizontalpodautoscalers", expression);
            one["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!([version]);
            one["spec"]["failurePolicy"] = json!("Ignore");
            world.enforce(&[one]);
            let got = world.json("POST", path, &scaler(&metrics)).await;
            assert_eq!(got.code, code, "{version} {metrics}: {got:?}");
        }
    });
}

/// What a server shows in version 1 of an autoscaler with the metrics that [`hidden_metrics`] writes.
fn shown_scaler() -> Value {
    let mut shown = scaler(None, Some(1));
    shown["metadata"]["uid"] = json!("u");
    shown["metadata"]["resourceVersion"] = json!("5");
    shown
}

fn scaler(metrics: Option<&str>, target: Option<u32>) -> Value {
    let mut scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
    if let Some(metrics) = metrics {
        scaler["metadata"]["annotations"] =
            json!({"autoscaling.alpha.kubernetes.io/metrics": metrics});
    }
    if let Some(target) = target {
        scaler["spec"]["targetCPUUtilizationPercentage"] = json!(target);
    }
    scaler
}

const APPLY: &str = "application/apply-patch+yaml";

/// Methods, whether they are about the collection, bodies of autoscalers, and why these are refused.
fn writes_of_metrics() -> Vec<(&'static str, bool, &'static str, String, &'static str)> {
    const CPU: &str =
        r#"[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":1}}]"#;
    const HIDDEN: &str = "the upstream does not show its metrics";
    const DENIED: &str = "denied request: failed expression";
    const JSON: &str = "application/json";
    const MERGE: &str = "application/merge-patch+json";
    let document = |metrics, target| scaler(metrics, target).to_string();
    let two = document(Some(CPU), Some(80));
    let escaped = two.replace("alpha.kubernetes", r"\u0061lpha.kubernetes");
    // Some clients write these characters so.
    let other = document(None, None).replace("web", r"\u0077eb");
    let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": CPU});
    let patch = json!({"metadata": {"annotations": annotations}}).to_string();
    vec![
        ("POST", true, JSON, document(None, Some(1)), ""),
        ("POST", true, JSON, document(Some(CPU), None), ""),
        ("POST", true, JSON, two.clone(), DENIED),
        ("POST", true, JSON, escaped, DENIED),
        ("PUT", false, JSON, two.clone(), DENIED),
        // The upstream has changed it.
        ("POST", true, JSON, document(Some("[]"), Some(2)), HIDDEN),
        ("PATCH", false, MERGE, patch, DENIED),
        ("PATCH", false, APPLY, two, DENIED),
        // The target may be another manager's.
        ("PATCH", false, APPLY, document(Some(CPU), None), HIDDEN),
        ("PATCH", false, APPLY, document(None, Some(1)), ""),
        ("PATCH", false, APPLY, other, ""),
    ]
}

/// A dry run, and a configuration that is applied, are answered in the version of the request.
#[test]
fn metrics_that_the_upstream_does_not_show_are_read_in_the_request() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|_: &Sent| Response::new(shown_scaler().to_string()));
        let all = "/apis/autoscaling/v1/namespaces/ns/horizontalpodautoscalers";
        let one = &*format!("{all}/h");
        let small = "object.spec.metrics.all(m, m.resource.target.averageUtilization < 50)";
        let mut policy = policy("p", "autoscaling horizontalpodautoscalers", small);
        policy["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v2"]);
        policy["spec"]["failurePolicy"] = json!("Ignore");
        policy["fidelity"] = json!("dryRun");
        world.enforce(&[policy]);
        let mut stored = shown_scaler();
        stored["spec"]["targetCPUUtilizationPercentage"] = json!(80);
        world.store(one, stored.clone());
        stored["apiVersion"] = json!("autoscaling/v2");
        world.store(&one.replace("v1", "v2"), stored);
        for (method, is_collection, media, body, why) in writes_of_metrics() {
            let target = if is_collection { all } else { one };
            let target = format!("{target}?fieldManager=me&force=true");
            let target = if media == APPLY {
                &*target
            } else {
                target.split('?').next().unwrap()
            };
            let got = world
                .send(world.call(method, target, media, body.clone().into()))
                .await;
            if why.is_empty() {
                assert_eq!(got.code, 200, "{method} {media} {body}: {got:?}");
                continue;
            }
            assert_eq!(got.code, 422, "{method} {media} {body}: {got:?}");
            assert!(
                got.message().contains(why),
                "{method} {media} {body}: {}",
                got.message()
            );
        }
    });
}

const UNKNOWN: &str = "/apis/x.io/v4/namespaces/ns/gadgets";

/// A world with a policy about `v1` alone, whose objects can be converted.
fn world(mode: AdmissionMode) -> World {
    let world = World::new(mode);
    world.enforce(&[of_v1("object.spec.size < 5")]);
    world.store(DEFINITION, definition("None"));
    world
}

/// Ends a reading of the resources once somebody waits for it.
async fn read(world: &World, end: Result<(), String>) {
    while world.cluster.reading.receiver_count() == 0 {
        yield_now().await;
    }
    let _before = world.cluster.reading.send_replace(end);
}

#[test]
fn a_write_of_an_unknown_version_waits_until_the_resources_have_been_read() {
    World::run(|| async {
        for (size, code) in [(4, 200), (5, 422)] {
            let world = world(AdmissionMode::Enforce);
            let gadget = gadget_of("v4", size);
            let defining = async {
                while world.cluster.reading.receiver_count() == 0 {
                    yield_now().await;
                }
                assert!(world.sent().is_empty(), "it waits");
                world.cluster.define_gadget("v4");
                read(&world, Ok(())).await;
            };
            let (got, ()) = tokio::join!(world.json("POST", UNKNOWN, &gadget), defining);
            assert_eq!(got.code, code, "{got:?}");
        }
    });
}

#[test]
fn a_write_of_a_version_that_is_not_served_is_refused() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        let gadget = gadget(1);
        let down = Err("/apis: the upstream answered 500".to_owned());
        for (end, code, message) in [
            (
                Ok(()),
                404,
                "the server could not find the requested resource",
            ),
            (
                down,
                503,
                "fairgate: the resources of the upstream cannot be read: /apis: the upstream answered 500",
            ),
        ] {
            let (got, ()) = tokio::join!(world.json("POST", UNKNOWN, &gadget), read(&world, end));
            assert_eq!((got.code, &*got.message()), (code, message));
        }
        assert!(world.sent().is_empty());
        // That may take too long.
        let world = World::impatient(AdmissionMode::Enforce);
        world.enforce(&[of_v1("true")]);
        let got = world.json("POST", UNKNOWN, &gadget).await;
        assert_eq!((got.code, got.reason()), (504, "admission-failed"));
        assert!(world.sent().is_empty());
    });
}

#[test]
fn only_writes_that_a_policy_may_be_about_wait() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        for target in [
            "/apis/x.io/v4/namespaces/ns/others",
            "/apis/y.io/v4/namespaces/ns/gadgets",
            "/apis/x.io/v2/namespaces/ns/gadgets",
        ] {
            let got = world.json("POST", target, &gadget(1)).await;
            assert_eq!(got.code, 200, "{target}: {got:?}");
        }
        // A policy that matches it as it is need not know more.
        let bounded = |resource: &str| policy("p", resource, "object.spec.size < 5");
        world.enforce(&[bounded("x.io gadgets"), bounded("x.io trinkets")]);
        let large = gadget_of("v4", 5);
        assert_eq!(world.json("POST", UNKNOWN, &large).await.code, 422);
        // But of a resource that nobody has defined, a server says first that there is none.
        let nowhere = "/apis/x.io/v4/namespaces/ns/trinkets";
        for (end, code) in [(Ok(()), 404), (Err("down".to_owned()), 422)] {
            let (got, ()) = tokio::join!(world.json("POST", nowhere, &large), read(&world, end));
            assert_eq!(got.code, code, "{got:?}");
        }
        // In audit mode nothing waits.
        let world = self::world(AdmissionMode::Audit);
        assert_eq!(world.json("POST", UNKNOWN, &gadget(5)).await.code, 200);
    });
}

#[test]
fn a_bounded_number_of_writes_waits() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        let evaluator = std::sync::Arc::clone(&world.layer.side().unwrap().evaluator);
        let places: Vec<_> = std::iter::from_fn(|| evaluator.waiting.take("alice")).collect();
        let gadget = gadget(1);
        let got = world.json("POST", UNKNOWN, &gadget).await;
        assert_eq!((got.code, got.reason()), (429, "admission-failed"));
        drop(places);
        let waiting = world.json("POST", UNKNOWN, &gadget);
        let (got, ()) = tokio::join!(waiting, read(&world, Ok(())));
        assert_eq!(got.code, 404);
    });
}
