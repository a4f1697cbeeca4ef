//! Text as Go and the libraries of Kubernetes read and print it.
//!
//! Clients compare messages and show them, and tools parse what is printed, so each function gives what the Go code of kube-apiserver gives
//! for the same text. It is pure, and knows nothing else of fairgate.
//!
//! Not here: JSON, YAML and protobuf, which have a document around the text.

mod duration;
pub mod float;
mod later_characters;
mod media_type;
pub mod names;
mod number;
pub mod quantity;
mod quote;
pub mod time;
mod utf8;

pub use duration::{DurationError, GoDuration, parse_duration, parse_nanoseconds};
pub use media_type::{LONGEST as LONGEST_MEDIA_TYPE, media_type};
pub use number::{NumberError, atoi, parse_int, parse_uint};
pub use quote::{Quoted, QuotedBytes, QuotedChar, TimeQuoted, is_printable, write_escaped};
pub use utf8::{push_utf8, utf8_text};
