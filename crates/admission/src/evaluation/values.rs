//! The values of `request` and `namespaceObject`.
//!
//! They have the shape of the original's structs as JSON, because expressions can see what is absent and what is empty.

use std::borrow::Cow;

use fairgate_cel::{CelJson, JsonObject};

use crate::attributes::{AdmissionAttributes, GroupVersionKind, GroupVersionResource};

type JsonMembers<'a> = Vec<(Cow<'a, str>, CelJson<'a>)>;

fn object(members: JsonMembers<'_>) -> CelJson<'_> {
    CelJson::Object(JsonObject::of_distinct(members))
}

fn text(value: &str) -> CelJson<'_> {
    CelJson::String(Cow::Borrowed(value))
}

fn texts(values: &[String]) -> CelJson<'_> {
    CelJson::Array(values.iter().map(|value| text(value)).collect())
}

fn kind_value(of: GroupVersionKind<'_>) -> CelJson<'_> {
    object(vec![
        ("group".into(), text(of.group)),
        ("kind".into(), text(of.kind)),
        ("version".into(), text(of.version)),
    ])
}

fn resource_value(of: GroupVersionResource<'_>) -> CelJson<'_> {
    object(vec![
        ("group".into(), text(of.group)),
        ("resource".into(), text(of.resource)),
        ("version".into(), text(of.version)),
    ])
}

/// The value of `request` for a request that is evaluated as another resource and kind.
pub(crate) fn request_value<'a>(
    attributes: &AdmissionAttributes<'a>,
    resource: GroupVersionResource<'a>,
    kind: GroupVersionKind<'a>,
) -> CelJson<'a> {
    let mut members = Vec::with_capacity(15);
    members.extend([
        ("uid".into(), text("")),
        ("kind".into(), kind_value(kind)),
        ("resource".into(), resource_value(resource)),
        ("requestKind".into(), kind_value(attributes.kind)),
        (
            "requestResource".into(),
            resource_value(attributes.resource),
        ),
        ("operation".into(), text(attributes.operation.name())),
        ("userInfo".into(), user_value(attributes)),
        ("object".into(), CelJson::Null),
        ("oldObject".into(), CelJson::Null),
        ("dryRun".into(), CelJson::Bool(attributes.dry_run)),
        (
            "options".into(),
            attributes.options.cloned().unwrap_or(CelJson::Null),
        ),
    ]);
    let optional = [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ];
    for (name, value) in optional {
        if !value.is_empty() {
            members.push((name.into(), text(value)));
        }
    }
    object(members)
}

fn user_value<'a>(attributes: &AdmissionAttributes<'a>) -> CelJson<'a> {
    let user = attributes.user;
    let mut members = JsonMembers::with_capacity(4);
    for (name, value) in [("username", &user.name), ("uid", &user.uid)] {
        if !value.is_empty() {
            members.push((name.into(), text(value)));
        }
    }
    if !user.groups.is_empty() {
        members.push(("groups".into(), texts(&user.groups)));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter();
        let extra = extra.map(|(key, values)| (Cow::Borrowed(key.as_str()), texts(values)));
        members.push(("extra".into(), object(extra.collect())));
    }
    object(members)
}

/// The metadata of a namespace that validations and messages see; audit annotations see all.
const VISIBLE_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// The value of `namespaceObject`; with all metadata, or with what validations see.
pub(crate) fn namespace_value<'a>(namespace: &CelJson<'a>, all_metadata: bool) -> CelJson<'a> {
    let part = |name: &str| match namespace.at(&[name]) {
        Some(CelJson::Object(found)) => found.members().to_vec(),
        _ => JsonMembers::new(),
    };
    let mut metadata = part("metadata");
    metadata.retain(|(name, value)| {
        (all_metadata || VISIBLE_METADATA.contains(&&**name)) && !is_empty(name, value)
    });
    object(vec![
        ("metadata".into(), object(metadata)),
        ("spec".into(), object(part("spec"))),
        ("status".into(), object(part("status"))),
    ])
}

/// Whether a member of the metadata is left out, because it has its zero value and is not a pointer in Go.
fn is_empty(name: &str, value: &CelJson<'_>) -> bool {
    match value {
        CelJson::Null => true,
        CelJson::String(text) => text.is_empty(),
        CelJson::Array(elements) => elements.is_empty(),
        CelJson::Object(members) => members.members().is_empty(),
        CelJson::Int(number) => *number == 0 && name != "deletionGracePeriodSeconds",
        CelJson::Bool(_) | CelJson::Double(_) => false,
    }
}
