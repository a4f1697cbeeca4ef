//! The function libraries, one file for each.

mod conversions;
mod macros;
mod optionals;
mod re2;
mod standard;
mod times;

pub use macros::{StandardMacros, TwoVariableComprehensions};
pub use optionals::OptionalTypes;
pub use standard::StandardLibrary;
