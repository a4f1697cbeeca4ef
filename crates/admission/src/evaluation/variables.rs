//! The variables of a policy: computed when they are first used, and then kept for the rest of the part.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/cel/composition.go` and `apiserver/pkg/cel/lazy`.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

use fairgate_cel::{
    CelBindings, CelError, CelErrorKind, CelLazyObject, CelResult, EvaluationLimits,
};
use smallvec::SmallVec;

use crate::environment::RESERVED;
use crate::expression::PolicyExpression;
use crate::observer::{EvaluationObserver, ExpressionRole, ExpressionStep};

/// The maximum nesting depth of an expression together with the variables that it uses. The original has no limit, and
/// grows its stack instead.
const MAX_HEIGHT: u32 = 600;

/// What each variable adds to this depth besides the depth of its own expression.
const HEIGHT_OF_VARIABLE: u32 = 8;

/// The variables of a policy in one part of its evaluation.
pub(super) struct PolicyVariables<'c, 'e> {
    /// Sorted by name.
    variables: &'c [(String, PolicyExpression)],
    bindings: &'e CelBindings<'c>,
    interrupted: &'e dyn Fn() -> bool,
    observer: Option<&'e dyn EvaluationObserver>,
    values: SmallVec<[OnceCell<CelResult<'c>>; 4]>,
    /// What was spent on variables since [`take_cost`](Self::take_cost).
    cost: Cell<u64>,
    /// The steps that are left of the part, for variables and expressions.
    work: Cell<u64>,
    /// The depth that the evaluations in progress have reached.
    height: Cell<u32>,
    has_begun: Cell<bool>,
}

impl<'c, 'e> PolicyVariables<'c, 'e> {
    pub(super) fn new(
        variables: &'c [(String, PolicyExpression)],
        bindings: &'e CelBindings<'c>,
        interrupted: &'e dyn Fn() -> bool,
        observer: Option<&'e dyn EvaluationObserver>,
        work: u64,
    ) -> Self {
        Self {
            variables,
            bindings,
            interrupted,
            observer,
            values: variables.iter().map(|_| OnceCell::new()).collect(),
            cost: Cell::new(0),
            work: Cell::new(work),
            height: Cell::new(0),
            has_begun: Cell::new(false),
        }
    }

    /// Asked before each evaluation but the first: a short one does not look at the interrupt itself, and there may be any
    /// number of them.
    ///
    /// # Errors
    ///
    /// What the evaluation ends with when the host has it stop.
    pub(super) fn check_interrupt(&self) -> Result<(), CelError> {
        let is_first = !self.has_begun.replace(true);
        if !is_first && (self.interrupted)() {
            return Err(CelError::new("operation interrupted"));
        }
        Ok(())
    }

    /// What computing variables has cost since the last call.
    pub(super) fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    /// The limits of the next evaluation.
    pub(super) fn limits(&self) -> EvaluationLimits<'e> {
        let all = EvaluationLimits::default();
        EvaluationLimits {
            work: all.work.min(self.work.get()),
            interrupted: Some(self.interrupted),
            ..all
        }
    }

    /// Takes the steps of an evaluation from those that are left.
    pub(super) fn take_work(&self, steps: u64) {
        self.work.set(self.work.get().saturating_sub(steps));
    }

    /// Sets the nesting depth of the expression that is evaluated next.
    pub(super) fn begin(&self, height: u32) {
        self.height.set(height);
    }

    /// The value of a variable and its cost, without that of other variables.
    fn compute(&self, name: &str, expression: &'c PolicyExpression) -> (CelResult<'c>, u64) {
        let text = |how: &str, why: &dyn std::fmt::Display| {
            format!("composited variable \"{name}\" fails to {how}: {why}")
        };
        // An operator absorbs the error of a variable, unless a limit of ours is the reason.
        let fails = |error: &CelError| match error.kind() {
            CelErrorKind::OwnLimit => CelError::own_limit(text("evaluate", error)),
            _ => CelError::new(text("evaluate", error)),
        };
        let program = match &expression.program {
            Ok(program) => program,
            Err(problem) if problem.is_own_limit => {
                return (Err(CelError::own_limit(text("compile", problem))), 0);
            }
            Err(problem) => return (Err(CelError::new(text("compile", problem))), 0),
        };
        let before = self.height.get();
        let height = before
            .saturating_add(program.height())
            .saturating_add(HEIGHT_OF_VARIABLE);
        if height > MAX_HEIGHT {
            let error = CelError::own_limit("variables nest too deep");
            return (Err(fails(&error)), 0);
        }
        if let Err(error) = self.check_interrupt() {
            return (Err(fails(&error)), 0);
        }
        self.height.set(height);
        let evaluation = program.evaluate_lazy(self.bindings, self, &self.limits());
        self.take_work(evaluation.work);
        self.height.set(before);
        let value = evaluation.result.map_err(|error| fails(&error));
        (value, evaluation.cost)
    }
}

impl<'c> CelLazyObject<'c> for PolicyVariables<'c, '_> {
    fn field(&self, name: &str) -> Option<CelResult<'c>> {
        // Nearly all names are plain.
        let name = if name.as_bytes().windows(2).any(|two| two == b"__") {
            unescaped(name)?
        } else {
            Cow::Borrowed(name)
        };
        let at = self
            .variables
            .binary_search_by(|(of, _)| of.as_str().cmp(&name))
            .ok()?;
        if let Some(known) = self.values[at].get() {
            return Some(known.clone());
        }
        let (value, cost) = self.compute(&name, &self.variables[at].1);
        self.cost.set(self.cost.get().saturating_add(cost));
        if let Some(observer) = self.observer {
            let error = value.as_ref().err().map(ToString::to_string);
            observer.expression(&ExpressionStep {
                role: ExpressionRole::Variable,
                index: 0,
                name: &name,
                result: value
                    .as_ref()
                    .map_err(|_| error.as_deref().unwrap_or_default()),
                cost,
            });
        }
        // It is already set if the variable uses itself, which is possible when several variables have the same name.
        let _ = self.values[at].set(value.clone());
        Some(value)
    }

    fn names(&self) -> Vec<&'c str> {
        self.variables
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

/// Decodes a field name whose special characters are escaped, such as `__dot__`; `None` if it has an unknown escape.
fn unescaped(name: &str) -> Option<Cow<'_, str>> {
    if !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, escape, after)) = next_escape(rest) {
        text.push_str(before);
        text.push_str(match escape {
            "underscores" => "__",
            "dot" => ".",
            "dash" => "-",
            "slash" => "/",
            word if RESERVED.contains(&word) && word.len() + 4 == name.len() => word,
            _ => return None,
        });
        rest = after;
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// The first two underscores, one or more other characters, two underscores: what is before, between and after.
fn next_escape(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(found) = text[from..].find("__") {
        let begin = from + found;
        let inside = &text[begin + 2..];
        let length = inside.find('_').unwrap_or(inside.len());
        if length > 0 && inside[length..].starts_with("__") {
            let after = &inside[length + 2..];
            return Some((&text[..begin], &inside[..length], after));
        }
        from = begin + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unescaped_as_the_original_does() {
        assert_eq!(unescaped("plain").as_deref(), Some("plain"));
        assert_eq!(unescaped("a__b").as_deref(), Some("a__b"));
        assert_eq!(unescaped("a__dot__b").as_deref(), Some("a.b"));
        assert_eq!(unescaped("a___dash__b").as_deref(), Some("a_-b"));
        assert_eq!(unescaped("__in__").as_deref(), Some("in"));
        assert_eq!(unescaped("a__in__"), None);
        assert_eq!(unescaped("a__other__b"), None);
        assert_eq!(
            unescaped("a__underscores__b__slash__c").as_deref(),
            Some("a__b/c")
        );
    }
}
