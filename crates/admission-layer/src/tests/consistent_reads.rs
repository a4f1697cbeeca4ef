//! Requests that are evaluated by namespaces and params as they are now.

use std::sync::atomic::Ordering;

use fairgate_admission::{AdmissionMode, LookupLack};
use serde_json::{Value, json};

use super::{
    test_cluster::shared,
    world::{World, policy},
};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
}

fn namespace(env: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"env": env}}})
}

/// Two policies that deny: one in namespaces of tests, and one for each param that says so.
fn policies() -> [Value; 2] {
    let mut selected = policy("selected", " configmaps", "false");
    selected["namespaces"] = json!({"matchLabels": {"env": "test"}});
    let mut with_params = policy("with-params", " configmaps", "params.data.mode != 'deny'");
    with_params["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    with_params["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    [selected, with_params].map(|mut one| {
        one["spec"]["failurePolicy"] = json!("Ignore");
        one
    })
}

#[test]
fn a_write_is_evaluated_by_what_was_read_for_it_and_not_by_what_is_known() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let cluster = &world.cluster;
        let known = shared(&namespace("prod"));
        cluster.know("ns", known);
        world.enforce(&policies());
        let allow =
            json!({"metadata": {"namespace": "ns", "name": "p"}, "data": {"mode": "allow"}});
        let mut deny = allow.clone();
        deny["data"]["mode"] = json!("deny");
        let now = |env: &str, param: &Value| {
            let mut unknown = cluster.unknown.lock().unwrap();
            unknown.insert("ns".to_owned(), namespace(env));
            *cluster.params_now.lock().unwrap() = vec![param.clone()];
        };
        // Cached: what has changed is not known.
        now("test", &deny);
        *cluster.params.lock().unwrap() = vec![allow.clone()];
        assert_eq!(world.json("POST", MAPS, &map()).await.code, 200);
        cluster.reads_now.store(true, Ordering::SeqCst);
        for (env, param, code) in [
            ("test", &allow, 422),
            ("prod", &deny, 422),
            ("prod", &allow, 200),
        ] {
            now(env, param);
            let got = world.json("POST", MAPS, &map()).await;
            assert_eq!(got.code, code, "{env} {param}: {got:?}");
        }
    });
}

#[test]
fn what_cannot_be_read_is_refused_whatever_the_failure_policy_says() {
    World::run(|| async {
        for (lack, code) in [
            (LookupLack::Time, 504),
            (LookupLack::Place, 429),
            (LookupLack::Server("down".to_owned()), 500),
        ] {
            for one in policies() {
                let world = World::new(AdmissionMode::Enforce);
                world.cluster.reads_now.store(true, Ordering::SeqCst);
                *world.cluster.lack.lock().unwrap() = Some(lack.clone());
                world.enforce(&[one]);
                let got = world.json("POST", MAPS, &map()).await;
                assert_eq!((got.code, got.reason()), (code, "admission-failed"));
                assert!(world.sent().is_empty());
            }
        }
    });
}
