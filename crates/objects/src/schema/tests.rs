//! What holds for all tables.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::kinds::KINDS;

/// The tables that a type is made of.
fn inner(ty: &Type) -> Option<&'static Struct> {
    match ty {
        Type::Object(shape) => Some(shape),
        Type::List(list) => inner(&list.item),
        Type::Map(map) => inner(&map.value),
        _ => None,
    }
}

fn parts(shape: &'static Struct) -> impl Iterator<Item = &'static Struct> {
    let of_fields = shape.fields.iter().filter_map(|field| inner(&field.ty));
    of_fields.chain(shape.inline.iter().map(|part| part.shape))
}

fn home(shape: &Struct) -> String {
    format!("{:?} {}", shape.home, shape.name)
}

#[test]
fn a_built_in_kind_is_found_by_its_name() {
    let kinds = built_in_kinds();
    assert!(kinds.len() > 300, "{}", kinds.len());
    for one in kinds {
        let found = built_in(one.group, one.version, one.kind);
        assert!(
            found.is_some_and(|shape| std::ptr::eq(shape, one.shape)),
            "{one:?}"
        );
    }
    for (group, version, kind) in [
        ("", "v1", "pod"),
        ("apps", "v3", "Deployment"),
        ("", "", ""),
    ] {
        assert!(built_in(group, version, kind).is_none());
    }
}

/// What reads and writes objects goes as deep as the tables do.
#[test]
fn no_table_contains_itself() {
    fn depth(
        shape: &'static Struct,
        above: &mut Vec<String>,
        known: &mut BTreeMap<String, usize>,
    ) -> usize {
        let name = home(shape);
        if let Some(&depth) = known.get(&name) {
            return depth;
        }
        assert!(!above.contains(&name), "{name} within itself");
        above.push(name.clone());
        let depth = parts(shape).map(|part| depth(part, above, known)).max();
        above.pop();
        let depth = depth.unwrap_or_default() + 1;
        known.insert(name, depth);
        depth
    }
    let mut known = BTreeMap::new();
    let deepest = built_in_kinds()
        .iter()
        .map(|one| depth(one.shape, &mut Vec::new(), &mut known))
        .max();
    assert!(deepest < Some(20), "{deepest:?}");
}

#[test]
fn names_and_numbers_are_unique_in_a_table() {
    for one in built_in_kinds() {
        let mut shapes = vec![one.shape];
        let mut seen = BTreeSet::new();
        while let Some(shape) = shapes.pop() {
            if !seen.insert(home(shape)) {
                continue;
            }
            shapes.extend(parts(shape));
            let names: BTreeSet<_> = shape.fields.iter().map(|field| field.name).collect();
            assert_eq!(names.len(), shape.fields.len(), "{}", home(shape));
            let own = shape.fields.iter().map(|field| field.number);
            let numbers = own.chain(shape.inline.iter().map(|part| part.number));
            let numbers: Vec<_> = numbers.filter(|&number| number > 0).collect();
            let unique: BTreeSet<_> = numbers.iter().collect();
            assert_eq!(unique.len(), numbers.len(), "{}", home(shape));
        }
    }
}

/// The fields of an inlined struct are those of the outer one, too.
#[test]
fn inlined_fields_are_among_those_of_the_outer_struct() {
    let volume = &core_v1::VOLUME;
    assert_eq!(volume.inline.len(), 1);
    for one in volume.inline[0].shape.fields {
        let field = volume.field(one.name).expect("an inlined field");
        assert_eq!(field.number, 0);
    }
}

#[test]
fn every_field_of_a_hosted_kind_has_a_text() {
    let hosted = KINDS.iter().flat_map(|kind| kind.versions);
    let mut shapes: Vec<_> = hosted.map(|version| version.shape).collect();
    shapes.extend([
        &meta_v1::STATUS,
        &meta_v1::DELETE_OPTIONS,
        &meta_v1::API_GROUP_LIST,
        &meta_v1::API_RESOURCE_LIST,
        &meta_v1::API_VERSIONS,
        &authentication_v1::SELF_SUBJECT_REVIEW,
        &authorization_v1::SELF_SUBJECT_ACCESS_REVIEW,
        &authorization_v1::SELF_SUBJECT_RULES_REVIEW,
        &admissionregistration_v1::VALIDATING_ADMISSION_POLICY,
        &admissionregistration_v1::VALIDATING_ADMISSION_POLICY_BINDING,
    ]);
    let mut seen = BTreeSet::new();
    while let Some(shape) = shapes.pop() {
        if !seen.insert(home(shape)) {
            continue;
        }
        shapes.extend(parts(shape));
        assert!(!docs::of_struct(shape).is_empty(), "{}", home(shape));
        for field in shape.fields {
            let text = docs::of_field(shape, field);
            assert!(!text.is_empty(), "{} {}", home(shape), field.name);
        }
    }
}
