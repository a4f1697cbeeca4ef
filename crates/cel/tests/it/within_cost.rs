//! Expressions that Kubernetes evaluates within its limit of cost, and that take many of our steps.

use std::fmt::Write;

use fairgate_cel::{CelErrorKind, CelValue, EvaluationLimits};

use super::interrupts::thread_time;
use super::work::{World, end};

/// Kubernetes gives all of them a value.
fn sources() -> Vec<String> {
    let digits = |count: usize| format!("'{}'", "9".repeat(count));
    let text = |count: usize| format!("'{}'", "a".repeat(count));
    let mut all = Vec::new();
    for count in [500, 1_000, 2_000, 4_000, 8_000] {
        for pattern in [
            "'x' + string(i)",
            "'^[a-z]{1,63}-' + string(i)",
            "'^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?' + string(i) + '$'",
            "'(?i)name-' + string(i)",
            "r'^\\pL+' + string(i)",
        ] {
            all.push(format!(
                "lists.range({count}).all(i, !'abc-def'.matches({pattern}))"
            ));
        }
    }
    for (times, length) in [
        (100, 2_000),
        (500, 2_000),
        (1_000, 1_000),
        (2_000, 2_000),
        (1, 90_000),
    ] {
        let text = text(length);
        for pattern in ["a", ".", "[a-z]", "aa"] {
            all.push(format!(
                "lists.range({times}).all(i, {text}.findAll('{pattern}').size() > 0)"
            ));
        }
        all.push(format!(
            "lists.range({times}).all(i, {text}.find('b').size() == 0)"
        ));
    }
    for count in [1_000, 10_000, 30_000, 60_000, 99_000] {
        let digits = digits(count);
        all.push(format!("isQuantity({digits})"));
        all.push(format!("isQuantity('1e' + string({count}))"));
        all.push(format!("quantity({digits}).isGreaterThan(quantity('1'))"));
        all.push(format!("[{digits}].all(d, isQuantity(d))"));
    }
    all
}

/// Kubernetes takes 19 to 210 ms for two thousand of these patterns, 30 ms for all matches, 10 to 30 ms for the digits.
#[test]
fn long_evaluations_within_cost_have_a_value() {
    let text = "a".repeat(90_000);
    let digits = "9".repeat(99_000);
    let names = "lists.range(2000).all(i, !'abc-def'.matches";
    let sources = vec![
        format!("{names}('^[a-z]{{1,63}}-' + string(i)))"),
        format!("{names}('^[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?' + string(i) + '$'))"),
        format!("{names}('(?i)name-' + string(i)))"),
        format!("'{text}'.findAll('[a-z]').size() == 90000"),
        format!("isQuantity('{digits}')"),
        format!("quantity('{digits}').isGreaterThan(quantity('1'))"),
    ];
    World::new().each(sources, |name, program, bindings| {
        let evaluation = program.evaluate_within(bindings, &EvaluationLimits::default());
        assert_eq!(evaluation.result, Ok(CelValue::Bool(true)), "{name}");
    });
}

/// What takes longer than the limit of work, though Kubernetes evaluates it.
#[test]
fn longer_evaluations_within_cost_end_at_the_limit_of_work() {
    let text = "a".repeat(2_000);
    let sources = vec![
        "lists.range(8000).all(i, !'abc-def'.matches('x' + string(i)))".to_owned(),
        format!("lists.range(100).all(i, '{text}'.findAll('a').size() > 0)"),
        format!("lists.range(2000).all(i, '{text}'.findAll('a').size() > 0)"),
    ];
    World::new().each(sources, |name, program, bindings| {
        let evaluation = program.evaluate_within(bindings, &EvaluationLimits::default());
        assert_eq!(end(&evaluation), Some(CelErrorKind::OwnLimit), "{name}");
    });
}

/// Measures; run it with optimization, with `FAIRGATE_CEL_TIMES` for what `oracle time` reads.
#[test]
#[ignore = "a measurement, which says nothing without optimization"]
fn how_long_expressions_within_cost_take() {
    let world = World::new();
    let mut sources = sources().into_iter();
    let mut lines = String::new();
    world.each(sources.clone().collect(), |_, program, bindings| {
        let source = sources.next().unwrap();
        let limits = EvaluationLimits {
            work: u64::MAX / 2,
            ..EvaluationLimits::default()
        };
        let evaluation = program.evaluate_within(bindings, &EvaluationLimits::default());
        let ended = end(&evaluation);
        drop(evaluation);
        let began = thread_time();
        let evaluation = program.evaluate_within(bindings, &limits);
        let (cost, work) = (evaluation.cost, evaluation.work);
        drop(evaluation);
        let took = thread_time().saturating_sub(began);
        let name: String = source.chars().filter(|c| !"9".contains(*c)).collect();
        let name = name.replace(&"a".repeat(500), "…");
        println!("{took:9.3?} {work:9} steps {cost:8} cost {ended:?} {name:.110}");
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap();
        let line = serde_json::json!({"expr": source, "nanoseconds": nanoseconds});
        writeln!(lines, "{line}").unwrap();
    });
    if let Some(path) = std::env::var_os("FAIRGATE_CEL_TIMES") {
        std::fs::write(path, lines).unwrap();
    }
}
