//! Comprehensions.

use std::mem;

use smallvec::{SmallVec, smallvec};

use super::attributes::go_type;
use super::eval::{Evaluator, Slot, is_final};
use super::plan::{Code, CodeId, FoldCode, FoldCondition};
use super::{INTERRUPT_CHECK_FREQUENCY, cost};
use crate::document::CelJson;
use crate::value::{CelError, CelListIter, CelMap, CelResult, CelValue};

/// The list or map that a comprehension iterates over.
enum FoldRange<'l, 'a> {
    Json(&'a [CelJson<'a>]),
    List(CelListIter<'l, 'a>),
    Map(&'l CelMap<'a>),
}

/// The elements of a list that is appended; nearly always one.
type ListElements<'a> = SmallVec<[CelValue<'a>; 1]>;

impl<'a> Evaluator<'a, '_> {
    #[inline(never)]
    pub(super) fn fold(&mut self, fold: &'a FoldCode) -> CelResult<'a> {
        let range = self.eval(fold.range)?;
        if let Some(wanted) = fold.searched
            && let CelValue::List(list) = &range
            && let Some(elements) = list.as_json()
            && let Some(found) = self.search(elements, wanted)?
        {
            return Ok(CelValue::Bool(found));
        }
        let (mut range, count) = match &range {
            CelValue::List(list) => match list.as_json() {
                Some(elements) => (FoldRange::Json(elements), elements.len()),
                None => (FoldRange::List(list.iter()), list.len()),
            },
            CelValue::Map(map) => (FoldRange::Map(map), map.len()),
            other => return Err(not_iterable(other, fold.second_variable.is_some())),
        };
        self.slots[fold.accumulator as usize] = Slot::Unset;
        for at in 0..count {
            self.work.burn(1)?;
            self.set_variables(fold, &mut range, at);
            if !self.goes_on(fold)? {
                break;
            }
            let next = self.eval(fold.step);
            if is_final(&next) {
                return next;
            }
            self.slots[fold.accumulator as usize] = Slot::Set(next);
            self.check_interrupt()?;
        }
        let result = match self.local_flag(fold.result)? {
            Some(flag) => Ok(CelValue::Bool(flag)),
            None => self.eval(fold.result),
        };
        self.slots[fold.accumulator as usize] = Slot::Unset;
        result
    }

    /// Whether the condition of a comprehension lets it go on.
    fn goes_on(&mut self, fold: &FoldCode) -> Result<bool, CelError> {
        let end = match fold.condition {
            FoldCondition::Always => {
                self.work.burn(1)?;
                return Ok(true);
            }
            FoldCondition::Unless(end) => end,
            FoldCondition::Code(condition) => {
                return match self.eval(condition) {
                    Ok(CelValue::Bool(false)) => Ok(false),
                    Err(error) if error.is_final() => Err(error),
                    _ => Ok(true),
                };
            }
        };
        // `@not_strictly_false(accumulator)`, or of `!accumulator`: each name and each operator counts.
        let parts = if end { 3 } else { 2 };
        self.work.burn(parts)?;
        let at = fold.accumulator as usize;
        if let Slot::Unset = self.slots[at]
            && let Err(error) = self.local(fold.accumulator)
            && error.is_final()
        {
            return Err(error);
        }
        self.charge_each(parts)?;
        let ended = matches!(&self.slots[at], Slot::Set(Ok(CelValue::Bool(of))) if *of == end);
        Ok(!ended)
    }

    fn set_variables(&mut self, fold: &FoldCode, range: &mut FoldRange<'_, 'a>, at: usize) {
        let index = || i64::try_from(at).map_or(CelValue::Null, CelValue::Int);
        let (first, second) = match (range, fold.second_variable) {
            (FoldRange::Json(elements), None) => (CelValue::json(&elements[at]), None),
            (FoldRange::Json(elements), Some(_)) => (index(), Some(CelValue::json(&elements[at]))),
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
    #[inline(never)]
    pub(super) fn append(&mut self, accumulator: u32, list: CodeId) -> CelResult<'a> {
        self.start(accumulator)?;
        let added = self.elements_of(list);
        if let Err(error) = &added
            && error.is_final()
        {
            return Err(error.clone());
        }
        self.charge(1)?;
        match (self.take(accumulator)?, added?) {
            (CelValue::List(mut list), Some(added)) => {
                self.work.burn(added.len() as u64)?;
                list.append(added, &mut self.work)?;
                Ok(CelValue::List(list))
            }
            _ => Err(CelError::no_such_overload()),
        }
    }

    /// The elements of a list, which is not made if it is a literal with one element. `None` if it is no list.
    fn elements_of(&mut self, list: CodeId) -> Result<Option<ListElements<'a>>, CelError> {
        let program = self.program;
        if let Code::List { elements, optional } = &program.code[list.index()]
            && let ([only], []) = (&**elements, &**optional)
        {
            self.work.burn(1)?;
            let value = match self.eval(*only) {
                Ok(value) => value,
                Err(error) => return self.failed_literal(cost::LIST, error).map(|_| None),
            };
            let checked = value.check_as_element();
            self.charge(cost::LIST)?;
            checked?;
            return Ok(Some(smallvec![value]));
        }
        match self.eval(list)? {
            CelValue::List(list) => Ok(Some(list.iter().collect())),
            _ => Ok(None),
        }
    }

    /// The accumulator's next value with entries inserted; the accumulator grows in place.
    #[inline(never)]
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
