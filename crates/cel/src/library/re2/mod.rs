//! Regular expressions with the syntax and semantics of RE2, implemented with the crate `regex`.

mod class;
mod height;
mod refused;
mod translate;

use std::sync::Arc;

use regex::Regex;

use crate::declarations::CelFunction;
use crate::value::{CelError, CelResult, CelValue, CelWork, DEFAULT_WORK_LIMIT};
use refused::TOO_DEEP;
use translate::Translated;

/// The maximum size of a compiled pattern, in bytes.
const SIZE_LIMIT: usize = 10 << 20;

/// The height of patterns that are compiled on the stack of the caller: each level takes 1.5 KB of it, and 11 KB without
/// optimization.
const MAX_SHALLOW: u32 = 100;

/// The stack for the others, whose height is at most 1000, in bytes.
const DEEP_STACK: usize = 32 << 20;

/// The steps that compiling a pattern takes if it is not a constant: a fixed number, and some for each of its characters
/// and classes, which count as often as they are repeated.
const COMPILE: u64 = 2_000;
const COMPILE_ATOM: u64 = 100;

/// How many pairs of a character of the text and an atom of the pattern count as one step.
///
/// Most patterns run as an automaton that looks at a character once, whatever the size of the pattern. The engine turns
/// to one that may look at all of the pattern for each character where the automaton would become too large.
const MEETINGS_PER_STEP: u64 = 8;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// Characters and classes, as often as counts repeat them.
    size: u64,
}

impl Pattern {
    /// The pattern, to search `text` with.
    ///
    /// # Errors
    ///
    /// When that may take more than `work` allows.
    pub(super) fn search(&self, text: &str, work: &mut CelWork<'_>) -> Result<&Regex, CelError> {
        let meetings = self.size.saturating_mul(text.len() as u64);
        work.burn(meetings / MEETINGS_PER_STEP)?;
        Ok(&self.regex)
    }
}

/// Compiles a pattern.
///
/// # Errors
///
/// The message of Go's package `regexp`.
pub(super) fn compile(pattern: &str) -> Result<Pattern, CelError> {
    compile_with(pattern, |_| Ok(()))
}

/// Compiles a pattern that is not a constant, which an expression may do again and again.
///
/// # Errors
///
/// As [`compile`], and when that takes more than `work` allows.
pub(super) fn compile_within(pattern: &str, work: &mut CelWork<'_>) -> Result<Pattern, CelError> {
    work.burn(COMPILE.saturating_add(4 * pattern.len() as u64))?;
    compile_with(pattern, |size| work.burn(COMPILE_ATOM.saturating_mul(size)))
}

fn compile_with(
    pattern: &str,
    mut allow: impl FnMut(u64) -> Result<(), CelError>,
) -> Result<Pattern, CelError> {
    let failed = |(what, part): (&str, String)| {
        CelError::new(format!("error parsing regexp: {what}: `{part}`"))
    };
    let translated = translate::translate(pattern).map_err(failed)?;
    allow(translated.size)?;
    let regex = build(&translated).map_err(|why| failed((why, pattern.to_owned())))?;
    let size = translated.size;
    Ok(Pattern { regex, size })
}

/// Compiles a translated pattern. The crate does so by recursion; a pattern that nests deeply gets a stack of its own.
fn build(translated: &Translated) -> Result<Regex, &'static str> {
    let build = || {
        regex::RegexBuilder::new(&translated.text)
            .size_limit(SIZE_LIMIT)
            // The translation has bounded what is compiled by recursion; groups do not count.
            .nest_limit(u32::MAX)
            .build()
            .map_err(|why| reason(&why))
    };
    if translated.height <= MAX_SHALLOW {
        return build();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK);
        let built = thread.spawn_scoped(scope, build);
        let built = built.ok().and_then(|thread| thread.join().ok());
        // The system has no thread to give.
        built.unwrap_or(Err(TOO_DEEP))
    })
}

/// Go's error for one of the crate `regex`. Every pattern that Go refuses is refused before, but for its size: the crate
/// needs more memory for some patterns than Go allows.
fn reason(error: &regex::Error) -> &'static str {
    match error {
        regex::Error::CompiledTooBig(_) => "expression too large",
        // The translation is wrong.
        _ => "regexp/syntax: internal error",
    }
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

/// The text to search, which is the first argument. The original does not check its type if the pattern is a constant,
/// and takes a type for its name.
pub(super) fn searched<'v>(args: &'v [CelValue<'_>]) -> Result<&'v str, CelError> {
    match args.first() {
        Some(CelValue::String(text)) => Ok(text),
        Some(CelValue::Type(of)) => Ok(of.runtime_name()),
        _ => Err(CelError::no_such_overload()),
    }
}

/// Whether `text` matches.
pub(super) fn is_match<'a>(pattern: &Pattern, text: &str, work: &mut CelWork<'_>) -> CelResult<'a> {
    let regex = pattern.search(text, work)?;
    Ok(CelValue::Bool(regex.is_match(text)))
}

struct MatchesConstant(Pattern);

impl CelFunction for MatchesConstant {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        self.call_within(args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))
    }

    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        is_match(&self.0, searched(args)?, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().regex.is_match(text)
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
    fn flags_do_not_keep_a_repetition_from_what_is_before_them() {
        let found = |pattern: &str, text: &str| {
            let found = compile(pattern).unwrap().regex.find(text);
            found.map(|found| found.as_str().to_owned())
        };
        assert_eq!(found("a(?i)+B", "aaabA").as_deref(), Some("aaab"));
        assert_eq!(found("a(?U)+", "aaa").as_deref(), Some("a"));
        assert_eq!(found("a(?U)+?", "aaa").as_deref(), Some("aaa"));
        assert_eq!(found("(?U)a(?-U)+", "aaa").as_deref(), Some("aaa"));
        assert_eq!(found("a+(?i)?", "aaa").as_deref(), Some("aaa"));
        assert_eq!(found("(a(?i))+A", "aaa").as_deref(), None);
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

    /// Patterns that nest `depth` times in the ways that nest.
    fn nested(depth: usize) -> Vec<String> {
        let parts = [
            ("(", "a", ")"),
            ("(a", "b", "c)"),
            ("(", "a", "+b)"),
            ("(?:", "a", "b)+"),
            ("(ab|", "c", ".)"),
        ];
        let nest = |(open, middle, close): (&str, &str, &str)| {
            [&open.repeat(depth), middle, &close.repeat(depth)].concat()
        };
        parts.into_iter().map(nest).collect()
    }

    #[test]
    fn what_nests_as_deeply_as_in_go_compiles_on_a_small_stack() {
        let compile_all = || {
            for pattern in
                nested(333)
                    .into_iter()
                    .chain([["(".repeat(999), "a".into(), ")".repeat(999)].concat()])
            {
                let compiled = compile(&pattern).unwrap();
                assert!(!compiled.regex.is_match(""), "{pattern}");
            }
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        thread.spawn(compile_all).unwrap().join().unwrap();
    }

    #[test]
    fn what_nests_deeper_is_refused() {
        for pattern in nested(1_000) {
            let error = compile(&pattern).unwrap_err().to_string();
            let begins = format!("error parsing regexp: {TOO_DEEP}: `(");
            assert!(error.starts_with(&begins), "{}", &error[..80]);
        }
        // Groups without capture are not parts of what is compiled.
        let pattern = ["(?:".repeat(20_000), ")".repeat(20_000)].concat();
        assert!(compile(&pattern).is_ok());
    }

    #[test]
    fn a_pattern_that_the_engine_refuses_for_its_size_is_too_large() {
        let pattern = r"\pL{1000}\pN{1000}";
        let error = compile(pattern).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("error parsing regexp: expression too large: `{pattern}`")
        );
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

    #[test]
    fn the_size_of_a_pattern_counts_what_is_repeated() {
        for (pattern, size) in [
            ("", 0),
            ("^abc$", 5),
            ("a{3}", 3),
            ("(ab){3}c*", 7),
            ("x((a|b){2,5}c){10}[a-z]{0,4}", 115),
            ("a{0}b", 2),
            ("(?i)(?:a){2,}", 2),
            (r"\pL{2}[^\PN]", 192),
        ] {
            assert_eq!(compile(pattern).unwrap().size, size, "{pattern}");
        }
    }

    #[test]
    fn searching_and_compiling_take_steps_by_the_size_of_the_pattern() {
        let pattern = compile("(a|b){500}").unwrap();
        let mut work = CelWork::new(10_000, None);
        assert!(pattern.search(&"a".repeat(79), &mut work).is_ok());
        assert!(work.left() < 200, "{}", work.left());
        assert!(pattern.search(&"a".repeat(79), &mut work).is_err());
        assert!(compile_within("(a|b){500}", &mut CelWork::new(50_000, None)).is_err());
        assert!(compile_within("(a|b){5}", &mut CelWork::new(50_000, None)).is_ok());
    }
}
