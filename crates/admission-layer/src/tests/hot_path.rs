//! Requests that no policy is about.

use fairgate_admission::AdmissionMode;
use std::{
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use serde_json::{Value, json};
use tower::{Layer as _, Service};

use super::world::{World, policy};
use crate::side::Concern;

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
        // The whole layer adds nothing to what the service behind it allocates.
        let mut alone = Leaf;
        let mut layered = world.layer.layer(Leaf);
        for _ in 0..2 {
            let [first, second] = [(); 2].map(|()| {
                let target = "/api/v1/namespaces/ns/pods";
                world.call("POST", target, "application/json", "{}".into())
            });
            let bare = allocation_counter::measure(|| drop(answer(alone.call(first))));
            let evaluated = allocation_counter::measure(|| drop(answer(layered.call(second))));
            assert_eq!(evaluated.count_total, bare.count_total);
        }
        let got = world
            .json("POST", "/api/v1/namespaces/ns/pods", &json!({}))
            .await;
        assert_eq!(got.code, 200);
        assert!(world.upstream.seen().is_empty(), "nothing was read");
        assert!(world.records.all().is_empty());
    });
}

/// What a defaulted field costs is counted by a Pod that has no more than it must, and one that states all that is set in the first otherwise. Who
/// does not read these fields pays for those that are stated, and for no other.
#[test]
fn policies_that_read_no_defaulted_field_do_not_pay_for_defaults() {
    World::run(|| async {
        let world = World::at_rest(AdmissionMode::Enforce);
        let stated = json!({
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": true, "securityContext": {},
        });
        let [bare, full] = [json!({}), stated].map(|mut spec| {
            spec["containers"] = json!([{"name": "c", "image": "i"}]);
            json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec}).to_string()
        });
        let allocations = |expression: &str, body: &str| {
            world.enforce(&[policy("p", " pods", expression)]);
            let mut layered = world.layer.layer(Leaf);
            let mut count = 0;
            // What a thread needs once is made by its first request.
            for _ in 0..2 {
                let target = "/api/v1/namespaces/ns/pods";
                let call = world.call("POST", target, "application/json", body.to_owned().into());
                let mut reply = None;
                let counted =
                    allocation_counter::measure(|| reply = Some(answer(layered.call(call))));
                assert!(reply.is_some_and(|reply| reply.is_ok()));
                count = counted.count_total;
            }
            count
        };
        let saved = |expression: &str| {
            let [bare, full] = [&bare, &full].map(|body| allocations(expression, body));
            full.saturating_sub(bare)
        };
        for (unread, read) in [
            (
                "object.metadata.labels.a == 'b'",
                "has(object.spec.dnsPolicy)",
            ),
            (
                "object.kind == 'Pod'",
                "object.spec.containers[0].imagePullPolicy != 'Never'",
            ),
            // Fields without a default beside others that have one.
            (
                "!has(object.spec.nodeName)",
                "has(object.spec.restartPolicy)",
            ),
            (
                "object.spec.containers.all(c, c.image.startsWith('i')) && object.spec.containers.size() == 1",
                "object.spec.containers.all(c, c.image == 'i' && has(c.terminationMessagePath))",
            ),
            (
                "request.name != 'x' && has(object.metadata)",
                "object.spec != {}",
            ),
        ] {
            let (unread, read) = (saved(unread), saved(read));
            assert!(
                unread >= read + 6,
                "{unread} and {read} allocations are saved"
            );
        }
    });
}

/// A service that answers at once.
#[derive(Clone)]
struct Leaf;

impl Service<Call> for Leaf {
    type Response = Reply;
    type Error = Refusal;
    type Future = Ready<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        ready(Ok(Reply::new(ReplyBody::empty())))
    }
}

fn answer(future: impl Future<Output = Result<Reply, Refusal>>) -> Result<Reply, Refusal> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("nothing has to be waited for"),
    }
}

#[test]
fn policies_do_not_evaluate_policies_and_reviews() {
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

/// As in a server with policies from files.
#[test]
fn policies_from_files_are_waited_for_by_requests_for_policies() {
    World::run(|| async {
        let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        for (are_files, code) in [(false, 200), (true, 403)] {
            let world = World::impatient(AdmissionMode::Enforce);
            if are_files {
                world.policies.expect_files();
            }
            for (method, path) in [("POST", policies), ("DELETE", &*format!("{policies}/p"))] {
                let got = world.json(method, path, &json!({})).await;
                assert_eq!(got.code, code, "{method} {are_files}");
            }
            assert_eq!(world.json("POST", review, &json!({})).await.code, 200);
        }
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

#[test]
fn a_false_condition_that_reads_only_the_request_leaves_the_body_unread() {
    World::run(|| async {
        // Whatever is read of a body would be too much.
        let world = World::with_budget(AdmissionMode::Enforce, 0);
        let mut one = policy("p", " configmaps", "false");
        one["fidelity"] = json!("dryRun");
        let mut enforce = |condition: &str| {
            one["spec"]["matchConditions"] = json!([{"name": "c", "expression": condition}]);
            world.enforce(std::slice::from_ref(&one));
        };
        let path = "/api/v1/namespaces/ns/configmaps";
        let body = json!({"metadata": {"name": "m"}});
        for (condition, code) in [
            ("request.userInfo.username == 'nobody'", 200),
            ("request.operation == 'DELETE'", 200),
            ("object.metadata.name == 'other'", 429),
            ("request.name == 'other'", 429),
        ] {
            enforce(condition);
            let got = world.json("POST", path, &body).await;
            assert_eq!(got.code, code, "{condition}: {got:?}");
        }
        // A PUT may turn out to create.
        let named = format!("{path}/m");
        for (condition, code) in [
            ("request.operation == 'DELETE'", 200),
            ("request.operation == 'CREATE'", 429),
            ("request.operation == 'UPDATE'", 429),
            ("request.name == 'other'", 200),
        ] {
            enforce(condition);
            let got = world.json("PUT", &named, &body).await;
            assert_eq!(got.code, code, "{condition}: {got:?}");
        }
        assert!(
            world
                .targets()
                .iter()
                .all(|target| !target.contains("dryRun"))
        );
        assert!(world.upstream.seen().is_empty(), "nothing was read");
    });
}
