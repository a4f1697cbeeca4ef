//! Functions that treat lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`.
//!
//! Source: cel-go `ext/sets.go`.

use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelList, CelResult, CelValue, Fuel, equal_within};

/// The maximum number of parts of values that one call compares, far above what the cost limit of Kubernetes allows.
const MOST_COMPARISONS: u64 = 5_000_000;

/// cel-go's extension for sets.
#[derive(Clone, Copy, Debug)]
pub struct SetsLibrary;

impl CelLibrary for SetsLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let list = || CelType::list(CelType::parameter("T"));
        let lists = || [list(), list()];
        let bool = CelType::Bool;
        to.function(
            CelFunctionDecl::new("sets.contains").overload(
                CelOverload::global("list_sets_contains_list", lists(), bool.clone(), contains)
                    .cost(|args, _| Some(product(args).saturating_add(1))),
            ),
        );
        to.function(
            CelFunctionDecl::new("sets.equivalent").overload(
                CelOverload::global(
                    "list_sets_equivalent_list",
                    lists(),
                    bool.clone(),
                    equivalent,
                )
                .cost(|args, _| Some(product(args).saturating_mul(2).saturating_add(1))),
            ),
        );
        to.function(
            CelFunctionDecl::new("sets.intersects").overload(
                CelOverload::global("list_sets_intersects_list", lists(), bool, intersects)
                    .cost(|args, _| Some(product(args).saturating_add(1))),
            ),
        );
    }
}

fn product(args: &[CelValue<'_>]) -> u64 {
    args[0].cost_size().saturating_mul(args[1].cost_size())
}

fn lists<'v, 'a>(args: &'v [CelValue<'a>]) -> Result<(&'v CelList<'a>, &'v CelList<'a>), CelError> {
    match (&args[0], &args[1]) {
        (CelValue::List(first), CelValue::List(second)) => Ok((first, second)),
        _ => Err(CelError::no_such_overload()),
    }
}

fn has(list: &CelList<'_>, value: &CelValue<'_>, fuel: &mut Fuel) -> Result<bool, CelError> {
    for element in list {
        if equal_within(&element, value, fuel)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all(list: &CelList<'_>, part: &CelList<'_>, fuel: &mut Fuel) -> Result<bool, CelError> {
    for element in part {
        if !has(list, &element, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fuel() -> Fuel {
    Fuel {
        left: MOST_COMPARISONS,
    }
}

fn contains<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (list, part) = lists(args)?;
    Ok(has_all(list, part, &mut fuel())?.into())
}

fn equivalent<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (first, second) = lists(args)?;
    let mut fuel = fuel();
    let equal = has_all(first, second, &mut fuel)? && has_all(second, first, &mut fuel)?;
    Ok(equal.into())
}

fn intersects<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (first, second) = lists(args)?;
    let mut fuel = fuel();
    for element in first {
        if has(second, &element, &mut fuel)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}
