//! Policies for another version of a resource than the one that is asked for.

use fairgate_admission::AdmissionMode;
use serde_json::{Value, json};

use super::world::{World, policy};

const GADGETS: &str = "/apis/x.io/v2/namespaces/ns/gadgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.x.io";

fn gadget(size: u32) -> Value {
    json!({"apiVersion": "x.io/v2", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": size}})
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
        world.store(
            DEFINITION,
            json!({"spec": {"conversion": {"strategy": "None"}}}),
        );
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
        let strategy = json!({"spec": {"conversion": {"strategy": "Webhook"}}});
        for (definition, why) in [
            (None, "it is no custom resource"),
            (Some(strategy), "its conversion strategy is Webhook"),
            (Some(json!("broken")), "the upstream answered 500"),
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
        assert!(world.sent().is_empty());
    });
}
