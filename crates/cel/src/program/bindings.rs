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

/// A variable of an environment: binding a value to it needs no search for its name.
///
/// It is that of [`CelEnvironment::variable`](crate::CelEnvironment::variable), and of environments that declare the same
/// variables before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CelVariable(pub(crate) u32);

/// How many values bindings hold without allocating.
const INLINE: usize = 8;

/// The values of an environment's variables. The same bindings can be used for all programs of the environment.
///
/// Making bindings allocates nothing if the environment has up to eight variables.
#[derive(Clone, Debug)]
pub struct CelBindings<'a> {
    names: Arc<[Box<str>]>,
    /// The values of the first variables, and of all others.
    first: [Option<CelValue<'a>>; INLINE],
    others: Vec<Option<CelValue<'a>>>,
    /// The number of the variable that is a [`CelLazyObject`].
    lazy: Option<u32>,
}

impl<'a> CelBindings<'a> {
    /// Bindings without any values.
    pub(crate) fn new(names: Arc<[Box<str>]>) -> Self {
        let others = vec![None; names.len().saturating_sub(INLINE)];
        Self {
            names,
            first: [const { None }; INLINE],
            others,
            lazy: None,
        }
    }

    /// Sets the value of the variable `name`. Returns `false` if the environment has no such variable.
    pub fn set(&mut self, name: &str, value: CelValue<'a>) -> bool {
        let Some(number) = self.number(name) else {
            return false;
        };
        if let Some(place) = self.place(number) {
            *place = Some(value);
        }
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
        if let Some(place) = self.number(name).and_then(|number| self.place(number)) {
            *place = None;
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

    /// Sets or removes the value of `variable`. One that the environment does not have is ignored.
    #[inline]
    pub fn bind(&mut self, variable: CelVariable, value: Option<CelValue<'a>>) {
        if let Some(place) = self.place(variable.0 as usize) {
            *place = value;
        }
    }

    /// Has `variable` computed on demand, by the [`CelLazyObject`] of each evaluation.
    pub fn bind_lazily(&mut self, variable: CelVariable) {
        self.lazy = Some(variable.0);
    }

    #[inline]
    fn place(&mut self, number: usize) -> Option<&mut Option<CelValue<'a>>> {
        match number.checked_sub(INLINE) {
            None => self.first.get_mut(number),
            Some(beyond) => self.others.get_mut(beyond),
        }
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|of| **of == *name)
    }

    /// The value of the variable number `variable`.
    #[inline]
    pub(super) fn get(&self, variable: u32) -> Option<&CelValue<'a>> {
        let number = variable as usize;
        let value = match number.checked_sub(INLINE) {
            None => self.first.get(number),
            Some(beyond) => self.others.get(beyond),
        };
        value?.as_ref()
    }

    /// Whether the variable number `variable` is computed on demand.
    #[inline]
    pub(super) fn is_lazy(&self, variable: u32) -> bool {
        self.lazy == Some(variable)
    }
}
