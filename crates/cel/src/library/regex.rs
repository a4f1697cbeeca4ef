//! The functions with regular expressions that Kubernetes adds: `find` and `findAll`.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/regex.go` and `cost.go`.

use std::sync::Arc;

use regex::Regex;

use super::go_text::{fixed, matching, text};
use super::re2;
use crate::declarations::{CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue};

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
                    fixed(|args| find(args, &pattern(args)?)),
                )),
        );
        let all = || fixed(|args| find_all(args, &pattern(args)?));
        to.function(
            CelFunctionDecl::new("findAll")
                .cost(cost)
                .prepare(1, prepare_find_all)
                .overload(CelOverload::member(
                    "string_find_all_string",
                    [text(), text()],
                    CelType::list(text()),
                    all(),
                ))
                .overload(CelOverload::member(
                    "string_find_all_string_int",
                    [text(), text(), CelType::Int],
                    CelType::list(text()),
                    all(),
                )),
        );
    }
}

/// The pattern of a call, compiled.
fn pattern(args: &[CelValue<'_>]) -> Result<Regex, CelError> {
    re2::compile(text(args, 1)?).map_err(|why| CelError::new(format!("Illegal regex: {why}")))
}

type Search = fn(&[CelValue<'_>], &Regex) -> Result<CelValue<'static>, CelError>;

/// A search whose pattern is a constant.
struct Prepared(Search, Regex);

impl CelFunction for Prepared {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        (self.0)(args, &self.1)
    }
}

fn prepared(
    pattern: &CelValue<'_>,
    search: Search,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    let Some(pattern) = pattern.as_str() else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Prepared(search, re2::compile(pattern)?))))
}

fn prepare_find(pattern: &CelValue<'_>) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    prepared(pattern, find)
}

fn prepare_find_all(pattern: &CelValue<'_>) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    prepared(pattern, find_all)
}

fn find(args: &[CelValue<'_>], pattern: &Regex) -> Result<CelValue<'static>, CelError> {
    let found = pattern.find(text(args, 0)?);
    Ok(found
        .map_or(String::new(), |found| found.as_str().to_owned())
        .into())
}

fn find_all(args: &[CelValue<'_>], pattern: &Regex) -> Result<CelValue<'static>, CelError> {
    let of = text(args, 0)?;
    let limit = match args.get(2) {
        None => usize::MAX,
        // A negative limit means no limit.
        Some(CelValue::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return Err(CelError::no_such_overload()),
    };
    let mut all = Vec::new();
    let mut last = None;
    for found in pattern.find_iter(of) {
        // Go leaves out an empty match right after another match.
        if found.is_empty() && last == Some(found.start()) {
            continue;
        }
        if all.len() >= limit {
            break;
        }
        last = Some(found.end());
        all.push(CelValue::from(found.as_str().to_owned()));
    }
    CelValue::list(all)
}
