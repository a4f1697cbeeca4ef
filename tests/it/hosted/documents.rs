//! OpenAPI documents in the formats that clients ask for.

use http::Method;

use super::{Home, api::ApiResponse};

const OF_THE_GROUP: &str = "/openapi/v3/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn openapi_is_written_as_protobuf_for_clients_that_prefer_it() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let asked = async |path: &str, accept: &str| -> ApiResponse {
        let request = api.request(Method::GET, path).header("accept", accept);
        api.send(request, "").await
    };
    for (path, version) in [("/openapi/v2", "v2"), (OF_THE_GROUP, "v3")] {
        let new = format!("application/com.github.proto-openapi.spec.{version}.v1.0+protobuf");
        let old = format!("application/com.github.proto-openapi.spec.{version}@v1.0+protobuf");
        let json = asked(path, "application/json").await;
        assert!(json.object()["paths"].is_object(), "{path}");
        for accept in [&new, &old, &format!("{old}, application/json")] {
            let response = asked(path, accept).await;
            assert_eq!(response.status, 200, "{path} {accept}");
            assert_eq!(response.header("content-type"), new);
            assert_eq!(response.header("etag"), json.header("etag"));
            assert_eq!(response.header("vary"), json.header("vary"));
            // The title is among the first fields of the protobuf message.
            let title = b"Kubernetes";
            let head = &response.body[..64];
            assert!(head.windows(title.len()).any(|part| part == title));
            assert!(response.body.len() < json.body.len(), "{path}");
        }
        assert_eq!(asked(path, "*/*").await.body, json.body);
        assert_eq!(asked(path, "text/html").await.status, 406);
        let other = if version == "v2" { "v3" } else { "v2" };
        let other = format!("application/com.github.proto-openapi.spec.{other}.v1.0+protobuf");
        assert_eq!(asked(path, &other).await.status, 406);
    }
}
