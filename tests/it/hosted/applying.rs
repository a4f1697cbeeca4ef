//! Server-side apply of a cluster-scoped object that names a namespace.

use http::Method;
use serde_json::json;

use super::{Home, LEVELS, api::APPLY, level};

#[tokio::test]
async fn a_namespace_in_an_applied_cluster_scoped_object_is_dropped() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}/a?fieldManager=me");
    let mut config = level("a", 3);
    config["metadata"]["namespace"] = json!("somewhere");

    for code in [201, 200] {
        let response = api
            .call(Method::PATCH, &target, APPLY, config.to_string())
            .await;

        assert_eq!(response.status, code, "{response:?}");
        let object = response.object();
        assert_eq!(object["metadata"].get("namespace"), None);
        assert_eq!(object["metadata"]["generation"], 1);
    }
}
