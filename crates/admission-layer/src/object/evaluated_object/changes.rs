//! What the generation of an object counts.
//!
//! The server compares objects as its types have them, with their defaults. A PUT that leaves defaults out looks like a change here:
//! policies that skip what is unchanged then evaluate once too often, and not once too rarely.
//!
//! Source: `Equalities.DeepEqual` in Kubernetes `apimachinery/third_party/forked/golang/reflect`. A few kinds, such as network policies,
//! are compared by Go's own `reflect.DeepEqual`, for which an empty list in a body differs from the absent one in the stored object. A server
//! shows its policies the same in both cases, so that is no change here.

use fairgate_objects::schema::{Struct, Type, built_in};
use serde_json::{Map, Value, json};

/// The part of an object whose changes its generation counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spec {
    /// These members.
    Members(&'static [&'static str]),
    /// `spec` and the annotations.
    WithAnnotations,
    /// All members but the metadata, and the labels.
    AllAndLabels,
    /// All members but the metadata.
    AllButMetadata,
    /// `spec`, but a new object has the generation that the client sends.
    OnUpdate,
    /// Nothing: it stays 1.
    Never,
}

impl Spec {
    fn differs(self, new: &Value, old: &Value) -> bool {
        let differ = |path: &[&str]| differ_at(path, new, old);
        match self {
            Self::Members(members) => members.iter().any(|key| differ(&[*key])),
            Self::OnUpdate => differ(&["spec"]),
            Self::WithAnnotations => differ(&["spec"]) || differ(&["metadata", "annotations"]),
            Self::AllAndLabels => others_differ(new, old) || differ(&["metadata", "labels"]),
            Self::AllButMetadata => others_differ(new, old),
            Self::Never => false,
        }
    }
}

/// Gives an object the generation that it has after a change of the stored one.
pub(super) fn count(counted: Option<Spec>, object: &mut Value, old: &Value) {
    let before = old.pointer("/metadata/generation").cloned();
    let differs = counted.is_some_and(|spec| spec.differs(object, old));
    let generation = match before {
        _ if differs => {
            let before = before.as_ref().and_then(Value::as_i64);
            Some(json!(before.unwrap_or(0).wrapping_add(1)))
        }
        before => before,
    };
    let Some(metadata) = super::metadata_mut(object) else {
        return;
    };
    match generation {
        Some(generation) => metadata.insert("generation".to_owned(), generation),
        None => metadata.remove("generation"),
    };
}

/// The annotation that counts the templates of a daemon set, which is a field of its own in the server.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Gives a new daemon set the annotation that counts its templates.
pub(super) fn first_template_generation(object: &mut Value) {
    let sent = template_generation(object).and_then(Value::as_str);
    let sent: i64 = sent.and_then(|sent| sent.parse().ok()).unwrap_or(0);
    set_template_generation(object, Some(json!(sent.max(1).to_string())));
}

/// Keeps the annotation that counts the templates of a daemon set, and counts another template.
pub(super) fn count_templates(object: &mut Value, old: &Value) {
    let stored = template_generation(old);
    let counted = stored
        .and_then(Value::as_str)
        .and_then(|stored| stored.parse::<i64>().ok());
    let is_another = differ_at(&["spec", "template"], object, old);
    let generation = match counted {
        Some(counted) if is_another => Some(json!(counted.wrapping_add(1).to_string())),
        _ => stored.cloned(),
    };
    set_template_generation(object, generation);
}

pub(super) fn template_generation(set: &Value) -> Option<&Value> {
    set.pointer(&format!("/metadata/annotations/{TEMPLATE_GENERATION}"))
}

pub(super) fn set_template_generation(object: &mut Value, generation: Option<Value>) {
    let Some(metadata) = super::metadata_mut(object) else {
        return;
    };
    let annotations = metadata.entry("annotations");
    let annotations = annotations.or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Value::Object(annotations) = annotations {
        match generation {
            Some(generation) => annotations.insert(TEMPLATE_GENERATION.to_owned(), generation),
            None => annotations.remove(TEMPLATE_GENERATION),
        };
    }
}

/// Whether any member but the metadata differs.
fn others_differ(new: &Value, old: &Value) -> bool {
    let (Value::Object(new_members), Value::Object(old_members)) = (new, old) else {
        return new != old;
    };
    let is_other = |key: &&String| !["metadata", "apiVersion", "kind"].contains(&&***key);
    let mut others = keys_of_both(new_members, old_members).filter(is_other);
    others.any(|key| differ_at(&[key], new, old))
}

/// Whether what is at a place differs in two objects of the kind of `old`, which is as a server has written it.
fn differ_at(path: &[&str], new: &Value, old: &Value) -> bool {
    let at = |of| path.iter().try_fold(of, |of: &Value, key| of.get(key));
    differ(type_at(path, old), at(new), at(old))
}

/// The type of what is at a place in an object; `None` for custom resources.
fn type_at(path: &[&str], object: &Value) -> Option<&'static Type> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (last, outer) = path.split_last()?;
    let mut shape: &'static Struct = built_in(group, version, text("kind"))?;
    for key in outer {
        match shape.field(key)?.ty {
            Type::Object(inner) => shape = inner,
            _ => return None,
        }
    }
    Some(&shape.field(last)?.ty)
}

/// Whether two values of a type differ. Without a type, as in custom resources, a server compares plain JSON, in which an absent member
/// differs from one that is empty or null.
fn differ(ty: Option<&Type>, new: Option<&Value>, old: Option<&Value>) -> bool {
    let Some(ty) = ty else {
        return new != old;
    };
    let is_set = |value: &&Value| !is_unset(ty, value);
    match (ty, new.filter(is_set), old.filter(is_set)) {
        (Type::Object(shape), Some(Value::Object(new)), Some(Value::Object(old))) => {
            keys_of_both(new, old).any(|key| {
                let ty = shape.field(key).map(|field| &field.ty);
                differ(ty, new.get(key), old.get(key))
            })
        }
        (Type::Map(map), Some(Value::Object(new)), Some(Value::Object(old))) => {
            let differs = |key: &String| match (new.get(key), old.get(key)) {
                (Some(new), Some(old)) => differ(Some(&map.value), Some(new), Some(old)),
                _ => true,
            };
            keys_of_both(new, old).any(differs)
        }
        (Type::List(list), Some(Value::Array(new)), Some(Value::Array(old))) => {
            let mut both = new.iter().zip(old);
            let differs = |(new, old)| differ(Some(&list.item), Some(new), Some(old));
            new.len() != old.len() || both.any(differs)
        }
        (_, new, old) => new != old,
    }
}

/// Whether a value equals an absent one. An empty struct does not: one that may be absent is behind a pointer.
fn is_unset(ty: &Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => matches!(ty, Type::List(_)) && items.is_empty(),
        Value::Object(members) => matches!(ty, Type::Map(_)) && members.is_empty(),
        _ => false,
    }
}

/// The keys of both objects, each once.
fn keys_of_both<'a>(
    new: &'a Map<String, Value>,
    old: &'a Map<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    new.keys().chain(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the generation of an object of a kind is counted.
    fn is_counted(spec: Spec, [version, kind]: [&str; 2], new: &Value, old: &Value) -> bool {
        let of_kind = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            object["metadata"]["generation"] = json!(3);
            object
        };
        let (mut new, old) = (of_kind(new), of_kind(old));
        count(Some(spec), &mut new, &old);
        new["metadata"]["generation"] == 4
    }

    #[test]
    fn an_absent_list_or_map_equals_an_empty_one_but_an_absent_struct_does_not() {
        let counted = |new: Value, old: Value| {
            let spec = Spec::Members(&["spec"]);
            let policy = ["networking.k8s.io/v1", "NetworkPolicy"];
            let [new, old] = [new, old].map(|spec| json!({"spec": spec}));
            let both = [(&new, &old), (&old, &new)];
            both.map(|(new, old)| is_counted(spec, policy, new, old))
        };
        let peer = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
        for (new, old) in [
            (json!({"egress": []}), json!({})),
            (json!({"egress": Value::Null}), json!({"egress": []})),
            (
                peer(json!({"podSelector": {"matchLabels": {}}})),
                peer(json!({"podSelector": {"matchLabels": null, "matchExpressions": []}})),
            ),
        ] {
            assert_eq!(counted(new.clone(), old.clone()), [false; 2], "{new} {old}");
        }
        for (new, old) in [
            (
                peer(json!({"podSelector": {}, "namespaceSelector": {}})),
                peer(json!({"podSelector": {}})),
            ),
            (peer(json!({"ipBlock": {}})), peer(json!({}))),
            (
                json!({"podSelector": {"matchLabels": {"a": ""}}}),
                json!({"podSelector": {}}),
            ),
            (json!({"egress": [{}]}), json!({"egress": []})),
            (json!({"egress": [{}]}), json!({"egress": [{}, {}]})),
        ] {
            assert_eq!(counted(new.clone(), old.clone()), [true; 2], "{new} {old}");
        }
    }

    #[test]
    fn in_free_json_and_in_custom_resources_an_empty_member_differs_from_an_absent_one() {
        let parameters = |parameters: Value| json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}});
        let class = ["resource.k8s.io/v1", "DeviceClass"];
        let custom = |spec: Value| json!({"spec": spec, "metadata": {"labels": {"a": "b"}}});
        let widget = ["x.io/v1", "Widget"];
        for (empty, is_other) in [
            (json!({"a": {}}), true),
            (json!({"a": []}), true),
            (json!({"a": null}), true),
            (json!({}), false),
        ] {
            let (spec, none) = (Spec::Members(&["spec"]), json!({}));
            let [new, old] = [empty.clone(), none.clone()].map(parameters);
            assert_eq!(is_counted(spec, class, &new, &old), is_other, "{empty}");
            let [new, old] = [empty.clone(), none].map(custom);
            let spec = Spec::AllButMetadata;
            assert_eq!(is_counted(spec, widget, &new, &old), is_other, "{empty}");
            assert_eq!(is_counted(spec, widget, &old, &new), is_other, "{empty}");
        }
        let without = json!({"spec": {}});
        assert!(!is_counted(
            Spec::AllButMetadata,
            widget,
            &custom(json!({})),
            &without
        ));
        assert!(is_counted(
            Spec::AllButMetadata,
            widget,
            &json!({}),
            &without
        ));
    }

    #[test]
    fn absent_annotations_and_labels_equal_empty_ones() {
        for (spec, kind, key) in [
            (
                Spec::WithAnnotations,
                ["apps/v1", "Deployment"],
                "annotations",
            ),
            (
                Spec::AllAndLabels,
                ["discovery.k8s.io/v1", "EndpointSlice"],
                "labels",
            ),
        ] {
            let with = |of: Value| json!({"metadata": {key: of}});
            let counted = |new: Value| is_counted(spec, kind, &with(new), &json!({"metadata": {}}));
            assert!(!counted(json!({})), "{key}");
            assert!(counted(json!({"a": ""})), "{key}");
        }
    }
}
