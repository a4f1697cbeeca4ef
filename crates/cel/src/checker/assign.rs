//! Assignability of types, and the substitution of type variables.

use std::cell::Cell;

use crate::types::CelType;

/// The maximum number of steps in types for one expression. Types can be exponentially larger than the expression.
const MAX_WORK: u64 = 5_000_000;

/// The types that type variables stand for, as far as they are known.
#[derive(Debug)]
pub(super) struct Substitutions {
    types: Vec<Option<CelType>>,
    /// The variables that were bound, with their earlier types, so that a failed attempt can be undone.
    undo: Vec<(u32, Option<CelType>)>,
    /// The steps that are left.
    work: Cell<u64>,
}

impl Default for Substitutions {
    fn default() -> Self {
        Self {
            types: Vec::new(),
            undo: Vec::new(),
            work: Cell::new(MAX_WORK),
        }
    }
}

impl Substitutions {
    /// A type variable that stands for nothing yet.
    pub(super) fn fresh(&mut self) -> CelType {
        let number = u32::try_from(self.types.len()).expect("the size of expressions is bounded");
        self.types.push(None);
        CelType::Variable(number)
    }

    /// Whether all steps are used up. The results are then meaningless, and the expression is refused.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work.get() == 0
    }

    /// Uses one step. Returns whether any are left.
    fn step(&self) -> bool {
        let left = self.work.get().saturating_sub(1);
        self.work.set(left);
        left > 0
    }

    fn find(&self, of: &CelType) -> Option<&CelType> {
        match of {
            CelType::Variable(number) => self.types[*number as usize].as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &CelType, to: CelType) {
        if let CelType::Variable(number) = variable {
            let earlier = self.types[*number as usize].replace(to);
            self.undo.push((*number, earlier));
        }
    }

    /// Whether each type of `from` is assignable to the type of `to` at the same position. If not, the variables stay
    /// as they were.
    pub(super) fn assign_all(&mut self, from: &[CelType], to: &[CelType]) -> bool {
        self.undo.clear();
        let fits =
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            while let Some((number, earlier)) = self.undo.pop() {
                self.types[number as usize] = earlier;
            }
        }
        fits
    }

    /// Whether `from` is assignable to `to`. Binds variables if that makes them fit.
    pub(super) fn assign(&mut self, from: &CelType, to: &CelType) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn fits(&mut self, from: &CelType, to: &CelType) -> bool {
        // The result does not matter any more: the expression is refused for its types.
        if !self.step() {
            return true;
        }
        if matches!(to, CelType::Variable(_)) {
            match self.substitute_variable(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, CelType::Variable(_)) {
            return self.substitute_variable(to, from).0;
        }
        if is_dyn_or_error(from) || is_dyn_or_error(to) {
            return true;
        }
        if matches!(from, CelType::Null) {
            return is_nullable(to);
        }
        if matches!(to, CelType::Null) {
            return is_nullable(from);
        }
        match (from, to) {
            (CelType::Type(_), CelType::Type(_)) => true,
            (CelType::List(_), CelType::List(_)) | (CelType::Map(_), CelType::Map(_)) => {
                self.fit_parameters(from, to)
            }
            (CelType::Opaque(a, _), CelType::Opaque(b, _)) => {
                a == b && self.fit_parameters(from, to)
            }
            _ => from == to,
        }
    }

    fn fit_parameters(&mut self, from: &CelType, to: &CelType) -> bool {
        let (from, to) = (from.parameters(), to.parameters());
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    /// Whether `variable` can stand for `of`, and whether it stood for something before.
    fn substitute_variable(&mut self, of: &CelType, variable: &CelType) -> (bool, bool) {
        if of == variable {
            return (true, true);
        }
        if let Some(known) = self.find(variable).cloned() {
            if *of == known {
                return (true, true);
            }
            if self.fits(of, &known) {
                let general = most_general(of, &known).clone();
                // A variable that stood for a type which contains it would make an endless type.
                if self.absent_from(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent_from(variable, of) {
            self.bind(variable, of.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether `variable` does not occur in `of`.
    fn absent_from(&self, variable: &CelType, of: &CelType) -> bool {
        if variable == of {
            return false;
        }
        if !self.step() {
            return true;
        }
        if let Some(known) = self.find(of) {
            return self.absent_from(variable, known);
        }
        of.parameters()
            .iter()
            .all(|of| self.absent_from(variable, of))
    }

    /// `of` with its variables replaced by the types that they stand for. With `all`, unbound variables become `dyn`.
    pub(super) fn substitute(&self, of: &CelType, all: bool) -> CelType {
        if !self.step() {
            return CelType::Dyn;
        }
        if let Some(known) = self.find(of) {
            return self.substitute(known, all);
        }
        match of {
            CelType::Variable(_) | CelType::Parameter(_) if all => CelType::Dyn,
            _ if of.parameters().is_empty() => of.clone(),
            _ => {
                let parameters = of.parameters().iter();
                of.with_parameters(parameters.map(|of| self.substitute(of, all)).collect())
            }
        }
    }
}

/// `of` with the parameters of an overload replaced by the types in `names`.
pub(super) fn instantiate(of: &CelType, names: &[(&str, CelType)]) -> CelType {
    match of {
        CelType::Parameter(name) => {
            let found = names.iter().find(|(of, _)| **of == **name);
            found.map_or(CelType::Dyn, |(_, to)| to.clone())
        }
        _ if of.parameters().is_empty() => of.clone(),
        _ => {
            let parameters = of.parameters().iter();
            of.with_parameters(parameters.map(|of| instantiate(of, names)).collect())
        }
    }
}

/// Adds the names of the parameters in `of` to `names`, each once.
pub(super) fn parameter_names<'t>(of: &'t CelType, names: &mut Vec<&'t str>) {
    if let CelType::Parameter(name) = of
        && !names.contains(&&**name)
    {
        names.push(name);
    }
    for of in of.parameters() {
        parameter_names(of, names);
    }
}

pub(super) fn is_dyn_or_error(of: &CelType) -> bool {
    matches!(of, CelType::Dyn | CelType::Error)
}

/// Whether `null` is assignable to the type. The original keeps the rules of its legacy type checker.
fn is_nullable(of: &CelType) -> bool {
    matches!(
        of,
        CelType::Null
            | CelType::Opaque(..)
            | CelType::Object(_)
            | CelType::Duration
            | CelType::Timestamp
    )
}

/// The more general of two types that fit each other.
pub(super) fn most_general<'t>(a: &'t CelType, b: &'t CelType) -> &'t CelType {
    if is_equal_or_less_specific(a, b) {
        a
    } else {
        b
    }
}

fn is_equal_or_less_specific(a: &CelType, b: &CelType) -> bool {
    let open = |of: &CelType| matches!(of, CelType::Dyn | CelType::Variable(_));
    if open(a) {
        return true;
    }
    if open(b) {
        return false;
    }
    match (a, b) {
        (CelType::Type(_), CelType::Type(_)) => true,
        (CelType::Opaque(name, _), CelType::Opaque(other, _)) if name != other => false,
        (CelType::Opaque(..), CelType::Opaque(..))
        | (CelType::List(_), CelType::List(_))
        | (CelType::Map(_), CelType::Map(_)) => {
            let (a, b) = (a.parameters(), b.parameters());
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| is_equal_or_less_specific(a, b))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_leaves_variables_as_they_were() {
        let mut of = Substitutions::default();
        let variable = of.fresh();
        let from = [CelType::Int, CelType::Int];
        assert!(!of.assign_all(&from, &[variable.clone(), CelType::String]));
        assert_eq!(of.substitute(&variable, false), variable);
        assert!(of.assign_all(&from, &[variable.clone(), CelType::Int]));
        assert_eq!(of.substitute(&variable, false), CelType::Int);
        assert!(!of.assign(&CelType::String, &variable));
    }

    #[test]
    fn a_variable_never_stands_for_a_type_that_contains_it() {
        let mut of = Substitutions::default();
        let variable = of.fresh();
        assert!(!of.assign(&CelType::list(variable.clone()), &variable));
    }

    #[test]
    fn null_fits_types_of_objects_and_times_only() {
        let mut of = Substitutions::default();
        assert!(of.assign(&CelType::Null, &CelType::Timestamp));
        assert!(of.assign(&CelType::optional(CelType::Int), &CelType::Null));
        assert!(!of.assign(&CelType::Null, &CelType::Int));
        assert!(!of.assign(&CelType::Null, &CelType::list(CelType::Int)));
    }
}
