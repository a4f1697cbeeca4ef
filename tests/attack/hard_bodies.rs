//! Bodies that are hard to read.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::hostile::HostileRequest;

/// The longest body that kube-apiserver reads.
pub(crate) const LONGEST: usize = 3 << 20;
const POD: &str = "/api/v1/namespaces/a/pods/p";
pub(crate) const MAPS: &str = "/api/v1/namespaces/a/configmaps";
pub(crate) const TEXTS: &str = "/apis/x.io/v1/namespaces/a/texts";
pub(crate) const WIDGETS: &str = "/apis/x.io/v1/namespaces/a/widgets";
/// A custom resource of this kind with a name and further members.
pub(crate) fn resource(kind: &str, mut members: Value) -> Value {
    members["apiVersion"] = json!("x.io/v1");
    members["kind"] = json!(kind);
    members["metadata"] = json!({"name": "w"});
    members
}

/// Bodies that are hard to read, or that must not be read.
pub(crate) fn hard() -> Vec<HostileRequest> {
    let mut all = json_bodies();
    all.extend(yaml_bodies());
    all.extend(other_bodies());
    all.extend([
        patch("json patch", "application/json-patch+json", operations()),
        patch("merge patch", MERGE, nested("{\"a\":")),
        patch("strategic patch", STRATEGIC, containers()),
    ]);
    all
}

pub(crate) const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Codes of bodies that can be read.
const READ: &[u16] = &[201, 422];
/// The same, or there is more in it than a reader takes.
const READ_OR_NOT: &[u16] = &[201, 400, 422];

fn json_bodies() -> Vec<HostileRequest> {
    let [widget, text] = ["Widget", "Text"].map(|kind| {
        format!("{{\"apiVersion\":\"x.io/v1\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"w\"}},")
    });
    let numbers = |length| filled(&format!("{widget}\"l\":[0"), ",0", "]}", length);
    let text = filled(&format!("{text}\"s\":\""), "a", "\"}", LONGEST);
    let members = filled(&format!("{widget}\"a\":0"), ",\"a\":0", "}", LONGEST);
    let more = Bytes::from(vec![b'x'; LONGEST + 1]);
    vec![
        post("numbers", WIDGETS, JSON, numbers(LONGEST), READ),
        post("a number more", WIDGETS, JSON, numbers(LONGEST + 1), &[413]),
        post("text", TEXTS, JSON, text, READ),
        post("a byte more", MAPS, JSON, more, &[413]),
        post("members", WIDGETS, JSON, members, READ),
        post("lists", WIDGETS, JSON, nested("["), &[400]),
        post("objects", MAPS, JSON, nested("{\"a\":"), &[400]),
    ]
}

fn yaml_bodies() -> Vec<HostileRequest> {
    const WIDGET: &str = "apiVersion: x.io/v1\nkind: Widget\nmetadata: {name: w}\n";
    let lines = filled(&format!("{WIDGET}l:\n"), "- a: 1\n", "", LONGEST);
    let texts = filled(&format!("{WIDGET}l:\n"), "- abcdefgh\n", "", LONGEST);
    let mut aliases = format!("{WIDGET}a: &a [x,x,x,x,x,x,x,x,x]\n");
    for pair in ["ab", "bc", "cd", "de", "ef", "fg"] {
        let (of, name) = pair.split_at(1);
        let list = vec![format!("*{of}"); 9].join(",");
        aliases.push_str(&[name, ": &", name, " [", &list, "]\n"].concat());
    }
    vec![
        post("yaml lists", WIDGETS, YAML, nested("["), &[400]),
        post("yaml blocks", WIDGETS, YAML, nested("- "), &[400]),
        post("yaml lines", WIDGETS, YAML, lines, READ_OR_NOT),
        post("yaml texts", WIDGETS, YAML, texts, READ_OR_NOT),
        post("yaml aliases", WIDGETS, YAML, aliases.into(), READ_OR_NOT),
    ]
}

fn other_bodies() -> Vec<HostileRequest> {
    let broken = |begin: &[u8]| Bytes::from([b"k8s\0", begin].concat().repeat(100_000));
    let (length, group) = (broken(b"\x0a\xff\xff\xff\xff\x07"), broken(b"\x0b"));
    let cbor = Bytes::from(vec![0x9f; MANY]);
    vec![
        post("broken protobuf", MAPS, PROTOBUF, length, &[400]),
        post("protobuf of groups", MAPS, PROTOBUF, group.clone(), &[400]),
        post("protobuf of a widget", WIDGETS, PROTOBUF, group, &[415]),
        post("cbor", MAPS, "application/cbor", cbor.clone(), &[415]),
        post("no media type", MAPS, "/;;/", cbor, &[415]),
    ]
}

/// How deep bodies are nested.
const MANY: usize = 1_000_000;

/// A body that is nothing but the beginnings of nested values, of at most 3 MB.
fn nested(open: &str) -> Bytes {
    let depth = MANY.min(3 * MANY / open.len());
    open.repeat(depth).into()
}

/// A body of `length` bytes: as many pieces as there is room for, and spaces.
fn filled(begin: &str, piece: &str, end: &str, length: usize) -> Bytes {
    let pieces = (length - begin.len() - end.len()) / piece.len();
    let mut body = format!("{begin}{}{end}", piece.repeat(pieces)).into_bytes();
    body.resize(length, b' ');
    body.into()
}

fn post(
    name: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: Bytes,
    codes: &'static [u16],
) -> HostileRequest {
    HostileRequest {
        name,
        method: Method::POST,
        path: path.into(),
        content_type: content_type.into(),
        more: None,
        body,
        codes,
    }
}

fn patch(name: &'static str, content_type: &'static str, body: Bytes) -> HostileRequest {
    HostileRequest {
        method: Method::PATCH,
        ..post(name, POD, content_type, body, &[200, 400, 413, 422])
    }
}

/// A patch that doubles a list with each of its operations.
fn operations() -> Bytes {
    let mut all = vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "a"}})];
    for number in 0..9_000 {
        let path = format!("/metadata/annotations/a{number}");
        all.push(json!({"op": "copy", "from": "/metadata/annotations", "path": path}));
    }
    json!(all).to_string().into()
}

/// A patch of a list that is merged by the names of its elements.
fn containers() -> Bytes {
    let all: Vec<_> = (0..20_000)
        .map(|number| json!({"name": format!("c{number}"), "image": "i"}))
        .collect();
    json!({"spec": {"containers": all}}).to_string().into()
}
