//! Tests of patterns: both engines, the errors of Go, limits and steps.

use super::refused::TOO_DEEP;
use super::*;
use crate::pattern_budget::PatternLimit;

/// Compiles a pattern with a budget of its own.
fn compiled(pattern: &str) -> Result<Arc<Pattern>, CelError> {
    compile(pattern, &mut PatternBudget::new(PatternLimit::EXPRESSION))
}

/// The same pattern as a machine, however small it is.
fn machine(pattern: &str) -> Pattern {
    let plan = PatternPlan::new(pattern, true, u64::MAX, &mut 0).unwrap();
    Pattern {
        engine: plan.machine(),
        takes: plan.takes,
    }
}

fn plenty() -> CelWork<'static> {
    CelWork::new(u64::MAX / 4, None)
}

fn find_with(pattern: &Pattern, text: &str, from: usize) -> Option<(usize, usize)> {
    let work = &mut plenty();
    pattern
        .search(text, work)
        .unwrap()
        .find(from, work)
        .unwrap()
}

/// The first match, which both engines find, also in pieces.
fn find(pattern: &str, text: &str) -> Option<(usize, usize)> {
    let found = find_with(&compiled(pattern).unwrap(), text, 0);
    assert_eq!(find_with(&machine(pattern), text, 0), found, "{pattern}");
    if let Some(mut search) = stepped(&compiled(pattern).unwrap(), text) {
        let in_pieces = search.find(0, false, &mut plenty());
        assert_eq!(in_pieces, Ok(found), "{pattern}");
    }
    found
}

fn matches(pattern: &str, text: &str) -> bool {
    let found = find(pattern, text).is_some();
    for pattern in [&*compiled(pattern).unwrap(), &machine(pattern)] {
        let work = &mut plenty();
        assert_eq!(
            pattern.search(text, work).unwrap().is_match(work),
            Ok(found)
        );
    }
    if let Some(mut search) = stepped(&compiled(pattern).unwrap(), text) {
        let in_pieces = search.find(0, true, &mut plenty());
        assert_eq!(in_pieces.map(|any| any.is_some()), Ok(found), "{pattern}");
    }
    found
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
    let found = |pattern: &str, text: &'static str| {
        find(pattern, text).map(|(start, end)| &text[start..end])
    };
    assert_eq!(found("a(?i)+B", "aaabA"), Some("aaab"));
    assert_eq!(found("a(?U)+", "aaa"), Some("a"));
    assert_eq!(found("a(?U)+?", "aaa"), Some("aaa"));
    assert_eq!(found("(?U)a(?-U)+", "aaa"), Some("aaa"));
    assert_eq!(found("a+(?i)?", "aaa"), Some("aaa"));
    assert_eq!(found("(a(?i))+A", "aaa"), None);
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
        let error = compiled(pattern).unwrap_err().to_string();
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
            let compiled = compiled(&pattern).unwrap();
            assert!(find_with(&compiled, "", 0).is_none(), "{pattern}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(compile_all).unwrap().join().unwrap();
}

#[test]
fn what_nests_deeper_is_refused() {
    for pattern in nested(1_000) {
        let error = compiled(&pattern).unwrap_err().to_string();
        let begins = format!("error parsing regexp: {TOO_DEEP}: `(");
        assert!(error.starts_with(&begins), "{}", &error[..80]);
    }
    // Groups without capture are not parts of what is compiled.
    let pattern = ["(?:".repeat(20_000), ")".repeat(20_000)].concat();
    assert!(compiled(&pattern).is_ok());
}

#[test]
fn large_patterns_share_their_classes() {
    for (pattern, instructions, sets) in [
        (r"(\pL|\pN|\pP|\pS){200}0", 202, 1),
        (r"\pL{1000}\pN{1000}", 2_001, 2),
        // A position, a set, and a choice for all but the first.
        (r"^[\p{L}\p{N}_.-]{1,253}$", 508, 1),
        (r"^[\p{L}_]{200}[\p{L}-]{200}[\p{L}_]{200}$", 603, 2),
        (r"(?i)^\p{Lu}{1,300}\p{lu}{1,300}$", 1_201, 1),
    ] {
        let compiled = compiled(pattern).unwrap();
        let PatternEngine::Machine(machine) = &compiled.engine else {
            panic!("{pattern} is small");
        };
        let counts = (machine.instructions.len(), machine.sets.len());
        assert_eq!(counts, (instructions, sets), "{pattern}");
        assert!(machine.instructions.len() as u64 <= compiled.takes.bytes / 12);
    }
}

#[test]
fn a_pattern_that_is_too_large_is_refused_before_it_is_built() {
    let wide = (0..3_000).map(|at| format!(r"[\pL\x{{{at:x}}}]"));
    let wide = wide.collect::<Vec<_>>().concat();
    for pattern in [r"(?:abcdefgh){1000}".repeat(50), wide] {
        let mut budget = PatternBudget::new(PatternLimit::EXPRESSION);
        let error = compile(&pattern, &mut budget).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("error parsing regexp: expression too large: `{pattern}`")
        );
        // What was looked at is counted.
        let used = budget.used();
        assert!((100..=510_000).contains(&used.steps), "{used:?}");
        assert_eq!(used.bytes, 0);
    }
}

#[test]
fn equal_patterns_are_compiled_and_counted_once() {
    let mut budget = PatternBudget::new(PatternLimit::EXPRESSION);
    let one = compile(r"\pL{300}x", &mut budget).unwrap();
    let used = budget.used();
    assert_eq!(used, one.takes);
    let other = compile(r"\pL{300}x", &mut budget).unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert_eq!(budget.used(), used);
    // Another budget does not depend on what was compiled before.
    let mut budget = PatternBudget::new(PatternLimit::EXPRESSION);
    compile(r"\pL{300}x", &mut budget).unwrap();
    assert_eq!(budget.used(), used);
}

#[test]
fn budgets_within_budgets_are_both_kept() {
    let limit = |of, steps| PatternLimit {
        of,
        steps,
        bytes: 1 << 20,
    };
    let mut budget = PatternBudget::new(limit("the policy", 20_000));
    let mut compile_in = |pattern: &str| {
        budget.within(limit("the expression", 8_000), |budget| {
            compile(pattern, budget).map(|_| ())
        })
    };
    let message = |of: &str, most: u32| {
        let text =
            format!("patterns too large: those of {of} take more than {most} steps to compile");
        Err(CelError::own_limit(text))
    };
    assert_eq!(compile_in("a{9}"), Ok(()));
    assert_eq!(compile_in("b{99}"), message("the expression", 8_000));
    assert_eq!(compile_in("c"), message("the policy", 20_000));
}

#[test]
fn hostile_patterns_are_refused_or_compiled_in_bounded_time() {
    for pattern in [
        "(".repeat(50_000),
        "a?".repeat(40_000),
        "[".repeat(50_000),
        "[:".repeat(50_000),
        "[[:a]".repeat(20_000),
        "{".repeat(99_999),
        "{1,".repeat(30_000),
        r"[\pL\pN]".repeat(10_000),
        r"(?i)[\pLa]|".repeat(8_000),
        "(?:a".repeat(20_000) + &")".repeat(20_000),
        "(?i)".repeat(20_000),
        r"\pL{1000}".repeat(100),
        "((a{30}){30}){30}".to_owned(),
        "x*".repeat(1_000) + "y",
        "\\".repeat(99_999),
    ] {
        drop(compiled(&pattern));
    }
}

#[test]
fn the_size_of_a_pattern_counts_what_is_repeated() {
    for (pattern, atoms, has_tables) in [
        ("", 0, false),
        ("^abc$", 5, false),
        ("a{3}", 3, false),
        ("(ab){3}c*", 7, false),
        ("x((a|bc){2,5}c){10}[a-z]{0,4}", 165, false),
        // Alternatives of one character are a class.
        ("x((a|b){2,5}c){10}[a-z]{0,4}", 65, false),
        ("a{0}b", 2, false),
        ("(?i)(?:k){2,}", 2, true),
        (r"\pL{2}[^\PN]", 3, true),
    ] {
        let parsed = parse::parse(pattern, u64::MAX, &mut 0).unwrap();
        let size = parsed.tree.size;
        assert_eq!(
            (size.atoms, size.tables > 0),
            (atoms, has_tables),
            "{pattern}"
        );
        let written = machine::PatternMachine::new(&parsed.tree)
            .instructions
            .len() as u64;
        assert!(
            written <= size.instructions + 1,
            "{pattern}: {written} of {size:?}"
        );
    }
}

#[test]
fn searching_and_compiling_take_steps_by_the_size_of_the_pattern() {
    let pattern = compiled("(a|bc){500}").unwrap();
    let mut work = CelWork::new(7_600, None);
    assert!(pattern.search(&"a".repeat(40), &mut work).is_ok());
    assert!(work.left() < 200, "{}", work.left());
    assert!(pattern.search(&"a".repeat(40), &mut work).is_err());
    let compiles = |pattern: &str, text: &str, steps| {
        let compiled = compile_within(pattern, text, &mut CelWork::new(steps, None));
        compiled
            .ok()
            .map(|one| matches!(one.engine, PatternEngine::Machine(_)))
    };
    let long = "a".repeat(20_000);
    assert_eq!(compiles("(a|bc){500}", &long, 50_000), None);
    assert_eq!(compiles("(a|bc){5}", &long, 50_000), Some(false));
    // For a short text the pattern is not worth compiling for long.
    assert_eq!(compiles("(a|bc){500}", "a", 50_000), Some(true));
    assert_eq!(compiles("(a|bc){5}", "a", 500), Some(true));
    assert_eq!(compiles(r"\pL{900}", "a", 1_000), None);
}

#[test]
fn a_machine_takes_steps_for_what_it_does_and_can_be_interrupted() {
    let pattern = machine("(?:a|b)*a(?:a|b){400}c");
    let text = "ab".repeat(5_000);
    let search = |work: &mut CelWork<'_>| pattern.search(&text, work)?.find(0, work);
    let mut work = plenty();
    assert_eq!(search(&mut work), Ok(None));
    let taken = work.taken();
    assert!((400_000..8_000_000).contains(&taken), "{taken}");
    let asked = std::cell::Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let mut work = CelWork::new(u64::MAX / 4, Some(&interrupted));
    assert_eq!(search(&mut work), Err(CelError::interrupted()));
    assert!(work.taken() <= 30_000 + 1_000);
    // An anchored pattern does not look at what follows.
    let pattern = machine("^x{3,5}");
    let mut work = plenty();
    assert_eq!(
        pattern.search(&text, &mut work).unwrap().find(0, &mut work),
        Ok(None)
    );
    assert!(work.taken() < 20, "{}", work.taken());
}

/// The searches of a text by automata that are driven in pieces, whatever its length.
fn stepped<'p, 't>(pattern: &'p Pattern, text: &'t str) -> Option<SteppedSearch<'p, 't>> {
    let PatternEngine::Small { atoms, tree, .. } = &pattern.engine else {
        return None;
    };
    let search = SteppedSearch::new(tree, *atoms, text, true, &mut plenty());
    Some(search.unwrap())
}

#[test]
fn a_small_pattern_finds_the_same_in_pieces() {
    let texts = [
        "",
        "a",
        "ab",
        "aaab",
        "xaé€b\nab",
        "aéa",
        "\u{1f600}b a\n\nb",
        "abcabcabd",
        "no_word é1 a-b",
    ];
    for pattern in [
        "",
        "a",
        "a*",
        "a+?b",
        "(a|ab)(c|bcd)?",
        "^a",
        "b$",
        "(?m)^a|b$",
        r"\b",
        r"\B",
        r"\B|a",
        "[^a]",
        ".",
        "é?",
        "(?s).*b",
        "(?:a.*b)|a",
        r"\w+",
        r"\W",
        "x*|b",
        "(?i)AB|c",
        r"\z",
        "[a-c]{2,3}?",
    ] {
        let pattern = compiled(pattern).unwrap();
        for text in texts {
            let PatternEngine::Small { regex, .. } = &pattern.engine else {
                panic!("the pattern is small");
            };
            let mut search = stepped(&pattern, text).unwrap();
            let mut any = stepped(&pattern, text).unwrap();
            for (from, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let found = small::find(regex, text, from);
                let work = &mut plenty();
                assert_eq!(
                    search.find(from, false, work),
                    Ok(found),
                    "{pattern:?} {text:?} {from}"
                );
                let is_any = any.find(from, true, work).unwrap().is_some();
                assert_eq!(is_any, found.is_some(), "{pattern:?} {text:?} {from}");
            }
        }
    }
}

#[test]
fn searches_of_long_texts_look_at_the_interrupt_whatever_finds_and_however_many_there_are() {
    let long = "a".repeat(1 << 20);
    let middle = "a".repeat(6_000);
    // Each match looks at the rest of the text, in case there is a `b`.
    for (pattern, text) in [
        ("a+b", &long),
        ("(?:a.*b)|a", &long),
        ("(?:a.*b)|a", &middle),
    ] {
        let pattern = compiled(pattern).unwrap();
        let asked = std::cell::Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let mut work = CelWork::new(u64::MAX / 4, Some(&interrupted));
        let mut find_all = || -> Result<u32, CelError> {
            let mut search = pattern.search(text, &mut work)?;
            let (mut from, mut found) = (0, 0);
            while from < text.len()
                && let Some((_, end)) = search.find(from, &mut work)?
            {
                (from, found) = (end, found + 1);
            }
            Ok(found)
        };
        assert_eq!(find_all(), Err(CelError::interrupted()), "{}", text.len());
        assert!(work.taken() <= 60_000, "{}", work.taken());
    }
    let pattern = compiled("a+b").unwrap();
    let mut work = plenty();
    assert_eq!(
        is_match(&pattern, &long, &mut work),
        Ok(CelValue::Bool(false))
    );
    let taken = work.taken();
    assert!((100_000..300_000).contains(&taken), "{taken}");
}

#[test]
fn automata_that_grow_too_large_are_given_up_for_a_machine() {
    let pattern = compiled("(?:a|b)*a(?:a|b){300}c").unwrap();
    // Hardly any state is reached twice.
    let mut bits = 1u32;
    let text: String = (0..60_000)
        .map(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if bits >> 31 == 0 { 'a' } else { 'b' }
        })
        .collect();
    let mut search = stepped(&pattern, &text).unwrap();
    assert_eq!(search.find(0, false, &mut plenty()), Ok(None));
    assert!(search.is_given_up());
}

/// What the corpus of Go says is found, by both engines; [`the tests`](../../../../tests/it/patterns.rs) compare what the
/// functions give.
#[test]
fn patterns_of_go_are_found_by_both_engines() {
    let corpus = include_str!("../../../tests/corpus/patterns.jsonl");
    let mut searched = 0;
    for line in corpus.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let pattern = case["pattern"].as_str().unwrap();
        for one in case["texts"].as_array().into_iter().flatten() {
            let pieces = one["text"].as_array().unwrap().iter();
            let text: String = pieces
                .map(|piece| {
                    let count = usize::try_from(piece[1].as_u64().unwrap()).unwrap();
                    piece[0].as_str().unwrap().repeat(count)
                })
                .collect();
            let first = one["all"].get(0).map(|found| {
                let [start, end] = [0, 1].map(|at| found[at].as_u64().unwrap());
                (
                    usize::try_from(start).unwrap(),
                    usize::try_from(end).unwrap(),
                )
            });
            assert_eq!(find(pattern, &text), first, "{pattern:?} in {text:?}");
            assert_eq!(
                matches(pattern, &text),
                first.is_some(),
                "{pattern:?} in {text:?}"
            );
            searched += 1;
        }
    }
    assert!(searched > 3_000, "{searched}");
}
