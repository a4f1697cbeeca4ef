//! The functions of cel-go's list extension: `slice`, `flatten`, `sort`, `sortBy`, `lists.range`, `reverse` and
//! `distinct`. `first` and `last` are in the library of optional values.
//!
//! The original computes a list before it counts its cost, so `lists.range` of a large number exhausts its memory. Here
//! `lists.range` and `flatten` fail with an exceeded cost limit if the list would have more than [`MOST_ELEMENTS`]
//! elements.
//!
//! Source: cel-go `ext/lists.go`.

#![expect(clippy::unnecessary_wraps, reason = "the signature of cost functions")]

use std::cmp::Ordering;

use super::go_text::int;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::syntax::{CelMacro, ExprId, FoldParts, MacroError, MacroExpansion};
use crate::types::CelType;
use crate::value::{CelError, CelList, CelResult, CelValue, CelWork, is_same_within};

/// The maximum number of elements of a list that `lists.range` and `flatten` create.
const MOST_ELEMENTS: usize = 1_000_000;

/// cel-go's list extension, version 3: all functions, with their costs.
#[derive(Clone, Copy, Debug)]
pub struct ListsExtension;

impl CelLibrary for ListsExtension {
    fn declare(&self, to: &mut CelDeclarations) {
        declare_parts(to);
        declare_order(to);
        let list = list_of("T");
        to.function(
            CelFunctionDecl::new("reverse").overload(
                CelOverload::member(
                    "list_reverse",
                    [list.clone()],
                    list.clone(),
                    Metered(reverse),
                )
                .cost(result_size),
            ),
        );
        to.function(
            CelFunctionDecl::new("distinct").overload(
                CelOverload::member("list_distinct", [list.clone()], list, Metered(distinct))
                    .cost(|args, _| self_compare(&args[0])),
            ),
        );
        let ints = CelType::list(CelType::Int);
        to.function(
            CelFunctionDecl::new("lists.range").overload(
                CelOverload::global("lists_range", [CelType::Int], ints, Metered(range))
                    .cost(result_size),
            ),
        );
    }
}

fn list_of(parameter: &str) -> CelType {
    CelType::list(CelType::parameter(parameter))
}

fn declare_parts(to: &mut CelDeclarations) {
    let list = list_of("T");
    let bounds = [list.clone(), CelType::Int, CelType::Int];
    to.function(CelFunctionDecl::new("slice").overload(
        CelOverload::member("list_slice", bounds, list.clone(), Metered(slice)).cost(result_size),
    ));
    let dynamic = CelType::list(CelType::Dyn);
    to.function(
        CelFunctionDecl::new("flatten")
            .overload(
                CelOverload::member(
                    "list_flatten",
                    [CelType::list(list.clone())],
                    list,
                    Metered(flatten),
                )
                .signed_cost(flatten_cost)
                .unguarded(),
            )
            .overload(
                CelOverload::member(
                    "list_flatten_int",
                    [dynamic.clone(), CelType::Int],
                    dynamic,
                    Metered(flatten),
                )
                .signed_cost(flatten_cost)
                .unguarded(),
            ),
    );
}

const ORDERED: [CelType; 8] = [
    CelType::Int,
    CelType::Uint,
    CelType::Double,
    CelType::Bool,
    CelType::Duration,
    CelType::Timestamp,
    CelType::String,
    CelType::Bytes,
];

/// The function that the macro `sortBy` calls.
const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";

fn declare_order(to: &mut CelDeclarations) {
    let mut sort_all = CelFunctionDecl::new("sort").singleton();
    let mut sort_by = CelFunctionDecl::new(SORT_BY_KEYS).singleton();
    for of in ORDERED {
        let name = of.runtime_name();
        let list = CelType::list(of.clone());
        sort_all = sort_all.overload(
            CelOverload::member(
                &format!("list_{name}_sort"),
                [list.clone()],
                list.clone(),
                Metered(sort),
            )
            .cost(|args, _| self_compare(&args[0]))
            .unguarded(),
        );
        let args = [list_of("T"), list];
        sort_by = sort_by.overload(
            CelOverload::member(
                &format!("list_{name}_sortByAssociatedKeys"),
                args,
                list_of("T"),
                Metered(sort_by_keys),
            )
            .cost(|args, _| self_compare(&args[1]))
            .unguarded(),
        );
    }
    to.function(sort_all);
    to.function(sort_by);
    to.macro_call(CelMacro::member("sortBy", 2, expand_sort_by));
}

/// The cost of a call that creates a list: 1 for the call, 10 for the list, and `amount` for its elements.
fn allocating(amount: u64) -> Option<u64> {
    Some(amount.wrapping_add(11))
}

fn result_size(_: &[CelValue<'_>], result: &CelValue<'_>) -> Option<u64> {
    allocating(result.cost_size())
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as the original computes it"
)]
fn flatten_cost(args: &[CelValue<'_>]) -> i64 {
    let depth = args.get(1).map_or(1, |depth| depth.as_int().unwrap_or(0));
    let amount = args[0].cost_size() as f64 * depth as f64;
    (amount + 11.0) as i64
}

/// The cost of comparing each element of a list with all others.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as the original computes it"
)]
fn self_compare(list: &CelValue<'_>) -> Option<u64> {
    let size = list.cost_size();
    let first = match list {
        CelValue::List(list) => list.get(0),
        _ => None,
    };
    let factor = match first {
        Some(CelValue::String(_) | CelValue::Bytes(_)) => 2.1,
        _ => 2.0,
    };
    allocating((size.saturating_mul(size) as f64 * factor) as u64)
}

fn list<'v, 'a>(
    function: &str,
    args: &'v [CelValue<'a>],
    at: usize,
) -> Result<&'v CelList<'a>, CelError> {
    match &args[at] {
        CelValue::List(list) => Ok(list),
        CelValue::String(_) | CelValue::Duration(_) | CelValue::Timestamp(_) => {
            Err(CelError::no_such_overload())
        }
        _ => Err(CelError::new(format!("no such overload: {function}"))),
    }
}

fn slice<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (list, start, end) = (list("slice", args, 0)?, int(args, 1)?, int(args, 2)?);
    let wrong = |why: &str| {
        Err(CelError::new(format!(
            "cannot slice({start}, {end}), {why}"
        )))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return wrong("negative indexes not supported");
    };
    if from > to {
        return wrong("start index must be less than or equal to end index");
    }
    if list.len() < to {
        return wrong(&format!("list is length {}", list.len()));
    }
    work.burn((to - from) as u64)?;
    CelValue::list(list.iter().skip(from).take(to - from).collect())
}

fn flatten<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let refusal = || {
        // This is the one error that names what lists and maps are of.
        let type_of = |arg: &CelValue<'_>| match arg {
            CelValue::List(_) => "list(dyn)".to_owned(),
            CelValue::Map(_) => "map(dyn, dyn)".to_owned(),
            other => other.type_name().to_owned(),
        };
        let types: Vec<_> = args.iter().map(type_of).collect();
        let (target, rest) = (&types[0], types[1..].join(", "));
        CelError::new(format!("no such overload: {target}.flatten({rest})"))
    };
    let CelValue::List(list) = &args[0] else {
        return Err(refusal());
    };
    let depth = match args.get(1) {
        None => 1,
        Some(CelValue::Int(depth)) => *depth,
        Some(_) => return Err(refusal()),
    };
    if depth < 0 {
        return Err(CelError::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat, work)?;
    CelValue::list(flat)
}

/// Appends the elements of `list`, with lists inside it flattened down to `depth`. It recurses as
/// deep as the lists nest.
fn flatten_into<'a>(
    list: &CelList<'a>,
    depth: i64,
    flat: &mut Vec<CelValue<'a>>,
    work: &mut CelWork<'_>,
) -> Result<(), CelError> {
    for element in list {
        work.burn(2)?;
        match element {
            CelValue::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat, work)?,
            other => flat.push(other),
        }
        if flat.len() > MOST_ELEMENTS {
            return Err(CelError::cost_limit());
        }
    }
    Ok(())
}

fn range<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let end = int(args, 0)?;
    if usize::try_from(end).is_ok_and(|end| end > MOST_ELEMENTS) {
        return Err(CelError::cost_limit());
    }
    // A step for each element while the list grows, so that an interrupt ends it.
    let mut elements = Vec::with_capacity(usize::try_from(end).unwrap_or(0));
    for value in 0..end {
        work.burn(1)?;
        elements.push(CelValue::Int(value));
    }
    CelValue::list(elements)
}

fn reverse<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let of = list("reverse", args, 0)?;
    work.burn(of.len() as u64)?;
    let mut elements: Vec<_> = of.iter().collect();
    elements.reverse();
    CelValue::list(elements)
}

fn distinct<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let mut unique: Vec<CelValue<'a>> = Vec::new();
    for element in list("distinct", args, 0)? {
        let mut seen = false;
        for other in &unique {
            if is_same_within(&element, other, work)? {
                seen = true;
                break;
            }
        }
        if !seen {
            work.burn(2)?;
            unique.push(element);
        }
    }
    CelValue::list(unique)
}

fn sort<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let of = list("sort", args, 0)?;
    sorted(of, of, work)
}

fn sort_by_keys<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let keys = list(SORT_BY_KEYS, args, 1)?;
    sorted(list(SORT_BY_KEYS, args, 0)?, keys, work)
}

/// The elements of `list` in the order of their `keys`; elements with equal keys keep their order.
fn sorted<'a>(list: &CelList<'a>, keys: &CelList<'a>, work: &mut CelWork<'_>) -> CelResult<'a> {
    if list.len() != keys.len() {
        return Err(CelError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.get(0) else {
        return Ok(CelValue::List(list.clone()));
    };
    if !first.is_ordered() {
        return Err(CelError::new("list elements must be comparable"));
    }
    // Each round of merging reads all keys.
    let merges = u64::from(list.len().ilog2() + 1);
    work.burn(list.len() as u64)?;
    let mut reading = 4 * list.len() as u64;
    for key in keys {
        reading = reading.saturating_add(key.reading_work());
    }
    work.burn(reading.saturating_mul(merges))?;
    let mut pairs: Vec<_> = keys.iter().zip(list).collect();
    if pairs
        .iter()
        .any(|(key, _)| key.type_name() != first.type_name())
    {
        return Err(CelError::new("list elements must have the same type"));
    }
    merge_sort(&mut pairs);
    CelValue::list(pairs.into_iter().map(|(_, element)| element).collect())
}

/// A stable sort. `NaN` has no order and may end up anywhere. The sort of the standard library is not used because it
/// may panic if values have no total order.
fn merge_sort<'a>(pairs: &mut Vec<(CelValue<'a>, CelValue<'a>)>) {
    if pairs.len() < 2 {
        return;
    }
    let mut right = pairs.split_off(pairs.len() / 2);
    merge_sort(pairs);
    merge_sort(&mut right);
    let mut merged = Vec::with_capacity(pairs.len() + right.len());
    let mut lefts = pairs.drain(..).peekable();
    let mut rights = right.into_iter().peekable();
    while let (Some(left), Some(right)) = (lefts.peek(), rights.peek()) {
        let taken = if right.0.compare(&left.0) == Ok(Ordering::Less) {
            rights.next()
        } else {
            lefts.next()
        };
        merged.extend(taken);
    }
    merged.extend(lefts);
    merged.extend(rights);
    *pairs = merged;
}

/// Expands `list.sortBy(x, key)`: the list is computed once and bound to a name, and the keys are mapped from it.
fn expand_sort_by(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Result<Option<ExprId>, MacroError> {
    const INPUT: &str = "@__sortBy_input__";
    let Some(target) = target else {
        return Ok(None);
    };
    if e.is_literal_or_map(target) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(e.error(target, message));
    }
    let Some(variable) = e.identifier(args[0]).map(str::to_owned) else {
        return Err(e.error(args[0], "argument is not an identifier"));
    };
    let (first, second) = (e.ident(INPUT), e.ident(INPUT));
    let keys = keys_of(e, first, &variable, args[1]);
    let call = e.member_call(SORT_BY_KEYS, second, &[keys]);
    let (range, condition, step) = (e.list(&[]), e.literal(false.into()), e.ident(INPUT));
    Ok(Some(e.fold(&FoldParts {
        range,
        variable: "#unused",
        second_variable: None,
        accumulator: INPUT,
        init: target,
        condition,
        step,
        result: call,
    })))
}

/// `range.map(variable, key)`
fn keys_of(e: &mut MacroExpansion<'_>, range: ExprId, variable: &str, key: ExprId) -> ExprId {
    let (init, condition, before) = (e.list(&[]), e.literal(true.into()), e.accumulator());
    let one = e.list(&[key]);
    let step = e.call("_+_", &[before, one]);
    let result = e.accumulator();
    e.fold(&FoldParts {
        range,
        variable,
        second_variable: None,
        accumulator: MacroExpansion::ACCUMULATOR,
        init,
        condition,
        step,
        result,
    })
}
