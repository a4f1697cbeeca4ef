//! Policies for another version of a resource than the one that is asked for.

use fairgate_admission::AdmissionMode;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::world::{World, policy};

const GADGETS: &str = "/apis/x.io/v2/namespaces/ns/gadgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.x.io";

fn gadget(size: u32) -> Value {
    json!({"apiVersion": "x.io/v2", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": size}})
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
        for (definition, why) in [
            (None, "it is no custom resource"),
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
            let gadget = gadget(size);
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
        world.enforce(&[policy("p", "x.io gadgets", "object.spec.size < 5")]);
        let got = world.json("POST", UNKNOWN, &gadget(5)).await;
        assert_eq!(got.code, 422);
        // In audit mode nothing waits.
        let world = self::world(AdmissionMode::Audit);
        assert_eq!(world.json("POST", UNKNOWN, &gadget(5)).await.code, 200);
    });
}

#[test]
fn a_bounded_number_of_writes_waits() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        let admitter = std::sync::Arc::clone(&world.layer.side().unwrap().admitter);
        let places: Vec<_> = std::iter::from_fn(|| admitter.waiting.take("alice")).collect();
        let gadget = gadget(1);
        let got = world.json("POST", UNKNOWN, &gadget).await;
        assert_eq!((got.code, got.reason()), (429, "admission-failed"));
        drop(places);
        let waiting = world.json("POST", UNKNOWN, &gadget);
        let (got, ()) = tokio::join!(waiting, read(&world, Ok(())));
        assert_eq!(got.code, 404);
    });
}
