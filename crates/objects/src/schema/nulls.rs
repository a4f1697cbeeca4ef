//! Members that Go writes as null when they are absent ([`Presence::Nullable`]).
//!
//! In canonical form they are absent. Where expressions see an object as Go's structs have it, they must be there, since `has()` tells a
//! null from an absence.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Map, Value};

use super::{Presence, Struct, Type, built_in_kinds};

/// A way from an object to the objects that have such a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The member of this name.
    Member(&'static str),
    /// Each item of a list, or value of a map.
    Each,
}

/// A member that is written as null when it is absent.
#[derive(Debug)]
struct NullMember {
    steps: Vec<Step>,
    name: &'static str,
}

/// Such members of each kind that has any.
static NULL_MEMBERS: LazyLock<HashMap<[&'static str; 3], Vec<NullMember>>> = LazyLock::new(|| {
    let kinds = built_in_kinds().iter().map(|kind| {
        let mut found = Vec::new();
        collect(kind.shape, &mut Vec::new(), &mut Vec::new(), &mut found);
        ([kind.group, kind.version, kind.kind], found)
    });
    kinds.filter(|(_, found)| !found.is_empty()).collect()
});

/// Finds the members below a type, except in types that have themselves as a part.
fn collect(
    shape: &'static Struct,
    within: &mut Vec<&'static Struct>,
    steps: &mut Vec<Step>,
    found: &mut Vec<NullMember>,
) {
    if within.iter().any(|one| std::ptr::eq(*one, shape)) {
        return;
    }
    within.push(shape);
    for field in shape.fields {
        if field.presence == Presence::Nullable {
            let (steps, name) = (steps.clone(), field.name);
            found.push(NullMember { steps, name });
        }
        let depth = steps.len();
        steps.push(Step::Member(field.name));
        let mut ty = &field.ty;
        loop {
            match ty {
                Type::List(list) => ty = &list.item,
                Type::Map(map) => ty = &map.value,
                Type::Object(inner) => {
                    collect(inner, within, steps, found);
                    break;
                }
                _ => break,
            }
            steps.push(Step::Each);
        }
        steps.truncate(depth);
    }
    within.pop();
}

/// Adds to an object of a built-in kind the nulls that Go writes. Other objects stay as they are. Costs a look-up in the object for each
/// such member of its kind, and for each item on the way to it.
pub fn add_nulls([group, version, kind]: [&str; 3], object: &mut Value) {
    for member in NULL_MEMBERS
        .get(&[group, version, kind])
        .into_iter()
        .flatten()
    {
        add(object, &member.steps, member.name);
    }
}

/// Where each built-in kind, by group, version and name, has such members; `*` is any element or member. Lists of objects are left out.
pub(crate) fn null_places() -> impl Iterator<Item = ([&'static str; 3], Vec<&'static str>)> {
    let all = built_in_kinds().iter().flat_map(|kind| {
        let kind = [kind.group, kind.version, kind.kind];
        let members = NULL_MEMBERS.get(&kind).into_iter().flatten();
        members.map(move |member| {
            let steps = member.steps.iter().map(|step| match step {
                Step::Member(name) => *name,
                Step::Each => "*",
            });
            (kind, steps.chain([member.name]).collect::<Vec<_>>())
        })
    });
    all.filter(|(_, place)| place[0] != "items")
}

fn add(object: &mut Value, steps: &[Step], name: &'static str) {
    let Some((step, rest)) = steps.split_first() else {
        if let Value::Object(members) = object {
            add_null(members, name);
        }
        return;
    };
    match (step, object) {
        (Step::Member(name_of), Value::Object(members)) => {
            if let Some(inner) = members.get_mut(*name_of) {
                add(inner, rest, name);
            }
        }
        (Step::Each, Value::Array(items)) => {
            for item in items {
                add(item, rest, name);
            }
        }
        (Step::Each, Value::Object(members)) => {
            for (_, inner) in members.iter_mut() {
                add(inner, rest, name);
            }
        }
        _ => {}
    }
}

fn add_null(members: &mut Map<String, Value>, name: &str) {
    if !members.contains_key(name) {
        members.insert(name.to_owned(), Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_writes_as_null_is_added_where_its_object_is() {
        let mut claim = json!({"spec": {"dataSource": {"kind": "X", "name": "x"}}});
        add_nulls(["", "v1", "PersistentVolumeClaim"], &mut claim);
        let source = json!({"apiGroup": null, "kind": "X", "name": "x"});
        assert_eq!(claim, json!({"spec": {"dataSource": source}}));
        let mut pod = json!({"spec": {"containers": [{"livenessProbe": {"grpc": {"port": 1}}}, {}, {"livenessProbe": {"grpc": {"service": "s"}}}]}});
        add_nulls(["", "v1", "Pod"], &mut pod);
        let containers = json!([{"livenessProbe": {"grpc": {"port": 1, "service": null}}}, {}, {"livenessProbe": {"grpc": {"service": "s"}}}]);
        assert_eq!(pod, json!({"spec": {"containers": containers}}));
        let mut request = json!({"spec": {"expirationSeconds": 600}});
        add_nulls(
            ["authentication.k8s.io", "v1", "TokenRequest"],
            &mut request,
        );
        let spec = json!({"boundObjectRef": null, "expirationSeconds": 600});
        assert_eq!(request, json!({"spec": spec}));
        let mut other = json!({"spec": {}});
        add_nulls(["example.com", "v1", "Thing"], &mut other);
        assert_eq!(other, json!({"spec": {}}));
    }
}
