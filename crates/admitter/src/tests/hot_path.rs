//! Requests that no policy is about.

use serde_json::{Value, json};

use super::world::{World, policy};
use crate::{AdmissionMode, side::Concern};

#[test]
fn g12_requests_without_a_match_allocate_nothing() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let policies: Vec<_> = (0..200)
            .map(|number| {
                let name = format!("p{number:03}");
                let mut one = match number % 4 {
                    0 => policy(&name, "apps deployments", "false"),
                    1 => policy(&name, "apps statefulsets", "false"),
                    2 => policy(&name, " configmaps", "false"),
                    _ => policy(&name, "* */scale", "false"),
                };
                one["namespaces"] = json!({"matchLabels": {"team": format!("t{number}")}});
                one
            })
            .collect();
        world.enforce(&policies);
        let side = world.layer.side().unwrap();
        for (method, target) in [
            ("GET", "/api/v1/namespaces/ns/pods"),
            ("POST", "/api/v1/namespaces/ns/pods"),
            ("POST", "/api/v1/namespaces/ns/configmaps"),
            ("PUT", "/apis/x.io/v1/namespaces/ns/widgets/w"),
            ("DELETE", "/apis/x.io/v1/namespaces/ns/widgets"),
            ("POST", "/version"),
        ] {
            let call = world.call(method, target, "application/json", "{}".into());
            // What a thread needs once is made by its first request.
            let mut concern = side.concern(&call);
            let allocated = allocation_counter::measure(|| concern = side.concern(&call));
            assert!(matches!(concern, Concern::None), "{method} {target}");
            assert_eq!(allocated.count_total, 0, "{method} {target}");
        }
        let got = world
            .json("POST", "/api/v1/namespaces/ns/pods", &json!({}))
            .await;
        assert_eq!(got.code, 200);
        assert!(world.upstream.seen().is_empty(), "nothing was read");
        assert!(world.records.all().is_empty());
    });
}

#[test]
fn policies_do_not_judge_policies_and_reviews() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", "* *", "false")]);
        for path in [
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "/apis/authentication.k8s.io/v1/tokenreviews",
        ] {
            assert_eq!(
                world.json("POST", path, &json!({})).await.code,
                200,
                "{path}"
            );
        }
        let got = world
            .json("GET", "/api/v1/namespaces/ns/pods", &Value::Null)
            .await;
        assert_eq!(got.code, 200);
    });
}

#[test]
fn a_name_in_the_body_is_matched_by_rules_for_names() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy("p", " configmaps", "false");
        one["spec"]["matchConstraints"]["resourceRules"][0]["resourceNames"] = json!(["kept"]);
        world.enforce(&[one]);
        let path = "/api/v1/namespaces/ns/configmaps";
        for (name, code) in [("kept", 422), ("other", 200)] {
            let body = json!({"metadata": {"name": name}});
            assert_eq!(world.json("POST", path, &body).await.code, code, "{name}");
        }
    });
}
