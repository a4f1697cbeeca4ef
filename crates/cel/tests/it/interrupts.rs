//! How long an evaluation goes on before it looks at the interrupt, and until a limit ends it: for every function and
//! macro.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use fairgate_cel::{
    CelBindings, CelErrorKind, CelMacro, CelProgram, DEFAULT_COST_LIMIT, EvaluationLimits,
};
use rustix::thread::ClockId;

use super::work::{World, all, end, repeated};

/// What follows is done for a million pairs `i`, `j`, until a limit ends it: functions and macros that the expressions
/// of the other tests do not use, and texts whose characters are not printed as they are.
const OTHERS: &[&str] = &[
    "strings.quote(wide) == 'a'",
    "'%s'.format([wide]) == 'a'",
    "isIP(wide)",
    "ip(wide).family() == 4",
    "cidr(wide).prefixLength() == 4",
    "url(wide).getHost() == 'a'",
    "sign(quantity(wide)) == 1",
    "semver(wide).major() == 1",
    "wide.upperAscii() == 'a'",
    "wide.lowerAscii() == 'a'",
    "wide.endsWith(wide) && false",
    "wide.startsWith(wide) && false",
    "wide.indexOf('b') == 1",
    "wide.lastIndexOf('b') == 1",
    "wide.substring(1, 999999) == 'a'",
    "wide.charAt(999999) == 'a'",
    "wide.split('') == []",
    "wide.matches('\\u200c$')",
    "wide.trim() == 'a'",
    "double(wide) == 1.0",
    "timestamp(wide) == timestamp(0)",
    "duration(wide) == duration('1s')",
    "uint(i) == 77777u",
    "xs.existsOne(k, v, v < 0)",
    "xs.first().or(optional.none()) == optional.none()",
    "optional.of(i).optMap(x, x + j).orValue(-1) == -1",
    "optional.of(xs).optFlatMap(x, x[?j]).value() == -1",
    "optional.unwrap([optional.ofNonZeroValue(i), optional.none()]) == [-1]",
    "timestamp(i).getDate() + timestamp(j).getDayOfMonth('Asia/Kolkata') == 77",
    "timestamp(i).getDayOfWeek('Europe/Berlin') + timestamp(j).getDayOfYear('-03:30') == 777",
    "timestamp(i).getFullYear() + timestamp(j).getMonth('America/New_York') == 7",
    "timestamp(i).getHours() + timestamp(i).getMinutes() + timestamp(j).getSeconds() == 777",
    "duration(string(i) + 'ms').getMilliseconds() == -1",
    "url('https://[::1]:80/' + string(i)).getHostname() == 'a'",
    "url('https://a:80/' + string(i)).getPort() + url('b:' + string(j)).getScheme() == 'a'",
    "cidr('10.0.0.0/' + string(i % 33)).containsCIDR('10.' + string(j % 256) + '.0.0/16') && false",
    "cidr('2001:db8::/' + string(i % 129)).masked().prefixLength() == 777",
    "ip.isCanonical('2001:db8::' + string(j)) && false",
    "ip('10.0.0.' + string(j % 256)).isGlobalUnicast() && false",
    "ip('127.0.0.' + string(j % 256)).isLoopback() && false",
    "ip('224.0.0.' + string(j % 256)).isLinkLocalMulticast() && false",
    "ip('169.254.0.' + string(j % 256)).isLinkLocalUnicast() && false",
    "ip('0.0.0.' + string(1 + j % 255)).isUnspecified()",
    "quantity(string(i) + 'Mi').compareTo(quantity(string(j) + 'k')) == 7",
    "quantity(string(i) + 'Mi').asInteger() + sign(quantity('1')) == -1",
    "semver('1.' + string(i) + '.0').major() + semver('1.0.' + string(j)).minor() == -1",
    "semver('1.' + string(i) + '.' + string(j)).patch() == -1",
    "format.byte().validate(text).hasValue() && false",
    "format.date().validate('2024-01-' + string(j)) == optional.of(['a'])",
    "format.datetime().validate('2024-01-01T00:00:0' + string(j)) == optional.of(['a'])",
    "format.dns1035Label().validate(text) == optional.of(['a'])",
    "format.dns1035LabelPrefix().validate(text) == optional.of(['a'])",
    "format.dns1123LabelPrefix().validate(text) == optional.of(['a'])",
    "format.dns1123Subdomain().validate(text) == optional.of(['a'])",
    "format.dns1123SubdomainPrefix().validate(text) == optional.of(['a'])",
    "format.labelValue().validate(text) == optional.of(['a'])",
    "format.qualifiedName().validate(text) == optional.of(['a'])",
    "format.qualifiedName().validate('a.b/' + string(i)) == optional.of(['a'])",
    "format.uri().validate('https://a/' + text) == optional.of(['a'])",
    "format.uuid().validate(text) == optional.of(['a'])",
    "format.named('dns1123Label').value().validate('a-' + string(i)) == optional.of(['a'])",
    "authorizer.path('/a/' + string(i)).check('get').allowed()",
    "authorizer.group('a').resource('b').subresource('c').namespace('d').name(text).check('x').errored()",
    "authorizer.serviceAccount('a', 'b').group('').resource('c').check('y').reason() == 'a'",
    "authorizer.group('').resource('c').fieldSelector(text).labelSelector(text).check('y').error() == 'a'",
    "authorizer.group('').resource('c').labelSelector('a=' + string(i)) == authorizer.group('').resource('d')",
];

/// The CPU time of this thread: other threads and processes do not count.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

/// The longest time between two looks at the interrupt, and the time of the whole evaluation.
fn longest_gap(program: &CelProgram, bindings: &CelBindings<'_>) -> (Duration, Duration) {
    let began = thread_time();
    let last = Cell::new(began);
    let longest = Cell::new(Duration::ZERO);
    let look = || {
        let now = thread_time();
        longest.set(longest.get().max(now.saturating_sub(last.get())));
        last.set(now);
        false
    };
    let limits = EvaluationLimits {
        interrupted: Some(&look),
        ..EvaluationLimits::default()
    };
    let evaluation = program.evaluate_within(bindings, &limits);
    look();
    drop(evaluation);
    // What was computed is dropped at the end.
    look();
    (longest.get(), last.get().saturating_sub(began))
}

fn sources() -> Vec<String> {
    let others = OTHERS.iter().map(|body| repeated(body));
    all().into_iter().chain(others).collect()
}

#[test]
fn every_function_and_macro_is_among_the_expressions() {
    let world = World::new();
    let sources = sources().concat();
    let functions = world.environment.functions();
    // Operators have names that no call can have.
    let called = functions.filter(|name| !name.contains(['_', '@', '!']));
    let macros = world.environment.macros().map(CelMacro::name);
    let mut missing: Vec<_> = called
        .chain(macros)
        .filter(|name| !sources.contains(&format!("{name}(")))
        .collect();
    missing.sort_unstable();
    assert!(missing.is_empty(), "{missing:?}");
}

/// An evaluation without optimization ends so soon after an interrupt. Optimized code takes less than 20 ms; there, that is a
/// figure, and [`READINGS`] decide.
const LONGEST_GAP: Duration = Duration::from_millis(200);

/// The processor time of reading a text of 1 MiB now, in code like that of the crate: what a machine does besides makes both
/// slower, so a time that is too long is compared with this.
fn reading_time() -> Duration {
    let text = "x".repeat(1 << 20);
    let measure = || {
        let began = thread_time();
        let letters = text.chars().filter(|one| one.is_alphanumeric()).count();
        assert_eq!(std::hint::black_box(letters), text.len());
        thread_time().saturating_sub(began)
    };
    (0..3).map(|_| measure()).min().unwrap()
}

/// So many times that, a gap may take: twice what the longest gap takes.
const READINGS: u32 = 40;

/// The least of several measurements of a time, the first within `limit` included. What else a machine does makes a time longer,
/// never shorter, so what exceeds the limit each time does so by itself.
fn least_time(limit: Duration, mut measure: impl FnMut() -> Duration) -> Duration {
    const PLAYS: usize = 9;
    let mut least = measure();
    for _ in 1..PLAYS {
        if least <= limit {
            break;
        }
        least = least.min(measure());
    }
    least
}

/// How often a time is measured beside its control, in optimized code.
const PAIRS: usize = 3;

/// Measures a processor time; returns it, and whether it is too long.
///
/// Without optimization it runs in a tier that blocks: the least time is too long if it exceeds both `limit` and so many reading
/// times. Optimized code is judged by the reading times alone: measurements of both alternate, and the median of the ratios counts.
pub(crate) fn judged_time(
    limit: Duration,
    readings: u32,
    mut measure: impl FnMut() -> Duration,
) -> (Duration, bool) {
    if cfg!(debug_assertions) {
        let took = least_time(limit, measure);
        return (took, took > limit && took > reading_time() * readings);
    }
    let mut pairs = [(); PAIRS].map(|()| (measure(), reading_time()));
    let ratio = |(took, reading): &(Duration, Duration)| took.div_duration_f64(*reading);
    pairs.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let median = &pairs[PAIRS / 2];
    (median.0, ratio(median) > f64::from(readings))
}

/// Prints a figure in milliseconds. In optimized code, it also appends it to the file that `FAIRGATE_MEASURED` names, if any.
pub(crate) fn report(name: &str, time: Duration) {
    println!("{name}: {time:.3?}");
    let Some(path) = std::env::var_os("FAIRGATE_MEASURED").filter(|_| !cfg!(debug_assertions))
    else {
        return;
    };
    let milliseconds = time.as_secs_f64() * 1000.0;
    let line = serde_json::json!({"name": name, "value": milliseconds, "unit": "ms"});
    let file = OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}

#[test]
fn the_interrupt_is_looked_at_every_few_milliseconds() {
    let world = World::new();
    let mut wrong = Vec::new();
    let mut longest = Duration::ZERO;
    world.each(sources(), |name, program, bindings| {
        let mut total = Duration::ZERO;
        let (gap, is_too_long) = judged_time(LONGEST_GAP, READINGS, || {
            let (gap, whole) = longest_gap(program, bindings);
            total = total.max(whole);
            gap
        });
        println!("{gap:9.3?} of {total:9.3?} {name}");
        longest = longest.max(gap);
        if is_too_long {
            wrong.push(format!("{gap:?} of {total:?} {name}"));
        }
    });
    report("cel: longest time until an interrupt is seen", longest);
    println!("reading 1 MiB takes {:?}", reading_time());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Measures; run it with optimization:
/// `CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p fairgate-cel --test it how_long -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, which says nothing without optimization"]
fn how_long_the_limits_take() {
    let world = World::new();
    let mut longest = Duration::ZERO;
    let mut lines = String::new();
    let mut sources = sources().into_iter();
    world.each(sources.clone().collect(), |name, program, bindings| {
        let source = sources.next().unwrap();
        let began = thread_time();
        let evaluation = program.evaluate_within(bindings, &EvaluationLimits::default());
        let (end, cost, work) = (end(&evaluation), evaluation.cost, evaluation.work);
        drop(evaluation);
        let took = thread_time().saturating_sub(began);
        longest = longest.max(took);
        // The original takes minutes for what its cost does not count. An authorizer is not among its variables.
        let is_comparable = !["map(v, v + v)", "authorizer"]
            .iter()
            .any(|part| source.contains(part));
        if end == Some(CelErrorKind::CostLimit) && is_comparable {
            let nanoseconds = u64::try_from(took.as_nanos()).unwrap();
            let line = serde_json::json!({"expr": source, "nanoseconds": nanoseconds});
            writeln!(lines, "{line}").unwrap();
        }
        println!("{took:9.3?} {work:8} steps {cost:8} cost {end:?} {name}");
    });
    println!("longest {longest:?} at {DEFAULT_COST_LIMIT}");
    // For the original, which `oracle/run --times` times, too: it has the limit of cost alone.
    if let Some(path) = std::env::var_os("FAIRGATE_CEL_TIMES") {
        std::fs::write(path, lines).unwrap();
    }
}
