//! The bodies of writes that are evaluated before they are forwarded; the first byte chooses what they are.
//!
//! Properties: the document of a body is evaluated as the body itself is read; it is its own document, as JSON and as YAML, with
//! nothing to report; it is bounded by the length of the body. What Kubernetes' own code reads is compared in
//! `fuzz/tests/request_documents.rs`. A message in protobuf that is forwarded as it came reads as the
//! same object when it is written again.

use fairgate_objects::{
    codec::{
        BodyFormat, EmptyValues, ExpectedType, FieldValidation, built_in_types, decode_body,
        envelope, json, protobuf,
        request_document::{self, DocumentError, DocumentType, RequestDocument},
    },
    schema::{UnreadParts, core_v1},
};
use serde_json::Value;

use super::body_format;
use crate::{Outcome, Target};

/// The target `request_documents`.
pub const TARGET: Target = Target {
    name: "request_documents",
    run,
    dictionary: &[
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",",
        "\"metadata\":{\"name\":\"a\"}",
        "\"spec\":{\"hostNetwork\":true}",
        "\"a\":1,\"a\":2",
        "[{\"op\":\"add\",\"path\":\"/a\",\"value\":{}}]",
        "\"\\ud800\"",
        "\\u2028",
        "\\x7f",
        "9007199254740993",
        "1e3",
        "!!binary YQ==",
        "&a ",
        "*a",
        "<<: ",
        "? ",
        "- ",
        ": ",
        " #",
        "|-\n  ",
        ">\n  ",
        "\n---\n",
        "yes",
        "010",
        "0x_1",
        ".5",
        "~",
        "'",
        "\"",
        "k8s\0",
        "\x0a",
        "\x12",
        "\x1a",
    ],
};

const POD: ExpectedType<'static> = ExpectedType {
    group: "",
    version: "v1",
    kind: "Pod",
    shape: &core_v1::POD,
    scheme: &[],
    empty: EmptyValues::Null,
};

/// What the body of an input is, by its first byte.
pub fn document_type(control: u8) -> DocumentType<'static> {
    let expect = ExpectedType {
        scheme: built_in_types(),
        empty: EmptyValues::Null,
        ..POD
    };
    [
        DocumentType::Object(expect),
        DocumentType::Unstructured {
            version: "v1",
            kind: "Widget",
        },
        DocumentType::DeleteOptions,
        DocumentType::JsonPatch,
        DocumentType::MergePatch,
        DocumentType::Apply,
        DocumentType::StrategicPatch,
    ][usize::from(control / 3) % 7]
}

fn run(data: &[u8]) -> Outcome {
    let (&control, body) = data.split_first().unwrap_or((&0, &[]));
    let format = body_format(control);
    if format == BodyFormat::Protobuf {
        return message(body);
    }
    let ty = document_type(control);
    let mut document = match read(&ty, format, body) {
        Ok(document) => document,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Outcome::of((control % 21, false, 0));
        }
    };
    assert!(document.text.len() <= 12 * body.len() + 200);
    let is_same = |again: Result<RequestDocument<'_>, DocumentError>| {
        let again = again.expect("a document is one");
        assert_eq!(again.text, document.text);
        assert!(again.problems.is_empty() && again.refusal.is_none());
    };
    is_same(read(&ty, BodyFormat::Json, &document.text));
    // YAML bounds the length of keys, and reads numbers otherwise than JSON.
    if matches!(ty, DocumentType::Apply) && body.len() < 150 {
        is_same(read(&ty, BodyFormat::Yaml, &document.text));
    }
    if let DocumentType::Object(expect) = ty {
        let evaluated = decode_body(BodyFormat::Json, &document.text, &expect, false);
        let mut again = document.clone();
        if let Some(object) = document.take_object(&expect, UnreadParts::NONE) {
            assert_eq!(evaluated.as_ref(), Ok(&object));
            let part = again.take_object(&expect, UnreadParts::ALL);
            assert_eq!(part.expect("it is read").problems, object.problems);
        } else {
            assert_eq!(again.take_object(&expect, UnreadParts::ALL), None);
        }
        let sent = decode_body(format, body, &expect, false);
        match (evaluated, sent) {
            (Ok(evaluated), Ok(sent)) => assert_eq!(evaluated.value, sent.value),
            (evaluated, sent) => assert_eq!(evaluated.is_ok(), sent.is_ok()),
        }
    } else {
        json::parse(&document.text).expect("a document is JSON");
    }
    Outcome::of((control % 21, true, document.problems.len().min(3)))
}

fn read<'a>(
    ty: &DocumentType<'_>,
    format: BodyFormat,
    body: &'a [u8],
) -> Result<RequestDocument<'a>, DocumentError> {
    request_document::read(ty, format, body, FieldValidation::Warn)
}

/// A body in protobuf that says nothing in two ways.
fn message(body: &[u8]) -> Outcome {
    if request_document::check_protobuf(&DocumentType::Object(POD), body).is_err() {
        return Outcome::of(("message", false));
    }
    let opened = envelope::open(body).expect("it was opened to be checked");
    let Ok(pod) = protobuf::decode(&core_v1::POD, opened.raw) else {
        return Outcome::of(("message", true));
    };
    let again = protobuf::encode(&core_v1::POD, &pod);
    let sealed = envelope::seal("v1", "Pod", &again);
    assert_eq!(
        request_document::check_protobuf(&DocumentType::Object(POD), &sealed),
        Ok(())
    );
    assert_eq!(protobuf::decode(&core_v1::POD, &again).as_ref(), Ok(&pod));
    // What is there twice is refused.
    let twice = [again, vec![0x0a, 0]].concat();
    let twice = envelope::seal("v1", "Pod", &twice);
    assert!(request_document::check_protobuf(&DocumentType::Object(POD), &twice).is_err());
    let parts = pod.as_object().map_or(0, serde_json::Map::len);
    Outcome::of(("message", true, parts, pod["spec"] == Value::Null))
}
