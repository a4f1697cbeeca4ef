//! Functions that treat lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`.
//!
//! Source: cel-go `ext/sets.go`.

use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::types::CelType;
use crate::value::{CelError, CelList, CelResult, CelValue, CelWork, is_same_within};

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
                CelOverload::global(
                    "list_sets_contains_list",
                    lists(),
                    bool.clone(),
                    Metered(contains),
                )
                .cost(|args, _| Some(product(args).saturating_add(1))),
            ),
        );
        to.function(
            CelFunctionDecl::new("sets.equivalent").overload(
                CelOverload::global(
                    "list_sets_equivalent_list",
                    lists(),
                    bool.clone(),
                    Metered(equivalent),
                )
                .cost(|args, _| Some(product(args).saturating_mul(2).saturating_add(1))),
            ),
        );
        to.function(
            CelFunctionDecl::new("sets.intersects").overload(
                CelOverload::global(
                    "list_sets_intersects_list",
                    lists(),
                    bool,
                    Metered(intersects),
                )
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

fn has(list: &CelList<'_>, value: &CelValue<'_>, work: &mut CelWork<'_>) -> Result<bool, CelError> {
    let mut elements = list.iter();
    while let Some(equal) = elements.visit(|element| is_same_within(value, element, work)) {
        if equal? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all(
    list: &CelList<'_>,
    part: &CelList<'_>,
    work: &mut CelWork<'_>,
) -> Result<bool, CelError> {
    for element in part {
        if !has(list, &element, work)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (list, part) = lists(args)?;
    Ok(has_all(list, part, work)?.into())
}

fn equivalent<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (first, second) = lists(args)?;
    let equal = has_all(first, second, work)? && has_all(second, first, work)?;
    Ok(equal.into())
}

fn intersects<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (first, second) = lists(args)?;
    for element in first {
        if has(second, &element, work)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}
