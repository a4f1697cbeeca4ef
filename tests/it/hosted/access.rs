//! Who may do what, and what they are told about it.

use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, V1,
    api::{Api, Told},
    level, schema,
};

/// A master, a reader, somebody known, nobody.
const USERS: [&str; 4] = ["root", "reader", "alice", ""];

const DUMPS: &str = "/debug/api_priority_and_fairness";

#[tokio::test]
async fn each_may_do_what_is_meant_for_them() {
    let home = Home::new();
    let server = home.start().await;
    let item = format!("{SCHEMAS}/probes");
    let status = format!("{SCHEMAS}/probes/status");
    let dry = format!("{SCHEMAS}?dryRun=All");
    let dry_item = format!("{SCHEMAS}/probes?dryRun=All");
    let watch = format!("{LEVELS}?watch=true");
    let old_watch = format!("{V1}/watch/flowschemas");
    let nothing = format!("{V1}/wings");
    let dump = format!("{DUMPS}/dump_priority_levels");
    let cases = [
        ("GET", SCHEMAS, [200, 200, 403, 403]),
        ("GET", LEVELS, [200, 200, 403, 403]),
        ("GET", &item, [200, 200, 403, 403]),
        ("GET", &status, [200, 200, 403, 403]),
        ("GET", &watch, [200, 200, 403, 403]),
        ("GET", &old_watch, [200, 200, 403, 403]),
        ("POST", &dry, [201, 403, 403, 403]),
        ("PATCH", &dry_item, [200, 403, 403, 403]),
        ("PUT", &dry_item, [400, 403, 403, 403]),
        ("DELETE", &dry_item, [200, 403, 403, 403]),
        ("DELETE", &dry, [200, 403, 403, 403]),
        ("POST", &item, [405, 403, 403, 403]),
        ("GET", &nothing, [404, 403, 403, 403]),
        ("GET", "/api/v1/pods", [404, 403, 403, 403]),
        ("GET", "/metrics", [200, 200, 403, 403]),
        ("POST", "/metrics", [405, 403, 403, 403]),
        ("GET", "/livez", [200; 4]),
        ("GET", "/livez/ping", [200; 4]),
        ("HEAD", "/livez/ping", [200; 4]),
        ("GET", "/readyz?verbose", [200; 4]),
        ("GET", "/healthz", [200; 4]),
        ("GET", "/version", [200; 4]),
        ("GET", &dump, [200, 403, 403, 403]),
        ("HEAD", &dump, [200, 403, 403, 403]),
        ("HEAD", "/metrics", [200, 200, 403, 403]),
        // As good as a GET to whoever decides, and then it is not.
        ("HEAD", SCHEMAS, [405, 405, 403, 403]),
        ("GET", "/debug/pprof", [404, 403, 403, 403]),
        ("GET", "/api", [200, 200, 200, 403]),
        ("GET", "/apis", [200, 200, 200, 403]),
        (
            "GET",
            "/apis/flowcontrol.apiserver.k8s.io",
            [200, 200, 200, 403],
        ),
        ("GET", V1, [200, 200, 200, 403]),
        ("GET", "/openapi/v2", [200, 200, 200, 403]),
        ("GET", "/openapi/v3", [200, 200, 200, 403]),
        ("GET", "/apis/nope/v1", [404, 404, 404, 403]),
        ("GET", "/nope", [404, 403, 403, 403]),
        ("GET", "/", [200, 403, 403, 403]),
        ("GET", "//version", [404, 403, 403, 403]),
    ];
    for (number, user) in USERS.into_iter().enumerate() {
        let api = server.as_user(user).await;
        for (method, target, codes) in &cases {
            let method: Method = method.parse().unwrap();
            let (content_type, body) = match method {
                Method::POST | Method::PUT => {
                    let object = schema("a", "exempt", 9, "x");
                    ("application/json", object.to_string())
                }
                Method::PATCH => ("application/merge-patch+json", "{}".to_owned()),
                _ => ("", String::new()),
            };
            let request = api.request(method.clone(), target);
            let request = if content_type.is_empty() {
                request
            } else {
                request.header("content-type", content_type)
            };
            let response = api.open(request, body).await;
            // A watch goes on.
            if response.status() == 200 && target.contains("watch") {
                assert_eq!(codes[number], 200, "{user:?} {target}");
                continue;
            }
            let told = Told::all_of(response).await;
            let wanted = codes[number];
            assert_eq!(told.status, wanted, "{user:?} {method} {target}: {told:?}");
            if method == Method::HEAD {
                assert_eq!(told.body, "", "{user:?} {target}");
                assert_ne!(told.header("content-length"), "0", "{user:?} {target}");
            } else if wanted == 403 {
                let message = told.refused(403, "Forbidden");
                assert!(message.contains("User \""), "{message}");
            }
            let uid = told.header("x-kubernetes-pf-flowschema-uid");
            assert!(
                !uid.is_empty(),
                "{user:?} {method} {target}: not classified"
            );
        }
    }
}

#[tokio::test]
async fn whoever_shows_a_wrong_token_is_nobody_and_not_even_that() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.as_user("stolen").await;
    for target in [SCHEMAS, "/livez", "/version", "/metrics"] {
        api.get(target).await.refused(401, "Unauthorized");
    }
}

#[tokio::test]
async fn a_refusal_says_who_may_not_do_what() {
    let home = Home::new();
    let server = home.start().await;
    let alice = server.as_user("alice").await;
    let told = alice.get(&format!("{SCHEMAS}/exempt")).await;
    assert_eq!(
        told.refused(403, "Forbidden"),
        "flowschemas.flowcontrol.apiserver.k8s.io \"exempt\" is forbidden: User \"alice\" cannot get \
         resource \"flowschemas\" in API group \"flowcontrol.apiserver.k8s.io\" at the cluster scope"
    );
    let details = &told.json()["details"];
    assert_eq!(
        details,
        &json!({
            "name": "exempt",
            "group": "flowcontrol.apiserver.k8s.io",
            "kind": "flowschemas",
        })
    );
    assert_eq!(
        alice.get("/metrics").await.refused(403, "Forbidden"),
        "forbidden: User \"alice\" cannot get path \"/metrics\""
    );
    // An apply that would make an object asks for two things, and neither may be had.
    let target = format!("{LEVELS}/mine?fieldManager=me");
    let reader = server.as_user("reader").await;
    let object = level("mine", 1).to_string();
    let told = reader
        .call(Method::PATCH, &target, super::api::APPLY, object)
        .await;
    told.refused(403, "Forbidden");
}

async fn review(api: &Api, group: &str, kind: &str, spec: Value) -> Value {
    let target = format!("/apis/{group}/v1/{}s", kind.to_lowercase());
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let told = api.post(&target, &body).await;
    assert_eq!(told.status, 201, "{told:?}");
    let object = told.object();
    assert_eq!(object["kind"], kind);
    object["status"].clone()
}

#[tokio::test]
async fn everybody_known_may_ask_who_they_are_and_what_they_may() {
    let home = Home::new();
    let server = home.start().await;
    let names = ["root", "rita", "alice"];
    let list = json!({"resourceAttributes": {
        "group": "flowcontrol.apiserver.k8s.io", "resource": "flowschemas", "verb": "list",
    }});
    let delete = json!({"resourceAttributes": {
        "group": "flowcontrol.apiserver.k8s.io", "resource": "flowschemas", "verb": "delete",
        "name": "x",
    }});
    let metrics = json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    let live = json!({"nonResourceAttributes": {"path": "/livez", "verb": "get"}});
    for (number, token) in ["root", "reader", "alice"].into_iter().enumerate() {
        let api = server.as_user(token).await;
        let status = review(
            &api,
            "authentication.k8s.io",
            "SelfSubjectReview",
            json!({}),
        );
        let status = status.await;
        let user = &status["userInfo"];
        assert_eq!(user["username"], names[number]);
        assert_eq!(user["uid"], format!("{}-uid", names[number]));
        let groups = user["groups"].as_array().unwrap();
        assert!(
            groups.contains(&json!("system:authenticated")),
            "{groups:?}"
        );
        assert_eq!(groups.contains(&json!("system:masters")), token == "root");

        for (asked, allowed) in [
            (&list, [true, true, false]),
            (&delete, [true, false, false]),
            (&metrics, [true, true, false]),
            (&live, [true; 3]),
        ] {
            let group = "authorization.k8s.io";
            let status = review(&api, group, "SelfSubjectAccessReview", asked.clone()).await;
            assert_eq!(status["allowed"], allowed[number], "{token} {asked}");
        }

        let spec = json!({"namespace": "default"});
        let kind = "SelfSubjectRulesReview";
        let status = review(&api, "authorization.k8s.io", kind, spec).await;
        assert_eq!(status["incomplete"], false);
        let rules = status["resourceRules"].as_array().unwrap();
        let reads = rules.iter().any(|rule| {
            let of = |key: &str, wanted: &str| {
                let all = rule[key].as_array().unwrap();
                all.contains(&json!(wanted)) || all.contains(&json!("*"))
            };
            of("resources", "flowschemas") && of("verbs", "list")
        });
        assert_eq!(reads, token != "alice", "{status}");
    }
    let nobody = server.as_user("").await;
    for target in [
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    ] {
        nobody
            .post(target, &json!({}))
            .await
            .refused(403, "Forbidden");
        let root = server.root().await;
        root.get(target).await.refused(405, "MethodNotAllowed");
        let told = root.post(target, &json!({"spec": {"x": 1}})).await;
        assert!([201, 400, 422].contains(&told.status.as_u16()), "{told:?}");
        let told = root.call(Method::POST, target, "text/plain", "x").await;
        told.refused(415, "UnsupportedMediaType");
    }
}
