//! How much an evaluation may do besides what cost counts.
//!
//! The original's cost leaves out a good part of the work: constants, `&&`, `||` and `?:` are free, a text costs a
//! tenth of its length or nothing, a list of empty lists costs nothing to walk over, and printing a value into an error
//! is free however large the value is. So each evaluation has a second budget, counted in steps of a few nanoseconds.

use std::fmt::{self, Write};

use super::print::{ValuePrinter, print_value};
use super::{CelError, CelOpaque, CelValue};

/// The interrupt is looked at once in so many steps: at most about 0.1 ms.
const STEPS_BETWEEN_LOOKS: u64 = 10_000;

/// The steps that one evaluation may take besides three for each unit of its cost, unless
/// [`EvaluationLimits`](crate::EvaluationLimits) says otherwise.
///
/// A step is what some nanoseconds suffice for: a part of the program evaluated, an element visited, two numbers
/// compared, a few bytes read or written. A million take about 20 ms. An expression of an ordinary policy takes one or
/// two steps for each unit of its cost and so never needs any of these; comparing two objects of 1.5 MB, which costs
/// next to nothing, takes some hundred thousand. What ends here repeats such work again and again.
pub const DEFAULT_WORK_LIMIT: u64 = 1_000_000;

/// The steps that each unit of cost allows.
const STEPS_PER_COST: u64 = 3;

/// The steps that an evaluation may still take. Functions whose cost does not bound their work count them:
/// [`CelFunction::call_within`](crate::CelFunction::call_within).
pub struct CelWork<'i> {
    /// Steps until the interrupt is looked at.
    slice: u64,
    /// Steps after those.
    rest: u64,
    /// Cost whose steps are not among them yet.
    charged: u64,
    limit: u64,
    interrupted: Option<&'i dyn Fn() -> bool>,
}

impl<'i> CelWork<'i> {
    /// A budget of `limit` steps. `interrupted` is asked now and then; `true` ends the work.
    #[inline]
    pub fn new(limit: u64, interrupted: Option<&'i dyn Fn() -> bool>) -> Self {
        let slice = limit.min(STEPS_BETWEEN_LOOKS);
        Self {
            slice,
            rest: limit - slice,
            charged: 0,
            limit,
            interrupted,
        }
    }

    /// The steps that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        let allowed = self.charged.saturating_mul(STEPS_PER_COST);
        self.slice.saturating_add(self.rest).saturating_add(allowed)
    }

    /// The steps that were taken of the limit: those that the cost did not allow.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.limit.saturating_sub(self.left())
    }

    /// Adds the steps that a cost allows.
    #[inline]
    pub(crate) fn allow_for(&mut self, cost: u64) {
        self.charged = self.charged.saturating_add(cost);
    }

    /// Whether so many steps can be taken without a look at the interrupt.
    #[inline]
    pub(crate) fn has_at_once(&self, steps: u64) -> bool {
        self.slice >= steps
    }

    /// Takes `steps` from the budget, before or while they are done.
    ///
    /// # Errors
    ///
    /// When fewer are left, or the host interrupts the evaluation. No operator absorbs these errors.
    #[inline]
    pub fn burn(&mut self, steps: u64) -> Result<(), CelError> {
        match self.slice.checked_sub(steps) {
            Some(left) => {
                self.slice = left;
                Ok(())
            }
            None => self.next_slice(steps),
        }
    }

    #[cold]
    fn next_slice(&mut self, steps: u64) -> Result<(), CelError> {
        if self.interrupted.is_some_and(|interrupted| interrupted()) {
            return Err(CelError::interrupted());
        }
        let left = self.left().checked_sub(steps);
        self.charged = 0;
        let Some(left) = left else {
            (self.slice, self.rest) = (0, 0);
            return Err(CelError::work_limit());
        };
        self.slice = left.min(STEPS_BETWEEN_LOOKS);
        self.rest = left - self.slice;
        Ok(())
    }

    /// An error whose text shows values, each after the text beside it, and ends with `end`. Values may be large, so
    /// that printing them takes steps; if these do not suffice, that is the error.
    pub(crate) fn error(&mut self, parts: &[(&str, &CelValue<'_>)], end: &str) -> CelError {
        let mut printer = WorkPrinter {
            text: String::new(),
            work: self,
            failed: None,
        };
        // Printing fails only where the printer does, which keeps the error.
        let _ = parts
            .iter()
            .try_for_each(|(before, value)| {
                printer.write_str(before)?;
                print_value(value, &mut printer)
            })
            .and_then(|()| printer.write_str(end));
        match printer.failed {
            Some(error) => error,
            None => CelError::new(printer.text),
        }
    }
}

impl fmt::Debug for CelWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CelWork")
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

/// Text that grows as long as the budget lasts.
struct WorkPrinter<'w, 'i> {
    text: String,
    work: &'w mut CelWork<'i>,
    failed: Option<CelError>,
}

impl WorkPrinter<'_, '_> {
    fn burn(&mut self, steps: u64) -> fmt::Result {
        self.work.burn(steps).map_err(|error| {
            self.failed.get_or_insert(error);
            fmt::Error
        })
    }
}

impl Write for WorkPrinter<'_, '_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.burn(4 + bytes(part.len()))?;
        self.text.push_str(part);
        Ok(())
    }
}

impl ValuePrinter for WorkPrinter<'_, '_> {
    fn before_opaque(&mut self, value: &dyn CelOpaque) -> fmt::Result {
        self.burn(value.work())
    }
}

/// The steps of finding an entry of a map by its key.
pub(crate) const LOOKUP: u64 = 3;

/// The steps of reading or copying so many bytes.
#[inline]
pub(crate) fn bytes(count: usize) -> u64 {
    count as u64 / 32
}

impl CelValue<'_> {
    /// The steps of reading a text, or the whole of an opaque value; none for all others.
    #[inline]
    pub(crate) fn reading_work(&self) -> u64 {
        match self {
            Self::String(text) => bytes(text.len()),
            Self::Bytes(of) => bytes(of.len()),
            Self::Opaque(value) => value.work(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::CelErrorKind;

    #[test]
    fn a_budget_is_used_up_to_the_last_step() {
        for limit in [0, 1, 9_999, 10_000, 10_001, 25_000] {
            let mut work = CelWork::new(limit, None);
            for _ in 0..limit {
                work.burn(1).unwrap();
            }
            assert_eq!(work.left(), 0);
            work.burn(0).unwrap();
            let error = work.burn(1).unwrap_err();
            assert_eq!(error.kind(), CelErrorKind::OwnLimit);
            let mut work = CelWork::new(limit, None);
            assert!(work.burn(limit).is_ok());
            assert!(CelWork::new(limit, None).burn(limit + 1).is_err());
        }
    }

    #[test]
    fn cost_allows_steps() {
        let mut work = CelWork::new(10, None);
        work.allow_for(100);
        work.burn(305).unwrap();
        assert_eq!((work.left(), work.taken()), (5, 5));
        work.allow_for(1);
        assert_eq!((work.left(), work.taken()), (8, 2));
        assert!(work.burn(9).is_err());
        assert_eq!(work.taken(), 10);
    }

    #[test]
    fn the_interrupt_is_looked_at_between_slices() {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let mut work = CelWork::new(1_000_000, Some(&interrupted));
        let done = (0..1_000_000).take_while(|_| work.burn(1).is_ok()).count();
        // The step that asks belongs to no slice.
        assert_eq!((done, asked.get()), (30_002, 3));
    }

    #[test]
    fn what_is_printed_is_bounded() {
        let list = CelValue::list(vec![CelValue::from("x"); 1_000]).unwrap();
        let mut work = CelWork::new(1_000, None);
        let error = work.error(&[("odd: ", &list)], "");
        assert_eq!(error.kind(), CelErrorKind::OwnLimit);
        let mut work = CelWork::new(1_000, None);
        let error = work.error(
            &[("key ", &CelValue::Int(5)), (" of ", &CelValue::Null)],
            "!",
        );
        assert_eq!(error.message(), "key 5 of 0!");
    }
}
