//! JSON in a body that is called YAML, as `kubectl apply --server-side` sends it.
//!
//! Go's library of YAML lets brackets nest as deep as its decoder of JSON does, 10 000 levels. The one here stops at 128. So what is too deep for
//! it is read as JSON, if Go reads the same either way: printable ASCII without escapes and without white space between tokens, integers
//! of at most 18 digits, each key once and none too long for YAML.

use super::super::{
    json::{self, SyntaxError},
    tape::JsonTape,
};
use crate::schema::canonical::{Source, View};

/// The longest key: in YAML the colon of a key has to come within 1024 characters.
const MAX_KEY: usize = 1000;
/// The most digits of a number.
const MAX_DIGITS: usize = 18;

/// What became of a body that nests too deep for the library of YAML.
pub(super) enum DeepYaml<'a> {
    /// It says the same as JSON, whose text this is.
    Json(JsonTape<'a>, &'a [u8]),
    /// It nests deeper than a server takes.
    TooDeep,
    /// It may be read in another way.
    Other,
}

/// Reads a body as JSON that is YAML, too.
pub(super) fn read(body: &[u8]) -> DeepYaml<'_> {
    match json::scan(body) {
        Ok(scanned) => match scanned.plain {
            Some(plain) if !scanned.tape.has_duplicates() && is_alike(scanned.tape.root()) => {
                DeepYaml::Json(scanned.tape, plain)
            }
            _ => DeepYaml::Other,
        },
        Err(SyntaxError::TooDeep(_)) => DeepYaml::TooDeep,
        Err(_) => DeepYaml::Other,
    }
}

/// Whether all keys and numbers are the same in YAML. It recurses as deep as the value nests.
fn is_alike<'a, S: Source<'a>>(value: S) -> bool {
    match value.view() {
        View::Null | View::Flag(_) | View::Text(_) => true,
        View::Number(text) => is_plain_integer(&text),
        View::List(mut items) => items.all(is_alike),
        // `<<` merges in YAML, though not in quotes.
        View::Object(mut members) => {
            members.all(|(key, value)| key.len() <= MAX_KEY && key != "<<" && is_alike(value))
        }
    }
}

fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_zero = text == "0";
    let has_first = digits.bytes().next().is_some_and(|first| first != b'0');
    let is_short = digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_zero || has_first && is_short
}
