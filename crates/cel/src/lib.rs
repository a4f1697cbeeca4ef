//! The Common Expression Language (CEL), as cel-go 0.26 and Kubernetes use it.
//!
//! The crate is pure: no I/O, no clock, no threads, no knowledge of Kubernetes objects. It keeps the patterns that it
//! compiled last, 4 MB at most, so that equal ones are compiled once. No expression and no input
//! can cause a panic, a stack overflow or unbounded work: parsing, checking and evaluating are limited in depth, size
//! and cost, and so are the patterns in expressions ([`PatternBudget`]). It is usable by itself: of fairgate it needs only
//! `fairgate-gotext`, text as Go reads and prints it, which needs nothing else of it. In comments, *the original* means cel-go and
//! the CEL libraries of Kubernetes.
//!
//! ```
//! use fairgate_cel::{CelEnvironment, CelType, CelValue, CelJson, library};
//!
//! // An environment says which variables and libraries expressions may use. It is built once.
//! let environment = CelEnvironment::builder()
//!     .library(&library::OptionalTypes)
//!     .variable("object", CelType::Dyn)
//!     .build();
//!
//! // A program is compiled once. Any number of threads may evaluate it.
//! let program = environment
//!     .compile("object.spec.replicas <= 5 && object.metadata.?labels['app'].hasValue()")
//!     .unwrap();
//! assert_eq!(program.result_type(), &CelType::Bool);
//!
//! // Values borrow from the JSON text.
//! let text = r#"{"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 3}}"#;
//! let object: CelJson = serde_json::from_str(text).unwrap();
//! let bindings = environment.bindings().with("object", CelValue::json(&object));
//! let evaluation = program.evaluate(&bindings);
//! assert_eq!(evaluation.result, Ok(CelValue::Bool(true)));
//! assert_eq!(evaluation.cost, 9);
//!
//! // Errors are shown with their position.
//! let error = environment.compile("object.spec.replicas + 'a' > params").unwrap_err();
//! assert!(error.to_string().starts_with(
//!     "ERROR: <input>:1:30: undeclared reference to 'params' (in container '')\n | object.spec"
//! ));
//! ```
//!
//! # What is not supported
//!
//! - Protocol buffer messages. Types with declared fields ([`CelObjectType`]) describe maps that the host provides; a
//!   literal of such a type compiles, but fails when it is evaluated.
//! - Evaluating expressions that were not type-checked.
//! - Unknown values, that is, partial evaluation.
//!
//! An interrupt always ends the evaluation. In the original, an operator such as `||` may absorb it. An evaluation that
//! does much work that its cost does not count ends after [`DEFAULT_WORK_LIMIT`] steps. The original has no such limit.
//!
//! # Adding functions
//!
//! A library is a type that implements [`CelLibrary`]: it declares functions ([`CelFunctionDecl`]) with their
//! overloads ([`CelOverload`]), opaque types ([`CelOpaque`], [`CelType::opaque`]), names of types, macros
//! ([`CelMacro`]) and constants. Each library is one file in `src/library/`.
//!
//! - A function is an `Fn(&[CelValue]) -> CelResult`. Before a call, the arguments are compared with the types of the
//!   overload; as in the original, only the first entry of a list or map is looked at. An `unguarded` overload accepts
//!   any values.
//! - A call costs what the overload declares, if the checker found exactly this overload; otherwise what the function
//!   declares; otherwise 1. If a cost function returns `None`, the next of these applies. [`CelValue::cost_size`] is
//!   the original's `actualSize`.
//! - A function that may take much longer than its cost says counts its steps ([`CelFunction::call_within`]). Reading
//!   strings, bytes and opaque values ([`CelOpaque::work`]) is counted for all functions.
//! - The checker selects the overload. If the types are not known before the program runs, the overloads are tried in
//!   the order of their declaration, and a call costs what the function declares.
//! - A constant argument can be prepared once, for example a pattern: [`CelFunctionDecl::prepare`].
//! - Values of the host, such as an authorizer, are opaque values whose functions downcast them with
//!   [`CelValue::as_opaque`].

mod checker;
mod declarations;
mod document;
mod environment;
pub mod library;
mod pattern_budget;
mod program;
mod short_texts;
mod source;
mod syntax;
mod types;
mod unicode;
mod value;

pub use declarations::{
    CelCostFn, CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelObjectType,
    CelOverload, CheckedCall, PrepareCall, ValidateCall,
};
pub use document::{CelJson, JsonObject};
pub use environment::{CelCompileError, CelEnvironment, CelEnvironmentBuilder};
pub use pattern_budget::{PatternBudget, PatternLimit, PatternUse};
pub use program::{
    CelAbsence, CelBindings, CelEvaluation, CelLazyObject, CelOrigins, CelPartialValue, CelProgram,
    CelReads, CelStep, CelVariable, DEFAULT_COST_LIMIT, EvaluationLimits,
};
pub use short_texts::equal_texts;
pub use source::{CelIssue, CelIssues, CodePosition};
pub use syntax::{CelMacro, ExpandMacro, ExprId, FoldParts, MacroError, MacroExpansion};
pub use types::{CelType, ParametersOfType};
pub use value::{
    CelBytes, CelDuration, CelError, CelErrorKind, CelList, CelListIter, CelMap, CelOpaque,
    CelOptional, CelResult, CelStr, CelTimestamp, CelValue, CelWork, DEFAULT_WORK_LIMIT, MAX_DEPTH,
    MAX_NODES,
};

/// The examples of the README are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
