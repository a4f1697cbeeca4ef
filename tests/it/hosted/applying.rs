//! Server-side apply of what is not quite as it should be.

use http::Method;
use serde_json::json;

use super::{Home, LEVELS, api::APPLY, level};

#[tokio::test]
async fn what_is_of_no_namespace_may_be_applied_with_one_and_has_none() {
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
