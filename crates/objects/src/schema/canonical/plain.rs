//! Values of which nothing is to be said: each has the type of its field, and no member is unknown or there twice.
//!
//! They can be left out of what is decoded, where nobody reads them, without any effect on errors and problems.

use smallvec::SmallVec;

use super::{Decoder, MAX_OBJECTS, Source, View};
use crate::schema::Type;
use fairgate_gotext::quantity;

/// Maps with more members are decoded.
const FEW_MEMBERS: usize = 16;

impl<'v> Decoder<'v> {
    /// Whether nothing is to be said of a value of this type. It is `false` for some of which nothing is to be said either, such as nulls. Costs
    /// time linear in the size of the value, and allocates nothing for objects of usual size.
    pub(super) fn is_plain<S: Source<'v>>(&mut self, ty: &'static Type, node: S) -> bool {
        let mut objects = self.objects;
        let is_plain = is_plain(ty, node, &mut objects);
        if is_plain {
            self.objects = objects;
        }
        is_plain
    }
}

fn is_plain<'a, S: Source<'a>>(ty: &'static Type, node: S, objects: &mut usize) -> bool {
    match (ty, node.view()) {
        (Type::Text | Type::IntOrString, View::Text(_)) | (Type::Flag, View::Flag(_)) => true,
        (Type::Int32 | Type::IntOrString, View::Number(text)) => text.parse::<i32>().is_ok(),
        (Type::Int64, View::Number(text)) => text.parse::<i64>().is_ok(),
        (Type::Quantity, View::Text(text)) => quantity::is_short(text.trim()),
        (Type::List(list), View::List(mut items)) => {
            items.all(|item| is_plain(&list.item, item, objects))
        }
        (Type::Map(map), View::Object(mut members)) => {
            let mut seen: SmallVec<[&str; FEW_MEMBERS]> = SmallVec::new();
            members.all(|(key, node)| {
                let is_new = seen.len() < FEW_MEMBERS && !seen.contains(&key);
                seen.push(key);
                is_new && is_plain(&map.value, node, objects)
            })
        }
        (Type::Object(shape), View::Object(mut members)) => {
            *objects += 1;
            let mut seen: SmallVec<[&str; FEW_MEMBERS]> = SmallVec::new();
            *objects <= MAX_OBJECTS
                && members.all(|(key, node)| {
                    let field = shape.field(key).filter(|_| !seen.contains(&key));
                    seen.push(key);
                    field.is_some_and(|field| is_plain(&field.ty, node, objects))
                })
        }
        _ => false,
    }
}
