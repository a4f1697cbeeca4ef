//! The values of variables.

use std::sync::Arc;

use crate::value::{CelResult, CelValue};

/// A variable whose fields the host computes when an expression uses them, such as `variables` of a policy.
///
/// It is passed to [`CelProgram::evaluate_lazy`](super::CelProgram::evaluate_lazy). If an expression uses the variable
/// as a whole, all fields are computed, and the value is a map of them.
pub trait CelLazyObject<'a> {
    /// The value of the field `name`; `None` if there is no such field, an error if its value cannot be computed.
    fn field(&self, name: &str) -> Option<CelResult<'a>>;

    /// The names of all fields, in a fixed order.
    fn names(&self) -> Vec<&'a str>;
}

/// The values of an environment's variables. The same bindings can be used for all programs of the environment.
#[derive(Clone, Debug)]
pub struct CelBindings<'a> {
    names: Arc<[Box<str>]>,
    values: Vec<Option<CelValue<'a>>>,
    /// The number of the variable that is a [`CelLazyObject`].
    lazy: Option<u32>,
}

impl<'a> CelBindings<'a> {
    /// Bindings without any values.
    pub(crate) fn new(names: Arc<[Box<str>]>) -> Self {
        let values = vec![None; names.len()];
        Self {
            names,
            values,
            lazy: None,
        }
    }

    /// Sets the value of the variable `name`. Returns `false` if the environment has no such variable.
    pub fn set(&mut self, name: &str, value: CelValue<'a>) -> bool {
        let Some(number) = self.number(name) else {
            return false;
        };
        self.values[number] = Some(value);
        true
    }

    /// These bindings with a value for the variable `name`. A name that the environment does not declare is ignored.
    #[must_use]
    pub fn with(mut self, name: &str, value: CelValue<'a>) -> Self {
        self.set(name, value);
        self
    }

    /// These bindings without a value for the variable `name`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Some(number) = self.number(name) {
            self.values[number] = None;
        }
        self
    }

    /// These bindings with the variable `name` computed on demand, by the [`CelLazyObject`] of each evaluation.
    #[must_use]
    pub fn with_lazy(mut self, name: &str) -> Self {
        let number = self.number(name);
        self.lazy = number.and_then(|number| u32::try_from(number).ok());
        self
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|of| **of == *name)
    }

    /// The value of the variable number `variable`.
    pub(super) fn get(&self, variable: u32) -> Option<&CelValue<'a>> {
        self.values.get(variable as usize)?.as_ref()
    }

    /// Whether the variable number `variable` is computed on demand.
    pub(super) fn is_lazy(&self, variable: u32) -> bool {
        self.lazy == Some(variable)
    }
}
