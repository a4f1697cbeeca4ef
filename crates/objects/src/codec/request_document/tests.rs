//! What happens to bodies that are decoded once and forwarded as JSON.

use serde_json::{Value, json};

use crate::schema::canonical::EmptyValues;

use super::*;
use crate::{
    codec::built_in_types,
    deep_documents::on_half_of_the_stack,
    schema::{built_in, core_v1},
};

const POD: DocumentType<'_> = DocumentType::Object(ExpectedType {
    group: "",
    version: "v1",
    kind: "Pod",
    shape: &core_v1::POD,
    scheme: &[],
    empty: EmptyValues::Null,
});
const WIDGET: DocumentType<'_> = DocumentType::Unstructured {
    version: "v1",
    kind: "Widget",
};
const ALL: [DocumentType<'_>; 7] = [
    POD,
    WIDGET,
    DocumentType::DeleteOptions,
    DocumentType::JsonPatch,
    DocumentType::MergePatch,
    DocumentType::StrategicPatch,
    DocumentType::Apply,
];

fn json<'a>(ty: DocumentType<'_>, body: &'a str) -> Result<RequestDocument<'a>, DocumentError> {
    read(
        &ty,
        BodyFormat::Json,
        body.as_bytes(),
        FieldValidation::Warn,
    )
}

fn text<'d>(document: &'d RequestDocument<'_>) -> &'d str {
    std::str::from_utf8(&document.text).unwrap()
}

#[test]
fn a_document_keeps_the_text_of_numbers_and_the_order_of_fields() {
    let body = r#"{ "spec": {"b": 1.50, "a": 12345678901234567890, "c": [1e2, -0, null, true]}, "x": "\u00e9/" }"#;
    let document = json(WIDGET, body).unwrap();
    assert_eq!(
        text(&document),
        r#"{"spec":{"b":1.50,"a":12345678901234567890,"c":[1e2,-0,null,true]},"x":"é/"}"#
    );
    assert!(document.problems.is_empty());
}

#[test]
fn text_that_is_not_utf8_becomes_what_go_makes_of_it() {
    let read = read(
        &WIDGET,
        BodyFormat::Json,
        b"{\"a\": \"x\xff\\ud800\\u2028\x7f\"}",
        FieldValidation::Warn,
    );
    assert_eq!(
        text(&read.unwrap()),
        "{\"a\":\"x\u{fffd}\u{fffd}\\u2028\\u007f\"}"
    );
}

#[test]
fn duplicate_fields_of_a_known_kind_are_merged_and_reported() {
    let body = r#"{"kind":"Pod","apiVersion":"v1","spec":{"hostNetwork":true},"spec":{"nodeName":"n"},"x":1}"#;
    let document = json(POD, body).unwrap();
    let value: Value = serde_json::from_slice(&document.text).unwrap();
    assert_eq!(value["spec"]["hostNetwork"], true);
    assert_eq!(value["spec"]["nodeName"], "n");
    assert_eq!(
        document.problems,
        [r#"duplicate field "spec""#, r#"unknown field "x""#]
    );
    let silent = read(
        &POD,
        BodyFormat::Json,
        body.as_bytes(),
        FieldValidation::Ignore,
    )
    .unwrap();
    assert!(silent.problems.is_empty());
    let strict = read(
        &POD,
        BodyFormat::Json,
        body.as_bytes(),
        FieldValidation::Strict,
    )
    .unwrap_err();
    assert_eq!(
        strict.to_string(),
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: duplicate field "spec", unknown field "x""#
    );
}

#[test]
fn of_duplicate_fields_of_other_documents_the_last_counts() {
    let body = r#"{"a":{"x":1},"b":[{"c":1,"c":2}],"a":{"y":2}}"#;
    for ty in [WIDGET, DocumentType::MergePatch] {
        let document = json(ty, body).unwrap();
        assert_eq!(text(&document), r#"{"b":[{"c":2}],"a":{"y":2}}"#);
        assert_eq!(
            document.problems,
            [r#"duplicate field "b[0].c""#, r#"duplicate field "a""#]
        );
    }
    assert!(json(WIDGET, r#"{"a":1e377,"a":1}"#).is_err());
    let options = json(
        DocumentType::DeleteOptions,
        r#"{"dryRun":["All"],"dryRun":[],"gracePeriodSeconds":1}"#,
    );
    let options = options.unwrap();
    let value: Value = serde_json::from_slice(&options.text).unwrap();
    assert_eq!(value["gracePeriodSeconds"], 1);
    assert!(options.problems.is_empty());
}

#[test]
fn duplicate_fields_of_a_json_patch_are_reported_or_refused() {
    let body = r#"[{"op":"test","op":"add","path":"/a","value":{"x":1}}]"#;
    let document = json(DocumentType::JsonPatch, body).unwrap();
    assert_eq!(
        text(&document),
        r#"[{"op":"add","path":"/a","value":{"x":1}}]"#
    );
    assert_eq!(
        document.problems,
        [r#"json patch duplicate field "[0].op""#]
    );
    let nested = r#"[{"op":"add","path":"/a","value":{"x":1,"x":2}}]"#;
    assert!(json(DocumentType::JsonPatch, nested).is_err());
    let strict = read(
        &DocumentType::JsonPatch,
        BodyFormat::Json,
        body.as_bytes(),
        FieldValidation::Strict,
    );
    let refusal = strict.unwrap().refusal;
    assert!(
        matches!(refusal, Some(DocumentError::InvalidPatch(..))),
        "{refusal:?}"
    );
}

#[test]
fn yaml_becomes_json_or_is_refused() {
    fn read<'a>(
        ty: DocumentType<'_>,
        body: &'a str,
        validation: FieldValidation,
    ) -> Result<RequestDocument<'a>, DocumentError> {
        super::read(&ty, BodyFormat::Yaml, body.as_bytes(), validation)
    }
    let document = read(
        POD,
        "spec: {hostNetwork: yes, replicas: 010}",
        FieldValidation::Warn,
    );
    assert_eq!(
        text(&document.unwrap()),
        r#"{"spec":{"hostNetwork":true,"replicas":8}}"#
    );
    for body in [
        "spec: {!!binary aG9zdE5ldHdvcms=: true}",
        "{yes: a, \"true\": b}",
        "dryRun: [!!binary QWxs]",
        "spec: &a {x: 1}\nb: *a\n",
    ] {
        let read_as_yaml = [
            POD,
            WIDGET,
            DocumentType::DeleteOptions,
            DocumentType::Apply,
        ];
        for ty in read_as_yaml {
            let refused = read(ty, body, FieldValidation::Ignore).unwrap_err();
            assert!(
                refused
                    .to_string()
                    .starts_with("fairgate does not evaluate YAML"),
                "{refused}"
            );
        }
    }
    let twice = "a: 1\na: 2\n";
    let document = read(WIDGET, twice, FieldValidation::Warn).unwrap();
    assert_eq!(text(&document), r#"{"a":2}"#);
    assert_eq!(document.problems, [r#"line 2: key "a" already set in map"#]);
    assert!(read(POD, twice, FieldValidation::Strict).is_err());
    for ty in [WIDGET, DocumentType::Apply] {
        let strict = read(ty, twice, FieldValidation::Strict).unwrap();
        assert!(strict.refusal.is_some() && strict.problems.len() == 1);
    }
    let apply = "a: 1e30\nb: \"\\u2028\\x7f\"\n";
    let document = read(DocumentType::Apply, apply, FieldValidation::Warn).unwrap();
    assert_eq!(text(&document), r#"{"a":1e+30,"b":"\u2028\u007f"}"#);
}

#[test]
fn fields_that_only_the_search_for_the_type_takes_are_refused() {
    for key in [
        "Kind",
        "KIND",
        "\u{212a}ind",
        "apiversion",
        "apiVer\u{17f}ion",
    ] {
        let body = format!("{{{key:?}: \"Pod\"}}");
        for ty in [
            POD,
            WIDGET,
            DocumentType::DeleteOptions,
            DocumentType::MergePatch,
        ] {
            let refused = json(ty, &body).unwrap_err().to_string();
            assert!(refused.contains("only in case"), "{refused}");
        }
    }
    // Other fields are told apart by their case.
    let document = json(
        POD,
        r#"{"SPEC": {"hostNetwork": true}, "spec": {"HostNetwork": true}}"#,
    )
    .unwrap();
    assert!(document.problems.is_empty());
}

#[test]
fn errors_of_syntax_are_in_the_servers_words() {
    let refused = json(POD, "{").unwrap_err().to_string();
    assert!(
        refused.starts_with("the object provided is unrecognized"),
        "{refused}"
    );
    on_half_of_the_stack(|| {
        for ty in ALL {
            let deep = "[".repeat(100_000);
            assert!(json(ty, &deep).is_err());
            let deep = deep.as_bytes();
            assert!(read(&ty, BodyFormat::Yaml, deep, FieldValidation::Warn).is_err());
        }
    });
}

#[test]
fn a_message_says_each_field_once() {
    let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}, "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}},
            "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": "web"}}}]}});
    let message = protobuf::encode(&core_v1::POD, &pod);
    let sealed = |message: &[u8]| envelope::seal("v1", "Pod", message);
    assert_eq!(check_protobuf(&POD, &sealed(&message)), Ok(()));
    let more = |bytes: &[u8]| {
        let message = [&message[..], bytes].concat();
        check_protobuf(&POD, &sealed(&message))
            .unwrap_err()
            .to_string()
    };
    // A second `metadata`, a field that no pod has, and a label that is not UTF-8.
    assert!(more(&[0x0a, 0]).contains("repeated"));
    assert!(more(&[0xf8, 0x01, 1]).contains("unknown field 31"));
    let labels = [0x5a, 4, 0x0a, 2, b'a', 0xff];
    let metadata = [&[0x0a, 6][..], &labels].concat();
    let refused = check_protobuf(&POD, &sealed(&metadata))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("not UTF-8"), "{refused}");
    let twice = [0x5a, 3, 0x0a, 1, b'a', 0x5a, 3, 0x0a, 1, b'a'];
    let metadata = [&[0x0a, 10][..], &twice].concat();
    assert!(check_protobuf(&POD, &sealed(&metadata)).is_err());
    let mut envelope = sealed(&message);
    envelope.extend([0x12, 0]);
    assert!(check_protobuf(&POD, &envelope).is_err());
    assert!(check_protobuf(&DocumentType::DeleteOptions, b"{}").is_err());
}

#[test]
fn what_fairgate_encodes_of_every_kind_is_exact() {
    for kind in built_in_types() {
        let Some(shape) = kind.shape else { continue };
        let message = protobuf::encode(shape, &json!({"metadata": {"name": "x"}}));
        let sealed = envelope::seal("v1", kind.kind, &message);
        let ty = DocumentType::Object(ExpectedType {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            shape,
            scheme: &[],
            empty: EmptyValues::Null,
        });
        assert_eq!(check_protobuf(&ty, &sealed), Ok(()), "{}", kind.kind);
    }
}

#[test]
fn what_kubernetes_cannot_show_of_a_message_is_refused() {
    let budget = DocumentType::Object(ExpectedType {
        group: "policy",
        version: "v1",
        kind: "PodDisruptionBudget",
        shape: built_in("policy", "v1", "PodDisruptionBudget").unwrap(),
        scheme: &[],
        empty: EmptyValues::Null,
    });
    // `spec.minAvailable`, of which the second byte says if it is a number or a text.
    let min_available = |value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap();
        let message = [&[0x12, length + 2, 0x0a, length][..], value].concat();
        check_protobuf(&budget, &envelope::seal("policy/v1", "", &message))
    };
    for (value, is_either) in [
        (&b"\x08\0\x10\x01\x1a\0"[..], true),
        (b"\x08\x01\x10\0\x1a\x01a", true),
        (b"\x08\x02\x10\x01", false),
        (b"\x08\0\x10\x01\x1a\x01a", false),
        (b"\x08\x01\x10\x01\x1a\x01a", false),
    ] {
        assert_eq!(min_available(value).is_ok(), is_either, "{value:?}");
    }
    // `metadata.managedFields[0]` with a `time`, and with `fieldsV1`, that are there, but are nothing.
    for entry in [
        &b"\x22\0"[..],
        b"\x3a\0",
        b"\x3a\x02\x0a\0",
        b"\x3a\x06\x0a\x04null",
    ] {
        let length = u8::try_from(entry.len()).unwrap();
        let metadata = [&[0x0a, length + 3, 0x8a, 1, length][..], entry].concat();
        let refused = check_protobuf(&POD, &envelope::seal("v1", "Pod", &metadata));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("is there, but empty"), "{refused}");
    }
    // `metadata.creationTimestamp` is no pointer.
    let metadata = envelope::seal("v1", "Pod", b"\x0a\x02\x42\0");
    assert_eq!(check_protobuf(&POD, &metadata), Ok(()));
}

#[test]
fn a_body_in_the_form_of_a_document_is_not_written_again() {
    let plain = r#"{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"a/b","x":[1.50,-0,[],{}]}}"#;
    for (body, is_kept) in [
        (plain.to_owned(), true),
        (format!("\n {plain}\r\n"), true),
        (plain.replacen(':', ": ", 1), false),
        (plain.replace("a/b", "a\\/b"), false),
        (plain.replace("a/b", "a\u{7f}b"), false),
        (plain.replace("a/b", "\u{e9}"), false),
    ] {
        let document = json(POD, &body).unwrap();
        assert_eq!(matches!(document.text, Cow::Borrowed(_)), is_kept, "{body}");
        assert!(!document.text.starts_with(b"\n") && document.text.ends_with(b"}}"));
    }
}

#[test]
fn an_object_is_decoded_from_what_was_read() {
    let DocumentType::Object(expect) = POD else {
        panic!("a kind with a table");
    };
    for body in [
        r#"{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"\u0061"},"x":1}"#,
        "{}",
    ] {
        let mut document = json(POD, body).unwrap();
        let object = document.take_object(&expect, UnreadParts::NONE).unwrap();
        let read = decode_body(BodyFormat::Json, &document.text, &expect, false);
        assert_eq!(object, read.unwrap());
        assert_eq!(document.take_object(&expect, UnreadParts::NONE), None);
    }
    // Errors are found where the text is read.
    let mut wrong = json(POD, r#"{"spec":1}"#).unwrap();
    assert_eq!(wrong.take_object(&expect, UnreadParts::NONE), None);
    let mut twice = json(POD, r#"{"spec":{},"spec":{}}"#).unwrap();
    assert_eq!(twice.take_object(&expect, UnreadParts::NONE), None);
}

#[test]
fn parts_that_nobody_reads_are_checked_and_left_out() {
    let DocumentType::Object(expect) = POD else {
        panic!("a kind with a table");
    };
    let object = |container: &str, unread| {
        let body = format!(r#"{{"spec":{{"containers":[{{"name":"c",{container}}}]}}}}"#);
        let mut document = json(POD, &body).unwrap();
        document.take_object(&expect, unread)
    };
    let is_list = |path: &[&str]| matches!(path, ["spec", "containers" | "resources"]);
    let mut lists = UnreadParts::paths().filter(|(_, path)| is_list(path));
    let details = UnreadParts::ALL.without(lists.next().unwrap().0);
    for (container, is_left_out) in [
        (r#""env":[{"name":"a","value":"b"}]"#, true),
        (r#""ports":[{"containerPort":80}]"#, true),
        (
            r#""livenessProbe":{"httpGet":{"port":"http"},"timeoutSeconds":1}"#,
            true,
        ),
        (
            r#""env":[{"valueFrom":{"resourceFieldRef":{"resource":"r","divisor":"1Mi"}}}]"#,
            true,
        ),
        (r#""image":"a""#, false),
        // What something is to be said of is decoded.
        (r#""env":[{"name":"a","unknown":1}]"#, false),
        (r#""env":[null]"#, false),
        (r#""ports":[{"containerPort":2147483648}]"#, false),
        (r#""args":["a",1]"#, false),
        (
            r#""env":[{"valueFrom":{"resourceFieldRef":{"resource":"r","divisor":"x"}}}]"#,
            false,
        ),
    ] {
        let [whole, without] = [UnreadParts::NONE, details].map(|unread| object(container, unread));
        assert_eq!(whole != without, is_left_out, "{container}");
        if let (Some(whole), Some(without)) = (whole, without) {
            assert_eq!(without.problems, whole.problems, "{container}");
            let name = &without.value["spec"]["containers"][0]["name"];
            assert_eq!(*name, "c", "{container}");
        }
    }
    let without = object(r#""image":"a""#, UnreadParts::ALL).unwrap();
    assert_eq!(without.value["spec"], json!({"containers": null}));
}
