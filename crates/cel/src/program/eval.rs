//! Evaluates programs and computes their cost.

use smallvec::SmallVec;

use super::plan::{BinaryOperator, CallCode, Code, CodeId, EntryCode, OperatorCost};
use super::{CelBindings, CelLazyObject, CelProgram, EvaluationLimits, cost, operators};
use crate::value::{
    CelError, CelMap, CelResult, CelStr, CelValue, CelWork, LOOKUP, is_same_within, same_bytes,
    work_of_bytes,
};

/// The steps of calling a function, besides those of reading its arguments.
const CALL: u64 = 4;

/// The value of a variable of a comprehension.
#[derive(Clone)]
pub(super) enum Slot<'a> {
    /// Not computed yet.
    Unset,
    Set(CelResult<'a>),
}

/// One evaluation.
pub(super) struct Evaluator<'a, 'i> {
    pub(super) program: &'a CelProgram,
    pub(super) bindings: &'i CelBindings<'a>,
    pub(super) lazy: Option<&'i dyn CelLazyObject<'a>>,
    pub(super) slots: SmallVec<[Slot<'a>; 3]>,
    pub(super) limits: EvaluationLimits<'i>,
    cost: u64,
    pub(super) work: CelWork<'i>,
    /// The iterations of all comprehensions so far.
    pub(super) iterations: u32,
}

impl<'a, 'i> Evaluator<'a, 'i> {
    #[inline]
    pub(super) fn new(
        program: &'a CelProgram,
        bindings: &'i CelBindings<'a>,
        lazy: Option<&'i dyn CelLazyObject<'a>>,
        limits: &EvaluationLimits<'i>,
    ) -> Self {
        Self {
            program,
            bindings,
            lazy,
            slots: program.inits.iter().map(|_| Slot::Unset).collect(),
            limits: *limits,
            cost: 0,
            work: CelWork::new(limits.work, limits.interrupted),
            iterations: 0,
        }
    }

    #[inline]
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Adds to the cost.
    ///
    /// # Errors
    ///
    /// When the cost is over the limit.
    #[inline]
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), CelError> {
        self.cost = self.cost.saturating_add(cost);
        self.work.allow_for(cost);
        if self.cost > self.limits.cost {
            return Err(CelError::cost_limit());
        }
        Ok(())
    }

    /// Whether so much may be added to the cost.
    #[inline]
    pub(super) fn allows(&self, cost: u64) -> bool {
        self.cost.saturating_add(cost) <= self.limits.cost
    }

    /// Adds 1 to the cost, so many times: it ends one over the limit, as one by one.
    ///
    /// # Errors
    ///
    /// When the cost is over the limit.
    pub(super) fn charge_each(&mut self, times: u64) -> Result<(), CelError> {
        let left = self.limits.cost.saturating_sub(self.cost);
        self.charge(times.min(left.saturating_add(1)))
    }

    /// Takes back cost, as one call of the original does. Its steps remain.
    ///
    /// # Errors
    ///
    /// When more is taken back than there is: the original's cost, which has no sign, then is over any limit.
    fn refund(&mut self, cost: u64) -> Result<(), CelError> {
        let left = self.cost.checked_sub(cost);
        self.cost = left.ok_or_else(CelError::cost_limit)?;
        Ok(())
    }

    /// Takes back one unit of cost, for a presence test.
    pub(super) fn refund_one(&mut self) {
        self.cost = self.cost.saturating_sub(1);
    }

    pub(super) fn eval(&mut self, id: CodeId) -> CelResult<'a> {
        self.work.burn(1)?;
        let program = self.program;
        match &program.code[id.index()] {
            Code::Const(value) => Ok(value.borrowed()),
            Code::Attribute(attribute) => self.attribute(attribute),
            Code::Local(number) => self.local_reference(*number),
            Code::Unary(operator, operand) => self.unary(*operator, *operand),
            Code::Binary {
                operator,
                cost,
                left,
                right,
            } => self.binary(*operator, *cost, *left, *right),
            Code::And(terms) => self.logic(terms, false),
            Code::Or(terms) => self.logic(terms, true),
            Code::Call(call) => self.call(call),
            Code::List { elements, optional } => self.list(elements, optional),
            Code::Map(entries) => self.map(entries),
            Code::Object(name, fields) => self.object(name, fields),
            Code::Fold(fold) => self.fold(fold),
            Code::InSet(value, set) => {
                let value = self.eval(*value)?;
                self.work.burn(LOOKUP + value.reading_work())?;
                Ok(CelValue::Bool(set.contains(&value)))
            }
            Code::OptionalOr(left, right) => self.optional_or(*left, *right, false),
            Code::OptionalOrValue(left, right) => self.optional_or(*left, *right, true),
            Code::Append { accumulator, list } => self.append(*accumulator, *list),
            Code::Insert { accumulator, args } => self.insert(*accumulator, args),
        }
    }

    fn unary(&mut self, operator: super::plan::UnaryOperator, operand: CodeId) -> CelResult<'a> {
        let operand = self.eval(operand);
        if is_final(&operand) {
            return operand;
        }
        self.charge(1)?;
        operators::unary(operator, operand)
    }

    #[inline(never)]
    fn binary(
        &mut self,
        operator: BinaryOperator,
        cost: OperatorCost,
        left: CodeId,
        right: CodeId,
    ) -> CelResult<'a> {
        if let Some((left, right)) = self.texts(operator, left, right) {
            let equal = self.compare_texts(cost, left, right)?;
            let wanted = matches!(operator, BinaryOperator::Equals);
            return Ok(CelValue::Bool(equal == wanted));
        }
        let left = self.eval(left);
        if is_final(&left) {
            return left;
        }
        let right = self.eval(right);
        if is_final(&right) {
            return right;
        }
        let cost = if matches!(cost, OperatorCost::One) {
            1
        } else {
            // Counting the characters of texts.
            let work = [&left, &right].map(|of| or_null(of).reading_work());
            self.work.burn(work[0].saturating_add(work[1]))?;
            cost::of_operator(cost, or_null(&left), or_null(&right))
        };
        let result = match (left, right) {
            (Ok(left), Ok(right)) => operators::binary(operator, &left, &right, &mut self.work),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        if is_final(&result) {
            return result;
        }
        self.charge(cost)?;
        result
    }

    /// The operands of `==` or `!=` if they are a text in a variable of a comprehension and a constant one, as in nearly each
    /// `exists`: then no values need be made of them.
    #[inline]
    fn texts(
        &self,
        operator: BinaryOperator,
        left: CodeId,
        right: CodeId,
    ) -> Option<(&'a str, &'a str)> {
        let program = self.program;
        if let Code::Local(number) = program.code[left.index()]
            && let Code::Const(CelValue::String(right)) = &program.code[right.index()]
            && let Slot::Set(Ok(CelValue::String(CelStr::Borrowed(left)))) =
                &self.slots[number as usize]
            && matches!(operator, BinaryOperator::Equals | BinaryOperator::NotEquals)
        {
            return Some((left, right));
        }
        None
    }

    /// Whether both [`texts`](Self::texts) are equal, with the cost and the steps of the general case, in its order.
    fn compare_texts(
        &mut self,
        cost: OperatorCost,
        left: &str,
        right: &str,
    ) -> Result<bool, CelError> {
        debug_assert_eq!(cost, OperatorCost::Equality, "that of == and !=");
        self.work.burn(1)?;
        self.charge(1)?;
        self.work.burn(1)?;
        let bytes = [left, right].map(|text| work_of_bytes(text.len()));
        self.work.burn(bytes[0].saturating_add(bytes[1]))?;
        self.work.burn(1)?;
        let equal = same_bytes(left.as_bytes(), right.as_bytes(), &mut self.work)?;
        self.charge(cost::of_texts(left, right))?;
        Ok(equal)
    }

    /// The value of a comprehension's variable that is a boolean, with the cost of referring to it.
    #[inline]
    pub(super) fn local_flag(&mut self, code: CodeId) -> Result<Option<bool>, CelError> {
        let Code::Local(number) = self.program.code[code.index()] else {
            return Ok(None);
        };
        let Slot::Set(Ok(CelValue::Bool(flag))) = self.slots[number as usize] else {
            return Ok(None);
        };
        self.work.burn(1)?;
        self.charge(1)?;
        Ok(Some(flag))
    }

    /// `&&` with `stop` false, `||` with `stop` true. A term equal to `stop` decides the result, even if others fail.
    fn logic(&mut self, terms: &[CodeId], stop: bool) -> CelResult<'a> {
        let mut failed = None;
        for term in terms {
            if let Some(flag) = self.local_flag(*term)? {
                if flag == stop {
                    return Ok(CelValue::Bool(stop));
                }
                continue;
            }
            let error = match self.eval(*term) {
                Ok(CelValue::Bool(value)) if value == stop => return Ok(CelValue::Bool(stop)),
                Ok(CelValue::Bool(_)) => continue,
                Ok(_) => CelError::no_such_overload(),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            failed.get_or_insert(error);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(CelValue::Bool(!stop)),
        }
    }

    #[inline(never)]
    fn call(&mut self, call: &'a CallCode) -> CelResult<'a> {
        let mut args: SmallVec<[CelValue<'a>; 3]> = SmallVec::with_capacity(call.args.len());
        let mut failed = None;
        for arg in &call.args {
            match self.eval(*arg) {
                Ok(value) => args.push(value),
                Err(error) if error.is_final() => return Err(error),
                // After an error in the last argument the call is charged.
                Err(error) if call.stops_early && args.len() + 1 < call.args.len() => {
                    return Err(error);
                }
                Err(error) => {
                    args.push(CelValue::Null);
                    failed.get_or_insert(error);
                }
            }
        }
        let reading = args.iter().map(CelValue::reading_work);
        let reading = reading.fold(CALL, u64::saturating_add);
        self.work.burn(reading)?;
        let result = match failed {
            Some(error) => Err(error),
            None => invoke(call, &args, &mut self.work),
        };
        if is_final(&result) {
            return result;
        }
        if let Some(refund) = cost::refund_of_call(call.cost, &args) {
            self.refund(refund)?;
            return result;
        }
        let cost = cost::of_call(call.cost, &args, or_null(&result), &mut self.work)?;
        self.charge(cost)?;
        result
    }

    #[inline(never)]
    fn list(&mut self, elements: &[CodeId], optional: &[bool]) -> CelResult<'a> {
        let mut values = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let value = match self.eval(*element) {
                Ok(value) => value,
                Err(error) => return self.failed_literal(cost::LIST, error),
            };
            if optional.get(at) != Some(&true) {
                values.push(value);
                continue;
            }
            match value {
                CelValue::Optional(None) => {}
                CelValue::Optional(Some(of)) => values.push(of.value().clone()),
                other => {
                    let why = "cannot initialize optional list element from non-optional value ";
                    let error = self.work.error(&[(why, &other)], "");
                    return self.failed_literal(cost::LIST, error);
                }
            }
        }
        let list = CelValue::list(values);
        self.charge(cost::LIST)?;
        list
    }

    /// Ends the evaluation of a literal with an error. It costs as much as without the error.
    pub(super) fn failed_literal(&mut self, cost: u64, error: CelError) -> CelResult<'a> {
        if !error.is_final() {
            self.charge(cost)?;
        }
        Err(error)
    }

    #[inline(never)]
    fn map(&mut self, entries: &[EntryCode]) -> CelResult<'a> {
        let map = self.entries(entries).and_then(CelMap::new);
        match map {
            Ok(map) => {
                self.charge(cost::MAP)?;
                Ok(CelValue::Map(map))
            }
            Err(error) => self.failed_literal(cost::MAP, error),
        }
    }

    fn entries(
        &mut self,
        entries: &[EntryCode],
    ) -> Result<Vec<(CelValue<'a>, CelValue<'a>)>, CelError> {
        let mut values: Vec<(CelValue<'a>, CelValue<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.eval(entry.key)?;
            let value = self.eval(entry.value)?;
            self.work.burn(LOOKUP + key.reading_work())?;
            if !entry.optional {
                values.push((key, value));
                continue;
            }
            match value {
                // An absent optional entry removes earlier entries with the same key.
                CelValue::Optional(None) => self.remove(&mut values, &key)?,
                CelValue::Optional(Some(of)) => values.push((key, of.value().clone())),
                other => {
                    let parts = [
                        ("cannot initialize optional entry '", &key),
                        ("' from non-optional value ", &other),
                    ];
                    return Err(self.work.error(&parts, ""));
                }
            }
        }
        Ok(values)
    }

    /// Removes the entries whose key is `key`.
    fn remove(
        &mut self,
        values: &mut Vec<(CelValue<'a>, CelValue<'a>)>,
        key: &CelValue<'a>,
    ) -> Result<(), CelError> {
        let mut failed = None;
        values.retain(|(other, _)| {
            if failed.is_some() {
                return false;
            }
            is_same_within(other, key, &mut self.work).map_or_else(
                |error| {
                    failed = Some(error);
                    false
                },
                |same| !same,
            )
        });
        failed.map_or(Ok(()), Err)
    }

    /// An object literal, which always fails: values of types with declared fields come from the host only.
    #[inline(never)]
    fn object(&mut self, name: &str, fields: &[CodeId]) -> CelResult<'a> {
        for field in fields {
            if let Err(error) = self.eval(*field) {
                return self.failed_literal(cost::OBJECT, error);
            }
        }
        self.failed_literal(
            cost::OBJECT,
            CelError::new(format!("unknown type '{name}'")),
        )
    }

    #[inline(never)]
    fn optional_or(&mut self, left: CodeId, right: CodeId, unwrap: bool) -> CelResult<'a> {
        match self.eval(left)? {
            CelValue::Optional(None) => self.eval(right),
            CelValue::Optional(Some(of)) if unwrap => Ok(of.value().clone()),
            other => Ok(other),
        }
    }
}

/// Calls the function, if it accepts arguments of these types.
fn invoke<'a>(call: &CallCode, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    if let Some(prepared) = &call.prepared {
        return prepared.call_within(args, work);
    }
    let Some(at) = call.overload else {
        return call.function.dispatch(args, work);
    };
    let overload = &call.function.overloads[at];
    match &overload.function {
        Some(function) if overload.accepts(args) => function.call_within(args, work),
        _ => Err(CelError::no_such_call(&call.function.name, args)),
    }
}

/// Whether this is an error that ends the evaluation, because no operator may absorb it.
#[inline]
pub(super) fn is_final(result: &CelResult<'_>) -> bool {
    matches!(result, Err(error) if error.is_final())
}

/// The value that the cost is computed from. An error counts as `null`.
#[inline]
fn or_null<'r, 'a>(result: &'r CelResult<'a>) -> &'r CelValue<'a> {
    result.as_ref().unwrap_or(&CelValue::Null)
}
