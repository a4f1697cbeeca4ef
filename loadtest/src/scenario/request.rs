//! Reads one request of a client's mix.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    RequestSpec,
    body::LoadBody,
    fields::Fields,
    kinds::WrittenKind,
    values::{self, InvalidKey},
};
use fairgate_core::digest::RequestInfo;

/// The methods of Kubernetes' verbs.
const VERBS: &[(&str, &str)] = &[
    ("get", "GET"),
    ("list", "GET"),
    ("watch", "GET"),
    ("create", "POST"),
    ("update", "PUT"),
    ("patch", "PATCH"),
    ("delete", "DELETE"),
    ("deletecollection", "DELETE"),
];

/// Reads the mapping of a request.
pub(super) fn request(fields: &mut Fields<'_>) -> RequestSpec {
    let verb = fields.get("verb", "get", |value| {
        let words: Vec<(&str, &str)> = VERBS.iter().map(|(verb, _)| (*verb, *verb)).collect();
        values::keyword(&words)(value)
    });
    let method = VERBS.iter().find(|(word, _)| *word == verb);
    let method = method.map_or("GET", |(_, method)| method);
    let (target, info) = target(fields, verb, method);
    let request = RequestSpec {
        method,
        target,
        written: object(fields, &info),
        info,
        weight: fields.get("weight", 1, values::count_from(1)),
        body_bytes: fields.get("body", 0, values::size),
        hold: fields.get("hold", Duration::from_secs(5), values::some_time),
        read_rate: fields.get("readRate", 0, values::size),
    };
    check_reading(fields, &request);
    check_body(fields, &request);
    request
}

/// Reports a key that says how a response is read, but not one of this kind.
fn check_reading(fields: &mut Fields<'_>, request: &RequestSpec) {
    let is_watch = request.info.is_watch();
    let (key, problem, remedy) = if is_watch {
        let remedy = "remove it: hold says how long it is read";
        ("readRate", "a watch is read as it comes", remedy)
    } else {
        let remedy = "write verb: watch, or remove it";
        ("hold", "only watches are held", remedy)
    };
    let path = fields.at(key);
    // With a mistake in one of them it may have been meant to be a watch.
    let of_kind = ["verb", "path"].map(|key| fields.at(key));
    let is_clear = |key: &String| !fields.reader.has_findings_below(key);
    if fields.reader.lines.contains_key(&path) && of_kind.iter().all(is_clear) {
        fields.reader.error(&path, problem, remedy);
    }
}

/// The path with its query, and what fairgate derives from it and the method.
fn target(fields: &mut Fields<'_>, verb: &str, method: &str) -> (String, RequestInfo) {
    let mut target = fields.required(
        "path",
        "/".to_owned(),
        "/api/v1/namespaces/default/pods",
        |value| {
            let text = values::text(value)?;
            let plain = text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic());
            let problem = || {
                InvalidKey::new(
                    format!("{text:?} is not a path"),
                    "begin it with /, and encode what is not ASCII",
                )
            };
            if plain { Ok(text) } else { Err(problem()) }
        },
    );
    if verb == "watch" && !target.contains("watch=") {
        target += if target.contains('?') {
            "&watch=true"
        } else {
            "?watch=true"
        };
    }
    let example = target.replace("{user}", "1");
    let info = RequestInfo::from_target(method, &example);
    let path = fields.at("path");
    match &info {
        Ok(info) if info.verb.as_str() != verb && target != "/" => {
            let found = info.verb.as_str();
            let problem = format!("{method} {example} is the verb {found:?}, not {verb:?}");
            fields.reader.error(
                &path,
                problem,
                format!("write verb: {found}, or change the path"),
            );
        }
        Err(error) => fields
            .reader
            .error(&path, error.to_string(), "correct the path"),
        Ok(_) => {}
    }
    let root = || RequestInfo::from_target("GET", "/").expect("the root is a target");
    (target, info.unwrap_or_else(|_| root()))
}

/// The kind of object at the path: what `object` says, or else what is known.
fn object(fields: &mut Fields<'_>, info: &RequestInfo) -> Option<WrittenKind> {
    let known = WrittenKind::of(info);
    let own = fields.get("object", None, |value| match value {
        Value::Object(object) => Ok(Some(object.clone())),
        _ => Err(InvalidKey::new(
            "not a mapping",
            "write the object without its metadata, such as {kind: Widget, spec: {}}",
        )),
    });
    let Some(own) = own else {
        return known.cloned();
    };
    own_object(fields, own, known)
}

fn own_object(
    fields: &mut Fields<'_>,
    own: Map<String, Value>,
    known: Option<&WrittenKind>,
) -> Option<WrittenKind> {
    let path = fields.at("object");
    let written = WrittenKind::written(own, known);
    if let Err(problem) = written {
        fields.reader.error(
            &path,
            problem,
            "add kind:, such as {kind: Widget, spec: {}}",
        );
    }
    written.ok()
}

/// Reports a write that no API server accepts.
fn check_body(fields: &mut Fields<'_>, request: &RequestSpec) {
    let verb = request.info.verb.as_str();
    if !request.info.is_resource || !matches!(verb, "create" | "update" | "patch") {
        return;
    }
    let resource = String::from_utf8_lossy(request.info.resource()).into_owned();
    let Some(kind) = &request.written else {
        if request.body_bytes > 0 {
            let path = fields.at("body");
            fields.reader.error(
                &path,
                format!("the kind of {resource} is not known here"),
                "add object: with its kind and what else it needs, such as {kind: Widget, spec: {}}",
            );
        }
        return;
    };
    if let (Some(reason), "update") = (&kind.no_update, verb) {
        let path = fields.at("verb");
        let problem = format!("API servers refuse updates of {resource}: {reason}");
        fields.reader.error(&path, problem, "write verb: patch");
    }
    let filling = LoadBody::of(request, &request.info).filling();
    if filling > kind.most_filling() {
        let path = fields.at("body");
        let most = kind.most_filling();
        fields.reader.error(
            &path,
            format!(
                "API servers refuse {resource} with {filling} bytes of {}",
                kind.filling
            ),
            format!("write a size that leaves at most {most} for that"),
        );
    }
}
