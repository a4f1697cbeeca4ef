//! Text as Go and the libraries of Kubernetes read and print it.
//!
//! Clients compare messages and show them, and tools parse what is printed, so each function gives what the Go code of kube-apiserver gives
//! for the same text. It is pure, and knows nothing else of fairgate.
//!
//! Not here: JSON, YAML and protobuf, which have a document around the text.

mod duration;
pub mod names;

pub use duration::{GoDuration, TimeQuoted, parse_duration};
