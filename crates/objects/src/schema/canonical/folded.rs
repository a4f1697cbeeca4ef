//! JSON within an object that Kubernetes reads with Go's `encoding/json`, such as annotations, and not with the reader of bodies.
//!
//! Keys match fields whatever the case of their letters, no object has a type of its own, and the text of a quantity is what is
//! between its quotes, with all escapes. What a field becomes that is given twice depends on the capacity of Go's slices, so that
//! is not found out.
//!
//! Source: Go `encoding/json` (`fold.go`, and `object` in `decode.go`).

use serde_json::{Map, Value};

use super::{Decoder, EmptyValues, Source, Struct, TypeError, VERSION, View, complete_with};

/// It is not known what Kubernetes reads: a field is given twice, or there are more than [`super::MAX_OBJECTS`] objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsureReading;

/// Brings `raw` into canonical form for `shape`. `None` if Kubernetes cannot read it either.
///
/// Costs time and memory linear in the size of `raw`.
///
/// # Errors
///
/// [`UnsureReading`].
pub(crate) fn decode_folded<'v, S: Source<'v>>(
    shape: &'static Struct,
    raw: S,
) -> Result<Option<Value>, UnsureReading> {
    let mut decoder = Decoder {
        version: VERSION,
        folds_keys: true,
        ..Decoder::default()
    };
    let mut object = Map::new();
    let read = match raw.view() {
        View::Null => Ok(()),
        View::Object(members) => decoder.object::<S>(shape, members, &mut object),
        _ => return Ok(None),
    };
    match (read, decoder.first) {
        (Err(TypeError::TooManyObjects), _) => Err(UnsureReading),
        (Err(_), _) | (_, Some(_)) => Ok(None),
        (Ok(()), None) if decoder.repeats_field => Err(UnsureReading),
        (Ok(()), None) => {
            complete_with(shape, &mut object, EmptyValues::Null);
            Ok(Some(Value::Object(object)))
        }
    }
}

/// The field that a key matches which is not its name.
pub(super) fn folded_field(shape: &Struct, key: &str) -> Option<usize> {
    // No other characters fold to letters of ASCII than these two, and names are ASCII.
    let letters = key.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    });
    let is_folded = |name: &str| letters.clone().eq(name.to_ascii_lowercase().chars());
    let mut fields = shape.fields.iter();
    fields.position(|field| is_folded(field.name))
}
