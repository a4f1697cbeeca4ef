//! The Common Expression Language (CEL), as cel-go 0.26 and Kubernetes use it.
//!
//! Pure: no I/O, no clock, no threads, and nothing of Kubernetes' objects. Nothing that an expression or its input
//! contains panics, overflows the stack or runs without bound: parsing, checking and evaluating are limited in depth,
//! size and cost.
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
//! // A program is compiled once, and evaluated by as many threads as like.
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
//! // Mistakes are shown with their place.
//! let error = environment.compile("object.spec.replicas + 'a' > params").unwrap_err();
//! assert!(error.to_string().starts_with(
//!     "ERROR: <input>:1:30: undeclared reference to 'params' (in container '')\n | object.spec"
//! ));
//! ```
//!
//! # What is not there
//!
//! Messages of protocol buffers: types with declared fields ([`CelObjectType`]) describe maps that the host gives, and
//! literals of them fail when they are evaluated. Expressions that were not type-checked. Values that are unknown.
//! Interrupting an evaluation ends it, where in the original an operator may absorb that.
//!
//! # Adding functions
//!
//! A library is a type that implements [`CelLibrary`]: it declares functions ([`CelFunctionDecl`]) with their
//! overloads ([`CelOverload`]), opaque types ([`CelOpaque`], [`CelType::opaque`]), names of types, macros
//! ([`CelMacro`]) and constants. Each library is one file in `src/library/`.
//!
//! - A function is a plain `fn(&[CelValue]) -> CelResult`. Its arguments have the types of the overload, looked at as
//!   the original does: of lists and maps only the first entry. An `unguarded` overload takes any values.
//! - Cost: the overload's own, if the checker found exactly this overload; otherwise the function's; otherwise 1. A
//!   cost function that gives `None` passes the question on. [`CelValue::cost_size`] is the original's `actualSize`.
//! - Which overload is meant is decided by the checker. If the types are not known before the program runs, overloads
//!   are tried in the order of their declaration, and a call costs what the function declares.
//! - A constant argument can be prepared once, for example a pattern: [`CelFunctionDecl::prepare`].
//! - Values of the host, such as an authorizer, are opaque values whose functions downcast them with
//!   [`CelValue::as_opaque`].

mod checker;
mod declarations;
mod document;
mod environment;
pub mod library;
mod program;
mod source;
mod syntax;
mod types;
mod value;

pub use declarations::{
    CelCostFn, CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelObjectType,
    CelOverload, CheckedCall, PrepareCall, ValidateCall,
};
pub use document::{CelJson, JsonObject};
pub use environment::{CelCompileError, CelEnvironment, CelEnvironmentBuilder};
pub use program::{
    CelBindings, CelEvaluation, CelLazyObject, CelProgram, DEFAULT_COST_LIMIT, EvaluationLimits,
};
pub use source::{CelIssue, CelIssues, CodePosition};
pub use syntax::{CelMacro, ExpandMacro, ExprId, FoldParts, MacroError, MacroExpansion};
pub use types::{CelType, ParametersOfType};
pub use value::{
    CelBytes, CelDuration, CelError, CelErrorKind, CelList, CelListIter, CelMap, CelOpaque,
    CelOptional, CelResult, CelStr, CelTimestamp, CelValue, MAX_DEPTH, MAX_NODES, go_float,
};
