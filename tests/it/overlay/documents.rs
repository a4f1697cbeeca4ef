//! Discovery and OpenAPI documents: those of the upstream with what the gateway hosts.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::{AGGREGATED, GROUP, SCHEMAS, Server, client_of, gateway_before, names};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

#[tokio::test]
async fn the_lists_of_groups_are_merged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;

    let groups = alice.get("/apis", &[]).await.json();
    let merged = ["apps", "flowcontrol.apiserver.k8s.io"];
    assert_eq!(names(&groups["groups"], |group| &group["name"]), merged);
    assert_eq!(
        groups["groups"][1]["versions"][1]["groupVersion"],
        "flowcontrol.apiserver.k8s.io/v1beta3"
    );
    let yaml = alice.get("/apis", &[("accept", "application/yaml")]).await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("- name: flowcontrol.apiserver.k8s.io"));

    for form in [
        AGGREGATED.to_owned(),
        AGGREGATED.replace("v=v2", "v=v2beta1"),
    ] {
        let got = alice.get("/apis", &[("accept", &form)]).await;
        assert_eq!(got.header("content-type"), form);
        assert_eq!(got.header("cache-control"), "public");
        let list = got.json();
        let found = names(&list["items"], |item| &item["metadata"]["name"]);
        let expected = ["apps", "flowcontrol.apiserver.k8s.io", "example.com"];
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn openapi_v2_is_merged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;

    let got = alice.get("/openapi/v2", &[]).await;
    assert_eq!(got.header("last-modified"), "");
    let v2 = got.json();
    let paths = v2["paths"].as_object().unwrap();
    assert!(paths.contains_key("/apis/apps/v1/deployments") && paths.contains_key(SCHEMAS));
    assert!(!paths.contains_key(&SCHEMAS.replace("v1/", "v1beta1/")));
    assert!(paths.contains_key("/apis/flowcontrol.apiserver.k8s.io/v1/theirs"));
    assert_eq!(v2["info"]["version"], "v0");
    let protobuf = alice.get("/openapi/v2", &[("accept", PROTOBUF)]).await;
    assert_eq!(protobuf.header("content-type"), PROTOBUF);
    assert!(protobuf.text().contains("/apis/apps/v1/deployments"));
    assert!(protobuf.text().contains(SCHEMAS));
    assert_eq!(protobuf.header("etag"), got.header("etag"));

    for seen in server.of("/openapi/v2") {
        assert_eq!(seen.headers["impersonate-user"], "alice");
        assert_eq!(seen.headers["accept"], "application/json");
        assert_eq!(seen.headers["accept-encoding"], "identity");
    }
}

#[tokio::test]
async fn openapi_v3_is_merged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;

    let v3 = alice.get("/openapi/v3", &[]).await.json();
    let url = |key: &str| v3["paths"][key]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(url("api/v1"), "/openapi/v3/api/v1?hash=A");
    let ours = url("apis/flowcontrol.apiserver.k8s.io/v1");
    let got = alice.get(ours, &[]).await;
    assert_eq!(got.status, 200, "{ours}");
    assert_eq!(got.header("cache-control"), "public, immutable");
    let paths = got.json()["paths"].as_object().unwrap().clone();
    assert!(paths.contains_key(&format!("{GROUP}/v1/others")) && paths[SCHEMAS].is_object());
    let another = format!("/openapi/v3{GROUP}/v1?hash=OLD");
    let got = alice.get(&another, &[]).await;
    assert_eq!((got.status, got.header("location")), (301, ours));
    let plain = alice.get(another.split('?').next().unwrap(), &[]).await;
    assert_eq!(plain.header("cache-control"), "public");
    let tag = plain.header("etag").to_owned();
    let again = alice.get(ours, &[("if-none-match", &tag)]).await;
    assert_eq!(again.status, 304);
    // A version that the upstream does not serve is the gateway's alone.
    let beta = alice.get(&format!("/openapi/v3{GROUP}/v1beta3"), &[]).await;
    assert_eq!(beta.status, 200);
}

#[tokio::test]
async fn the_documents_of_a_group_are_merged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;

    let group = alice.get(GROUP, &[]).await.json();
    let versions = names(&group["versions"], |version| &version["version"]);
    assert_eq!(versions, ["v1", "v1beta3"]);
    let resources = alice.get(&format!("{GROUP}/v1"), &[]).await.json();
    let schemas = &resources["resources"][0];
    assert_eq!(
        (&schemas["name"], &schemas["verbs"][0]),
        (&json!("flowschemas"), &json!("create"))
    );
    let found = names(&resources["resources"], |resource| &resource["name"]);
    let expected = [
        "flowschemas",
        "flowschemas/status",
        "others",
        "prioritylevelconfigurations",
        "prioritylevelconfigurations/status",
    ];
    assert_eq!(found, expected);
    // A version that the upstream does not serve is the gateway's alone.
    let beta = alice.get(&format!("{GROUP}/v1beta3"), &[]).await.json();
    assert_eq!(beta["groupVersion"], "flowcontrol.apiserver.k8s.io/v1beta3");
    let unknown = alice.get(&format!("{GROUP}/v9"), &[]).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_document_is_fetched_again_only_when_it_has_changed() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;

    let first = alice.get("/openapi/v2", &[]).await;
    let zip = [("accept-encoding", "gzip")];
    let compressed = alice.get("/openapi/v2", &zip).await;
    assert_eq!(compressed.header("content-encoding"), "gzip");
    assert!(compressed.body.len() < first.body.len() / 4);
    let known = [
        ("if-none-match", first.header("etag")),
        ("range", "bytes=0-1"),
    ];
    let unchanged = alice.get("/openapi/v2", &known).await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));

    server.edition.fetch_add(1, Ordering::SeqCst);
    let changed = alice.get("/openapi/v2", &known).await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json()["info"]["version"], "v1");
    assert_ne!(changed.header("etag"), first.header("etag"));

    let seen = server.of("/openapi/v2");
    let sent_with = |name: &str| -> Vec<Option<&str>> {
        let values = seen.iter().map(|seen| seen.headers.get(name));
        values
            .map(|value| value.map(|value| value.to_str().unwrap()))
            .collect()
    };
    let first_tag = Some("\"v2-0\"");
    assert_eq!(
        sent_with("if-none-match"),
        [None, first_tag, first_tag, first_tag]
    );
    assert_eq!(sent_with("range"), [None; 4]);
}

#[tokio::test]
async fn a_document_that_the_upstream_refuses_a_user_is_refused() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    // A document that was merged for another user is cached.
    client_of(&gateway, "alice")
        .await
        .get("/openapi/v2", &[])
        .await;
    let mut mallory = client_of(&gateway, "mallory").await;
    for target in ["/apis", "/openapi/v2", "/openapi/v3"] {
        let got = mallory.get(target, &[]).await;
        assert_eq!(got.status, 403);
        assert_eq!(got.text(), "the upstream says no");
    }
}
