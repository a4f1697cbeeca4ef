//! Regular expressions with the syntax and semantics of RE2, implemented with the crate `regex`.

mod class;
mod refused;
mod translate;

use std::sync::Arc;

use regex::Regex;

use crate::declarations::CelFunction;
use crate::value::{CelError, CelResult, CelValue};

/// The maximum size of a compiled pattern, in bytes.
const SIZE_LIMIT: usize = 10 << 20;

/// Compiles a pattern.
///
/// # Errors
///
/// The message of Go's package `regexp`.
pub(super) fn compile(pattern: &str) -> Result<Regex, CelError> {
    let failed = |(what, part): (&str, String)| {
        CelError::new(format!("error parsing regexp: {what}: `{part}`"))
    };
    let translated = translate::translate(pattern).map_err(failed)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|_| failed(("expression too large", pattern.to_owned())))
}

/// The cost of matching `text` with `pattern`.
pub(super) fn match_cost(text: &CelValue<'_>, pattern: &CelValue<'_>) -> u64 {
    let text = text.cost_size().saturating_add(1).div_ceil(10);
    text.saturating_mul(pattern.cost_size().div_ceil(4))
}

/// Prepares `matches` for a constant pattern, which is compiled once.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_classes_and_word_boundaries_are_ascii_only() {
        assert!(!matches(r"^\w$", "é"));
        assert!(matches(r"^\W$", "é"));
        assert!(!matches(r"\s", "\u{b}"));
        assert!(matches(r"^[\W]$", "é"));
        assert!(matches(r"\bé", "aé"));
        assert!(!matches(r"\Bé", "aé"));
        assert!(matches("^[[:^digit:]]$", "a"));
    }

    #[test]
    fn characters_without_a_special_meaning_are_literals() {
        assert!(matches("^a{$", "a{"));
        assert!(matches("^a{,2}$", "a{,2}"));
        assert!(matches("^a{1,x}$", "a{1,x}"));
        assert!(matches(r"^\Qa.b\E$", "a.b"));
        assert!(matches("^[a&&b]+$", "a&b"));
        assert!(matches("^[[]$", "["));
    }

    #[test]
    fn errors_are_those_of_go() {
        for (pattern, message) in [
            ("(x", "missing closing ): `(x`"),
            ("x)", "unexpected ): `x)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("x+*", "invalid nested repetition operator: `+*`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[a", "missing closing ]: `[a`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            ("(?x)", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ] {
            let error = compile(pattern).unwrap_err().to_string();
            assert_eq!(error, format!("error parsing regexp: {message}"));
        }
    }

    #[test]
    fn hostile_patterns_are_refused_or_compiled_in_bounded_time() {
        for pattern in [
            "(".repeat(50_000),
            "a?".repeat(40_000),
            "[".repeat(50_000),
            "(?i)".repeat(20_000),
            r"\pL{1000}".repeat(100),
            "((a{30}){30}){30}".to_owned(),
            "x*".repeat(1_000) + "y",
            "\\".repeat(99_999),
        ] {
            drop(compile(&pattern));
        }
    }
}
