//! Calls: which overloads match the types of the arguments.

use super::assign::{instantiate, parameter_names};
use super::{Checker, Expr, ExprId, Reference};
use crate::declarations::{CelFunctionDecl, CelOverload};
use crate::types::CelType;

/// Overloads for numbers of different types. Environments of Kubernetes before 1.28 do not have them.
const CROSS_TYPE: [&str; 6] = [
    "int64_double",
    "int64_uint64",
    "uint64_double",
    "uint64_int64",
    "double_int64",
    "double_uint64",
];

impl Checker<'_> {
    pub(super) fn check_call(&mut self, id: ExprId) {
        let Expr::Call {
            function,
            target,
            args,
        } = self.ast.expr(id)
        else {
            return;
        };
        if &**function == "_?._" {
            self.check_optional_selection(id, args);
            return;
        }
        for arg in args {
            self.check(*arg);
        }
        match target {
            None => self.check_global_call(id, function, args),
            Some(target) => self.check_member_call(id, function, *target, args),
        }
    }

    fn check_optional_selection(&mut self, id: ExprId, args: &[ExprId]) {
        let (operand, field) = match args {
            [operand, field] => (*operand, *field),
            _ => return,
        };
        let Expr::Literal(field) = self.ast.expr(field) else {
            self.report(id, "unsupported optional field selection");
            return;
        };
        let field = field.as_str().unwrap_or_default();
        let of = self.check_field(id, operand, field, true);
        let of = self.substitutions.substitute(&of, false);
        self.set_type(id, of);
    }

    fn check_global_call(&mut self, id: ExprId, function: &str, args: &[ExprId]) {
        if matches!(function, "_&&_" | "_||_") {
            self.check_logic(id, function, args);
            return;
        }
        match self.function(function).cloned() {
            None => self.undeclared(id, function),
            Some(found) => self.resolve(id, &found, None, args, false),
        }
    }

    fn check_member_call(&mut self, id: ExprId, function: &str, target: ExprId, args: &[ExprId]) {
        // As in cel-go, `a.b(c)` is the function `a.b` if there is one, even if there is a variable `a`.
        if let Some(namespace) = self.ast.qualified_name(target)
            && let Some(found) = self.function(&format!("{namespace}.{function}")).cloned()
        {
            self.resolve(id, &found, None, args, true);
            return;
        }
        self.check(target);
        match self.function(function).cloned() {
            None => self.undeclared(id, function),
            Some(found) => self.resolve(id, &found, Some(target), args, false),
        }
    }

    /// `&&` and `||` take any number of terms.
    fn check_logic(&mut self, id: ExprId, function: &str, args: &[ExprId]) {
        let mut fine = true;
        for arg in args {
            let of = self.type_of(*arg);
            if !self.substitutions.assign(&of, &CelType::Bool) {
                self.mismatch(*arg, &CelType::Bool, &of);
                fine = false;
            }
        }
        self.set_type(id, if fine { CelType::Bool } else { CelType::Error });
        let reference = Reference::Call {
            function: function.into(),
            overloads: [].into(),
            namespaced: false,
        };
        self.references.insert(id, reference);
    }

    fn resolve(
        &mut self,
        id: ExprId,
        function: &CelFunctionDecl,
        target: Option<ExprId>,
        args: &[ExprId],
        namespaced: bool,
    ) {
        let mut types: Vec<_> = target
            .iter()
            .chain(args)
            .map(|of| self.type_of(*of))
            .collect();
        let mut overloads = Vec::new();
        let mut result: Option<CelType> = None;
        for (at, overload) in function.overloads.iter().enumerate() {
            if overload.member != target.is_some() || !self.is_enabled(function, overload) {
                continue;
            }
            let Some(of) = self.apply(overload, &types) else {
                continue;
            };
            overloads.push(at);
            result = Some(match result {
                None => of,
                Some(before) if before.is_dyn() || before == of => before,
                Some(_) => CelType::Dyn,
            });
        }
        let Some(result) = result else {
            for of in &mut types {
                *of = self.substitutions.substitute(of, true);
            }
            let signature = signature(&types, target.is_some());
            let message = format!(
                "found no matching overload for '{}' applied to '{signature}'",
                function.name
            );
            self.report(id, message);
            self.set_type(id, CelType::Error);
            return;
        };
        self.set_type(id, result);
        let reference = Reference::Call {
            function: function.name.clone(),
            overloads: overloads.into(),
            namespaced,
        };
        self.references.insert(id, reference);
    }

    /// The type of the result, if the overload accepts arguments of these types.
    fn apply(&mut self, overload: &CelOverload, types: &[CelType]) -> Option<CelType> {
        let mut names = Vec::new();
        for of in overload.args.iter().chain([&overload.result]) {
            parameter_names(of, &mut names);
        }
        // As in the original, the type variables of an overload are numbered even if it has another number of arguments.
        let names: Vec<_> = names
            .into_iter()
            .map(|name| (name, self.substitutions.fresh()))
            .collect();
        if overload.args.len() != types.len() {
            return None;
        }
        if names.is_empty() {
            let fits = self.substitutions.assign_all(types, &overload.args);
            return fits.then(|| overload.result.clone());
        }
        let args: Vec<_> = overload
            .args
            .iter()
            .map(|of| instantiate(of, &names))
            .collect();
        if !self.substitutions.assign_all(types, &args) {
            return None;
        }
        let result = instantiate(&overload.result, &names);
        Some(self.substitutions.substitute(&result, false))
    }

    fn is_enabled(&self, function: &CelFunctionDecl, overload: &CelOverload) -> bool {
        self.scope.cross_type_comparison
            || !matches!(&*function.name, "_<_" | "_<=_" | "_>_" | "_>=_")
            || !CROSS_TYPE.iter().any(|of| overload.id.ends_with(of))
    }
}

/// The types of a call as messages show them: `target.(args)` or `(args)`.
fn signature(types: &[CelType], member: bool) -> String {
    let texts: Vec<_> = types.iter().map(ToString::to_string).collect();
    match texts.split_first() {
        Some((target, args)) if member => format!("{target}.({})", args.join(", ")),
        _ => format!("({})", texts.join(", ")),
    }
}
