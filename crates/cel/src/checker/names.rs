//! Identifiers and field selections.

use super::{Checker, Expr, ExprId, Reference, is_dyn_or_error};
use crate::types::CelType;
use crate::value::CelValue;

impl Checker<'_> {
    /// The fully qualified names that `name` may stand for, the innermost namespace first.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_prefix('.') {
            return vec![absolute.to_owned()];
        }
        let mut candidates = Vec::new();
        let mut namespace = &*self.scope.container;
        while !namespace.is_empty() {
            candidates.push(format!("{namespace}.{name}"));
            namespace = namespace.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        candidates.push(name.to_owned());
        candidates
    }

    /// What a name refers to, and its type. A leading dot only says that no namespace is to be tried: variables of
    /// comprehensions are found with it, too.
    fn lookup(&self, name: &str) -> Option<(CelType, Reference)> {
        if self.scope.container.is_empty() {
            return self.declared(name.strip_prefix('.').unwrap_or(name));
        }
        let candidates = self.candidates(name);
        candidates.iter().find_map(|name| self.declared(name))
    }

    /// What a fully qualified name refers to, the innermost variable of a comprehension first.
    pub(super) fn declared(&self, name: &str) -> Option<(CelType, Reference)> {
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            return Some((local.of.clone(), Reference::Local(local.number)));
        }
        self.lookup_full(name)
    }

    fn lookup_full(&self, name: &str) -> Option<(CelType, Reference)> {
        if let Some((number, of)) = self.scope.variables.get(name) {
            return Some((of.clone(), Reference::Variable(*number)));
        }
        if let Some((of, value)) = self.scope.declarations.constants.get(name) {
            return Some((of.clone(), Reference::Constant(value.clone())));
        }
        if let Some(of) = self.scope.declarations.types.get(name) {
            let value = CelValue::type_value(of.clone());
            return Some((CelType::type_of(of.clone()), Reference::Constant(value)));
        }
        let of = self.scope.checked_only(name)?;
        Some((CelType::type_of(of), Reference::Undefined(name.into())))
    }

    /// Makes names of types of the variables whose value is a type: the original takes every name of such a type for one.
    pub(super) fn name_types(&mut self) {
        let named = self.references.iter().filter_map(|(id, reference)| {
            let (Reference::Local(_), Expr::Ident(name)) = (reference, self.ast.expr(*id)) else {
                return None;
            };
            let of = self.substitutions.substitute(&self.type_of(*id), true);
            let name = name.strip_prefix('.').unwrap_or(name);
            matches!(of, CelType::Type(_)).then(|| match self.lookup_full(name) {
                Some((_, constant @ Reference::Constant(_))) => (*id, constant),
                _ => (*id, Reference::Undefined(name.into())),
            })
        });
        let named: Vec<_> = named.collect();
        self.references.extend(named);
    }

    pub(super) fn check_ident(&mut self, id: ExprId) {
        let Expr::Ident(name) = self.ast.expr(id) else {
            return;
        };
        match self.lookup(name) {
            Some((of, reference)) => {
                self.set_type(id, of);
                self.references.insert(id, reference);
            }
            None => self.undeclared(id, name),
        }
    }

    pub(super) fn check_select(&mut self, id: ExprId) {
        let Expr::Select {
            operand,
            field,
            test_only,
        } = self.ast.expr(id)
        else {
            return;
        };
        if let Some(name) = self.ast.qualified_name(id)
            && let Some((of, reference)) = self.lookup(&name)
        {
            self.set_type(id, of);
            self.references.insert(id, reference);
            return;
        }
        let mut of = self.check_field(id, *operand, field, false);
        if *test_only {
            of = CelType::Bool;
        }
        let of = self.substitutions.substitute(&of, false);
        self.set_type(id, of);
    }

    /// The type of `operand.field`, reported at `id`.
    pub(super) fn check_field(
        &mut self,
        id: ExprId,
        operand: ExprId,
        field: &str,
        optional: bool,
    ) -> CelType {
        self.check(operand);
        let operand_type = self.type_of(operand);
        let operand_type = self.substitutions.substitute(&operand_type, false);
        let (target, was_optional) = match operand_type.optional_of() {
            Some(inside) => (inside.clone(), true),
            None => (operand_type, false),
        };
        let of = match &target {
            CelType::Map(_) => target.parameters()[1].clone(),
            CelType::Object(name) => self.object_field(id, name, field),
            CelType::Variable(_) => {
                self.substitutions.assign(&CelType::Dyn, &target);
                CelType::Dyn
            }
            _ => {
                if !is_dyn_or_error(&target) {
                    let message = format!("type '{target}' does not support field selection");
                    self.report(id, message);
                }
                CelType::Dyn
            }
        };
        if was_optional || optional {
            return CelType::optional(of);
        }
        of
    }

    fn object_field(&mut self, id: ExprId, object: &str, field: &str) -> CelType {
        let Some(object) = self.scope.objects.get(object) else {
            let message = format!("unexpected failed resolution of '{object}'");
            self.report(id, message);
            return CelType::Error;
        };
        let Some(of) = object.fields.get(field) else {
            self.report(id, format!("undefined field '{field}'"));
            return CelType::Error;
        };
        of.clone()
    }
}
