//! Values and text as Go prints them, for messages that clients show and compare.
//!
//! `quote` is `%q`, `value` are `%v`, `%#v`, `%T` and `%s`, `json` is what `encoding/json` does that
//! `serde_json` does not. `text` is a range over a string, `media_type` is `mime.ParseMediaType`.
//!
//! Not here: the names that Go types of a table have (`schema::canonical`), and JSON bodies
//! ([`crate::codec::json`]).

mod json;
mod later_characters;
mod media_type;
mod quote;
mod text;
mod value;

pub use self::{
    json::escape_html,
    media_type::media_type,
    quote::{Quoted, is_printable},
    text::{push_utf8, text},
};
pub(crate) use self::{
    json::{float, json},
    quote::QuotedChar,
    value::{Plain, PlainList, PlainMap, PlainText, source, type_name, type_name_as_text},
};
