//! What expressions may use: functions with overloads, types, macros and constants.
//!
//! A library is a type that implements [`CelLibrary`] and declares its functions, types, macros and constants:
//!
//! ```
//! use fairgate_cel::{
//!     CelDeclarations, CelEnvironment, CelError, CelFunctionDecl, CelLibrary, CelOverload, CelResult, CelType,
//!     CelValue,
//! };
//!
//! struct Greetings;
//!
//! fn greet<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
//!     let name = args[0].as_str().ok_or_else(CelError::no_such_overload)?;
//!     Ok(format!("hello {name}").into())
//! }
//!
//! impl CelLibrary for Greetings {
//!     fn declare(&self, to: &mut CelDeclarations) {
//!         to.function(
//!             CelFunctionDecl::new("greet")
//!                 // The cost of a call of any overload; without it a call costs 1.
//!                 .cost(|args, _result| Some(args[0].cost_size()))
//!                 .overload(CelOverload::member(
//!                     "string_greet",
//!                     [CelType::String],
//!                     CelType::String,
//!                     greet,
//!                 )),
//!         );
//!     }
//! }
//!
//! let environment = CelEnvironment::builder().library(&Greetings).build();
//! let program = environment.compile("'cel'.greet()").unwrap();
//! let bindings = environment.bindings();
//! let evaluation = program.evaluate(&bindings);
//! assert_eq!(evaluation.result, Ok("hello cel".into()));
//! assert_eq!(evaluation.cost, 3);
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::pattern_budget::PatternBudget;
use crate::syntax::{Ast, CelMacro, Expr, ExprId, MacroError};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue, CelWork, DEFAULT_WORK_LIMIT};

/// The implementation of a function. The target of a member call is the first argument.
///
/// Functions and closures of this signature implement it. An implementation must not block, and its work must be
/// bounded by the cost that its overload declares, or by steps of [`CelWork`].
pub trait CelFunction: Send + Sync {
    /// Calls the function. Arguments are never errors; their types are those of the overload, unless it is unguarded.
    ///
    /// # Errors
    ///
    /// The error becomes the value of the call. Its message is shown to the author of the expression.
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a>;

    /// Calls it with a bound on its work. Only for functions that may take much longer than a step for each unit of
    /// their cost and for each few bytes of their arguments: they [`burn`](CelWork::burn) steps for the rest.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), and when the work is used up.
    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        let _ = work;
        self.call(args)
    }
}

impl<F> CelFunction for F
where
    F: for<'a> Fn(&[CelValue<'a>]) -> CelResult<'a> + Send + Sync,
{
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        self(args)
    }
}

/// A function that counts its steps.
pub(crate) struct Metered<F>(pub(crate) F);

impl<F> CelFunction for Metered<F>
where
    F: for<'a> Fn(&[CelValue<'a>], &mut CelWork<'_>) -> CelResult<'a> + Send + Sync,
{
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        // A caller without a bound gets one all the same.
        (self.0)(args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))
    }

    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        (self.0)(args, work)
    }
}

/// The cost of a call, given its arguments and its result. `None` if the function does not say; the cost is then that
/// of the next level: overload, function, 1.
///
/// An argument or a result that is an error is passed as `null`.
pub type CelCostFn = fn(args: &[CelValue<'_>], result: &CelValue<'_>) -> Option<u64>;

/// How the cost of a call is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CostRule {
    Function(CelCostFn),
    /// The same where it may be negative, by the arguments alone.
    Signed(fn(args: &[CelValue<'_>]) -> i64),
    /// By all parts of the first argument, however deep they are.
    Traversal,
}

/// Makes the implementation for calls in which an argument is a constant, such as a pattern that is compiled once.
/// `None` if there is nothing to prepare. What patterns take is taken from the budget.
///
/// # Errors
///
/// If the function does not accept the constant. The expression then does not compile.
pub type PrepareCall = fn(
    constant: &CelValue<'_>,
    budget: &mut PatternBudget,
) -> Result<Option<Arc<dyn CelFunction>>, CelError>;

/// Checks a call whose types are known, and returns the errors in it.
pub type ValidateCall = fn(&CheckedCall<'_>) -> Vec<MacroError>;

/// A call whose types are known.
pub struct CheckedCall<'c> {
    pub(crate) ast: &'c Ast,
    pub(crate) types: &'c dyn Fn(ExprId) -> CelType,
    pub(crate) id: ExprId,
    pub(crate) args: &'c [ExprId],
}

impl CheckedCall<'_> {
    /// The call itself, where errors in the whole call are reported.
    pub fn id(&self) -> ExprId {
        self.id
    }

    /// The arguments; the target of a member call is the first of them.
    pub fn args(&self) -> &[ExprId] {
        self.args
    }

    /// The value of the expression `id`, if it is a literal.
    pub fn literal(&self, id: ExprId) -> Option<&CelValue<'static>> {
        match self.ast.expr(id) {
            Expr::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The elements of the expression `id`, if it is a list literal.
    pub fn elements(&self, id: ExprId) -> Option<&[ExprId]> {
        match self.ast.expr(id) {
            Expr::List { elements, .. } => Some(elements),
            _ => None,
        }
    }

    /// The static type of the expression `id`.
    pub fn type_of(&self, id: ExprId) -> CelType {
        (self.types)(id)
    }
}

impl fmt::Debug for CheckedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedCall")
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

/// One signature of a function.
#[derive(Clone)]
pub struct CelOverload {
    pub(crate) id: Arc<str>,
    pub(crate) member: bool,
    pub(crate) args: Vec<CelType>,
    pub(crate) result: CelType,
    pub(crate) cost: Option<CostRule>,
    pub(crate) guarded: bool,
    pub(crate) function: Option<Arc<dyn CelFunction>>,
}

impl CelOverload {
    /// A signature for calls of the form `function(args)`; `id` is unique in an environment.
    pub fn global(
        id: &str,
        args: impl Into<Vec<CelType>>,
        result: CelType,
        function: impl CelFunction + 'static,
    ) -> Self {
        Self {
            function: Some(Arc::new(function)),
            ..Self::declared(id, args, result)
        }
    }

    /// A signature for calls of the form `args[0].function(args[1], …)`; `id` is unique in an environment.
    pub fn member(
        id: &str,
        args: impl Into<Vec<CelType>>,
        result: CelType,
        function: impl CelFunction + 'static,
    ) -> Self {
        Self {
            member: true,
            ..Self::global(id, args, result, function)
        }
    }

    /// A signature that only the checker knows; the evaluator has the function built in.
    pub(crate) fn declared(id: &str, args: impl Into<Vec<CelType>>, result: CelType) -> Self {
        Self {
            id: id.into(),
            member: false,
            args: args.into(),
            result,
            cost: None,
            guarded: true,
            function: None,
        }
    }

    /// Sets the cost of calls for which the checker finds exactly this overload. It takes precedence over the
    /// function's cost.
    #[must_use]
    pub fn cost(mut self, cost: CelCostFn) -> Self {
        self.cost = Some(CostRule::Function(cost));
        self
    }

    /// The same with a cost that may be negative.
    #[must_use]
    pub(crate) fn signed_cost(mut self, cost: fn(args: &[CelValue<'_>]) -> i64) -> Self {
        self.cost = Some(CostRule::Signed(cost));
        self
    }

    /// Accepts arguments of other types than declared; the function itself has to reject them.
    #[must_use]
    pub fn unguarded(mut self) -> Self {
        self.guarded = false;
        self
    }

    /// Whether this overload accepts the arguments.
    #[inline]
    pub(crate) fn accepts(&self, args: &[CelValue<'_>]) -> bool {
        args.len() == self.args.len()
            && (!self.guarded || args.iter().zip(&self.args).all(|(arg, of)| is_of(arg, of)))
    }
}

impl fmt::Debug for CelOverload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CelOverload")
            .field("id", &self.id)
            .field("args", &self.args)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

/// Whether a value is of a type. As in the original, only the first entry of a list or map is looked at.
fn is_of(value: &CelValue<'_>, of: &CelType) -> bool {
    match (of, value) {
        (CelType::Dyn | CelType::Parameter(_), _)
        | (CelType::String, CelValue::String(_))
        | (CelType::Int, CelValue::Int(_))
        | (CelType::Bool, CelValue::Bool(_)) => true,
        (CelType::List(_), CelValue::List(list)) => {
            let element = of.element().expect("a list has one parameter");
            list.get(0).is_none_or(|first| is_of(&first, element))
        }
        (CelType::Map(_), CelValue::Map(map)) => match (map.entry_at(0), of.parameters()) {
            (Some((key, value)), [key_type, value_type]) => {
                is_of(&key, key_type) && is_of(&value, value_type)
            }
            _ => true,
        },
        _ => of.runtime_name() == value.type_name(),
    }
}

/// A function: a name and its overloads.
#[derive(Clone, Debug)]
pub struct CelFunctionDecl {
    pub(crate) name: Arc<str>,
    pub(crate) overloads: Vec<CelOverload>,
    pub(crate) cost: Option<CostRule>,
    pub(crate) prepare: Option<(usize, PrepareCall)>,
    pub(crate) singleton: bool,
    pub(crate) validate: Option<ValidateCall>,
    pub(crate) mixed_literals: bool,
    pub(crate) one_by_one: bool,
}

impl CelFunctionDecl {
    /// The function `name`, which may have dots (`sets.contains`).
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            overloads: Vec::new(),
            cost: None,
            prepare: None,
            singleton: false,
            validate: None,
            mixed_literals: false,
            one_by_one: false,
        }
    }

    /// Adds an overload. If the checker cannot select one, the overloads are tried in this order at run time.
    #[must_use]
    pub fn overload(mut self, overload: CelOverload) -> Self {
        self.overloads.push(overload);
        self
    }

    /// Sets the cost of calls of all overloads. A later declaration of the function without a cost keeps it.
    #[must_use]
    pub fn cost(mut self, cost: CelCostFn) -> Self {
        self.cost = Some(CostRule::Function(cost));
        self
    }

    /// Calls cost what walking over their first argument costs.
    pub(crate) fn traversal_cost(mut self) -> Self {
        self.cost = Some(CostRule::Traversal);
        self
    }

    /// States that all overloads have the same implementation, which itself rejects types that it does not accept.
    #[must_use]
    pub fn singleton(mut self) -> Self {
        self.singleton = true;
        self
    }

    /// Checks each call when an expression is compiled, in environments with
    /// [`literal_validators`](crate::CelEnvironmentBuilder::literal_validators).
    #[must_use]
    pub fn validate(mut self, validate: ValidateCall) -> Self {
        self.validate = Some(validate);
        self
    }

    /// Allows list and map literals of mixed types inside calls, also in environments with
    /// [`homogeneous_literals`](crate::CelEnvironmentBuilder::homogeneous_literals).
    #[must_use]
    pub fn mixed_literals(mut self) -> Self {
        self.mixed_literals = true;
        self
    }

    /// Ends a call at an argument that is an error and not the last one: later arguments are not evaluated, and the
    /// call costs nothing. Otherwise a call with two arguments may evaluate both of them.
    #[must_use]
    pub fn one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }

    /// Prepares calls whose argument number `argument`, from 0 and including the target, is a constant.
    #[must_use]
    pub fn prepare(mut self, argument: usize, prepare: PrepareCall) -> Self {
        self.prepare = Some((argument, prepare));
        self
    }

    /// Calls the first overload that accepts the arguments.
    pub(crate) fn dispatch<'a>(
        &self,
        args: &[CelValue<'a>],
        work: &mut CelWork<'_>,
    ) -> CelResult<'a> {
        for overload in &self.overloads {
            if let Some(function) = &overload.function
                && (overload.accepts(args))
            {
                return function.call_within(args, work);
            }
        }
        Err(CelError::no_such_call(&self.name, args))
    }
}

/// A type with declared fields; values of it are maps.
#[derive(Clone, Debug)]
pub struct CelObjectType {
    pub(crate) name: Arc<str>,
    pub(crate) fields: HashMap<Box<str>, CelType>,
}

impl CelObjectType {
    /// The type `name` without fields.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            fields: HashMap::new(),
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, of: CelType) -> Self {
        self.fields.insert(name.into(), of);
        self
    }
}

/// A set of functions, types and macros that an environment can be built from.
pub trait CelLibrary {
    /// Adds the declarations of this library to `to`.
    fn declare(&self, to: &mut CelDeclarations);
}

/// What the libraries of an environment declare.
#[derive(Clone, Debug, Default)]
pub struct CelDeclarations {
    /// Shared with the programs that call them.
    pub(crate) functions: HashMap<Arc<str>, Arc<CelFunctionDecl>>,
    pub(crate) types: HashMap<Box<str>, CelType>,
    pub(crate) constants: HashMap<Box<str>, (CelType, CelValue<'static>)>,
    pub(crate) macros: HashMap<(Box<str>, usize, bool), CelMacro>,
    pub(crate) optional_syntax: bool,
}

impl CelDeclarations {
    /// Declares a function, or more overloads of one. An overload of the same identifier replaces the earlier one.
    pub fn function(&mut self, function: CelFunctionDecl) {
        let Some(known) = self.functions.get_mut(&function.name) else {
            self.functions
                .insert(function.name.clone(), Arc::new(function));
            return;
        };
        let known = Arc::make_mut(known);
        known.cost = function.cost.or(known.cost);
        known.prepare = function.prepare.or(known.prepare);
        known.singleton |= function.singleton;
        known.validate = function.validate.or(known.validate);
        known.mixed_literals |= function.mixed_literals;
        known.one_by_one |= function.one_by_one;
        for overload in function.overloads {
            match known.overloads.iter_mut().find(|of| of.id == overload.id) {
                Some(same) => *same = overload,
                None => known.overloads.push(overload),
            }
        }
    }

    /// Declares a macro. It replaces an earlier macro with the same name and number of arguments that is called in the
    /// same way, on a target or not.
    pub fn macro_call(&mut self, of: CelMacro) {
        let key = (of.name.clone(), of.args, of.member);
        self.macros.insert(key, of);
    }

    /// Declares the name of a type, so that expressions can write `type(x) == name`.
    pub fn type_name(&mut self, of: CelType) {
        self.types.insert(of.runtime_name().into(), of);
    }

    /// Declares a named constant.
    pub fn constant(&mut self, name: &str, of: CelType, value: CelValue<'static>) {
        self.constants.insert(name.into(), (of, value));
    }

    /// Lets expressions use `a.?b`, `a[?b]`, `[?a]` and `{?a: b}`.
    pub fn enable_optional_syntax(&mut self) {
        self.optional_syntax = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_entry_of_a_list_is_compared_with_the_type() {
        let list = CelValue::list(vec![CelValue::Int(1), CelValue::from("a")]).unwrap();
        assert!(is_of(&list, &CelType::list(CelType::Int)));
        assert!(!is_of(&list, &CelType::list(CelType::String)));
        assert!(is_of(&list, &CelType::list(CelType::parameter("T"))));
        let empty = CelValue::list(Vec::new()).unwrap();
        assert!(is_of(&empty, &CelType::list(CelType::String)));
        assert!(is_of(
            &CelValue::Optional(None),
            &CelType::optional(CelType::Int)
        ));
        assert!(!is_of(&CelValue::Int(1), &CelType::Uint));
    }
}
