//! The macros of the standard library, and the comprehensions with two variables.

#![expect(
    clippy::unnecessary_wraps,
    reason = "functions of libraries have one signature"
)]

use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::syntax::{CelMacro, ExprId, FoldParts, MacroError, MacroExpansion, OLD_ACCUMULATOR};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue, CelWork};

type Expanded = Result<Option<ExprId>, MacroError>;

/// `has`, `all`, `exists`, `exists_one`, `map` and `filter`.
#[derive(Clone, Copy, Debug)]
pub struct StandardMacros;

impl CelLibrary for StandardMacros {
    fn declare(&self, to: &mut CelDeclarations) {
        to.macro_call(CelMacro::global("has", 1, has));
        to.macro_call(CelMacro::member("all", 2, |e, t, a| {
            quantifier(e, t, a, all)
        }));
        to.macro_call(CelMacro::member("exists", 2, |e, t, a| {
            quantifier(e, t, a, exists)
        }));
        to.macro_call(CelMacro::member("exists_one", 2, |e, t, a| {
            quantifier(e, t, a, exists_one)
        }));
        to.macro_call(CelMacro::member("map", 2, map));
        to.macro_call(CelMacro::member("map", 3, map));
        to.macro_call(CelMacro::member("filter", 2, filter));
    }
}

/// Macros with two variables: `all(i, v, p)`, `exists`, `existsOne`, `transformList`, `transformMap`,
/// `transformMapEntry`.
#[derive(Clone, Copy, Debug)]
pub struct TwoVariableComprehensions;

impl CelLibrary for TwoVariableComprehensions {
    fn declare(&self, to: &mut CelDeclarations) {
        to.macro_call(CelMacro::member("all", 3, |e, t, a| {
            quantifier(e, t, a, all)
        }));
        to.macro_call(CelMacro::member("exists", 3, |e, t, a| {
            quantifier(e, t, a, exists)
        }));
        for name in ["exists_one", "existsOne"] {
            to.macro_call(CelMacro::member(name, 3, |e, t, a| {
                quantifier(e, t, a, exists_one)
            }));
        }
        for args in [3, 4] {
            to.macro_call(CelMacro::member("transformList", args, transform_list));
            to.macro_call(CelMacro::member("transformMap", args, transform_map));
            to.macro_call(CelMacro::member("transformMapEntry", args, transform_entry));
        }
        let (key, value) = (CelType::parameter("K"), CelType::parameter("V"));
        let map = CelType::map(key.clone(), value.clone());
        to.function(
            CelFunctionDecl::new(MAP_INSERT)
                .overload(CelOverload::global(
                    "@mapInsert_map_key_value",
                    [map.clone(), key, value],
                    map.clone(),
                    Metered(insert_entry),
                ))
                .overload(CelOverload::global(
                    "@mapInsert_map_map",
                    [map.clone(), map.clone()],
                    map,
                    Metered(insert_map),
                )),
        );
    }
}

/// The function that adds entries to a map. Macros call it; expressions cannot write its name.
const MAP_INSERT: &str = "cel.@mapInsert";

fn insert_entry<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let CelValue::Map(map) = &args[0] else {
        return Err(CelError::no_such_overload());
    };
    let mut map = map.clone();
    map.insert(args[1].clone(), args[2].clone(), work)?;
    Ok(CelValue::Map(map))
}

fn insert_map<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (CelValue::Map(map), CelValue::Map(added)) = (&args[0], &args[1]) else {
        return Err(CelError::no_such_overload());
    };
    let mut map = map.clone();
    let mut at = 0;
    while let Some((key, value)) = added.entry_at(at) {
        map.insert(key, value, work)?;
        at += 1;
    }
    Ok(CelValue::Map(map))
}

fn has(e: &mut MacroExpansion<'_>, _: Option<ExprId>, args: &[ExprId]) -> Expanded {
    let Some((operand, field)) = e.selection(args[0]) else {
        return Err(e.error(args[0], "invalid argument to has() macro"));
    };
    let field = field.to_owned();
    Ok(Some(e.presence_test(operand, &field)))
}

/// The name of the variable that the argument `at` declares. `wrong` is the error if it is not a plain identifier.
fn variable(e: &MacroExpansion<'_>, at: ExprId, wrong: &str) -> Result<String, MacroError> {
    let Some(name) = e.identifier(at) else {
        return Err(e.error(at, wrong));
    };
    Ok(name.to_owned())
}

/// Refuses variables with the name of an accumulator.
fn check_variable(e: &MacroExpansion<'_>, at: ExprId, name: &str) -> Result<(), MacroError> {
    if name == MacroExpansion::ACCUMULATOR || name == OLD_ACCUMULATOR {
        return Err(e.error(at, "iteration variable overwrites accumulator variable"));
    }
    Ok(())
}

/// The variables of a comprehension: one or two.
struct Variables {
    first: String,
    second: Option<String>,
}

fn two_variables(e: &MacroExpansion<'_>, args: &[ExprId]) -> Result<Variables, MacroError> {
    let first = variable(e, args[0], "argument must be a simple name")?;
    let second = variable(e, args[1], "argument must be a simple name")?;
    // In the order of cel-go's checks: of several mistakes, the first is the one that is reported.
    if first == second {
        return Err(e.error(args[1], format!("duplicate variable name: {first}")));
    }
    check_variable(e, args[0], &first)?;
    check_variable(e, args[1], &second)?;
    let second = Some(second);
    Ok(Variables { first, second })
}

/// The parts in which comprehensions differ; see [`FoldParts`].
struct Loop {
    init: ExprId,
    condition: ExprId,
    step: ExprId,
    result: ExprId,
}

fn fold(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    variables: &Variables,
    of: &Loop,
) -> Expanded {
    let Some(range) = target else {
        return Ok(None);
    };
    Ok(Some(e.fold(&FoldParts {
        range,
        variable: &variables.first,
        second_variable: variables.second.as_deref(),
        accumulator: MacroExpansion::ACCUMULATOR,
        init: of.init,
        condition: of.condition,
        step: of.step,
        result: of.result,
    })))
}

fn quantifier(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
    of: fn(&mut MacroExpansion<'_>, ExprId) -> Loop,
) -> Expanded {
    let (variables, predicate) = if let [_, _, predicate] = args {
        (two_variables(e, args)?, *predicate)
    } else {
        let first = variable(e, args[0], "argument must be a simple name")?;
        check_variable(e, args[0], &first)?;
        let second = None;
        (Variables { first, second }, args[1])
    };
    let of = of(e, predicate);
    fold(e, target, &variables, &of)
}

fn all(e: &mut MacroExpansion<'_>, predicate: ExprId) -> Loop {
    until(e, predicate, false)
}

fn exists(e: &mut MacroExpansion<'_>, predicate: ExprId) -> Loop {
    until(e, predicate, true)
}

/// A loop that ends once the predicate of an element is `decisive`, which is then the result. Errors do not end it.
fn until(e: &mut MacroExpansion<'_>, predicate: ExprId, decisive: bool) -> Loop {
    let init = e.literal(CelValue::Bool(!decisive));
    let mut undecided = e.accumulator();
    if decisive {
        undecided = e.call("!_", &[undecided]);
    }
    // An error is not strictly false: the loop goes on after it, and a later element may still decide.
    let condition = e.call("@not_strictly_false", &[undecided]);
    let accumulator = e.accumulator();
    let operator = if decisive { "_||_" } else { "_&&_" };
    let step = e.call(operator, &[accumulator, predicate]);
    let result = e.accumulator();
    Loop {
        init,
        condition,
        step,
        result,
    }
}

fn exists_one(e: &mut MacroExpansion<'_>, predicate: ExprId) -> Loop {
    // All elements are visited, and an error in one is the result: only `all` and `exists` may be decided in spite of errors.
    let init = e.literal(CelValue::Int(0));
    let condition = e.literal(CelValue::Bool(true));
    let (accumulator, one) = (e.accumulator(), e.literal(CelValue::Int(1)));
    let more = e.call("_+_", &[accumulator, one]);
    let same = e.accumulator();
    let step = e.call("_?_:_", &[predicate, more, same]);
    let (accumulator, one) = (e.accumulator(), e.literal(CelValue::Int(1)));
    let result = e.call("_==_", &[accumulator, one]);
    Loop {
        init,
        condition,
        step,
        result,
    }
}

/// A loop that starts with `init` and applies `step` to each element for which `filter` holds, or to all.
fn collect(e: &mut MacroExpansion<'_>, init: ExprId, step: ExprId, filter: Option<ExprId>) -> Loop {
    let condition = e.literal(CelValue::Bool(true));
    let step = match filter {
        None => step,
        Some(filter) => {
            let same = e.accumulator();
            e.call("_?_:_", &[filter, step, same])
        }
    };
    let result = e.accumulator();
    Loop {
        init,
        condition,
        step,
        result,
    }
}

/// The list of the `element` of each entry for which `filter` holds, or of all.
fn collected_list(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    variables: &Variables,
    element: ExprId,
    filter: Option<ExprId>,
) -> Expanded {
    let init = e.list(&[]);
    let step = appended(e, element);
    let of = collect(e, init, step, filter);
    fold(e, target, variables, &of)
}

/// The accumulator with `element` appended.
fn appended(e: &mut MacroExpansion<'_>, element: ExprId) -> ExprId {
    let accumulator = e.accumulator();
    let list = e.list(&[element]);
    e.call("_+_", &[accumulator, list])
}

fn one_variable(e: &MacroExpansion<'_>, args: &[ExprId]) -> Result<Variables, MacroError> {
    let first = variable(e, args[0], "argument is not an identifier")?;
    check_variable(e, args[0], &first)?;
    let second = None;
    Ok(Variables { first, second })
}

fn map(e: &mut MacroExpansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> Expanded {
    let variables = one_variable(e, args)?;
    let (filter, element) = match args {
        [_, filter, element] => (Some(*filter), *element),
        _ => (None, args[1]),
    };
    collected_list(e, target, &variables, element, filter)
}

fn filter(e: &mut MacroExpansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> Expanded {
    let variables = one_variable(e, args)?;
    collected_list(e, target, &variables, args[0], Some(args[1]))
}

/// The filter, if there is one, and the expression that transforms each entry.
fn filter_and_transform(args: &[ExprId]) -> (Option<ExprId>, ExprId) {
    match args {
        [_, _, filter, transform] => (Some(*filter), *transform),
        _ => (None, args[2]),
    }
}

fn transform_list(e: &mut MacroExpansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> Expanded {
    let variables = two_variables(e, args)?;
    let (filter, transform) = filter_and_transform(args);
    collected_list(e, target, &variables, transform, filter)
}

fn transform_map(e: &mut MacroExpansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> Expanded {
    let variables = two_variables(e, args)?;
    let (filter, transform) = filter_and_transform(args);
    let init = e.map(&[]);
    let (accumulator, key) = (e.accumulator(), e.ident(&variables.first));
    let step = e.call(MAP_INSERT, &[accumulator, key, transform]);
    let of = collect(e, init, step, filter);
    fold(e, target, &variables, &of)
}

fn transform_entry(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Expanded {
    let variables = two_variables(e, args)?;
    let (filter, transform) = filter_and_transform(args);
    let init = e.map(&[]);
    let accumulator = e.accumulator();
    let step = e.call(MAP_INSERT, &[accumulator, transform]);
    let of = collect(e, init, step, filter);
    fold(e, target, &variables, &of)
}
