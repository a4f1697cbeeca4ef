//! Values as Go prints them, for messages that clients show and compare.
//!
//! `value` are `%v`, `%#v`, `%T` and `%s`, `json` is what `encoding/json` does that `serde_json` does not.
//!
//! Not here: text (`fairgate_gotext`), the names that Go types of a table have (`schema::canonical`), and JSON bodies
//! ([`crate::codec::json`]).

mod json;
mod value;

pub use self::json::escape_html;
pub(crate) use self::{
    json::json,
    value::{GoSource, Plain, PlainList, PlainMap, PlainText, type_name, type_name_as_text},
};
