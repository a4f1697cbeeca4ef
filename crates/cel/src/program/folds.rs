//! Comprehensions.

use std::mem;

use super::INTERRUPT_CHECK_FREQUENCY;
use super::attributes::go_type;
use super::eval::{Evaluator, Slot};
use super::plan::{CodeId, FoldCode};
use crate::value::{CelError, CelListIter, CelMap, CelResult, CelValue};

/// The list or map that a comprehension iterates over.
enum FoldRange<'l, 'a> {
    List(CelListIter<'l, 'a>),
    Map(&'l CelMap<'a>),
}

impl<'a> Evaluator<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a FoldCode) -> CelResult<'a> {
        let range = self.eval(fold.range)?;
        let (mut range, count) = match &range {
            CelValue::List(list) => (FoldRange::List(list.iter()), list.len()),
            CelValue::Map(map) => (FoldRange::Map(map), map.len()),
            other => return Err(not_iterable(other, fold.second_variable.is_some())),
        };
        self.slots[fold.accumulator as usize] = Slot::Unset;
        for at in 0..count {
            self.work.burn(1)?;
            self.set_variables(fold, &mut range, at);
            match self.eval(fold.condition) {
                Ok(CelValue::Bool(false)) => break,
                Err(error) if error.is_final() => return Err(error),
                _ => {}
            }
            let next = self.eval(fold.step);
            if let Err(error) = &next
                && error.is_final()
            {
                return next;
            }
            self.slots[fold.accumulator as usize] = Slot::Set(next);
            self.check_interrupt()?;
        }
        let result = self.eval(fold.result);
        self.slots[fold.accumulator as usize] = Slot::Unset;
        result
    }

    fn set_variables(&mut self, fold: &FoldCode, range: &mut FoldRange<'_, 'a>, at: usize) {
        let index = || i64::try_from(at).map_or(CelValue::Null, CelValue::Int);
        let (first, second) = match (range, fold.second_variable) {
            (FoldRange::List(list), None) => (list.next().unwrap_or(CelValue::Null), None),
            (FoldRange::List(list), Some(_)) => {
                (index(), Some(list.next().unwrap_or(CelValue::Null)))
            }
            (FoldRange::Map(map), None) => (map.key_at(at).unwrap_or(CelValue::Null), None),
            (FoldRange::Map(map), Some(_)) => match map.entry_at(at) {
                Some((key, value)) => (key, Some(value)),
                None => (CelValue::Null, None),
            },
        };
        self.slots[fold.variable as usize] = Slot::Set(Ok(first));
        if let (Some(number), Some(second)) = (fold.second_variable, second) {
            self.slots[number as usize] = Slot::Set(Ok(second));
        }
    }

    fn check_interrupt(&mut self) -> Result<(), CelError> {
        self.iterations = self.iterations.wrapping_add(1);
        if self.iterations.is_multiple_of(INTERRUPT_CHECK_FREQUENCY)
            && let Some(interrupted) = self.limits.interrupted
            && interrupted()
        {
            return Err(CelError::interrupted());
        }
        Ok(())
    }

    /// The accumulator's next value `accumulator + list`; the accumulator grows in place.
    pub(super) fn append(&mut self, accumulator: u32, list: CodeId) -> CelResult<'a> {
        self.start(accumulator)?;
        let added = self.eval(list);
        if let Err(error) = &added
            && error.is_final()
        {
            return added;
        }
        self.charge(1)?;
        match (self.take(accumulator)?, added?) {
            (CelValue::List(mut list), CelValue::List(added)) => {
                self.work.burn(added.len() as u64)?;
                let added: Vec<_> = added.iter().collect();
                list.append(&added, &mut self.work)?;
                Ok(CelValue::List(list))
            }
            _ => Err(CelError::no_such_overload()),
        }
    }

    /// The accumulator's next value with entries inserted; the accumulator grows in place.
    pub(super) fn insert(&mut self, accumulator: u32, args: &'a [CodeId]) -> CelResult<'a> {
        self.start(accumulator)?;
        let mut values = Vec::with_capacity(args.len());
        // With the accumulator that is a call with three arguments, which ends at an error without a cost.
        let stops_early = args.len() == 2;
        if stops_early && let Slot::Set(Err(error)) = &self.slots[accumulator as usize] {
            return Err(error.clone());
        }
        let mut failed = None;
        for arg in args {
            match self.eval(*arg) {
                Ok(value) => values.push(value),
                Err(error) if error.is_final() => return Err(error),
                Err(error) if stops_early && values.is_empty() && failed.is_none() => {
                    return Err(error);
                }
                Err(error) => failed = Some(error),
            }
        }
        self.charge(1)?;
        let accumulated = self.take(accumulator)?;
        if let Some(error) = failed {
            return Err(error);
        }
        let CelValue::Map(mut map) = accumulated else {
            return Err(CelError::no_such_overload());
        };
        match &values[..] {
            [key, value] => map.insert(key.clone(), value.clone(), &mut self.work)?,
            [CelValue::Map(added)] => {
                let mut at = 0;
                while let Some((key, value)) = added.entry_at(at) {
                    map.insert(key, value, &mut self.work)?;
                    at += 1;
                }
            }
            _ => {
                values.insert(0, CelValue::Map(map));
                return Err(CelError::no_such_call("cel.@mapInsert", &values));
            }
        }
        Ok(CelValue::Map(map))
    }

    /// Computes the accumulator's initial value, if it has no value yet, and charges one reference to it.
    fn start(&mut self, accumulator: u32) -> Result<(), CelError> {
        if let Slot::Unset = self.slots[accumulator as usize]
            && let Err(error) = self.local(accumulator)
            && error.is_final()
        {
            return Err(error);
        }
        self.charge(1)
    }

    fn take(&mut self, accumulator: u32) -> CelResult<'a> {
        let slot = &mut self.slots[accumulator as usize];
        match mem::replace(slot, Slot::Unset) {
            Slot::Set(value) => value,
            Slot::Unset => Err(CelError::no_such_overload()),
        }
    }
}

fn not_iterable(value: &CelValue<'_>, two: bool) -> CelError {
    let of = go_type(value);
    CelError::new(if two {
        format!("unsupported comprehension range type: {of}")
    } else {
        format!("got '{of}', expected iterable type")
    })
}
