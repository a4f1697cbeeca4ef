//! From text to syntax trees: the lexer, the parser and the expansion of macros.

mod ast;
mod lexer;
mod literals;
mod macros;
mod parser;

pub use ast::ExprId;
pub use macros::{CelMacro, ExpandMacro, FoldParts, MacroError, MacroExpansion};

pub(crate) use ast::{Ast, Expr, Fold, MapEntry, children};
pub(crate) use macros::OLD_ACCUMULATOR;
pub(crate) use parser::parse;
