//! Environments: which variables, functions and settings expressions are compiled with.

use std::fmt;
use std::sync::Arc;

use crate::checker::{CheckerScope, check};
use crate::declarations::{CelLibrary, CelObjectType};
use crate::library::{StandardLibrary, StandardMacros};
use crate::pattern_budget::{PatternBudget, PatternLimit};
use crate::program::{CelBindings, CelProgram, CelVariable};
use crate::source::CelIssues;
use crate::syntax::{CelMacro, parse};
use crate::types::CelType;
use crate::value::CelError;

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CelCompileError {
    /// The expression has syntax errors or type errors.
    Issues(CelIssues),
    /// A function does not accept a constant in the expression, such as an invalid pattern; or the expression uses
    /// `timestamp` or `duration` as the name of a type.
    Program(CelError),
}

impl fmt::Display for CelCompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issues(issues) => issues.fmt(f),
            Self::Program(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CelCompileError {}

/// The variables, functions and settings that expressions are compiled with. Building one is expensive; compiling with
/// it is not.
#[derive(Clone, Debug)]
pub struct CelEnvironment {
    /// Shared with the environments that were cloned from this one, until a field is declared.
    scope: Arc<CheckerScope>,
    variables: Arc<[Box<str>]>,
}

impl CelEnvironment {
    /// A builder of an environment that starts with the standard library and its macros.
    pub fn builder() -> CelEnvironmentBuilder {
        let mut builder = CelEnvironmentBuilder {
            scope: CheckerScope {
                cross_type_comparison: true,
                ..CheckerScope::default()
            },
            variables: Vec::new(),
        };
        builder.add(&StandardLibrary);
        builder.add(&StandardMacros);
        builder
    }

    /// A builder that starts from this environment, for expressions that see more variables. It is cheap unless
    /// libraries are added, because the declarations are shared until then.
    pub fn extend(&self) -> CelEnvironmentBuilder {
        CelEnvironmentBuilder {
            scope: CheckerScope::clone(&self.scope),
            variables: self.variables.to_vec(),
        }
    }

    /// Adds a field to the type `object`, for expressions that are compiled from now on. A type that the environment
    /// does not declare is ignored. It is cheap if no other environment shares the type.
    pub fn declare_field(&mut self, object: &str, field: &str, of: CelType) {
        if !self.scope.objects.contains_key(object) {
            return;
        }
        let scope = Arc::make_mut(&mut self.scope);
        if let Some(known) = scope.objects.get_mut(object) {
            let known = Arc::make_mut(known);
            known.fields.insert(field.into(), of);
        }
    }

    /// Parses, checks and compiles an expression.
    ///
    /// The length of the expression (100 000 code points) and its depth (250) are limited, which bounds the time of
    /// compiling.
    ///
    /// # Errors
    ///
    /// [`CelCompileError`], if the expression has syntax errors, type errors or constants that a function does not
    /// accept, or if its patterns take more than [`PatternLimit::EXPRESSION`].
    pub fn compile(&self, source: &str) -> Result<CelProgram, CelCompileError> {
        self.compile_within(source, &mut PatternBudget::new(PatternLimit::EXPRESSION))
    }

    /// Compiles an expression whose patterns take from a budget, which may be that of several expressions.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile), and if the patterns take more than `budget` allows.
    pub fn compile_within(
        &self,
        source: &str,
        budget: &mut PatternBudget,
    ) -> Result<CelProgram, CelCompileError> {
        let declarations = &self.scope.declarations;
        let ast = parse(source, &declarations.macros, declarations.optional_syntax)
            .map_err(CelCompileError::Issues)?;
        let checked = check(&ast, source, &self.scope, budget).map_err(CelCompileError::Issues)?;
        let variables = self.variables.clone();
        CelProgram::compile(&ast, &checked, declarations, variables, budget)
            .map_err(CelCompileError::Program)
    }

    /// The variable `name`, to bind values to; `None` if the environment does not declare it.
    pub fn variable(&self, name: &str) -> Option<CelVariable> {
        let (number, _) = self.scope.variables.get(name)?;
        Some(CelVariable(*number))
    }

    /// The names of the functions that the environment declares, operators such as `_+_` included, in no particular
    /// order.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let functions = self.scope.declarations.functions.keys();
        functions.map(|name| &**name)
    }

    /// The macros that the environment declares, in no particular order.
    pub fn macros(&self) -> impl Iterator<Item = &CelMacro> {
        self.scope.declarations.macros.values()
    }

    /// Bindings for the variables of this environment, without any values yet.
    pub fn bindings<'a>(&self) -> CelBindings<'a> {
        CelBindings::new(self.variables.clone())
    }
}

/// Builds a [`CelEnvironment`].
#[derive(Clone, Debug)]
pub struct CelEnvironmentBuilder {
    scope: CheckerScope,
    variables: Vec<Box<str>>,
}

impl CelEnvironmentBuilder {
    /// Adds the declarations of a library.
    #[must_use]
    pub fn library(mut self, library: &dyn CelLibrary) -> Self {
        self.add(library);
        self
    }

    fn add(&mut self, library: &dyn CelLibrary) {
        library.declare(Arc::make_mut(&mut self.scope.declarations));
    }

    /// Declares a variable, or changes the type of one. A name with dots, such as `authorizer.requestResource`, is the
    /// name of a single variable.
    #[must_use]
    pub fn variable(mut self, name: &str, of: CelType) -> Self {
        let known = self.scope.variables.get(name).map(|(number, _)| *number);
        let next = u32::try_from(self.variables.len()).unwrap_or(u32::MAX);
        let number = known.unwrap_or(next);
        if known.is_none() {
            self.variables.push(name.into());
        }
        self.scope.variables.insert(name.into(), (number, of));
        self
    }

    /// Declares a type with fields. It replaces an earlier type of the same name.
    #[must_use]
    pub fn object_type(mut self, object: CelObjectType) -> Self {
        let name = object.name.clone();
        self.scope.objects.insert(name, Arc::new(object));
        self
    }

    /// Sets the container: names are looked up in this namespace, then in the namespaces around it.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.scope.container = name.into();
        self
    }

    /// Whether the elements of a list or map literal must be of one type. Off by default.
    #[must_use]
    pub fn homogeneous_literals(mut self, on: bool) -> Self {
        self.scope.homogeneous_literals = on;
        self
    }

    /// Whether literals of durations, timestamps and patterns are checked when an expression is compiled. Off by
    /// default.
    #[must_use]
    pub fn literal_validators(mut self, on: bool) -> Self {
        self.scope.literal_validators = on;
        self
    }

    /// Whether `<`, `<=`, `>` and `>=` accept numbers of different types. On by default.
    #[must_use]
    pub fn cross_type_comparison(mut self, on: bool) -> Self {
        self.scope.cross_type_comparison = on;
        self
    }

    /// Whether basic types, `timestamp` and `duration` count as types with fields, although they have none, as in
    /// Kubernetes. It decides which errors object literals such as `int{a: 1}` cause. Off by default.
    #[must_use]
    pub fn basic_types_are_objects(mut self, on: bool) -> Self {
        self.scope.basic_types_are_objects = on;
        self
    }

    /// Builds the environment.
    pub fn build(self) -> CelEnvironment {
        CelEnvironment {
            scope: Arc::new(self.scope),
            variables: self.variables.into(),
        }
    }
}
