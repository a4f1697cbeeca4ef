//! Invalid names, selectors, limits and continue tokens.

use http::Method;
use serde_json::json;

use super::{
    super::{Home, LEVELS, SCHEMAS, api::APPLY, level, schema},
    revision,
};

#[tokio::test]
async fn objects_with_invalid_names_are_neither_found_nor_created() {
    let home = Home::new();
    let server = home.start().await;
    let before = revision(&server).await;
    let api = server.root().await;
    let long = "x".repeat(3000);
    let (missing, no_route, bad) = (Some(" not found"), None, Some("Name parameter invalid: "));
    let cases = [
        ("a%2Fb", 404, "NotFound", no_route),
        ("a%00b", 404, "NotFound", missing),
        ("a%0ab", 404, "NotFound", missing),
        ("%ff%fe", 404, "NotFound", missing),
        ("A_B", 404, "NotFound", missing),
        (".hidden", 404, "NotFound", missing),
        (&long, 404, "NotFound", missing),
        ("..", 400, "BadRequest", bad),
        ("%2e%2e", 400, "BadRequest", bad),
        (".", 400, "BadRequest", bad),
        ("a%25b", 400, "BadRequest", bad),
    ];
    for (name, code, reason, text) in cases {
        let target = format!("{SCHEMAS}/{name}?fieldManager=me");
        for response in [
            api.get(&target).await,
            api.delete(&target).await,
            api.merge(&target, &json!({})).await,
        ] {
            let message = response.refused(code, reason);
            let expected = text.unwrap_or("the server could not find the requested resource");
            assert!(message.contains(expected), "{name}: {message}");
        }
        let object = schema("x", "exempt", 9, "x");
        let (code, reason) = match text {
            None => (404, "NotFound"),
            Some(_) => (400, "BadRequest"),
        };
        api.put(&target, &object).await.refused(code, reason);
        let response = api
            .call(Method::PATCH, &target, APPLY, object.to_string())
            .await;
        response.refused(code, reason);
    }
    for name in [
        "a/b",
        "a\0b",
        "..",
        ".",
        "A_B",
        "a%",
        "-",
        &long,
        " ",
        "\u{202e}x",
    ] {
        let message = api
            .post(LEVELS, &level(name, 1))
            .await
            .refused(422, "Invalid");
        assert!(
            message.contains("metadata.name: Invalid value"),
            "{message}"
        );
    }
    for prefix in ["a/b", "A_B", " "] {
        let mut object = level("", 1);
        object["metadata"]["generateName"] = json!(prefix);
        api.post(LEVELS, &object).await.refused(422, "Invalid");
    }
    assert_eq!(revision(&server).await, before);
}

#[tokio::test]
async fn the_response_says_what_is_wrong_with_a_selector_or_a_token() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let cases = [
        (
            "labelSelector=a%20in%20(",
            "unable to parse requirement: found '', expected: ",
        ),
        (
            "labelSelector=a%3D%3D%3D",
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            "labelSelector=%21",
            "unable to parse requirement: found '', expected: identifier",
        ),
        (
            "labelSelector=a%3Eb",
            "unable to parse requirement: values[0]: Invalid value: \"b\": ",
        ),
        (
            "fieldSelector=spec.x%3D1",
            "\"spec.x\" is not a known field selector: ",
        ),
        (
            "fieldSelector=metadata.name",
            "invalid selector: 'metadata.name'; can't understand ",
        ),
        (
            "fieldSelector=metadata.name%3D%5Cx",
            "invalid field selector: invalid escape sequence: \\x",
        ),
        (
            "continue=%21%21",
            "invalid continue token: continue key is not valid",
        ),
        (
            "continue=e30",
            "invalid continue token: continue key is not valid: server does not",
        ),
        // A key of another resource.
        (
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIvLi4vLi4veCJ9",
            "invalid continue token: ",
        ),
        ("limit=99999999999999999999", "strconv.ParseInt: parsing "),
        (
            "timeout=soon",
            "invalid timeout specified in the request URL",
        ),
    ];
    for (query, text) in cases {
        let response = api.get(&format!("{SCHEMAS}?{query}")).await;
        let message = response.refused(400, "BadRequest");
        assert!(message.starts_with(text), "{query}: {message}");
    }
    let key = "k".repeat(400);
    let response = api.get(&format!("{SCHEMAS}?labelSelector={key}")).await;
    let message = response.refused(400, "BadRequest");
    assert!(message.starts_with("unable to parse requirement: <nil>: Invalid value: "));

    let many: Vec<String> = (0..5000).map(|number| format!("k{number}%3Dv")).collect();
    let target = format!("{SCHEMAS}?labelSelector={}", many.join("%2C"));
    let list = api.get(&target).await.object();
    assert_eq!(list["items"], json!([]));
}
