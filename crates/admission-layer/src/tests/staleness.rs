//! Policies that have not been confirmed for too long: writes are refused, also those that no known policy matches.

use std::rc::Rc;

use fairgate_admission::AdmissionMode;
use fairgate_core::time::Time;
use serde_json::{Value, json};

use super::world::{World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

#[test]
fn writes_are_refused_while_the_policies_may_be_stale_and_reads_are_not() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " secrets", "true")]);
        assert_eq!(world.json("POST", MAPS, &json!({})).await.code, 200);
        world.policies.usable_until(Time::ZERO);
        let refused = world.json("POST", MAPS, &json!({})).await;
        assert_eq!((refused.code, refused.reason()), (503, "admission-stale"));
        assert!(refused.message().contains("maxStaleness"));
        assert_eq!(world.json("GET", MAPS, &Value::Null).await.code, 200);
        // An administrator can still mend the policies.
        let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
        assert_eq!(world.json("POST", policies, &json!({})).await.code, 200);
        world.policies.usable_until(Time::from_nanos(u64::MAX - 1));
        assert_eq!(world.json("POST", MAPS, &json!({})).await.code, 200);

        let audit = World::new(AdmissionMode::Audit);
        audit.enforce(&[]);
        audit.policies.usable_until(Time::ZERO);
        assert_eq!(audit.json("POST", MAPS, &json!({})).await.code, 200);
    });
}

/// A client may take as long for its body as the request may.
#[test]
fn policies_that_come_into_force_while_a_body_is_received_count() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let sent = |before: &Value, after: &Value| {
            world.enforce(std::slice::from_ref(before));
            let policies = world.policies.current().unwrap();
            world.enforce(std::slice::from_ref(after));
            let body = json!({"metadata": {"name": "m"}}).to_string();
            let call = world.call("POST", MAPS, "application/json", body.into());
            let side = Rc::clone(world.layer.side().unwrap());
            side.evaluate(call, policies, world.inside.clone())
        };
        let (allowing, denying) = (
            policy("p", " configmaps", "true"),
            policy("p", " configmaps", "false"),
        );
        let got = sent(&allowing, &denying).await.unwrap();
        assert_eq!(got.status(), 422);
        let got = sent(&denying, &allowing).await.unwrap();
        assert_eq!(got.status(), 200);
        let other = policy("p", " secrets", "false");
        let got = sent(&denying, &other).await.unwrap();
        assert_eq!(got.status(), 200, "no policy is about it any more");
        world.policies.usable_until(Time::ZERO);
        let got = sent(&allowing, &allowing).await.unwrap();
        assert_eq!(got.status(), 503);
    });
}
