//! The type checker: finds the types of expressions, resolves variables and overloads, and reports errors.

mod assign;
mod calls;
mod folds;
mod literals;
mod names;
mod objects;

use std::collections::HashMap;
use std::sync::Arc;

use crate::declarations::{CelDeclarations, CelFunctionDecl, CelObjectType};
use crate::pattern_budget::PatternBudget;
use crate::source::{CelIssues, CodePosition};
use crate::syntax::{Ast, Expr, ExprId};
use crate::types::{CelType, MAX_TYPE_SIZE};
use crate::value::CelValue;
use assign::{Substitutions, is_dyn_or_error, most_general};

/// The declarations and settings of an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckerScope {
    /// Shared by the environments that extend one another.
    pub(crate) declarations: Arc<CelDeclarations>,
    /// The number and type of each variable, by name.
    pub(crate) variables: HashMap<Box<str>, (u32, CelType)>,
    /// The types with declared fields, by name.
    pub(crate) objects: HashMap<Arc<str>, Arc<CelObjectType>>,
    /// The namespace that names are looked up in.
    pub(crate) container: Box<str>,
    /// Whether elements of list and map literals must be of one type.
    pub(crate) homogeneous_literals: bool,
    /// Whether literals of durations, times and patterns are checked after the types.
    pub(crate) literal_validators: bool,
    /// Whether numbers of different types can be ordered.
    pub(crate) cross_type_comparison: bool,
    /// Whether basic types count as objects.
    pub(crate) basic_types_are_objects: bool,
}

/// What a node refers to.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// A variable of the environment, by number.
    Variable(u32),
    /// A variable of a comprehension, by number.
    Local(u32),
    /// A type or a named constant.
    Constant(CelValue<'static>),
    /// A type that has this name only where types are checked.
    Undefined(Box<str>),
    /// A function.
    Call {
        function: Arc<str>,
        /// The overloads that match, by their position in the declaration.
        overloads: Box<[usize]>,
        /// Whether the target is the namespace of the function, and not an argument.
        namespaced: bool,
    },
}

/// The numbers of a comprehension's variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldLocals {
    pub(crate) accumulator: u32,
    pub(crate) variable: u32,
    pub(crate) second_variable: Option<u32>,
}

/// A checked expression.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What names, selections and calls refer to.
    pub(crate) references: HashMap<ExprId, Reference>,
    /// The variables of each comprehension.
    pub(crate) folds: HashMap<ExprId, FoldLocals>,
    /// The number of variables of all comprehensions together.
    pub(crate) locals: u32,
    /// The type of the whole expression.
    pub(crate) result: CelType,
}

/// Checks an expression.
///
/// # Errors
///
/// All errors that were found, sorted by position.
pub(crate) fn check(
    ast: &Ast,
    source: &str,
    scope: &CheckerScope,
    budget: &mut PatternBudget,
) -> Result<Checked, CelIssues> {
    let mut checker = Checker {
        ast,
        scope,
        budget,
        issues: CelIssues::new(source),
        types: vec![None; ast.nodes.len()],
        references: HashMap::new(),
        folds: HashMap::new(),
        substitutions: Substitutions::default(),
        locals: Vec::new(),
        local_count: 0,
        too_complex: false,
    };
    checker.check(ast.root);
    if checker.too_complex || checker.substitutions.is_exhausted() {
        let message = "expression has a type that is too complex";
        checker.issues.report(CodePosition::NONE, message);
    }
    if checker.issues.is_empty() {
        // As in cel-go, only literals of an expression without errors of types are looked at.
        literals::validate(&mut checker);
        checker.name_types();
    }
    if !checker.issues.is_empty() {
        checker.issues.sort();
        return Err(checker.issues);
    }
    let result = checker
        .substitutions
        .substitute(&checker.type_of(ast.root), true);
    Ok(Checked {
        references: checker.references,
        folds: checker.folds,
        locals: checker.local_count,
        result,
    })
}

struct Checker<'c> {
    ast: &'c Ast,
    scope: &'c CheckerScope,
    /// What constant patterns may take.
    budget: &'c mut PatternBudget,
    issues: CelIssues,
    types: Vec<Option<CelType>>,
    references: HashMap<ExprId, Reference>,
    folds: HashMap<ExprId, FoldLocals>,
    substitutions: Substitutions,
    /// The variables of comprehensions that are visible, inner ones last.
    locals: Vec<Local<'c>>,
    local_count: u32,
    too_complex: bool,
}

struct Local<'c> {
    name: &'c str,
    number: u32,
    of: CelType,
}

impl Checker<'_> {
    fn check(&mut self, id: ExprId) {
        match self.ast.expr(id) {
            Expr::Error => self.set_type(id, CelType::Error),
            Expr::Literal(value) => {
                let of = literals::type_of_literal(value);
                self.set_type(id, of);
            }
            Expr::Ident(_) => self.check_ident(id),
            Expr::Select { .. } => self.check_select(id),
            Expr::Call { .. } => self.check_call(id),
            Expr::List { .. } => self.check_list(id),
            Expr::Map(_) => self.check_map(id),
            Expr::Object { .. } => self.check_object(id),
            Expr::Fold(_) => self.check_fold(id),
        }
    }

    fn set_type(&mut self, id: ExprId, of: CelType) {
        let of = if of.size() > MAX_TYPE_SIZE {
            self.too_complex = true;
            CelType::Dyn
        } else {
            of
        };
        self.types[id.index()] = Some(of);
    }

    fn type_of(&self, id: ExprId) -> CelType {
        let known = self.types[id.index()].as_ref();
        known.cloned().unwrap_or(CelType::Error)
    }

    fn report(&mut self, id: ExprId, message: impl Into<String>) {
        let offset = self.ast.offset(id);
        self.issues.report(CodePosition::at(offset), message);
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        let container = &self.scope.container;
        let message = format!("undeclared reference to '{name}' (in container '{container}')");
        self.report(id, message);
        self.set_type(id, CelType::Error);
    }

    fn mismatch(&mut self, id: ExprId, expected: &CelType, found: &CelType) {
        let message = format!("expected type '{expected}' but found '{found}'");
        self.report(id, message);
    }

    /// The common type of the elements of a literal: that of the elements before, joined with that of the next one.
    fn join(&mut self, before: Option<CelType>, next: CelType) -> CelType {
        match before {
            None => next,
            Some(before) if self.substitutions.assign(&before, &next) => {
                most_general(&before, &next).clone()
            }
            Some(_) => CelType::Dyn,
        }
    }

    /// The type inside an optional element or entry; an error if its value is not optional.
    fn unwrap_optional(&mut self, id: ExprId, of: CelType) -> CelType {
        if let Some(inside) = of.optional_of() {
            return inside.clone();
        }
        if !of.is_dyn() {
            let expected = CelType::optional(of.clone());
            self.mismatch(id, &expected, &of);
        }
        of
    }

    fn check_list(&mut self, id: ExprId) {
        let Expr::List { elements, optional } = self.ast.expr(id) else {
            return;
        };
        let mut of = None;
        for (at, element) in elements.iter().enumerate() {
            self.check(*element);
            let mut element_type = self.type_of(*element);
            if optional.get(at) == Some(&true) {
                element_type = self.unwrap_optional(*element, element_type);
            }
            of = Some(self.join(of, element_type));
        }
        let of = of.unwrap_or_else(|| self.substitutions.fresh());
        self.set_type(id, CelType::list(of));
    }

    fn check_map(&mut self, id: ExprId) {
        let Expr::Map(entries) = self.ast.expr(id) else {
            return;
        };
        let (mut key_type, mut value_type) = (None, None);
        for entry in entries {
            self.check(entry.key);
            let of = self.type_of(entry.key);
            key_type = Some(self.join(key_type, of));
            self.check(entry.value);
            let mut of = self.type_of(entry.value);
            if entry.optional {
                of = self.unwrap_optional(entry.value, of);
            }
            value_type = Some(self.join(value_type, of));
        }
        let key_type = key_type.unwrap_or_else(|| self.substitutions.fresh());
        let value_type = value_type.unwrap_or_else(|| self.substitutions.fresh());
        self.set_type(id, CelType::map(key_type, value_type));
    }

    /// The function that a name refers to in the container.
    fn function(&self, name: &str) -> Option<&CelFunctionDecl> {
        let functions = &self.scope.declarations.functions;
        let candidates = self.candidates(name);
        candidates
            .iter()
            .find_map(|name| Some(&**functions.get(&**name)?))
    }
}
