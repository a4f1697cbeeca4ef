//! Policies that have not been confirmed for too long: writes are refused, also those that no known policy matches.

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
