//! Hostile expressions: for every construct, at the limit of code points and ten times beyond it, compiling returns an
//! error or a program in bounded time, on a thread with a small stack.

use std::time::Duration;

use fairgate_cel::{
    CelEnvironment, CelErrorKind, CelJson, CelType, CelValue, EvaluationLimits, library,
};

use super::environments::{NEWEST, base};
use super::interrupts::{judged_time, report, thread_time};
use super::nesting::{self, Construct};

/// The default stack size of tokio's and the standard library's threads, in bytes.
const STACK: usize = 2 << 20;

fn environment() -> CelEnvironment {
    CelEnvironment::builder()
        .library(&library::OptionalTypes)
        .library(&library::TwoVariableComprehensions)
        .variable("a", CelType::Dyn)
        .variable("xs", CelType::list(CelType::Int))
        .homogeneous_literals(true)
        .literal_validators(true)
        .build()
}

/// Runs `test` on a thread with a small stack, so that unbounded recursion overflows it.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(test).unwrap().join().unwrap();
}

/// `middle` between repetitions of `before` and as many of `after`, so that the text has about `size` code points.
fn nested(before: &str, middle: &str, after: &str, size: usize) -> String {
    let count = size / (before.chars().count() + after.chars().count());
    [&before.repeat(count), middle, &after.repeat(count)].concat()
}

/// The constructs that can be chained or nested: the text that is repeated before the middle, the middle, and the text
/// that is repeated after it.
const CONSTRUCTS: &[(&str, &str, &str)] = &[
    ("", "a", "+a"),
    ("", "a", "*a"),
    ("", "a", "==a"),
    ("", "a", "<a"),
    ("", "true", "&&true"),
    ("", "true", "||true"),
    ("", "a", ".b"),
    ("", "a", ".?b"),
    ("", "a", ".b()"),
    ("", "a", "[0]"),
    ("", "a", "[?0]"),
    ("", "a", " in a"),
    ("!", "a", ""),
    ("-", "a", ""),
    ("(", "a", ")"),
    ("[", "a", "]"),
    ("{1:", "a", "}"),
    ("{", "a", ":1}"),
    ("a?a:", "a", ""),
    ("a?", "a", ":a"),
    ("!(", "a", ")"),
    ("-(", "a", ")"),
    ("(a+", "a", ")"),
    ("(a&&", "a", ")"),
    ("[a,", "a", "]"),
    ("[", "", ""),
    ("{", "", ""),
    ("(", "", ""),
    ("type(", "a", ")"),
    ("T{f:", "a", "}"),
    ("has(", "a.b", ")"),
    ("xs.map(x,", "a", ")"),
    ("xs.filter(x,true||", "a", ")"),
    ("xs.all(x,", "a", ")"),
    ("", "xs", ".map(x,x)"),
    ("", "optional.of(1)", ".optMap(x,x)"),
    ("optional.of(", "1", ").optMap(x,x)"),
    ("optional.of(1).optMap(x,", "a", ")"),
    ("xs.transformMap(i,v,", "a", ")"),
    ("a.b(", "a", ")"),
    ("'", "", ""),
    ("\"\"\"", "", ""),
    ("`", "", ""),
    ("1", "", ""),
    ("\u{e9}", "", ""),
    ("a ", "", ""),
    ("//", "", "\n"),
    ("?", "", ""),
    ("[1].map(a,{a:a})", "", ".map(a,{a:a})"),
];

/// The constructs above, and those that the environment itself lists.
fn constructs() -> (CelEnvironment, Vec<Construct>) {
    let environment = base(NEWEST)
        .variable("a", CelType::Dyn)
        .variable("xs", CelType::list(CelType::Int))
        .build();
    let mut all = nesting::constructs(&environment);
    let named = CONSTRUCTS.iter();
    all.extend(named.map(|&(before, middle, after)| (before.into(), middle.into(), after.into())));
    (environment, all)
}

/// What compiling one expression of at most 100 000 code points may allocate at a time, in bytes.
const MOST_MEMORY: u64 = 30 << 20;

/// The CPU time of compiling and evaluating an expression without optimization. Optimized code takes a tenth of it.
const MOST_TIME: Duration = Duration::from_secs(2);

/// The same in reading times of 1 MiB: three to four times what the slowest expression takes.
const READINGS: u32 = if cfg!(debug_assertions) { 200 } else { 60 };

#[test]
fn every_construct_is_bounded_at_the_limit_and_beyond() {
    on_a_small_stack(|| {
        let (environment, constructs) = constructs();
        let mut most_memory = (0, String::new());
        let mut most_time = (Duration::ZERO, String::new());
        let mut too_long = Vec::new();
        for (before, middle, after) in &constructs {
            for size in [1_000, 99_000, 100_100, 1_000_000] {
                let source = nested(before, middle, after, size);
                let name = format!("{before:?} {middle:?} {after:?} of {size}");
                let mut memory = 0;
                let (time, is_too_long) = judged_time(MOST_TIME, READINGS, || {
                    let began = thread_time();
                    let counted = allocation_counter::measure(|| {
                        if let Ok(program) = environment.compile(&source) {
                            let bindings = environment.bindings().with("a", CelValue::Bool(true));
                            let evaluation = program.evaluate(&bindings);
                            assert!(evaluation.cost <= 2_000_000, "{name}");
                        }
                    });
                    memory = counted.bytes_max;
                    thread_time().saturating_sub(began)
                });
                if is_too_long {
                    too_long.push(format!("{time:?} {name}"));
                }
                most_memory = most_memory.max((memory, name.clone()));
                most_time = most_time.max((time, name));
            }
        }
        println!(
            "{} constructs; {most_memory:?}; {most_time:?}",
            constructs.len()
        );
        assert!(most_memory.0 <= MOST_MEMORY, "{most_memory:?}");
        report("cel: longest time of one expression", most_time.0);
        assert!(too_long.is_empty(), "{}", too_long.join("\n"));
    });
}

#[test]
fn the_deepest_expressions_that_parse_are_checked_and_evaluated() {
    on_a_small_stack(|| {
        let (environment, constructs) = constructs();
        for (before, middle, after) in &constructs {
            for count in [83, 124, 248, 249, 250] {
                let source = [&before.repeat(count), &**middle, &after.repeat(count)].concat();
                if let Ok(program) = environment.compile(&source) {
                    let xs = CelValue::list(vec![CelValue::Int(1)]).unwrap();
                    let bindings = environment.bindings().with("a", CelValue::Bool(true));
                    let bindings = bindings.with("xs", xs);
                    drop(program.evaluate(&bindings));
                }
            }
        }
    });
}

#[test]
fn depth_is_limited_as_in_the_original() {
    on_a_small_stack(|| {
        let environment = environment();
        // The most repetitions that cel-go accepts, and its error for one more.
        let select = "max recursion depth exceeded";
        let nest = "expression recursion limit exceeded: 250";
        for (before, after, most, message) in [
            ("", ".b", 250, select),
            ("", "[0]", 250, select),
            ("", "+a", 250, select),
            ("", "==a", 250, select),
            ("(", ")", 249, nest),
            ("[", "]", 249, nest),
            ("-(", ")", 249, nest),
            ("a?a:", "", 249, nest),
            ("(a+", ")", 124, nest),
            ("{1:", "}", 249, nest),
        ] {
            let with = |count: usize| {
                let source = [&before.repeat(count), "a", &after.repeat(count)].concat();
                environment
                    .compile(&source)
                    .map(|_| ())
                    .map_err(|error| error.to_string())
            };
            let at_most = with(most);
            assert!(
                !at_most.is_err_and(|error| error.contains("recursion")),
                "{before}a{after}"
            );
            assert_eq!(
                with(most + 1),
                Err(format!("ERROR: <input>:-1:0: {message}"))
            );
        }
    });
}

#[test]
fn an_expression_that_is_too_long_is_refused_without_parsing_it() {
    let source = "a".repeat(100_001);
    let error = environment().compile(&source).unwrap_err().to_string();
    let message = "expression code point size exceeds limit: size: 100001, limit 100000";
    assert_eq!(error, format!("ERROR: <input>:-1:0: {message}"));
    // Code points count, not bytes.
    let source = format!("'{}'", "é".repeat(99_998));
    assert!(environment().compile(&source).is_ok());
}

#[test]
fn an_evaluation_stops_at_the_cost_limit() {
    let environment = environment();
    let source = "xs.all(a, xs.all(b, xs.all(c, a + b + c > 0)))";
    let program = environment.compile(source).unwrap();
    let xs = CelValue::list(vec![CelValue::Int(1); 1000]).unwrap();
    let bindings = environment.bindings().with("xs", xs);
    let evaluation = program.evaluate(&bindings);
    let error = evaluation.result.unwrap_err();
    assert_eq!(error.kind(), CelErrorKind::CostLimit);
    assert_eq!(
        error.message(),
        "operation cancelled: actual cost limit exceeded"
    );
    assert!((1_000_001..1_000_100).contains(&evaluation.cost));
}

/// The original builds these strings, and their cost does not count how long they are. So the failure policy of an admission policy has no say
/// in that they are too long here.
#[test]
fn a_string_longer_than_its_cost_counts_is_a_limit_of_the_library_itself() {
    let environment = base(NEWEST)
        .variable("x", CelType::String)
        .variable("y", CelType::String)
        .build();
    let text = |text: &str| CelValue::from(text.to_owned());
    for (source, kind) in [
        ("x.replace('a', y).size() < 10", CelErrorKind::OwnLimit),
        (
            "'%s%s%s%s%s%s%s%s'.format([y, y, y, y, y, y, y, y]).size() < 10",
            CelErrorKind::OwnLimit,
        ),
        (
            "[y, y, y, y, y, y, y, y].join().size() < 10",
            CelErrorKind::CostLimit,
        ),
    ] {
        let program = environment.compile(source).unwrap();
        let bindings = environment.bindings();
        let bindings = bindings
            .with("x", text("aaaaaaaa"))
            .with("y", text(&"y".repeat(3_000_000)));
        let error = program.evaluate(&bindings).result.unwrap_err();
        assert_eq!(error.kind(), kind, "{source}: {error:?}");
    }
}

#[test]
fn a_limit_of_exactly_the_cost_suffices_and_one_less_does_not() {
    let environment = environment();
    let program = environment
        .compile("xs.exists(x, x == 3) && xs.map(x, x * 2).size() > 0")
        .unwrap();
    let xs = CelValue::list((0..10).map(CelValue::Int).collect()).unwrap();
    let bindings = environment.bindings().with("xs", xs);
    let cost = program.evaluate(&bindings).cost;
    let within = |cost| {
        let limits = EvaluationLimits {
            cost,
            ..EvaluationLimits::default()
        };
        program.evaluate_within(&bindings, &limits).result.is_ok()
    };
    assert!(within(cost));
    assert!(!within(cost - 1));
}

#[test]
fn an_interrupt_stops_nested_comprehensions() {
    let environment = environment();
    let program = environment.compile("xs.all(a, xs.all(b, true))").unwrap();
    let xs = CelValue::list(vec![CelValue::Int(1); 200]).unwrap();
    let bindings = environment.bindings().with("xs", xs);
    let asked = std::cell::Cell::new(0);
    let limits = EvaluationLimits {
        interrupted: Some(&|| {
            asked.set(asked.get() + 1);
            asked.get() == 3
        }),
        ..EvaluationLimits::default()
    };
    let evaluation = program.evaluate_within(&bindings, &limits);
    let error = evaluation.result.unwrap_err();
    assert_eq!(error.to_string(), "operation interrupted");
    // It is called after every hundred iterations of all comprehensions together.
    assert_eq!(asked.get(), 3);
    assert!(evaluation.cost < 1_000, "{}", evaluation.cost);
}

#[test]
fn work_that_costs_nothing_is_bounded() {
    let environment = environment();
    // Lists that double 30 times, compared.
    let mut source = "[1,1]".to_owned();
    for _ in 0..30 {
        source = format!("[{source}].map(x, [x, x])[0]");
    }
    let source = format!("[{source}].exists(y, y == y)");
    let program = environment.compile(&source).unwrap();
    let bindings = environment.bindings();
    assert!(program.evaluate(&bindings).result.is_err());
}

#[test]
fn the_size_of_a_long_text_takes_steps_although_it_costs_nothing() {
    let environment = environment();
    let program = environment.compile("xs.all(x, size(a) > x)").unwrap();
    let text = "x".repeat(1 << 20);
    let numbers: Vec<CelValue<'_>> = (0..10_000).map(CelValue::Int).collect();
    let numbers = CelValue::list(numbers).unwrap();
    let bindings = environment.bindings().with("xs", numbers);
    let bindings = bindings.with("a", CelValue::from(text.as_str()));
    let evaluation = program.evaluate(&bindings);
    let error = evaluation.result.unwrap_err().to_string();
    assert!(error.contains("too much work"), "{error}");
    assert!(evaluation.cost < 1_000, "{}", evaluation.cost);
}

#[test]
fn a_type_that_is_exponentially_large_is_refused() {
    let environment = environment();
    let source = format!("[1]{}", ".map(a,{a:a})".repeat(40));
    let error = environment.compile(&source).unwrap_err().to_string();
    assert!(error.contains("too complex"), "{error}");
}

/// A constant on the right of `==` is compared in another way than one on the left.
#[test]
fn a_text_is_compared_with_a_constant_at_the_same_cost_on_either_side() {
    let environment = environment();
    let texts = ["", "b", "bb", "ä", "🦀🦀", "bbbbbbbbbbbbbbbbbbbbb"];
    let long = "b".repeat(70);
    let list = serde_json::to_string(&[&texts[..], &[&long]].concat()).unwrap();
    let list: CelJson<'_> = serde_json::from_str(&list).unwrap();
    let bindings = environment.bindings();
    let bindings = bindings.with("a", CelValue::json(&list));
    for constant in texts.into_iter().chain([&*long, "c"]) {
        for (macro_name, operator) in [("exists", "=="), ("all", "!="), ("filter", "==")] {
            let compile = |left: &str, right: &str| {
                let source = format!("a.{macro_name}(x, {left} {operator} {right})");
                environment.compile(&source).unwrap()
            };
            let constant = format!("'{constant}'");
            let programs = [compile("x", &constant), compile(&constant, "x")];
            let whole = programs[0].evaluate(&bindings);
            for cost in 0..=whole.cost {
                let limits = EvaluationLimits {
                    cost,
                    ..EvaluationLimits::default()
                };
                let [one, other] = programs.each_ref().map(|program| {
                    let evaluation = program.evaluate_within(&bindings, &limits);
                    (format!("{:?}", evaluation.result), evaluation.cost)
                });
                assert_eq!(one, other, "{constant} {operator} {cost}");
            }
            let other = programs[1].evaluate(&bindings);
            assert_eq!((whole.cost, whole.work), (other.cost, other.work));
        }
    }
}
