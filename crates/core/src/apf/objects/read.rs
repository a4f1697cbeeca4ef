//! Reading policy objects from JSON values, which come from files, pipes and API servers.
//!
//! A value is first compared with the shape of its kind, so that every field of a wrong type and all
//! unknown fields are reported by path; only then is it deserialized.
//!
//! Not here: the text format of a file, defaults of v1, validation.

use k8s_openapi::{
    api::flowcontrol::v1::{FlowSchema, FlowSchemaSpec, PriorityLevelConfiguration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ParsedDocument, v1beta3};
use crate::finding::{Finding, Severity};

/// The API group of flow control.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Lists within lists are followed this far; kubectl writes one.
const MAX_LIST_DEPTH: u32 = 4;

/// What a field may hold.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Int32,
    Int64,
    Flag,
    TextMap,
    /// Anything; what reads it reports its errors.
    Any,
    List(&'static Shape),
    Object(&'static [(&'static str, Shape)]),
}

use Shape::{Any, Flag, Int32, Int64, List, Object, Text, TextMap};

const NAMED: Shape = Object(&[("name", Text)]);

const SUBJECT: Shape = Object(&[
    ("kind", Text),
    ("user", NAMED),
    ("group", NAMED),
    (
        "serviceAccount",
        Object(&[("namespace", Text), ("name", Text)]),
    ),
]);

const RESOURCE_RULE: Shape = Object(&[
    ("verbs", List(&Text)),
    ("apiGroups", List(&Text)),
    ("resources", List(&Text)),
    ("namespaces", List(&Text)),
    ("clusterScope", Flag),
]);

const NON_RESOURCE_RULE: Shape =
    Object(&[("verbs", List(&Text)), ("nonResourceURLs", List(&Text))]);

const SCHEMA_SPEC: Shape = Object(&[
    ("priorityLevelConfiguration", NAMED),
    ("matchingPrecedence", Int32),
    ("distinguisherMethod", Object(&[("type", Text)])),
    (
        "rules",
        List(&Object(&[
            ("subjects", List(&SUBJECT)),
            ("resourceRules", List(&RESOURCE_RULE)),
            ("nonResourceRules", List(&NON_RESOURCE_RULE)),
        ])),
    ),
]);

const LEVEL_SPEC: Shape = Object(&[
    ("type", Text),
    (
        "limited",
        Object(&[
            ("nominalConcurrencyShares", Int32),
            ("lendablePercent", Int32),
            ("borrowingLimitPercent", Int32),
            (
                "limitResponse",
                Object(&[
                    ("type", Text),
                    (
                        "queuing",
                        Object(&[
                            ("queues", Int32),
                            ("handSize", Int32),
                            ("queueLengthLimit", Int32),
                        ]),
                    ),
                ]),
            ),
        ]),
    ),
    (
        "exempt",
        Object(&[
            ("nominalConcurrencyShares", Int32),
            ("lendablePercent", Int32),
        ]),
    ),
]);

/// The metadata fields that are read; the others are ignored.
const METADATA: [(&str, Shape); 6] = [
    ("name", Text),
    ("uid", Text),
    ("resourceVersion", Text),
    ("generation", Int64),
    ("annotations", TextMap),
    ("labels", TextMap),
];

const STATUS: Shape = Object(&[(
    "conditions",
    List(&Object(&[
        ("type", Text),
        ("status", Text),
        ("reason", Text),
        ("message", Text),
        ("lastTransitionTime", Any),
    ])),
)]);

const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// The kinds that are read, besides `List`.
const KINDS: [&str; 4] = [
    "FlowSchema",
    "PriorityLevelConfiguration",
    "FlowSchemaList",
    "PriorityLevelConfigurationList",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V1Beta3,
}

impl ParsedDocument {
    /// Parses a document with its origin (such as `file.yaml, document 2`).
    ///
    /// It is a FlowSchema or PriorityLevelConfiguration of `v1` or `v1beta3`, a `List` or typed list of
    /// them, or null. Status and managed fields are allowed. What is wrong becomes a finding; nothing
    /// stops at the first mistake.
    pub fn parse(origin: &str, value: Value) -> Self {
        let mut document = Self::default();
        read(&mut document, origin, value, None, MAX_LIST_DEPTH);
        document.shrink();
        document
    }
}

/// `typed` is the kind and version that the list around an object implies.
fn read(
    set: &mut ParsedDocument,
    origin: &str,
    value: Value,
    typed: Option<(&'static str, Version)>,
    depth: u32,
) {
    let mut value = match value {
        Value::Null => return,
        Value::Object(map) => map,
        other => {
            let message = format!("is {} where an object is expected", describe(&other));
            let remedy = "write FlowSchema or PriorityLevelConfiguration objects";
            set.push_finding(finding(
                Severity::Error,
                origin,
                "",
                "",
                "",
                &message,
                remedy,
            ));
            return;
        }
    };
    let given_kind = text(&value, "kind").to_owned();
    let given_version = text(&value, "apiVersion").to_owned();
    let (kind, version) = match (given_kind.as_str(), typed) {
        // API servers leave kind and version out of the items of their typed lists.
        ("", Some(typed)) if given_version.is_empty() => typed,
        (kind, _) => match recognise(kind, &given_version) {
            Ok(known) => known,
            Err((field, message, remedy)) => {
                let name = name_of(&value);
                set.push_finding(finding(
                    Severity::Error,
                    origin,
                    &given_kind,
                    &name,
                    field,
                    &message,
                    remedy,
                ));
                return;
            }
        },
    };
    let items_of = match kind {
        "List" => None,
        "FlowSchemaList" => Some(("FlowSchema", version)),
        "PriorityLevelConfigurationList" => Some(("PriorityLevelConfiguration", version)),
        _ => {
            object(set, origin, value, kind, version);
            return;
        }
    };
    read_items(set, origin, kind, value.remove("items"), items_of, depth);
}

/// `items_of` is the kind and version that a list of `kind` implies for its items.
fn read_items(
    set: &mut ParsedDocument,
    origin: &str,
    kind: &str,
    items: Option<Value>,
    items_of: Option<(&'static str, Version)>,
    depth: u32,
) {
    let (severity, problem) = match items {
        // An empty list of a server.
        Some(Value::Null) => return,
        Some(Value::Array(items)) if depth > 0 => {
            for (i, item) in items.into_iter().enumerate() {
                let origin = format!("{origin}, items[{i}]");
                read(set, &origin, item, items_of, depth - 1);
            }
            return;
        }
        Some(Value::Array(_)) => (Severity::Error, "is nested too deeply".to_owned()),
        Some(other) => {
            let problem = format!("is {} where a list is expected", describe(&other));
            (Severity::Error, problem)
        }
        None => (
            Severity::Warning,
            "is missing, so the list holds no object".to_owned(),
        ),
    };
    let remedy = "list the objects in it";
    set.push_finding(finding(
        severity, origin, kind, "", "items", &problem, remedy,
    ));
}

type Unknown = (&'static str, String, &'static str);

fn recognise(kind: &str, version: &str) -> Result<(&'static str, Version), Unknown> {
    if (kind, version) == ("List", "v1") {
        return Ok(("List", Version::V1));
    }
    let missing = |field| {
        (
            field,
            "is missing".to_owned(),
            "write apiVersion and kind, as kubectl prints them",
        )
    };
    if version.is_empty() {
        return Err(missing("apiVersion"));
    }
    if kind.is_empty() {
        return Err(missing("kind"));
    }
    let Some(number) = version
        .strip_prefix(GROUP)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        return Err((
            "apiVersion",
            format!("{version:?} is not a version of {GROUP}"),
            if KINDS.contains(&kind) {
                "write flowcontrol.apiserver.k8s.io/v1"
            } else {
                "remove the object; only FlowSchema and PriorityLevelConfiguration belong here"
            },
        ));
    };
    let number = match number {
        "v1" => Version::V1,
        "v1beta3" => Version::V1Beta3,
        _ => {
            return Err((
                "apiVersion",
                format!("{version:?} is not supported"),
                "convert the object to flowcontrol.apiserver.k8s.io/v1",
            ));
        }
    };
    match KINDS.into_iter().find(|&known| known == kind) {
        Some(kind) => Ok((kind, number)),
        None => Err((
            "kind",
            format!("{kind:?} is not a kind of {GROUP}"),
            "write FlowSchema or PriorityLevelConfiguration",
        )),
    }
}

fn object(
    set: &mut ParsedDocument,
    origin: &str,
    mut value: Map<String, Value>,
    kind: &'static str,
    version: Version,
) {
    let name = name_of(&value);
    let spec_shape = if kind == "FlowSchema" {
        &SCHEMA_SPEC
    } else {
        &LEVEL_SPEC
    };
    let mut checker = Checker {
        origin,
        kind,
        name: &name,
        findings: Vec::new(),
    };
    for field in value.keys().filter(|field| !TOP.contains(&field.as_str())) {
        checker.unknown(field);
    }
    let metadata = take_metadata(&mut value, &mut checker);
    let mut spec = value.remove("spec").unwrap_or(Value::Null);
    let mut status = value.remove("status").unwrap_or(Value::Null);
    checker.check(&mut spec, spec_shape, "spec");
    checker.check(&mut status, &STATUS, "status");
    let findings = checker.findings;
    // Warnings do not count: an object with a field that is not known here takes effect without that field.
    let usable = !findings.iter().any(Finding::is_error);
    for finding in findings {
        set.push_finding(finding);
    }
    if !usable {
        return;
    }
    let added = match (kind, version) {
        ("FlowSchema", _) => schema(metadata, spec, status).map(|o| set.add_flow_schema(origin, o)),
        (_, Version::V1) => level(metadata, spec, status).map(|o| set.add_level(origin, o)),
        (_, Version::V1Beta3) => {
            old_level(metadata, spec, status).map(|o| set.add_level(origin, o))
        }
    };
    if let Err((field, error)) = added {
        let message = error.to_string();
        let remedy = "correct the field";
        set.push_finding(finding(
            Severity::Error,
            origin,
            kind,
            &name,
            field,
            &message,
            remedy,
        ));
    }
}

type Unreadable = (&'static str, serde_json::Error);

fn schema(metadata: ObjectMeta, spec: Value, status: Value) -> Result<FlowSchema, Unreadable> {
    Ok(FlowSchema {
        metadata,
        spec: part::<Option<FlowSchemaSpec>>("spec", spec)?,
        status: part("status", status)?,
    })
}

fn level(
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
) -> Result<PriorityLevelConfiguration, Unreadable> {
    Ok(PriorityLevelConfiguration {
        metadata,
        spec: part("spec", spec)?,
        status: part("status", status)?,
    })
}

fn old_level(
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
) -> Result<PriorityLevelConfiguration, Unreadable> {
    let mut old = v1beta3::PriorityLevelConfiguration {
        metadata,
        spec: part::<Option<_>>("spec", spec)?.unwrap_or_default(),
        status: part("status", status)?,
    };
    // Before the conversion: the v1 object can no longer tell 0 shares that are meant from those that stand for the default.
    old.set_defaults();
    Ok(old.into())
}

fn part<T: DeserializeOwned>(field: &'static str, value: Value) -> Result<T, Unreadable> {
    serde_json::from_value(value).map_err(|error| (field, error))
}

/// The metadata of [`METADATA`]; fields of a wrong type are reported and left out.
fn take_metadata(value: &mut Map<String, Value>, checker: &mut Checker<'_>) -> ObjectMeta {
    let mut given = match value.remove("metadata") {
        None | Some(Value::Null) => return ObjectMeta::default(),
        Some(Value::Object(map)) => map,
        Some(other) => {
            checker.wrong("metadata", &other, "an object");
            return ObjectMeta::default();
        }
    };
    let mut kept = Map::new();
    for (name, shape) in METADATA {
        if let Some(mut value) = given.remove(name) {
            let before = checker.findings.len();
            checker.check(&mut value, &shape, &format!("metadata.{name}"));
            if checker.findings.len() == before {
                kept.insert(name.to_owned(), value);
            }
        }
    }
    serde_json::from_value(Value::Object(kept)).unwrap_or_default()
}

struct Checker<'a> {
    origin: &'a str,
    kind: &'a str,
    name: &'a str,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    /// Compares `value` with `shape`, reports the differences, and drops nulls, which mean
    /// "absent".
    fn check(&mut self, value: &mut Value, shape: &Shape, path: &str) {
        match (shape, value) {
            (Any, _) | (_, Value::Null) | (Text, Value::String(_)) | (Flag, Value::Bool(_)) => {}
            (Int32, Value::Number(n)) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
            (Int64, Value::Number(n)) if n.as_i64().is_some() => {}
            (TextMap, Value::Object(map)) => {
                map.retain(|_, value| !value.is_null());
                for (key, value) in map.iter_mut() {
                    self.check(value, &Text, &format!("{path}[{key}]"));
                }
            }
            (List(element), Value::Array(list)) => {
                for (i, value) in list.iter_mut().enumerate() {
                    let path = format!("{path}[{i}]");
                    // A field may be null for absent, but an element of a list cannot be absent.
                    if value.is_null() {
                        self.wrong(&path, value, expected(element));
                    }
                    self.check(value, element, &path);
                }
            }
            (Object(fields), Value::Object(map)) => {
                map.retain(|_, value| !value.is_null());
                for (key, value) in map.iter_mut() {
                    let path = format!("{path}.{key}");
                    match fields.iter().find(|(name, _)| name == key) {
                        Some((_, shape)) => self.check(value, shape, &path),
                        None => self.unknown(&path),
                    }
                }
            }
            (shape, value) => self.wrong(path, value, expected(shape)),
        }
    }

    fn wrong(&mut self, path: &str, value: &Value, expected: &str) {
        let message = format!("is {} where {expected} is expected", describe(value));
        let remedy = match (value, expected) {
            (Value::Bool(_) | Value::Number(_), "a string") => "put it in quotes",
            (Value::String(_), "a 32-bit integer" | "an integer" | "true or false") => {
                "write it without quotes"
            }
            _ => "correct the value",
        };
        self.push(Severity::Error, path, &message, remedy);
    }

    fn unknown(&mut self, path: &str) {
        self.push(
            Severity::Warning,
            path,
            "is not a field of this kind and has no effect",
            "correct its spelling or remove it",
        );
    }

    fn push(&mut self, severity: Severity, path: &str, message: &str, remedy: &str) {
        self.findings.push(finding(
            severity,
            self.origin,
            self.kind,
            self.name,
            path,
            message,
            remedy,
        ));
    }
}

fn finding(
    severity: Severity,
    origin: &str,
    kind: &str,
    name: &str,
    field: &str,
    message: &str,
    remedy: &str,
) -> Finding {
    Finding {
        severity,
        origin: origin.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        field: field.to_owned(),
        message: message.to_owned(),
        remedy: remedy.to_owned(),
    }
}

fn text<'a>(value: &'a Map<String, Value>, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn name_of(value: &Map<String, Value>) -> String {
    value
        .get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

const fn expected(shape: &Shape) -> &'static str {
    match shape {
        Text => "a string",
        Int32 => "a 32-bit integer",
        Int64 => "an integer",
        Flag => "true or false",
        List(_) => "a list",
        Object(_) | TextMap => "an object",
        Any => "a value",
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("the string {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
