//! The functions with regular expressions that Kubernetes adds: `find` and `findAll`.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/regex.go` and `cost.go`.

use std::sync::Arc;

use super::go_text::{matching, text};
use super::re2::{self, Pattern};
use crate::declarations::{
    CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelOverload, Metered,
};
use crate::pattern_budget::PatternBudget;
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue, CelWork, DEFAULT_WORK_LIMIT, work_of_bytes};

/// The functions `find` and `findAll`.
#[derive(Clone, Copy, Debug)]
pub struct RegexLibrary;

impl CelLibrary for RegexLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let text = || CelType::String;
        let cost = |args: &[CelValue<'_>], _: &CelValue<'_>| {
            Some(matching(args[0].cost_size(), args[1].cost_size()))
        };
        to.function(
            CelFunctionDecl::new("find")
                .cost(cost)
                .prepare(1, prepare_find)
                .overload(CelOverload::member(
                    "string_find_string",
                    [text(), text()],
                    text(),
                    Metered(find_dynamic),
                )),
        );
        to.function(
            CelFunctionDecl::new("findAll")
                .cost(cost)
                .prepare(1, prepare_find_all)
                .overload(CelOverload::member(
                    "string_find_all_string",
                    [text(), text()],
                    CelType::list(text()),
                    Metered(find_all_dynamic),
                ))
                .overload(CelOverload::member(
                    "string_find_all_string_int",
                    [text(), text(), CelType::Int],
                    CelType::list(text()),
                    Metered(find_all_dynamic),
                )),
        );
    }
}

/// The pattern of a call, compiled.
fn pattern(args: &[CelValue<'_>], work: &mut CelWork<'_>) -> Result<Pattern, CelError> {
    // What is wrong with the text is told after what is wrong with the pattern.
    let searched = re2::searched(args).unwrap_or_default();
    re2::compile_within(text(args, 1)?, searched, work).map_err(|why| {
        if why.is_final() {
            return why;
        }
        CelError::new(format!("Illegal regex: {why}"))
    })
}

fn find_dynamic<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let pattern = pattern(args, work)?;
    find(args, &pattern, work)
}

fn find_all_dynamic<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let pattern = pattern(args, work)?;
    find_all(args, &pattern, work)
}

type Search = for<'a> fn(&[CelValue<'a>], &Pattern, &mut CelWork<'_>) -> CelResult<'a>;

/// A search whose pattern is a constant.
struct Prepared(Search, Arc<Pattern>);

impl CelFunction for Prepared {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        self.call_within(args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))
    }

    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        (self.0)(args, &self.1, work)
    }
}

fn prepared(
    pattern: &CelValue<'_>,
    budget: &mut PatternBudget,
    search: Search,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    let Some(pattern) = pattern.as_str() else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Prepared(
        search,
        re2::compile(pattern, budget)?,
    ))))
}

fn prepare_find(
    pattern: &CelValue<'_>,
    budget: &mut PatternBudget,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    prepared(pattern, budget, find)
}

fn prepare_find_all(
    pattern: &CelValue<'_>,
    budget: &mut PatternBudget,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    prepared(pattern, budget, find_all)
}

fn find<'a>(args: &[CelValue<'a>], pattern: &Pattern, work: &mut CelWork<'_>) -> CelResult<'a> {
    let of = re2::searched(args)?;
    let found = pattern.search(of, work)?.find(0, work)?;
    Ok(found
        .map_or(String::new(), |(start, end)| of[start..end].to_owned())
        .into())
}

/// The steps of making a value of a match.
const MATCH: u64 = 9;

fn find_all<'a>(args: &[CelValue<'a>], pattern: &Pattern, work: &mut CelWork<'_>) -> CelResult<'a> {
    let of = re2::searched(args)?;
    let limit = match args.get(2) {
        None => usize::MAX,
        // A negative limit means no limit.
        Some(CelValue::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return Err(CelError::no_such_overload()),
    };
    let mut search = pattern.search(of, work)?;
    let (mut all, mut at, mut last) = (Vec::new(), 0, None);
    while all.len() < limit
        && let Some((start, end)) = search.find(at, work)?
    {
        // Go leaves out an empty match right after another match, and searches on after the next character.
        let is_left_out = end == at && last == Some(start);
        at = if end > at { end } else { after_next(of, at) };
        last = Some(end);
        if !is_left_out {
            work.burn(MATCH + work_of_bytes(end - start))?;
            all.push(CelValue::from(of[start..end].to_owned()));
        }
        if at > of.len() {
            break;
        }
    }
    CelValue::list(all)
}

/// The position after the character at `at`; beyond the text if there is none.
fn after_next(text: &str, at: usize) -> usize {
    let next = text[at..].chars().next();
    at + next.map_or(1, char::len_utf8)
}
