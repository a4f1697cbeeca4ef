//! Authorization of the hosted API, and the reviews that users can send.

use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, V1,
    api::{Api, ApiResponse},
    level, schema,
};

/// An administrator, a member of the reader groups, another user, and an anonymous client.
const USERS: [&str; 4] = ["root", "reader", "alice", ""];

const DUMPS: &str = "/debug/api_priority_and_fairness";

/// Method, target, and the status for each of [`USERS`].
type AccessCase = (&'static str, String, [u16; 4]);

fn access_cases() -> Vec<AccessCase> {
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
        // Authorized like a GET, but not supported.
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
    cases
        .into_iter()
        .map(|(method, target, codes)| (method, target.to_owned(), codes))
        .collect()
}

#[tokio::test]
async fn users_are_authorized_by_their_groups() {
    let home = Home::new();
    let server = home.start().await;
    let cases = access_cases();
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
            // A watch has no end.
            if response.status() == 200 && target.contains("watch") {
                assert_eq!(codes[number], 200, "{user:?} {target}");
                continue;
            }
            let response = ApiResponse::all_of(response).await;
            let expected = codes[number];
            assert_eq!(
                response.status, expected,
                "{user:?} {method} {target}: {response:?}"
            );
            if method == Method::HEAD {
                assert_eq!(response.body, "", "{user:?} {target}");
                assert_ne!(response.header("content-length"), "0", "{user:?} {target}");
            } else if expected == 403 {
                let message = response.refused(403, "Forbidden");
                assert!(message.contains("User \""), "{message}");
            }
            let uid = response.header("x-kubernetes-pf-flowschema-uid");
            assert!(
                !uid.is_empty(),
                "{user:?} {method} {target}: not classified"
            );
        }
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_not_anonymous() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.as_user("stolen").await;
    for target in [SCHEMAS, "/livez", "/version", "/metrics"] {
        api.get(target).await.refused(401, "Unauthorized");
    }
}

#[tokio::test]
async fn a_forbidden_response_names_user_verb_and_resource() {
    let home = Home::new();
    let server = home.start().await;
    let alice = server.as_user("alice").await;
    let response = alice.get(&format!("{SCHEMAS}/exempt")).await;
    assert_eq!(
        response.refused(403, "Forbidden"),
        "flowschemas.flowcontrol.apiserver.k8s.io \"exempt\" is forbidden: User \"alice\" cannot get \
         resource \"flowschemas\" in API group \"flowcontrol.apiserver.k8s.io\" at the cluster scope"
    );
    let details = &response.json()["details"];
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
    // An apply that would create an object needs the verbs patch and create; the reader has neither.
    let target = format!("{LEVELS}/mine?fieldManager=me");
    let reader = server.as_user("reader").await;
    let object = level("mine", 1).to_string();
    let response = reader
        .call(Method::PATCH, &target, super::api::APPLY, object)
        .await;
    response.refused(403, "Forbidden");
}

async fn review(api: &Api, group: &str, kind: &str, spec: Value) -> Value {
    let target = format!("/apis/{group}/v1/{}s", kind.to_lowercase());
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let response = api.post(&target, &body).await;
    assert_eq!(response.status, 201, "{response:?}");
    let object = response.object();
    assert_eq!(object["kind"], kind);
    object["status"].clone()
}

#[tokio::test]
async fn authenticated_users_can_review_who_they_are() {
    let home = Home::new();
    let server = home.start().await;
    for (token, name) in [("root", "root"), ("reader", "rita"), ("alice", "alice")] {
        let api = server.as_user(token).await;
        let group = "authentication.k8s.io";
        let status = review(&api, group, "SelfSubjectReview", json!({})).await;
        let user = &status["userInfo"];
        assert_eq!(user["username"], name);
        assert_eq!(user["uid"], format!("{name}-uid"));
        let groups = user["groups"].as_array().unwrap();
        assert!(
            groups.contains(&json!("system:authenticated")),
            "{groups:?}"
        );
        assert_eq!(groups.contains(&json!("system:masters")), token == "root");
    }
}

#[tokio::test]
async fn authenticated_users_can_review_what_they_are_allowed_to_do() {
    let home = Home::new();
    let server = home.start().await;
    let group = "authorization.k8s.io";
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
        for (attributes, allowed) in [
            (&list, [true, true, false]),
            (&delete, [true, false, false]),
            (&metrics, [true, true, false]),
            (&live, [true; 3]),
        ] {
            let kind = "SelfSubjectAccessReview";
            let status = review(&api, group, kind, attributes.clone()).await;
            assert_eq!(status["allowed"], allowed[number], "{token} {attributes}");
        }

        let spec = json!({"namespace": "default"});
        let status = review(&api, group, "SelfSubjectRulesReview", spec).await;
        assert_eq!(status["incomplete"], false);
        let rules = status["resourceRules"].as_array().unwrap();
        let reads = rules.iter().any(|rule| {
            let has = |key: &str, expected: &str| {
                let all = rule[key].as_array().unwrap();
                all.contains(&json!(expected)) || all.contains(&json!("*"))
            };
            has("resources", "flowschemas") && has("verbs", "list")
        });
        assert_eq!(reads, token != "alice", "{status}");
    }
}

#[tokio::test]
async fn reviews_need_a_user_a_post_and_a_supported_media_type() {
    let home = Home::new();
    let server = home.start().await;
    let root = server.root().await;
    let anonymous = server.as_user("").await;
    for target in [
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    ] {
        anonymous
            .post(target, &json!({}))
            .await
            .refused(403, "Forbidden");
        root.get(target).await.refused(405, "MethodNotAllowed");
        let response = root.post(target, &json!({"spec": {"x": 1}})).await;
        assert!(
            [201, 400, 422].contains(&response.status.as_u16()),
            "{response:?}"
        );
        let response = root.call(Method::POST, target, "text/plain", "x").await;
        response.refused(415, "UnsupportedMediaType");
    }
}
