//! Which bodies are accepted, and with which messages others are refused.

mod oracle;

use serde_json::{Value, json};

use super::*;
use crate::schema::{
    Struct,
    flowcontrol_v1::{FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL},
    flowcontrol_v1beta3,
};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

const SCHEME: &[RegisteredType<'_>] = &[
    RegisteredType {
        group: GROUP,
        version: "v1beta3",
        kind: "FlowSchema",
        shape: Some(&flowcontrol_v1beta3::FLOW_SCHEMA),
    },
    RegisteredType {
        group: GROUP,
        version: "v1",
        kind: "PriorityLevelConfiguration",
        shape: Some(&PRIORITY_LEVEL),
    },
    RegisteredType {
        group: "",
        version: "v1",
        kind: "Pod",
        shape: None,
    },
];

const EXPECT: ExpectedType<'_> = ExpectedType {
    group: GROUP,
    version: "v1",
    kind: "FlowSchema",
    shape: &FLOW_SCHEMA,
    scheme: SCHEME,
    empty: EmptyValues::Null,
};

fn lenient(format: BodyFormat, body: &[u8]) -> Result<DecodedObject, DecodeError> {
    decode_body(format, body, &EXPECT, false)
}

fn refused(format: BodyFormat, body: &[u8]) -> String {
    lenient(format, body).unwrap_err().to_string()
}

#[test]
fn kind_and_version_are_filled_in() {
    for body in [
        "{}",
        "null",
        r#"{"apiVersion":null,"kind":""}"#,
        r#"{"apiVersion":"/"}"#,
    ] {
        let body = lenient(BodyFormat::Json, body.as_bytes()).unwrap();
        assert_eq!(body.value["kind"], "FlowSchema");
        assert_eq!(body.value["apiVersion"], format!("{GROUP}/v1"));
        assert_eq!(body.kind, "");
    }
    let text = format!("apiVersion: {GROUP}/\nkind: FlowSchema\n");
    let body = lenient(BodyFormat::Yaml, text.as_bytes()).unwrap();
    assert_eq!(body.value["apiVersion"], format!("{GROUP}/v1"));
    assert_eq!(
        (body.api_version, body.kind),
        (format!("{GROUP}/"), "FlowSchema".to_owned())
    );
}

#[test]
fn a_body_without_a_readable_kind_is_quoted_in_the_error() {
    const STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, error) in [
        ("", "unexpected end of JSON input (<empty>)".to_owned()),
        (" ", "unexpected end of JSON input (20)".to_owned()),
        (
            r#"{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"#,
            r#"unexpected end of JSON input ({"aaaaaaaaaaaaaaaaaaaaaaaaaaaa ...)"#.to_owned(),
        ),
        (
            "[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9",
            "unexpected end of JSON input \
             (5b312c322c332c342c352c362c372c382c392c302c312c322c332c342c35 ...)"
                .to_owned(),
        ),
        ("true", format!("json: cannot unmarshal bool into Go value of type {STRUCT} (74727565)")),
        (
            r#"{"Kind":1}"#,
            r#"json: cannot unmarshal number into Go struct field .kind of type string ({"Kind":1})"#
                .to_owned(),
        ),
    ] {
        assert_eq!(
            refused(BodyFormat::Json, body.as_bytes()),
            format!(
                "the object provided is unrecognized (must be of type FlowSchema): couldn't get \
                 version/kind; json parse error: {error}"
            )
        );
    }
    assert_eq!(
        refused(BodyFormat::Json, br#"{"apiVersion":"a/b/c"}"#),
        "the object provided is unrecognized (must be of type FlowSchema): unexpected GroupVersion \
         string: a/b/c ({\"apiVersion\":\"a/b/c\"})"
    );
}

#[test]
fn other_kinds_and_versions_are_refused_with_the_messages_of_kube_apiserver() {
    const UNKNOWN: &str = r#"in scheme "pkg/runtime/scheme.go:111""#;
    for (body, error) in [
        (
            json!({"kind": "Foo"}),
            format!(r#"Foo in version "v1" cannot be handled as a FlowSchema: no kind "Foo" is registered for version "{GROUP}/v1" {UNKNOWN}"#),
        ),
        (
            json!({"kind": "Foo", "spec": 1}),
            format!(r#"Foo in version "v1" cannot be handled as a FlowSchema: no kind "Foo" is registered for version "{GROUP}/v1" {UNKNOWN}"#),
        ),
        (
            json!({"apiVersion": "foo/v1"}),
            format!(r#"FlowSchema in version "v1" cannot be handled as a FlowSchema: no kind "FlowSchema" is registered for version "foo/v1" {UNKNOWN}"#),
        ),
        (
            json!({"kind": "WatchEvent", "apiVersion": format!("{GROUP}/v1beta3")}),
            r#"WatchEvent in version "v1beta3" cannot be handled as a FlowSchema: converting (v1.WatchEvent) to (flowcontrol.FlowSchema): unknown conversion"#.to_owned(),
        ),
        (
            json!({"kind": "Status", "apiVersion": "nope/v9"}),
            r#"Status in version "v9" cannot be handled as a FlowSchema: converting (v1.Status) to (flowcontrol.FlowSchema): unknown conversion"#.to_owned(),
        ),
        (
            json!({"kind": "DeleteOptions", "apiVersion": format!("{GROUP}/__internal")}),
            format!(r#"DeleteOptions in version "__internal" cannot be handled as a FlowSchema: no kind "DeleteOptions" is registered for the internal version of group "{GROUP}" {UNKNOWN}"#),
        ),
        (
            json!({"kind": "DeleteOptions", "apiVersion": "__internal"}),
            format!(r#"DeleteOptions in version "__internal" cannot be handled as a FlowSchema: no kind "DeleteOptions" is registered for the internal version of group "" {UNKNOWN}"#),
        ),
        (
            json!({"KIND": "Pod", "apiVersion": "v1"}),
            r#"Pod in version "v1" cannot be handled as a FlowSchema: converting (v1.Pod) to (flowcontrol.FlowSchema): unknown conversion"#.to_owned(),
        ),
        (
            json!({"kind": "PriorityLevelConfiguration", "spec": 1}),
            r#"PriorityLevelConfiguration in version "v1" cannot be handled as a FlowSchema: json: cannot unmarshal number into Go struct field PriorityLevelConfiguration.spec of type v1.PriorityLevelConfigurationSpec"#.to_owned(),
        ),
        (
            json!({"apiVersion": format!("{GROUP}/v1beta3"), "spec": 1}),
            r#"FlowSchema in version "v1beta3" cannot be handled as a FlowSchema: json: cannot unmarshal number into Go struct field FlowSchema.spec of type v1beta3.FlowSchemaSpec"#.to_owned(),
        ),
        (
            json!({"apiVersion": "foo/", "kind": "FlowSchema"}),
            r#"FlowSchema in version "" cannot be handled as a FlowSchema: Object 'apiVersion' is missing in '{"apiVersion":"foo/","kind":"FlowSchema"}'"#.to_owned(),
        ),
    ] {
        assert_eq!(refused(BodyFormat::Json, body.to_string().as_bytes()), error);
    }
}

#[test]
fn another_version_of_the_kind_is_refused_after_its_problems() {
    let body = json!({"apiVersion": format!("{GROUP}/v1beta3"), "foo": 1}).to_string();
    let error = lenient(BodyFormat::Json, body.as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the API version in the data ({GROUP}/v1beta3) does not match the expected API version \
             ({GROUP}/v1)"
        )
    );
    assert_eq!(error.problems, [r#"unknown field "foo""#]);
    let error = decode_body(BodyFormat::Json, body.as_bytes(), &EXPECT, true).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"FlowSchema in version "v1beta3" cannot be handled as a FlowSchema: strict decoding error: unknown field "foo""#
    );
}

#[test]
fn problems_are_reported_or_refused() {
    let json =
        br#"{"spec":{"matchingPrecedence":1,"matchingPrecedence":2,"x":1},"metadata":{"y":1}}"#;
    let yaml = b"a: 1\na: 2\nb: 1\nb: 2\nspec: {foo: 1}\n";
    for (format, body, problems, refusal) in [
        (
            BodyFormat::Json,
            &json[..],
            &[
                r#"duplicate field "spec.matchingPrecedence""#,
                r#"unknown field "spec.x""#,
                r#"unknown field "metadata.y""#,
            ][..],
            r#"duplicate field "spec.matchingPrecedence", unknown field "spec.x", unknown field "metadata.y""#,
        ),
        (
            BodyFormat::Yaml,
            yaml,
            &[
                r#"line 2: key "a" already set in map"#,
                r#"line 4: key "b" already set in map"#,
                r#"unknown field "a""#,
                r#"unknown field "b""#,
                r#"unknown field "spec.foo""#,
            ],
            "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  line 4: key \"b\" already \
             set in map, unknown field \"a\", unknown field \"b\", unknown field \"spec.foo\"",
        ),
    ] {
        assert_eq!(lenient(format, body).unwrap().problems, problems);
        let error = decode_body(format, body, &EXPECT, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "FlowSchema in version \"v1\" cannot be handled as a FlowSchema: strict decoding error: \
                 {refusal}"
            )
        );
    }
}

#[test]
fn yaml_floats_without_a_fraction_are_accepted_for_integers() {
    let body = lenient(BodyFormat::Yaml, b"spec:\n  matchingPrecedence: 1.0\n").unwrap();
    assert_eq!(body.value["spec"]["matchingPrecedence"], 1);
    assert_eq!(
        refused(
            BodyFormat::Yaml,
            b"metadata:\n  generation: 99999999999999999999\n"
        ),
        "FlowSchema in version \"v1\" cannot be handled as a FlowSchema: json: cannot unmarshal number \
         100000000000000000000 into Go struct field ObjectMeta.metadata.generation of type int64"
    );
    assert_eq!(lenient(BodyFormat::Yaml, b"").unwrap().problems, [""; 0]);
}

#[test]
fn protobuf_is_read_by_its_envelope() {
    let body = include_bytes!("testdata/flow_schema.pb");
    let decoded = lenient(BodyFormat::Protobuf, body).unwrap();
    let text = include_bytes!("testdata/flow_schema.json");
    assert_eq!(decoded, lenient(BodyFormat::Json, text).unwrap());
    assert_eq!(
        refused(
            BodyFormat::Protobuf,
            include_bytes!("testdata/priority_level.pb")
        ),
        r#"PriorityLevelConfiguration in version "v1" cannot be handled as a FlowSchema: converting (v1.PriorityLevelConfiguration) to (flowcontrol.FlowSchema): unknown conversion"#
    );
    let unnamed = envelope::seal("", "", b"");
    assert_eq!(
        lenient(BodyFormat::Protobuf, &unnamed).unwrap().value["kind"],
        "FlowSchema"
    );
    for (body, error) in [
        (&b""[..], "empty data (<empty>)"),
        (b"k8s\0", "empty body (6b387300)"),
        (
            b"{\"a\":1}",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] \
             ({\"a\":1})",
        ),
        (b"k8s\0\x12\x05a", "unexpected EOF (6b387300120561)"),
        (
            b"k8s\0\x20\x00",
            "proto: wrong wireType = 0 for field ContentType (6b3873002000)",
        ),
    ] {
        assert_eq!(
            refused(BodyFormat::Protobuf, body),
            format!("the object provided is unrecognized (must be of type FlowSchema): {error}")
        );
    }
}

#[test]
fn options_of_a_deletion_may_be_of_any_version() {
    for (format, body) in [
        (
            BodyFormat::Json,
            &br#"{"kind":"DeleteOptions","apiVersion":"policy/v1","dryRun":["All"],"x":1}"#[..],
        ),
        (BodyFormat::Json, br#"{"dryRun":["All"]}"#),
        (BodyFormat::Yaml, b"dryRun: [All]"),
        (
            BodyFormat::Protobuf,
            &envelope::seal("policy/v1", "DeleteOptions", b"\x2a\x03All"),
        ),
    ] {
        assert_eq!(
            decode_options(format, body).unwrap()["dryRun"],
            json!(["All"])
        );
    }
    for (body, error) in [
        (
            "{",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            r#"{"kind":"Foo"}"#,
            r#"no kind "Foo" is registered for version "meta.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111""#,
        ),
        (
            r#"{"kind":"Status","apiVersion":"nope/v9"}"#,
            "converting (v1.Status) to (v1.DeleteOptions): unknown conversion",
        ),
        (
            r#"{"kind":"ListOptions"}"#,
            "converting (v1.ListOptions) to (v1.DeleteOptions): unknown conversion",
        ),
        (
            r#"{"kind":"ListOptions","apiVersion":"v1"}"#,
            r#"no kind "ListOptions" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#,
        ),
        (
            r#"{"dryRun":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string",
        ),
    ] {
        let refused = decode_options(BodyFormat::Json, body.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), error);
    }
}

/// Encodes and decodes the captured list of a kind; returns its number of items.
fn golden_list(shape: &'static Struct, body: &[u8], text: &[u8]) -> usize {
    let list = json::parse(text).unwrap().value;
    let name = |key: &str| list[key].as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap();
    assert_eq!(
        json::encode_list(
            shape,
            &name("kind"),
            &name("apiVersion"),
            &list["metadata"],
            items,
            false
        ),
        text
    );
    let mut sealed = envelope::ListMessage::new(&list["metadata"]);
    for item in items {
        sealed.push(shape, item);
    }
    assert_eq!(sealed.seal(&name("kind"), &name("apiVersion")), body);
    for item in items {
        let message = protobuf::encode(shape, item);
        assert_eq!(&protobuf::decode(shape, &message).unwrap(), item);
    }
    items.len()
}

#[test]
fn the_lists_of_a_real_server_round_trip_unchanged() {
    let schemas = golden_list(
        &FLOW_SCHEMA,
        include_bytes!("testdata/flow_schemas.pb"),
        include_bytes!("testdata/flow_schemas.json"),
    );
    let levels = golden_list(
        &PRIORITY_LEVEL,
        include_bytes!("testdata/priority_levels.pb"),
        include_bytes!("testdata/priority_levels.json"),
    );
    assert_eq!((schemas, levels), (11, 8));
}

#[test]
fn a_watch_of_a_real_server_has_the_same_frame() {
    let body = include_bytes!("testdata/priority_level.pb");
    assert_eq!(
        envelope::watch_frame("ADDED", body),
        include_bytes!("testdata/watch.pb")
    );
}

#[test]
fn canonical_form_is_the_same_from_every_format() {
    let text = include_bytes!("testdata/priority_level.json");
    let expect = ExpectedType {
        kind: "PriorityLevelConfiguration",
        shape: &PRIORITY_LEVEL,
        ..EXPECT
    };
    let decode =
        |format, body: &[u8]| -> Value { decode_body(format, body, &expect, true).unwrap().value };
    let value = decode(BodyFormat::Json, text);
    assert_eq!(decode(BodyFormat::Yaml, text), value);
    let body = envelope::seal_object(&PRIORITY_LEVEL, &value);
    assert_eq!(decode(BodyFormat::Protobuf, &body), value);
    assert_eq!(json::encode(&PRIORITY_LEVEL, &value, false), text);
}
