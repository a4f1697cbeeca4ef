//! `list.exists(x, x == 'text')` over a list of texts, the commonest comprehension of policies: whether the user has a group.
//!
//! It is what evaluating the comprehension's parts one by one gives, to the unit of its cost and of its work, without a value for each
//! element and each result on the way. Everything is compared first, and counted only if all of it is within the limits and nobody has to be
//! asked whether to go on; where it is not, and for elements that are no texts, the general way does it from the beginning.

use super::eval::Evaluator;
use super::plan::{BinaryOperator, Code, CodeId, FoldCode, FoldCondition, OperatorCost};
use super::{INTERRUPT_CHECK_FREQUENCY, cost};
use crate::document::CelJson;
use crate::short_texts::equal_texts;
use crate::value::{CelError, CelValue, work_of_bytes};

/// The longest list that is searched: it is searched again where the limits do not suffice.
const MOST_ELEMENTS: usize = 64;

/// The steps of an element: the comprehension's own, the three parts of its condition, the operator `||` and its two operands, of which the
/// second is a comparison with two operands and a step of its own.
const STEPS: u64 = 10;
/// The steps and the cost of the condition alone.
const CONDITION: u64 = 3;
/// The cost of an element: its condition, and a reference to each variable.
const COST: u64 = CONDITION + 2;

/// Notes which comprehensions are of this form, in code that is complete.
pub(super) fn find(code: &mut [Code], inits: &[Option<CodeId>]) {
    for at in 0..code.len() {
        let Code::Fold(fold) = &code[at] else {
            continue;
        };
        let searched = searched(code, inits, fold);
        if let Code::Fold(fold) = &mut code[at] {
            fold.searched = searched;
        }
    }
}

/// The text that a comprehension of this form looks for.
fn searched(code: &[Code], inits: &[Option<CodeId>], fold: &FoldCode) -> Option<CodeId> {
    let at = |id: CodeId| &code[id.index()];
    let is_local = |id: CodeId, number: u32| matches!(at(id), Code::Local(of) if *of == number);
    let init = inits[fold.accumulator as usize]?;
    let Code::Or(terms) = at(fold.step) else {
        return None;
    };
    let [accumulated, compared] = terms[..] else {
        return None;
    };
    let Code::Binary {
        operator: BinaryOperator::Equals,
        cost: OperatorCost::Equality,
        left,
        right,
    } = *at(compared)
    else {
        return None;
    };
    let is_search = fold.second_variable.is_none()
        && fold.condition == FoldCondition::Unless(true)
        && matches!(at(init), Code::Const(CelValue::Bool(false)))
        && is_local(accumulated, fold.accumulator)
        && is_local(fold.result, fold.accumulator)
        && is_local(left, fold.variable)
        && matches!(at(right), Code::Const(CelValue::String(_)));
    is_search.then_some(right)
}

impl<'a> Evaluator<'a, '_> {
    /// Whether one of the elements is the `wanted` text; `None` if that is to be found out in the general way.
    #[inline]
    pub(super) fn search(
        &mut self,
        elements: &[CelJson<'a>],
        wanted: CodeId,
    ) -> Result<Option<bool>, CelError> {
        let program = self.program;
        let Code::Const(CelValue::String(wanted)) = &program.code[wanted.index()] else {
            return Ok(None);
        };
        if elements.is_empty() || elements.len() > MOST_ELEMENTS {
            return Ok(None);
        }
        // The first value of the accumulator is a step of its own, and so is the result, which is a reference, too.
        let (mut steps, mut charged) = (2, 1);
        let (mut compared, mut found) = (0, false);
        for element in elements {
            if found {
                steps += 1 + CONDITION;
                charged += CONDITION;
                break;
            }
            let CelJson::String(text) = element else {
                return Ok(None);
            };
            compared += 1;
            let has_length = text.len() == wanted.len();
            let read = work_of_bytes(text.len());
            steps += STEPS + read + work_of_bytes(wanted.len());
            steps += if has_length { read } else { 0 };
            charged += COST + cost::of_texts(text, wanted);
            found = has_length && equal_texts(text, wanted);
        }
        let iterations = self.iterations.wrapping_add(compared);
        let asks =
            iterations / INTERRUPT_CHECK_FREQUENCY != self.iterations / INTERRUPT_CHECK_FREQUENCY;
        if asks || !self.allows(charged) || !self.work.has_at_once(steps) {
            return Ok(None);
        }
        self.iterations = iterations;
        self.work.burn(steps)?;
        self.charge(charged)?;
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::program::{CelProgram, EvaluationLimits};
    use crate::types::CelType;
    use crate::{CelEnvironment, CelEvaluation};

    fn environment() -> CelEnvironment {
        CelEnvironment::builder()
            .variable("xs", CelType::list(CelType::Dyn))
            .build()
    }

    /// How many searches a program has; none any more, if it is to find out everything in the general way.
    fn searches(program: &mut CelProgram, keeps: bool) -> usize {
        let folds = program.code.iter_mut().filter_map(|code| match code {
            Code::Fold(fold) => Some(fold),
            _ => None,
        });
        let searched = folds.filter(|fold| fold.searched.is_some());
        searched
            .map(|fold| {
                if !keeps {
                    fold.searched = None;
                }
            })
            .count()
    }

    #[test]
    fn only_searches_for_constant_texts_are_found() {
        for (expression, count) in [
            ("xs.exists(x, x == 'a')", 1),
            ("!xs.exists(x, x == 'a') || xs.exists(y, y == 'b')", 2),
            ("xs.exists(x, xs.exists(y, y == 'a'))", 1),
            ("xs.exists(x, 'a' == x)", 0),
            ("xs.exists(x, x != 'a')", 0),
            ("xs.exists(x, x == 1)", 0),
            ("xs.exists(x, x == 'a' || x == 'b')", 0),
            ("xs.exists(x, dyn(xs) == 'a')", 0),
            ("xs.all(x, x == 'a')", 0),
            ("xs.exists_one(x, x == 'a')", 0),
            ("xs.exists(x, xs.exists(y, x == 'a'))", 0),
            ("xs.filter(x, x == 'a').size() == 1", 0),
        ] {
            let mut program = environment().compile(expression).unwrap();
            assert_eq!(searches(&mut program, true), count, "{expression}");
        }
    }

    fn element() -> impl Strategy<Value = CelJson<'static>> {
        let text = |text: String| CelJson::String(Cow::Owned(text));
        prop_oneof![
            8 => "[abä]{0,3}".prop_map(text),
            2 => "[ab]{30,70}".prop_map(text),
            1 => Just(CelJson::Int(1)),
            1 => Just(CelJson::Null),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// At every limit, whoever interrupts, and wherever the list ends.
        #[test]
        fn a_search_gives_costs_and_takes_what_the_general_way_does(
            elements in prop::collection::vec(element(), 0..8),
            copies in prop_oneof![4 => Just(1_usize), 1 => 5_usize..30],
            wanted in prop_oneof!["[abä]{0,2}", "[ab]{40}"],
            cost in prop_oneof![0_u64..200, Just(1_000_000)],
            work in prop_oneof![0_u64..200, Just(1_000_000)],
            interrupted_at in 0_u32..4,
        ) {
            let elements = CelJson::Array(vec![elements; copies].concat());
            // The second one has what the first one has left of the limits.
            let expression = format!("[xs.exists(x, x == '{wanted}'), xs.exists(x, x == 'a')]");
            let environment = environment();
            let mut evaluated: Vec<(CelEvaluation<'_>, u32)> = Vec::new();
            let programs = [true, false].map(|keeps| {
                let mut program = environment.compile(&expression).unwrap();
                assert_eq!(searches(&mut program, keeps), 2);
                program
            });
            for program in &programs {
                let mut bindings = environment.bindings();
                bindings.bind(environment.variable("xs").unwrap(), Some(CelValue::json(&elements)));
                let asked = Cell::new(0);
                let interrupted = || {
                    asked.set(asked.get() + 1);
                    asked.get() == interrupted_at
                };
                let limits = EvaluationLimits { cost, work, interrupted: Some(&interrupted) };
                let evaluation = program.evaluate_within(&bindings, &limits);
                evaluated.push((evaluation, asked.get()));
            }
            let [(fast, fast_asked), (general, general_asked)] = &evaluated[..] else {
                unreachable!("two programs");
            };
            prop_assert_eq!(format!("{:?}", fast.result), format!("{:?}", general.result));
            prop_assert_eq!((fast.cost, fast.work), (general.cost, general.work));
            prop_assert_eq!(fast_asked, general_asked);
        }
    }
}
