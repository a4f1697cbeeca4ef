//! Bodies that are too large or cannot be read: nothing of them is stored, and their memory is given back.

use bytes::Bytes;
use fairgate_apihttp::request::MAX_BODY;
use http::Method;
use serde_json::json;

use super::{
    super::{
        Home, LEVELS, SCHEMAS, TOKENS,
        api::{APPLY, Api, ApiResponse, JSON, MERGE},
        level, schema,
    },
    JSON_PATCH, PROTOBUF, STRATEGIC, YAML, revision,
};
use crate::process::{GatewayProcess, ProcessOptions};

/// The beginning of the message about a body that is not an object.
const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type FlowSchema): ";

/// Objects in objects, nested far deeper than any API object.
fn deep() -> Vec<u8> {
    let levels = 100_000;
    let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
    format!("{{\"metadata\":{{\"name\":\"x\"}},\"spec\":{open}1{close}}}").into_bytes()
}

/// YAML aliases that expand to nine times nine times nine … of the same text.
fn bomb() -> Vec<u8> {
    let mut text = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (before, name) in ('a'..='h').zip('b'..='i') {
        let nine = vec![format!("*{before}"); 9].join(",");
        text.extend([name.to_string(), format!(": &{name} [{nine}]\n")]);
    }
    text += "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: x}\n";
    text.into_bytes()
}

/// An object of exactly `length` bytes, most of which are spaces.
fn padded(length: usize) -> Vec<u8> {
    let mut body = schema("padded", "exempt", 9, "x").to_string().into_bytes();
    body.pop();
    body.resize(length - 1, b' ');
    body.push(b'}');
    body
}

fn many_operations() -> Vec<u8> {
    let test = json!({"op": "test", "path": "/metadata/name", "value": "exempt"});
    json!(vec![test; 10_001]).to_string().into_bytes()
}

/// A content type and a body, and the expected response: code, reason, and how the message begins.
type Case = (&'static str, Vec<u8>, u16, &'static str, String);

fn bad_objects() -> Vec<Case> {
    let mut cases = unreadable_json();
    cases.extend(unreadable_yaml_and_protobuf());
    cases.extend(objects_of_another_type());
    cases
}

/// A body that is not an object.
fn unrecognized(content_type: &'static str, body: &[u8], message: &str) -> Case {
    let message = format!("{UNRECOGNIZED}{message}");
    (content_type, body.to_vec(), 400, "BadRequest", message)
}

fn unreadable_json() -> Vec<Case> {
    const PARSING: &str = "couldn't get version/kind; json parse error: ";
    let long = b"[".repeat(100_000);
    let deep = deep();
    let cases: [(&[u8], &str); 10] = [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b"{", "unexpected end of JSON input ({)"),
        (b"[]", "json: cannot unmarshal array into Go value"),
        (b"\"x\"", "json: cannot unmarshal string into Go value"),
        (b"1", "json: cannot unmarshal number into Go value"),
        (b"true", "json: cannot unmarshal bool into Go value"),
        (
            br#"{"kind":1}"#,
            "json: cannot unmarshal number into Go struct",
        ),
        (b"\xff\xfe", ""),
        (&deep, ""),
        (&long, ""),
    ];
    cases
        .map(|(body, message)| unrecognized(JSON, body, &format!("{PARSING}{message}")))
        .into()
}

fn unreadable_yaml_and_protobuf() -> Vec<Case> {
    vec![
        unrecognized(YAML, &bomb(), "yaml: "),
        unrecognized(YAML, &deep(), "yaml: "),
        unrecognized(YAML, b"a: b: c: [", "yaml: "),
        unrecognized(PROTOBUF, b"", "empty data (<empty>)"),
        unrecognized(
            PROTOBUF,
            b"nope",
            "provided data does not appear to be a protobuf message",
        ),
        unrecognized(PROTOBUF, b"k8s\0", "empty body (6b387300)"),
        unrecognized(PROTOBUF, b"k8s\0\x12\xff\xff\xff\xff\x0f", "unexpected EOF"),
        unrecognized(
            PROTOBUF,
            &[b"k8s\0".as_slice(), &[0xff; 12]].concat(),
            "proto: integer overflow",
        ),
    ]
}

fn objects_of_another_type() -> Vec<Case> {
    let invalid = |body: &str| {
        let message = "FlowSchema.flowcontrol.apiserver.k8s.io \"\" is invalid: ";
        let body = body.as_bytes().to_vec();
        (JSON, body, 422, "Invalid", message.to_owned())
    };
    let refused = |body: &str, message: &str| {
        let body = body.as_bytes().to_vec();
        (JSON, body, 400, "BadRequest", message.to_owned())
    };
    vec![
        invalid("{}"),
        invalid("null"),
        refused(
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            "Pod in version \"v1\" cannot be handled as a FlowSchema: ",
        ),
        refused(
            r#"{"metadata":{"name":"x"},"spec":{"matchingPrecedence":"1"}}"#,
            "FlowSchema in version \"v1\" cannot be handled as a FlowSchema: json: cannot unmarshal \
             string into Go struct field ",
        ),
        refused(
            r#"{"metadata":{"name":"x"},"spec":{"matchingPrecedence":1.5}}"#,
            "FlowSchema in version \"v1\" cannot be handled as a FlowSchema: json: cannot unmarshal ",
        ),
        refused(
            r#"{"apiVersion":"flowcontrol.apiserver.k8s.io/v1beta3","kind":"FlowSchema"}"#,
            "the API version in the data (flowcontrol.apiserver.k8s.io/v1beta3) does not match the \
             expected API version (flowcontrol.apiserver.k8s.io/v1)",
        ),
    ]
}

fn bad_patches() -> Vec<Case> {
    let case = |content_type, body: &[u8], code, reason, message: &str| {
        (
            content_type,
            body.to_vec(),
            code,
            reason,
            message.to_owned(),
        )
    };
    let bad = |content_type, body: &[u8], message: &str| {
        case(content_type, body, 400, "BadRequest", message)
    };
    let unprocessable = |body: &str| {
        let message = "the server rejected our request due to an error in our request";
        case(JSON_PATCH, body.as_bytes(), 422, "Invalid", message)
    };
    let array = "error decoding patch: json: cannot unmarshal object into Go value of type []";
    vec![
        bad(JSON_PATCH, b"nope", ""),
        bad(JSON_PATCH, b"{}", array),
        bad(
            JSON_PATCH,
            b"[1]",
            "error decoding patch: json: cannot unmarshal number into Go value",
        ),
        unprocessable(r#"[{"op":"nope","path":"/x"}]"#),
        unprocessable(r#"[{"op":"remove","path":"/nope"}]"#),
        unprocessable(r#"[{"op":"test","path":"/metadata/name","value":"other"}]"#),
        bad(
            JSON_PATCH,
            br#"[{"op":"add","path":"/metadata/name","value":"other"}]"#,
            "the name of the object (other) does not match the name on the URL (probes)",
        ),
        case(
            JSON_PATCH,
            &many_operations(),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
             10001",
        ),
        bad(MERGE, b"nope", ""),
        bad(MERGE, b"[]", "error decoding patch: "),
        bad(MERGE, &deep(), "error decoding patch: "),
        bad(STRATEGIC, b"[]", ""),
        bad(STRATEGIC, &deep(), ""),
        bad(APPLY, &bomb(), "error "),
        bad(APPLY, &deep(), "error "),
        bad(
            APPLY,
            b"- a",
            "error decoding YAML: error unmarshaling JSON: ",
        ),
        case(
            MERGE,
            br#"{"spec":{"matchingPrecedence":"x"}}"#,
            422,
            "Invalid",
            " \"\" is invalid: patch: Invalid value: ",
        ),
    ]
}

/// Sends all bad bodies and checks the responses.
async fn send_bad(api: &Api) {
    for (content_type, body, code, reason, message) in bad_objects() {
        let response = api.call(Method::POST, SCHEMAS, content_type, body).await;
        expect(&response, code, reason, &message);
    }
    let target = format!("{SCHEMAS}/probes?fieldManager=me");
    for (content_type, body, code, reason, message) in bad_patches() {
        let response = api.call(Method::PATCH, &target, content_type, body).await;
        expect(&response, code, reason, &message);
    }
    let response = api
        .call(Method::POST, SCHEMAS, JSON, padded(MAX_BODY + 1))
        .await;
    expect(
        &response,
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

fn expect(response: &ApiResponse, code: u16, reason: &str, message: &str) {
    let found = response.refused(code, reason);
    assert!(found.starts_with(message), "{found:?} is not {message:?}");
    assert!(found.len() < 10_000, "{} bytes of message", found.len());
}

#[tokio::test]
async fn a_bad_body_is_refused_as_the_api_server_refuses_it_and_changes_nothing() {
    let home = Home::new();
    let server = home.start().await;
    let before = revision(&server).await;
    send_bad(&server.root().await).await;
    assert_eq!(revision(&server).await, before);
}

#[tokio::test]
async fn a_body_may_have_three_mebibytes_and_not_a_byte_more() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let over = padded(MAX_BODY + 1);
    let response = api.call(Method::POST, SCHEMAS, JSON, over.clone()).await;
    response.refused(413, "RequestEntityTooLarge");
    let target = format!("{SCHEMAS}/padded");
    for (method, content_type) in [
        (Method::PUT, JSON),
        (Method::PATCH, MERGE),
        (Method::PATCH, JSON_PATCH),
        (Method::PATCH, APPLY),
        (Method::DELETE, JSON),
    ] {
        let target = format!("{target}?fieldManager=me");
        let response = api.call(method, &target, content_type, over.clone()).await;
        response.refused(413, "RequestEntityTooLarge");
    }
    api.get(&target).await.refused(404, "NotFound");

    let exact = api
        .call(Method::POST, SCHEMAS, JSON, padded(MAX_BODY))
        .await;
    assert_eq!(exact.status, 201);
    assert_eq!(
        api.get(&target).await.object()["spec"],
        exact.object()["spec"]
    );

    // The limit for objects is lower than the limit for bodies.
    let mut fat = schema("fat", "exempt", 9, "x");
    let subject = json!({"kind": "User", "user": {"name": "x".repeat(100)}});
    fat["spec"]["rules"][0]["subjects"] = json!(vec![subject; 18_000]);
    let response = api.post(SCHEMAS, &fat).await;
    response.refused(413, "RequestEntityTooLarge");
    api.get(&format!("{SCHEMAS}/fat"))
        .await
        .refused(404, "NotFound");
    let mut annotated = level("annotated", 1);
    annotated["metadata"]["annotations"] = json!({"a": "x".repeat(256 << 10)});
    let message = api.post(LEVELS, &annotated).await.refused(422, "Invalid");
    assert!(
        message.contains("metadata.annotations: Too long"),
        "{message}"
    );
}

#[tokio::test]
async fn the_memory_of_bad_calls_is_bounded_and_given_back() {
    let configuration = json!({
        "mode": "standalone",
        "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
        "store": {"local": {"path": "store/store.redb"}},
        "dataCores": 2,
    });
    let options = ProcessOptions {
        tokens: TOKENS,
        ..ProcessOptions::default()
    };
    let process = GatewayProcess::with(configuration, &options);
    let round = async || {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let api = Api::new(process.address, "root").await;
            clients.spawn(async move {
                send_bad(&api).await;
                let huge = Bytes::from(vec![b'['; 8 << 20]);
                let response = api.call(Method::POST, SCHEMAS, JSON, huge).await;
                response.refused(413, "RequestEntityTooLarge");
            });
        }
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    };
    round().await;
    let before = process.mebibytes("VmRSS");
    for _ in 0..3 {
        round().await;
    }
    let (after, most) = (process.mebibytes("VmRSS"), process.mebibytes("VmHWM"));
    assert!(
        after <= before + 64,
        "{before} MiB before, {after} MiB after"
    );
    assert!(most <= 512, "{most} MiB");
    let api = Api::new(process.address, "root").await;
    api.get(&format!("{SCHEMAS}/exempt")).await.object();
}
