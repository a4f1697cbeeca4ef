//! Whether a response says that there is no object.

use serde_json::Value;

/// Whether the body of a 404 says that there is no object of the name that was asked for. Any other 404 says nothing about the
/// object: it is of a server that has no such path, though another one may, or of a proxy.
pub fn names_absent_object(body: &Value) -> bool {
    let name = body["details"]["name"].as_str().unwrap_or_default();
    body["kind"] == "Status" && body["reason"] == "NotFound" && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_status_that_names_an_object_says_that_it_is_absent() {
        let status = |details: Value| json!({"kind": "Status", "reason": "NotFound", "details": details, "code": 404});
        assert!(names_absent_object(&status(
            json!({"name": "a", "kind": "pods"})
        )));
        for other in [
            status(json!({})),
            status(json!({"name": ""})),
            status(Value::Null),
            json!({"kind": "Status", "code": 404}),
            json!({"kind": "Status", "reason": "Forbidden", "details": {"name": "a"}}),
            json!({"kind": "Pod", "reason": "NotFound", "details": {"name": "a"}}),
            Value::Null,
        ] {
            assert!(!names_absent_object(&other), "{other}");
        }
    }
}
