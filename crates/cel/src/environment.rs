//! Environments: which variables, functions and settings expressions are compiled with.

use std::fmt;
use std::sync::Arc;

use crate::checker::{CheckerScope, check};
use crate::declarations::{CelLibrary, CelObjectType};
use crate::library::{StandardLibrary, StandardMacros};
use crate::program::{CelBindings, CelProgram};
use crate::source::CelIssues;
use crate::syntax::parse;
use crate::types::CelType;
use crate::value::CelError;

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CelCompileError {
    /// It does not parse, or its types do not fit.
    Issues(CelIssues),
    /// A constant in it is one that a function does not take, such as a pattern.
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

/// What expressions are compiled with. Building one is costly; compiling with it is not.
#[derive(Clone, Debug)]
pub struct CelEnvironment {
    scope: CheckerScope,
    variables: Arc<[Box<str>]>,
}

impl CelEnvironment {
    /// An environment with the standard library and its macros, to which more is added.
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

    /// A builder that starts from this environment: for expressions that see more variables. It costs little, unless
    /// libraries are added.
    pub fn extend(&self) -> CelEnvironmentBuilder {
        CelEnvironmentBuilder {
            scope: self.scope.clone(),
            variables: self.variables.to_vec(),
        }
    }

    /// Adds a field to the type `object`, for expressions that are compiled from now on; a type that the environment has
    /// not is ignored. It costs little if no other environment shares the type.
    pub fn declare_field(&mut self, object: &str, field: &str, of: CelType) {
        if let Some(known) = self.scope.objects.get_mut(object) {
            let known = Arc::make_mut(known);
            known.fields.insert(field.into(), of);
        }
    }

    /// Parses, checks and compiles an expression.
    ///
    /// Its length is bounded (100 000 code points), its depth (250), and with them the time this takes.
    ///
    /// # Errors
    ///
    /// What is wrong with the expression.
    pub fn compile(&self, source: &str) -> Result<CelProgram, CelCompileError> {
        let declarations = &self.scope.declarations;
        let ast = parse(source, &declarations.macros, declarations.optional_syntax)
            .map_err(CelCompileError::Issues)?;
        let checked = check(&ast, source, &self.scope).map_err(CelCompileError::Issues)?;
        CelProgram::compile(&ast, &checked, declarations, self.variables.clone())
            .map_err(CelCompileError::Program)
    }

    /// Room for the values of this environment's variables.
    pub fn bindings<'a>(&self) -> CelBindings<'a> {
        CelBindings::new(self.variables.clone())
    }
}

/// Puts an environment together.
#[derive(Clone, Debug)]
pub struct CelEnvironmentBuilder {
    scope: CheckerScope,
    variables: Vec<Box<str>>,
}

impl CelEnvironmentBuilder {
    /// Adds what a library declares.
    #[must_use]
    pub fn library(mut self, library: &dyn CelLibrary) -> Self {
        self.add(library);
        self
    }

    fn add(&mut self, library: &dyn CelLibrary) {
        library.declare(Arc::make_mut(&mut self.scope.declarations));
    }

    /// Declares a variable. A name with dots is one variable, whatever its parts mean.
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

    /// Declares a type with fields.
    #[must_use]
    pub fn object_type(mut self, object: CelObjectType) -> Self {
        let name = object.name.clone();
        self.scope.objects.insert(name, Arc::new(object));
        self
    }

    /// The namespace that names are looked up in, inner ones first.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.scope.container = name.into();
        self
    }

    /// Whether elements of a list or map literal must be of one type. Not unless asked for.
    #[must_use]
    pub fn homogeneous_literals(mut self, on: bool) -> Self {
        self.scope.homogeneous_literals = on;
        self
    }

    /// Whether literals of durations, times and patterns are checked when an expression is compiled. Not unless asked
    /// for.
    #[must_use]
    pub fn literal_validators(mut self, on: bool) -> Self {
        self.scope.literal_validators = on;
        self
    }

    /// Whether `<` and the like take numbers of different types. They do unless asked otherwise.
    #[must_use]
    pub fn cross_type_comparison(mut self, on: bool) -> Self {
        self.scope.cross_type_comparison = on;
        self
    }

    /// The environment.
    pub fn build(self) -> CelEnvironment {
        CelEnvironment {
            scope: self.scope,
            variables: self.variables.into(),
        }
    }
}
