//! Patterns with the rules of RE2, over the crate `regex`.

use std::sync::Arc;

use regex::Regex;

use crate::declarations::CelFunction;
use crate::value::{CelError, CelResult, CelValue};

/// The largest compiled pattern, in bytes.
const SIZE_LIMIT: usize = 10 << 20;

/// Compiles a pattern.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn compile(pattern: &str) -> Result<Regex, CelError> {
    regex::RegexBuilder::new(pattern)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|_| CelError::new(format!("error parsing regexp: `{pattern}`")))
}

/// What matching `text` with `pattern` costs.
pub(super) fn match_cost(text: &CelValue<'_>, pattern: &CelValue<'_>) -> u64 {
    let text = text.cost_size().saturating_add(1).div_ceil(10);
    text.saturating_mul(pattern.cost_size().div_ceil(4))
}

/// `matches` with a constant pattern.
pub(super) fn prepare_matches(
    pattern: &CelValue<'_>,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    let CelValue::String(pattern) = pattern else {
        return Ok(None);
    };
    Ok(Some(Arc::new(MatchesConstant(compile(pattern)?))))
}

struct MatchesConstant(Regex);

impl CelFunction for MatchesConstant {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        let Some(text) = args.first().and_then(CelValue::as_str) else {
            return Err(CelError::no_such_overload());
        };
        Ok(CelValue::Bool(self.0.is_match(text)))
    }
}
