//! Arithmetic, comparisons and logic.

use std::cmp::Ordering;

use super::plan::{BinaryOperator, UnaryOperator};
use crate::value::{
    CelBytes, CelError, CelResult, CelValue, CelWork, LOOKUP, equal_within, is_same_within,
    work_of_bytes,
};

pub(super) fn unary(operator: UnaryOperator, operand: CelResult<'_>) -> CelResult<'_> {
    match (operator, operand) {
        (UnaryOperator::NotStrictlyFalse, Ok(CelValue::Bool(value))) => Ok(CelValue::Bool(value)),
        (UnaryOperator::NotStrictlyFalse, _) => Ok(CelValue::Bool(true)),
        (_, Err(error)) => Err(error),
        (UnaryOperator::Not, Ok(CelValue::Bool(value))) => Ok(CelValue::Bool(!value)),
        (UnaryOperator::Not, Ok(_)) => Err(CelError::no_such_overload()),
        (UnaryOperator::Negate, Ok(value)) => negate(&value),
    }
}

fn negate<'a>(value: &CelValue<'_>) -> CelResult<'a> {
    match value {
        CelValue::Int(value) => {
            let negated = value.checked_neg();
            negated.map(CelValue::Int).ok_or_else(int_overflow)
        }
        CelValue::Double(value) => Ok(CelValue::Double(-value)),
        CelValue::Duration(value) => value.negated().map(CelValue::Duration),
        CelValue::Bool(_) => Err(CelError::no_such_overload()),
        _ => Err(unsupported("-_", value)),
    }
}

pub(super) fn binary<'a>(
    operator: BinaryOperator,
    left: &CelValue<'a>,
    right: &CelValue<'a>,
    work: &mut CelWork<'_>,
) -> CelResult<'a> {
    let truth = |value: bool| Ok(CelValue::Bool(value));
    match operator {
        BinaryOperator::Equals => truth(equal_within(left, right, work)?),
        BinaryOperator::NotEquals => truth(!is_same_within(left, right, work)?),
        BinaryOperator::Less => truth(compare("_<_", left, right)? == Ordering::Less),
        BinaryOperator::LessEquals => truth(compare("_<=_", left, right)? != Ordering::Greater),
        BinaryOperator::Greater => truth(compare("_>_", left, right)? == Ordering::Greater),
        BinaryOperator::GreaterEquals => truth(compare("_>=_", left, right)? != Ordering::Less),
        BinaryOperator::In => contains(left, right, work),
        BinaryOperator::Add => add(left, right, work),
        BinaryOperator::Subtract => subtract(left, right),
        BinaryOperator::Multiply => multiply(left, right),
        BinaryOperator::Divide => divide(left, right),
        BinaryOperator::Modulo => modulo(left, right),
    }
}

fn compare(
    operator: &str,
    left: &CelValue<'_>,
    right: &CelValue<'_>,
) -> Result<Ordering, CelError> {
    if left.is_ordered() {
        left.compare(right)
    } else {
        Err(unsupported(operator, left))
    }
}

fn contains<'a>(
    element: &CelValue<'_>,
    of: &CelValue<'_>,
    work: &mut CelWork<'_>,
) -> CelResult<'a> {
    match of {
        CelValue::List(list) => {
            let mut elements = list.iter();
            while let Some(equal) = elements.visit(|value| is_same_within(element, value, work)) {
                if equal? {
                    return Ok(CelValue::Bool(true));
                }
            }
            Ok(CelValue::Bool(false))
        }
        CelValue::Map(map) => {
            work.burn(LOOKUP + element.reading_work())?;
            Ok(CelValue::Bool(map.get(element).is_some()))
        }
        _ => Err(CelError::no_such_overload()),
    }
}

fn add<'a>(left: &CelValue<'a>, right: &CelValue<'a>, work: &mut CelWork<'_>) -> CelResult<'a> {
    match (left, right) {
        (CelValue::Int(a), CelValue::Int(b)) => {
            let sum = a.checked_add(*b);
            sum.map(CelValue::Int).ok_or_else(int_overflow)
        }
        (CelValue::Uint(a), CelValue::Uint(b)) => {
            let sum = a.checked_add(*b);
            sum.map(CelValue::Uint).ok_or_else(uint_overflow)
        }
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a + b)),
        (CelValue::String(a), CelValue::String(b)) => {
            work.burn(work_of_bytes(a.len() + b.len()))?;
            Ok(CelValue::from([&**a, &**b].concat()))
        }
        (CelValue::Bytes(a), CelValue::Bytes(b)) => {
            work.burn(work_of_bytes(a.len() + b.len()))?;
            let both = [&**a, &**b].concat();
            Ok(CelValue::Bytes(CelBytes::from(both)))
        }
        (CelValue::List(a), CelValue::List(b)) => a.join(b, work).map(CelValue::List),
        (CelValue::Duration(a), CelValue::Duration(b)) => a.plus(*b).map(CelValue::Duration),
        (CelValue::Duration(by), CelValue::Timestamp(time))
        | (CelValue::Timestamp(time), CelValue::Duration(by)) => {
            time.plus(*by).map(CelValue::Timestamp)
        }
        (
            CelValue::Int(_)
            | CelValue::Uint(_)
            | CelValue::Double(_)
            | CelValue::Bytes(_)
            | CelValue::List(_),
            _,
        ) => Err(CelError::no_such_overload()),
        _ => Err(unsupported("_+_", left)),
    }
}

fn subtract<'a>(left: &CelValue<'_>, right: &CelValue<'_>) -> CelResult<'a> {
    match (left, right) {
        (CelValue::Int(a), CelValue::Int(b)) => {
            let difference = a.checked_sub(*b);
            difference.map(CelValue::Int).ok_or_else(int_overflow)
        }
        (CelValue::Uint(a), CelValue::Uint(b)) => {
            let difference = a.checked_sub(*b);
            difference.map(CelValue::Uint).ok_or_else(uint_overflow)
        }
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a - b)),
        (CelValue::Duration(a), CelValue::Duration(b)) => a.minus(*b).map(CelValue::Duration),
        // The original negates the duration before it adds it.
        (CelValue::Timestamp(_), CelValue::Duration(by)) if by.nanoseconds() == i64::MIN => {
            Err(int_overflow())
        }
        (CelValue::Timestamp(time), CelValue::Duration(by)) => {
            time.minus(*by).map(CelValue::Timestamp)
        }
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a.since(*b).map(CelValue::Duration),
        (CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_), _) => {
            Err(CelError::no_such_overload())
        }
        _ => Err(unsupported("_-_", left)),
    }
}

fn multiply<'a>(left: &CelValue<'_>, right: &CelValue<'_>) -> CelResult<'a> {
    match (left, right) {
        (CelValue::Int(a), CelValue::Int(b)) => {
            let product = a.checked_mul(*b);
            product.map(CelValue::Int).ok_or_else(int_overflow)
        }
        (CelValue::Uint(a), CelValue::Uint(b)) => {
            let product = a.checked_mul(*b);
            product.map(CelValue::Uint).ok_or_else(uint_overflow)
        }
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a * b)),
        _ => Err(wrong_number("_*_", left)),
    }
}

fn divide<'a>(left: &CelValue<'_>, right: &CelValue<'_>) -> CelResult<'a> {
    let by_zero = || CelError::new("division by zero");
    match (left, right) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            Err(by_zero())
        }
        (CelValue::Int(a), CelValue::Int(b)) => {
            // It overflows for the least number, divided by -1.
            let quotient = a.checked_div(*b);
            quotient.map(CelValue::Int).ok_or_else(int_overflow)
        }
        (CelValue::Uint(a), CelValue::Uint(b)) => Ok(CelValue::Uint(a / b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a / b)),
        _ => Err(wrong_number("_/_", left)),
    }
}

fn modulo<'a>(left: &CelValue<'_>, right: &CelValue<'_>) -> CelResult<'a> {
    let by_zero = || CelError::new("modulus by zero");
    match (left, right) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            Err(by_zero())
        }
        (CelValue::Int(a), CelValue::Int(b)) => {
            let rest = a.checked_rem(*b);
            rest.map(CelValue::Int).ok_or_else(int_overflow)
        }
        (CelValue::Uint(a), CelValue::Uint(b)) => Ok(CelValue::Uint(a % b)),
        (CelValue::Int(_) | CelValue::Uint(_), _) => Err(CelError::no_such_overload()),
        _ => Err(unsupported("_%_", left)),
    }
}

fn wrong_number(operator: &str, left: &CelValue<'_>) -> CelError {
    match left {
        CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_) => CelError::no_such_overload(),
        _ => unsupported(operator, left),
    }
}

/// The error for a left operand whose type does not have the operator at all.
pub(super) fn unsupported(operator: &str, left: &CelValue<'_>) -> CelError {
    match left {
        CelValue::String(_) | CelValue::Timestamp(_) | CelValue::Duration(_) => {
            CelError::no_such_overload()
        }
        _ => CelError::new(format!("no such overload: {operator}")),
    }
}

fn int_overflow() -> CelError {
    CelError::new("integer overflow")
}

fn uint_overflow() -> CelError {
    CelError::new("unsigned integer overflow")
}
