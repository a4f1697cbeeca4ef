//! From text to syntax trees: lexer, parser, macros.

mod ast;
mod macros;

pub use ast::ExprId;
pub use macros::{CelMacro, ExpandMacro, FoldParts, MacroError, MacroExpansion};
