//! Descriptions of the types and fields of hosted kinds, for `kubectl explain`: texts of our own, by the package and
//! name of the type.
//!
//! The generated tables have no texts. A new hosted kind needs an entry below this module for each of its types.
//!
//! Not here: types that no hosted kind has.

mod admission;
mod flowcontrol;
mod meta;
mod policy;
mod reviews;

use super::{Field, Struct, TypePackage};

/// The texts of one type: its package, name, text, and a text for each field.
type TypeTexts = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The description of a type; empty if there is none.
pub fn of_struct(shape: &Struct) -> &'static str {
    texts(shape).map_or("", |&(_, _, text, _)| text)
}

/// The description of a field of a type; empty if there is none.
pub fn of_field(shape: &Struct, field: &Field) -> &'static str {
    let fields = texts(shape).map_or(&[][..], |&(_, _, _, fields)| fields);
    let found = fields.iter().find(|(name, _)| *name == field.name);
    found.map_or("", |(_, text)| text)
}

fn texts(shape: &Struct) -> Option<&'static TypeTexts> {
    let wanted = match shape.home {
        TypePackage::Meta => "meta",
        TypePackage::Api { package, .. } => package,
        TypePackage::GroupVersion => return None,
    };
    let all = [
        meta::TEXTS,
        reviews::TEXTS,
        flowcontrol::TEXTS,
        policy::TEXTS,
        admission::TEXTS,
    ];
    all.into_iter()
        .flatten()
        .find(|(package, name, ..)| (*package, *name) == (wanted, shape.name))
}
