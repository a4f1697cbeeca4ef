//! The headers `Content-Type` and `Accept`.

use http::Method;

use super::{
    super::{
        Home, SCHEMAS,
        api::{JSON, MERGE},
        schema,
    },
    YAML, revision,
};

#[tokio::test]
async fn request_bodies_of_unsupported_media_types_are_refused() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let body = schema("supported", "exempt", 9, "x").to_string();
    let unknown = "the body of the request was in an unknown format - accepted media types include: \
        application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/cbor",
        "application",
        "application/json;x",
        ";",
        "*/*",
        MERGE,
    ] {
        let response = api
            .call(Method::POST, SCHEMAS, content_type, body.clone())
            .await;
        let message = response.refused(415, "UnsupportedMediaType");
        assert_eq!(message, unknown, "{content_type}");
    }
    for content_type in ["text/plain", JSON, "application/apply-patch+cbor", ""] {
        let target = format!("{SCHEMAS}/probes");
        let response = api
            .call(Method::PATCH, &target, content_type, body.clone())
            .await;
        response.refused(415, "UnsupportedMediaType");
    }
    let supported = [
        "",
        "APPLICATION/JSON",
        "application/json; charset=utf-16",
        "application/json;",
    ];
    for content_type in supported {
        let target = format!("{SCHEMAS}?dryRun=All");
        let response = api
            .call(Method::POST, &target, content_type, body.clone())
            .await;
        assert_eq!(response.status, 201, "{content_type:?}: {response:?}");
    }
    assert_eq!(revision(&server).await, server.store().cached_revision());
}

#[tokio::test]
async fn responses_in_unsupported_media_types_are_refused() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let get = async |accept: &str, target: &str| {
        let request = api.request(Method::GET, target).header("accept", accept);
        api.send(request, "").await
    };
    let target = format!("{SCHEMAS}/exempt");
    for accept in [
        "text/html",
        "application/*",
        "application/cbor",
        "text/*",
        ",,,",
        "application/json;as=Foo;g=meta.k8s.io;v=v1",
        "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
    ] {
        get(accept, &target).await.refused(406, "NotAcceptable");
    }
    // The error itself is in YAML, which watches do not support.
    let response = get(YAML, &format!("{SCHEMAS}?watch=true")).await;
    assert_eq!(
        (response.status.as_u16(), response.header("content-type")),
        (406, YAML)
    );
    assert!(
        response.text().contains("\nreason: NotAcceptable\n"),
        "{response:?}"
    );
    assert!(
        response.text().contains("application/json;stream=watch"),
        "{response:?}"
    );
    for accept in ["*/*;q=0", "application/json;q=abc", "text/html,*/*", JSON] {
        get(accept, &target).await.object();
    }
    assert_eq!(revision(&server).await, server.store().cached_revision());
}
