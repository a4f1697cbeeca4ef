//! Type-checks comprehensions.

use super::{Checker, Expr, ExprId, FoldLocals, Local};
use crate::types::CelType;

impl<'c> Checker<'c> {
    pub(super) fn check_fold(&mut self, id: ExprId) {
        let Expr::Fold(fold) = self.ast.expr(id) else {
            return;
        };
        self.check(fold.range);
        self.check(fold.init);
        let range = self.type_of(fold.range);
        let range = self.substitutions.substitute(&range, false);
        let (first, second) =
            self.types_of_variables(fold.range, &range, fold.second_variable.is_some());
        let accumulated = self.type_of(fold.init);
        let accumulator = self.enter(&fold.accumulator, accumulated.clone());
        let variable = self.enter(&fold.variable, first);
        let second_variable = fold
            .second_variable
            .as_deref()
            .map(|name| self.enter(name, second));
        self.check(fold.condition);
        self.need_type(fold.condition, &CelType::Bool);
        self.check(fold.step);
        self.need_type(fold.step, &accumulated);
        self.locals.pop();
        if second_variable.is_some() {
            self.locals.pop();
        }
        self.check(fold.result);
        self.locals.pop();
        let result = self.type_of(fold.result);
        let result = self.substitutions.substitute(&result, false);
        self.set_type(id, result);
        let locals = FoldLocals {
            accumulator,
            variable,
            second_variable,
        };
        self.folds.insert(id, locals);
    }

    /// Declares a variable of a comprehension. Returns its number.
    fn enter(&mut self, name: &'c str, of: CelType) -> u32 {
        let number = self.local_count;
        self.local_count += 1;
        self.locals.push(Local { name, number, of });
        number
    }

    /// The types of the variables of a comprehension over a range; the second is used only if there are two.
    fn types_of_variables(&mut self, id: ExprId, range: &CelType, two: bool) -> (CelType, CelType) {
        let parameters = range.parameters();
        match range {
            CelType::List(_) if two => (CelType::Int, parameters[0].clone()),
            CelType::List(_) => (parameters[0].clone(), CelType::Error),
            CelType::Map(_) => (parameters[0].clone(), parameters[1].clone()),
            CelType::Dyn | CelType::Error | CelType::Variable(_) => {
                self.substitutions.assign(&CelType::Dyn, range);
                (CelType::Dyn, CelType::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(id, message);
                (CelType::Error, CelType::Error)
            }
        }
    }

    fn need_type(&mut self, id: ExprId, expected: &CelType) {
        let found = self.type_of(id);
        if !self.substitutions.assign(expected, &found) {
            self.mismatch(id, expected, &found);
        }
    }
}
