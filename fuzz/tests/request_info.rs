//! [`RequestInfo`] compared with Kubernetes' own code, on some thousand hostile requests whose results
//! `tests/cluster/requestinfo` recorded.

use std::fmt::Write as _;

use fairgate_core::digest::{InfoError, RequestInfo};

/// Lines of method, target and result, separated by tabs.
const RECORDED: &str = include_str!("../recorded/request_info.tsv");

#[test]
fn requests_are_read_as_kubernetes_reads_them() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in RECORDED.lines() {
        count += 1;
        let mut columns = line.splitn(3, '\t');
        let (Some(method), Some(target), Some(expected)) =
            (columns.next(), columns.next(), columns.next())
        else {
            panic!("a line has three columns: {line}")
        };
        let found = read(method, target);
        if found != expected {
            wrong.push(format!(
                "{method} {target}\n  Kubernetes {expected}\n  fairgate   {found}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 3000, "{count}");
}

/// A result in the form in which it is recorded.
fn read(method: &str, target: &str) -> String {
    let info = match RequestInfo::from_target(method, target) {
        Ok(info) => info,
        Err(InfoError::Unclassifiable) => return "unclassifiable".to_owned(),
        Err(_) => return "malformed".to_owned(),
    };
    let mut columns = vec![
        if info.is_resource {
            "resource"
        } else {
            "other"
        }
        .to_owned(),
    ];
    if info.path() != target.split('?').next().unwrap_or_default().as_bytes() {
        columns.push(format!("path={}", escaped(info.path())));
    }
    let parts: Vec<_> = info.parts().collect();
    let list = info.list.as_deref();
    let fields = list.and_then(|list| list.field_selector.as_deref());
    let labels = list.and_then(|list| list.label_selector.as_deref());
    for (name, value) in [
        ("verb", info.verb.as_str().as_bytes()),
        ("prefix", info.api_prefix()),
        ("group", info.group()),
        ("version", info.version()),
        ("namespace", info.namespace()),
        ("resource", info.resource()),
        ("subresource", info.subresource()),
        ("name", info.name()),
        ("parts", &parts.join(&b'\n')),
        ("fields", fields.unwrap_or_default().as_bytes()),
        ("labels", labels.unwrap_or_default().as_bytes()),
    ] {
        if !value.is_empty() {
            columns.push(format!("{name}={}", escaped(value)));
        }
    }
    columns.join("\t")
}

/// Nothing but printable ASCII, and no space.
fn escaped(value: &[u8]) -> String {
    let mut out = String::new();
    for &byte in value {
        if byte <= b' ' || byte == b'%' || byte >= 0x7f {
            let _ = write!(out, "%{byte:02x}");
        } else {
            out.push(char::from(byte));
        }
    }
    out
}
