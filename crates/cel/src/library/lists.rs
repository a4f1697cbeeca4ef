//! Functions of lists that Kubernetes adds: `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/lists.go` and `cost.go`.

use std::cmp::Ordering;

use crate::declarations::{
    CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelOverload, Metered,
};
use crate::types::CelType;
use crate::value::{
    CelDuration, CelError, CelList, CelResult, CelValue, CelWork, DEFAULT_WORK_LIMIT,
    is_same_within,
};

/// The list functions of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct ListsLibrary;

impl CelLibrary for ListsLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        to.function(of_each("isSorted", &ORDERED, is_sorted, |name, of| {
            (format!("list_{name}_is_sorted_bool"), of, CelType::Bool)
        }));
        to.function(of_each("max", &ORDERED, max, |name, of| {
            (format!("list_{name}_max_{name}"), of.clone(), of)
        }));
        to.function(of_each("min", &ORDERED, min, |name, of| {
            (format!("list_{name}_min_{name}"), of.clone(), of)
        }));
        declare_sum(to);
        let element = || CelType::parameter("A");
        for (name, id, function) in [
            ("indexOf", "list_a_index_of_int", index_of as ListFn),
            ("lastIndexOf", "list_a_last_index_of_int", last_index_of),
        ] {
            let args = [CelType::list(element()), element()];
            to.function(
                CelFunctionDecl::new(name)
                    .traversal_cost()
                    .overload(CelOverload::member(
                        id,
                        args,
                        CelType::Int,
                        Metered(function),
                    )),
            );
        }
    }
}

type ListFn = for<'a> fn(&[CelValue<'a>], &mut CelWork<'_>) -> CelResult<'a>;

/// The types that have an order, with their names in identifiers of overloads.
const ORDERED: [(&str, CelType); 8] = [
    ("int", CelType::Int),
    ("uint", CelType::Uint),
    ("double", CelType::Double),
    ("bool", CelType::Bool),
    ("duration", CelType::Duration),
    ("timestamp", CelType::Timestamp),
    ("string", CelType::String),
    ("bytes", CelType::Bytes),
];

/// A function with an overload for lists of each type. `signature` returns the identifier of the overload, the type of
/// the elements and that of the result.
fn of_each(
    name: &str,
    types: &[(&str, CelType)],
    function: ListFn,
    signature: fn(&str, CelType) -> (String, CelType, CelType),
) -> CelFunctionDecl {
    let mut declared = CelFunctionDecl::new(name).traversal_cost();
    for (type_name, of) in types {
        let (id, element, result) = signature(type_name, of.clone());
        let args = [CelType::list(element)];
        declared = declared.overload(CelOverload::member(&id, args, result, Metered(function)));
    }
    declared
}

fn declare_sum(to: &mut CelDeclarations) {
    let zeros: [(&str, CelType, CelValue<'static>); 4] = [
        ("int", CelType::Int, CelValue::Int(0)),
        ("uint", CelType::Uint, CelValue::Uint(0)),
        ("double", CelType::Double, CelValue::Double(0.0)),
        (
            "duration",
            CelType::Duration,
            CelValue::Duration(CelDuration::from_nanoseconds(0)),
        ),
    ];
    let mut declared = CelFunctionDecl::new("sum").traversal_cost();
    for (name, of, zero) in zeros {
        declared = declared.overload(CelOverload::member(
            &format!("list_{name}_sum_{name}"),
            [CelType::list(of.clone())],
            of,
            Sum(zero),
        ));
    }
    to.function(declared);
}

fn list<'v, 'a>(args: &'v [CelValue<'a>]) -> Result<&'v CelList<'a>, CelError> {
    match &args[0] {
        CelValue::List(list) => Ok(list),
        _ => Err(CelError::no_such_overload()),
    }
}

/// The next element that is compared, if it has an order; comparing it takes as many steps as reading it.
fn ordered<'a>(value: CelValue<'a>, work: &mut CelWork<'_>) -> CelResult<'a> {
    work.burn(1 + value.reading_work())?;
    if value.is_ordered() {
        return Ok(value);
    }
    Err(CelError::no_such_overload())
}

/// As in the original, values that cannot be compared with each other count as sorted.
fn is_sorted<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let mut previous: Option<CelValue<'a>> = None;
    for next in list(args)? {
        let next = ordered(next, work)?;
        if previous.is_some_and(|of| of.compare(&next) == Ok(Ordering::Greater)) {
            return Ok(false.into());
        }
        previous = Some(next);
    }
    Ok(true.into())
}

fn min<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    best(args, work, "min", Ordering::Greater)
}

fn max<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    best(args, work, "max", Ordering::Less)
}

/// The minimum or maximum: an element is replaced by the next one if it compares to it as `worse`.
fn best<'a>(
    args: &[CelValue<'a>],
    work: &mut CelWork<'_>,
    name: &str,
    worse: Ordering,
) -> CelResult<'a> {
    let mut best: Option<CelValue<'a>> = None;
    for next in list(args)? {
        let next = ordered(next, work)?;
        best = match best {
            Some(known) if known.compare(&next) != Ok(worse) => Some(known),
            _ => Some(next),
        };
    }
    best.ok_or_else(|| CelError::new(format!("{name} called on empty list")))
}

/// The sum of numbers or durations, with the zero of the type, which is the result for an empty list.
struct Sum(CelValue<'static>);

impl CelFunction for Sum {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        self.call_within(args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))
    }

    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        let mut sum: CelValue<'a> = self.0.clone();
        for next in list(args)? {
            work.burn(1)?;
            sum = match (&sum, &next) {
                (CelValue::Int(a), CelValue::Int(b)) => {
                    let total = a.checked_add(*b);
                    CelValue::Int(total.ok_or_else(|| CelError::new("integer overflow"))?)
                }
                (CelValue::Uint(a), CelValue::Uint(b)) => {
                    let total = a.checked_add(*b);
                    CelValue::Uint(total.ok_or_else(|| CelError::new("unsigned integer overflow"))?)
                }
                (CelValue::Double(a), CelValue::Double(b)) => CelValue::Double(a + b),
                (CelValue::Duration(a), CelValue::Duration(b)) => CelValue::Duration(a.plus(*b)?),
                (CelValue::Duration(a), CelValue::Timestamp(b)) => CelValue::Timestamp(b.plus(*a)?),
                (CelValue::Timestamp(a), CelValue::Duration(b)) => CelValue::Timestamp(a.plus(*b)?),
                _ => return Err(CelError::no_such_overload()),
            };
        }
        Ok(sum)
    }
}

fn position(found: Option<usize>) -> CelValue<'static> {
    CelValue::Int(found.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX)))
}

fn index_of<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let mut elements = list(args)?.iter();
    let mut at = 0;
    while let Some(found) = elements.visit(|element| is_same_within(element, &args[1], work)) {
        if found? {
            return Ok(position(Some(at)));
        }
        at += 1;
    }
    Ok(position(None))
}

fn last_index_of<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let list = list(args)?;
    for at in (0..list.len()).rev() {
        // Elements of a joined list are found one by one from the end.
        work.burn(4)?;
        let element = list.get(at).unwrap_or(CelValue::Null);
        if is_same_within(&element, &args[1], work)? {
            return Ok(position(Some(at)));
        }
    }
    Ok(position(None))
}
