//! Whatever clients send: each call gets a clear answer, nothing of it is stored, and the memory it
//! took is given back. What is expected is what kube-apiserver 1.36 answers.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use bytes::Bytes;
use fairgate_apiserver::MAX_BODY;
use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{APPLY, Api, JSON, MERGE, Told},
    level, schema,
};

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What the message of a body begins with that is not even an object.
const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type FlowSchema): ";

/// Objects in objects, far deeper than any shape.
fn deep() -> Vec<u8> {
    let levels = 100_000;
    let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
    format!("{{\"metadata\":{{\"name\":\"x\"}},\"spec\":{open}1{close}}}").into_bytes()
}

/// Nine times nine times nine … of the same text.
fn bomb() -> Vec<u8> {
    let mut text = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (before, name) in ('a'..='h').zip('b'..='i') {
        let nine = vec![format!("*{before}"); 9].join(",");
        text.extend([name.to_string(), format!(": &{name} [{nine}]\n")]);
    }
    text += "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: x}\n";
    text.into_bytes()
}

/// An object of exactly so many bytes, most of which are blanks.
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

/// A call, and what is answered: code, reason, and how the message begins.
type Case = (&'static str, Vec<u8>, u16, &'static str, String);

fn bad_objects() -> Vec<Case> {
    let bad = |content_type, body: &[u8], message: &str| {
        let body = body.to_vec();
        let message = format!("{UNRECOGNIZED}{message}");
        (content_type, body, 400, "BadRequest", message)
    };
    let get = "couldn't get version/kind; json parse error: ";
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
        bad(
            JSON,
            b"",
            &format!("{get}unexpected end of JSON input (<empty>)"),
        ),
        bad(
            JSON,
            b"{",
            &format!("{get}unexpected end of JSON input ({{)"),
        ),
        bad(
            JSON,
            b"[]",
            &format!("{get}json: cannot unmarshal array into Go value"),
        ),
        bad(
            JSON,
            b"\"x\"",
            &format!("{get}json: cannot unmarshal string into Go value"),
        ),
        bad(
            JSON,
            b"1",
            &format!("{get}json: cannot unmarshal number into Go value"),
        ),
        bad(
            JSON,
            b"true",
            &format!("{get}json: cannot unmarshal bool into Go value"),
        ),
        bad(
            JSON,
            br#"{"kind":1}"#,
            &format!("{get}json: cannot unmarshal number into Go struct"),
        ),
        bad(JSON, b"\xff\xfe", get),
        bad(JSON, &deep(), get),
        bad(JSON, &b"[".repeat(100_000), get),
        bad(YAML, &bomb(), "yaml: "),
        bad(YAML, &deep(), "yaml: "),
        bad(YAML, b"a: b: c: [", "yaml: "),
        bad(PROTOBUF, b"", "empty data (<empty>)"),
        bad(
            PROTOBUF,
            b"nope",
            "provided data does not appear to be a protobuf message",
        ),
        bad(PROTOBUF, b"k8s\0", "empty body (6b387300)"),
        bad(PROTOBUF, b"k8s\0\x12\xff\xff\xff\xff\x0f", "unexpected EOF"),
        bad(
            PROTOBUF,
            &[b"k8s\0".as_slice(), &[0xff; 12]].concat(),
            "proto: integer overflow",
        ),
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

/// Sends what is bad; each time the answer has to be as expected.
async fn send_bad(api: &Api) {
    for (content_type, body, code, reason, message) in bad_objects() {
        let told = api.call(Method::POST, SCHEMAS, content_type, body).await;
        expect(&told, code, reason, &message);
    }
    let target = format!("{SCHEMAS}/probes?fieldManager=me");
    for (content_type, body, code, reason, message) in bad_patches() {
        let told = api.call(Method::PATCH, &target, content_type, body).await;
        expect(&told, code, reason, &message);
    }
    let told = api
        .call(Method::POST, SCHEMAS, JSON, padded(MAX_BODY + 1))
        .await;
    expect(
        &told,
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

fn expect(told: &Told, code: u16, reason: &str, message: &str) {
    let found = told.refused(code, reason);
    assert!(found.starts_with(message), "{found:?} is not {message:?}");
    assert!(found.len() < 10_000, "{} bytes of message", found.len());
}

async fn revision(server: &Server) -> u64 {
    server.store().revision().await.unwrap()
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
    let told = api.call(Method::POST, SCHEMAS, JSON, over.clone()).await;
    told.refused(413, "RequestEntityTooLarge");
    let target = format!("{SCHEMAS}/padded");
    for (method, content_type) in [
        (Method::PUT, JSON),
        (Method::PATCH, MERGE),
        (Method::PATCH, JSON_PATCH),
        (Method::PATCH, APPLY),
        (Method::DELETE, JSON),
    ] {
        let target = format!("{target}?fieldManager=me");
        let told = api.call(method, &target, content_type, over.clone()).await;
        told.refused(413, "RequestEntityTooLarge");
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

    // What fits a body may still be more than an object may be.
    let mut fat = schema("fat", "exempt", 9, "x");
    let subject = json!({"kind": "User", "user": {"name": "x".repeat(100)}});
    fat["spec"]["rules"][0]["subjects"] = json!(vec![subject; 18_000]);
    let told = api.post(SCHEMAS, &fat).await;
    told.refused(413, "RequestEntityTooLarge");
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
async fn languages_that_are_not_spoken_are_told_from_those_that_are() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let body = schema("spoken", "exempt", 9, "x").to_string();
    let unknown = "the body of the request was in an unknown format - accepted media types include: \
        application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/cbor",
        "application",
        ";",
        "*/*",
        MERGE,
    ] {
        let told = api
            .call(Method::POST, SCHEMAS, content_type, body.clone())
            .await;
        let message = told.refused(415, "UnsupportedMediaType");
        assert_eq!(message, unknown, "{content_type}");
    }
    for content_type in ["text/plain", JSON, "application/apply-patch+cbor", ""] {
        let target = format!("{SCHEMAS}/probes");
        let told = api
            .call(Method::PATCH, &target, content_type, body.clone())
            .await;
        told.refused(415, "UnsupportedMediaType");
    }
    let spoken = [
        "",
        "APPLICATION/JSON",
        "application/json; charset=utf-16",
        "application/json;x",
    ];
    for content_type in spoken {
        let target = format!("{SCHEMAS}?dryRun=All");
        let told = api
            .call(Method::POST, &target, content_type, body.clone())
            .await;
        assert_eq!(told.status, 201, "{content_type:?}: {told:?}");
    }

    let asked = async |accept: &str, target: &str| {
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
        asked(accept, &target).await.refused(406, "NotAcceptable");
    }
    // It is answered in the language that cannot be streamed.
    let told = asked(YAML, &format!("{SCHEMAS}?watch=true")).await;
    assert_eq!(
        (told.status.as_u16(), told.header("content-type")),
        (406, YAML)
    );
    assert!(
        told.text().contains("\nreason: NotAcceptable\n"),
        "{told:?}"
    );
    assert!(
        told.text().contains("application/json;stream=watch"),
        "{told:?}"
    );
    for accept in ["*/*;q=0", "application/json;q=abc", "text/html,*/*", JSON] {
        asked(accept, &target).await.object();
    }
    assert_eq!(revision(&server).await, server.store().cached_revision());
}

#[tokio::test]
async fn names_that_cannot_be_are_found_nowhere() {
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
        for told in [
            api.get(&target).await,
            api.delete(&target).await,
            api.merge(&target, &json!({})).await,
        ] {
            let message = told.refused(code, reason);
            let wanted = text.unwrap_or("the server could not find the requested resource");
            assert!(message.contains(wanted), "{name}: {message}");
        }
        let object = schema("x", "exempt", 9, "x");
        let (code, reason) = match text {
            None => (404, "NotFound"),
            Some(_) => (400, "BadRequest"),
        };
        api.put(&target, &object).await.refused(code, reason);
        let told = api
            .call(Method::PATCH, &target, APPLY, object.to_string())
            .await;
        told.refused(code, reason);
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
async fn selectors_and_tokens_are_refused_with_what_is_wrong_with_them() {
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
        // Out of the resource.
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
        let told = api.get(&format!("{SCHEMAS}?{query}")).await;
        let message = told.refused(400, "BadRequest");
        assert!(message.starts_with(text), "{query}: {message}");
    }
    let key = "k".repeat(400);
    let told = api.get(&format!("{SCHEMAS}?labelSelector={key}")).await;
    let message = told.refused(400, "BadRequest");
    assert!(message.starts_with("unable to parse requirement: <nil>: Invalid value: "));

    let many: Vec<String> = (0..5000).map(|number| format!("k{number}%3Dv")).collect();
    let target = format!("{SCHEMAS}?labelSelector={}", many.join("%2C"));
    let list = api.get(&target).await.object();
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn unknown_fields_are_taken_as_the_writer_says() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let mut object = schema("fields", "exempt", 9, "x");
    object["spec"]["wings"] = json!(2);
    object["spec"]["rules"][0]["subjects"][0]["beak"] = json!(true);
    let mut text = object.to_string();
    text.insert_str(1, "\"kind\":\"FlowSchema\",");
    let problems = [
        "duplicate field \"kind\"",
        "unknown field \"spec.rules[0].subjects[0].beak\"",
        "unknown field \"spec.wings\"",
    ];
    let target = |mode: &str| format!("{SCHEMAS}?dryRun=All{mode}");
    let post = async |mode: &str| {
        let target = target(mode);
        api.call(Method::POST, &target, JSON, text.clone()).await
    };
    for mode in ["", "&fieldValidation=Warn"] {
        let told = post(mode).await;
        let object = told.object();
        assert!(object["spec"].get("wings").is_none());
        let mut warnings = told.warnings();
        warnings.sort_unstable();
        let wanted = problems.map(|problem| {
            let escaped = problem.replace('"', "\\\"");
            format!("299 - \"{escaped}\"")
        });
        assert_eq!(warnings, wanted, "{mode}");
    }
    let told = post("&fieldValidation=Ignore").await;
    told.object();
    assert_eq!(told.warnings(), [""; 0]);
    let told = post("&fieldValidation=Strict").await;
    let message = told.refused(400, "BadRequest");
    assert!(message.contains("strict decoding error: "), "{message}");
    for problem in problems {
        assert!(message.contains(problem), "{message}");
    }
    let told = post("&fieldValidation=Loose").await;
    told.refused(422, "Invalid");

    // An apply has no use for what it does not know.
    object["metadata"]["name"] = json!("applied");
    for mode in ["Ignore", "Warn", "Strict"] {
        let target = format!("{SCHEMAS}/applied?fieldManager=me&fieldValidation={mode}");
        let told = api
            .call(Method::PATCH, &target, APPLY, object.to_string())
            .await;
        assert!(
            told.json()["message"]
                .as_str()
                .unwrap()
                .contains("field not declared in schema")
        );
    }
    let patch = json!({"spec": {"wings": 2}}).to_string();
    let target = format!("{SCHEMAS}/probes?dryRun=All&fieldValidation=Strict");
    let told = api.call(Method::PATCH, &target, MERGE, patch).await;
    let message = told.refused(422, "Invalid");
    assert!(
        message.contains("unknown field \"spec.wings\""),
        "{message}"
    );
}

#[tokio::test]
async fn a_new_object_has_no_version_yet() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let mut object = level("versioned", 1);
    object["metadata"]["resourceVersion"] = json!("5");
    let message = api.post(LEVELS, &object).await.refused(500, "");
    assert_eq!(
        message,
        "resourceVersion should not be set on objects to be created"
    );
    let target = format!("{LEVELS}?dryRun=All");
    let rehearsed = api.post(&target, &object).await;
    assert_eq!(rehearsed.status, 201);
    assert_eq!(rehearsed.object()["metadata"]["resourceVersion"], "5");
    object["metadata"]["resourceVersion"] = json!("0");
    assert_eq!(api.post(LEVELS, &object).await.status, 201);
}

#[tokio::test]
async fn a_finalizer_says_whose_it_is() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let text = "name is neither a standard finalizer name nor is it fully qualified";
    for (finalizers, refused) in [
        (json!(["x"]), Some(0)),
        (json!(["x/y", "z"]), Some(1)),
        (json!(["x/y", "kubernetes", "orphan"]), None),
    ] {
        let mut object = level("final", 1);
        object["metadata"]["finalizers"] = finalizers.clone();
        let target = format!("{LEVELS}?dryRun=All");
        let created = api.post(&target, &object).await;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let target = format!("{LEVELS}/workload-low?dryRun=All");
        for told in [created, api.merge(&target, &patch).await] {
            match refused {
                None => drop(told.object()),
                Some(index) => {
                    let message = told.refused(422, "Invalid");
                    let wanted = format!("metadata.finalizers[{index}]: Invalid value: ");
                    assert!(message.contains(&wanted), "{message}");
                    assert!(message.ends_with(text), "{message}");
                }
            }
        }
    }
}

#[tokio::test]
async fn deletions_take_no_nonsense() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}/kept");
    let object = api.post(LEVELS, &level("kept", 1)).await.object();
    let delete = async |query: &str, body: Value| {
        let target = format!("{target}{query}");
        api.call(Method::DELETE, &target, JSON, body.to_string())
            .await
    };
    let other = json!({"preconditions": {"uid": "other"}});
    let message = delete("", other).await.refused(409, "Conflict");
    assert!(
        message.contains("the UID in the precondition (other)"),
        "{message}"
    );
    let other = json!({"preconditions": {"resourceVersion": "1"}});
    let message = delete("", other).await.refused(409, "Conflict");
    assert!(
        message.contains("the ResourceVersion in the precondition (1)"),
        "{message}"
    );
    let both = json!({"orphanDependents": true, "propagationPolicy": "Orphan"});
    delete("", both).await.refused(422, "Invalid");
    delete("", json!({"propagationPolicy": "Sideways"}))
        .await
        .refused(422, "Invalid");
    delete("", json!({"dryRun": ["Some"]}))
        .await
        .refused(422, "Invalid");
    delete("", json!({"gracePeriodSeconds": "x"}))
        .await
        .refused(400, "BadRequest");
    delete("", json!([])).await.refused(400, "BadRequest");
    delete("", json!({"kind": "Pod", "apiVersion": "v1"}))
        .await
        .refused(400, "BadRequest");
    let dry = delete("", json!({"dryRun": ["All"]})).await.object();
    assert_eq!(dry["status"], "Success");
    assert_eq!(api.get(&target).await.object(), object);
}

/// `fairgate serve` as a process of its own, whose memory is nobody else's.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(home: &Home) -> Self {
        let config = home.path().join("fairgate.yaml");
        std::fs::write(&config, Home::text("")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairgate"))
            .args(["serve", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once(" address=")?;
            rest.split(' ').next().unwrap().parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address: address.expect("it tells where it serves"),
        }
    }

    /// A line of `/proc/PID/status`, in MiB.
    fn mebibytes(&self, key: &str) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kibibytes = line.unwrap().trim_matches([':', '\t', ' ', 'k', 'B']);
        kibibytes.parse::<usize>().unwrap() >> 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn what_bad_calls_take_of_memory_is_bounded_and_given_back() {
    let home = Home::new();
    let process = Process::start(&home);
    let round = async || {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let api = Api::new(process.address, "root").await;
            clients.spawn(async move {
                send_bad(&api).await;
                // And one that is far too long.
                let huge = Bytes::from(vec![b'['; 8 << 20]);
                let told = api.call(Method::POST, SCHEMAS, JSON, huge).await;
                told.refused(413, "RequestEntityTooLarge");
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
