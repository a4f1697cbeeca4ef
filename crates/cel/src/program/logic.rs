//! `&&`, `||`, `!` and what they are made of: conditions, whose values need no place in memory.

use super::eval::{Evaluator, Slot, is_final};
use super::operators;
use super::plan::{Code, CodeId, UnaryOperator};
use crate::value::{CelError, CelResult, CelValue};

impl<'a> Evaluator<'a, '_> {
    /// The value of a condition. One that is no `bool` is the error that all operators of logic make of it.
    fn truth(&mut self, id: CodeId) -> Result<bool, CelError> {
        let program = self.program;
        let code = &program.code[id.index()];
        match code {
            Code::Unary(UnaryOperator::Not | UnaryOperator::NotStrictlyFalse, _)
            | Code::And(_)
            | Code::Or(_) => {
                self.work.burn(1)?;
                self.logic(code)
            }
            Code::Local(number) => match self.slots[*number as usize] {
                Slot::Set(Ok(CelValue::Bool(value))) => {
                    self.work.burn(1)?;
                    self.charge(1)?;
                    Ok(value)
                }
                _ => truth_of(&self.eval(id)?),
            },
            _ => truth_of(&self.eval(id)?),
        }
    }

    /// The value of an operator of logic.
    pub(super) fn logic(&mut self, code: &'a Code) -> Result<bool, CelError> {
        match code {
            Code::And(terms) => self.connected(terms, false),
            Code::Or(terms) => self.connected(terms, true),
            Code::Unary(operator, operand) => {
                let operand = self.truth(*operand);
                if let Err(error) = &operand
                    && error.is_final()
                {
                    return operand;
                }
                self.charge(1)?;
                match operator {
                    UnaryOperator::NotStrictlyFalse => Ok(operand.unwrap_or(true)),
                    _ => operand.map(|value| !value),
                }
            }
            _ => Err(CelError::no_such_overload()),
        }
    }

    /// `&&` with `stop` false, `||` with `stop` true. A term equal to `stop` decides the result, even if others fail.
    fn connected(&mut self, terms: &[CodeId], stop: bool) -> Result<bool, CelError> {
        let mut failed = None;
        for term in terms {
            match self.truth(*term) {
                Ok(value) if value == stop => return Ok(stop),
                Ok(_) => {}
                Err(error) if error.is_final() => return Err(error),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(!stop),
        }
    }

    #[inline(never)]
    pub(super) fn negate(&mut self, operand: CodeId) -> CelResult<'a> {
        let operand = self.eval(operand);
        if is_final(&operand) {
            return operand;
        }
        self.charge(1)?;
        operators::negate(&operand?)
    }
}

fn truth_of(value: &CelValue<'_>) -> Result<bool, CelError> {
    match value {
        CelValue::Bool(value) => Ok(*value),
        _ => Err(CelError::no_such_overload()),
    }
}
