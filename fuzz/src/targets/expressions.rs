//! Expressions of the Common Expression Language, evaluated on a small object.
//!
//! Properties: parsing, checking and evaluating end; an expression that is compiled twice gives the same result at
//! the same cost; no cost is far over the limit; a limit of exactly the cost gives the same result, and a limit of one
//! less never gives a value; messages about an expression name a line of it.

use std::sync::Arc;

use fairgate_cel::library::authorizer::{
    AuthorizationAnswer, AuthorizationCheck, CelAuthorizer, authorizer, authorizer_type,
};
use fairgate_cel::{
    CelBindings, CelCompileError, CelEnvironment, CelErrorKind, CelJson, CelProgram, CelType,
    CelValue, EvaluationLimits, library,
};

use crate::{Outcome, Target};

/// The target `expressions`.
pub const TARGET: Target = Target {
    name: "expressions",
    run,
    dictionary: &[
        "object.spec",
        ".replicas",
        "object.metadata.labels",
        "has(",
        ".all(x, ",
        ".exists(x, ",
        ".exists_one(x, ",
        ".map(x, ",
        ".filter(x, ",
        ".transformMap(k, v, ",
        ".transformList(i, v, ",
        ".optMap(x, ",
        "optional.of(",
        "optional.none()",
        ".orValue(",
        ".?",
        "[?",
        "==",
        "!=",
        "<=",
        "&&",
        "||",
        "?",
        ":",
        " in ",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "'a'",
        "b'\\xff'",
        "r'\\d+'",
        "1u",
        "-9223372036854775808",
        "1.5e300",
        "null",
        "true",
        "size(",
        "dyn(",
        "type(",
        "string(",
        "timestamp('2024-01-01T00:00:00Z')",
        "duration('1h')",
        ".getHours('Europe/Berlin')",
        ".matches('^[a-z]+(b|c){2,3}$')",
        ".startsWith(",
        "[[]]",
        "].map(v, v + v)[0]",
        ".exists_one(x, false)",
        ".indexOf(",
        ".flatten()",
        ".distinct()",
        ".sort()",
        ".reverse()",
        "sets.contains(",
        "lists.range(",
        "'%s'.format([",
        ".join(",
        ".split('')",
        ".replace('', ",
        "+",
        "-",
        "%",
        "!",
        "// comment\n",
        "é",
        ".find('a+')",
        ".findAll(r'\\w', 2)",
        "url('https://a.example:80/p?q=1#f')",
        ".getHost()",
        "isURL(",
        "ip('192.168.0.1')",
        "ip('::ffff:1.2.3.4')",
        ".isLoopback()",
        "cidr('10.0.0.0/8')",
        ".containsIP(",
        ".masked()",
        "quantity('1.5Gi')",
        ".isGreaterThan(",
        ".asApproximateFloat()",
        "semver('1.2.3-rc.1+b')",
        ".compareTo(",
        "format.dns1123Label()",
        "format.named('date').value()",
        ".validate(",
        "authorizer",
        ".group('apps').resource('pods')",
        ".serviceAccount('ns', 'sa')",
        ".check('get').allowed()",
        ".path('/x')",
    ],
};

/// What expressions are evaluated on.
const OBJECT: &str = r#"{"metadata":{"name":"web","labels":{"app":"web","tier":null}},"spec":{"replicas":3,"list":[1,2,3,"a",1.5],"nested":[[1],[2,[3]]],"empty":{},"text":"h\u00e9llo"}}"#;

/// Allows what only reads.
struct AllowsReading;

impl CelAuthorizer for AllowsReading {
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer {
        AuthorizationAnswer {
            allowed: check.verb == "get",
            ..AuthorizationAnswer::default()
        }
    }
}

fn run(data: &[u8]) -> Outcome {
    let source = String::from_utf8_lossy(data);
    let environment = CelEnvironment::builder()
        .library(&library::OptionalTypes)
        .library(&library::TwoVariableComprehensions)
        .library(&library::ListsLibrary)
        .library(&library::ListsExtension)
        .library(&library::StringsLibrary { version: 2 })
        .library(&library::SetsLibrary)
        .library(&library::RegexLibrary)
        .library(&library::UrlLibrary)
        .library(&library::IpLibrary)
        .library(&library::CidrLibrary)
        .library(&library::QuantityLibrary)
        .library(&library::FormatLibrary)
        .library(&library::SemverLibrary { version: 1 })
        .library(&library::AuthorizerLibrary)
        .library(&library::AuthorizerSelectors)
        .variable("authorizer", authorizer_type())
        .variable("object", CelType::Dyn)
        .variable("numbers", CelType::list(CelType::Int))
        .homogeneous_literals(true)
        .literal_validators(true)
        .build();
    let program = match environment.compile(&source) {
        Ok(program) => program,
        Err(error) => return refused(&source, &error),
    };
    let node: CelJson<'_> = serde_json::from_str(OBJECT).expect("the object is JSON");
    let numbers = CelValue::list((0..20).map(CelValue::Int).collect());
    let bindings = environment
        .bindings()
        .with("authorizer", authorizer(Arc::new(AllowsReading)))
        .with("object", CelValue::json(&node))
        .with("numbers", numbers.expect("the list is short"));
    let first = evaluated(&program, &bindings, 100_000);
    let again = environment.compile(&source).expect("it compiled before");
    assert_eq!(first, evaluated(&again, &bindings, 100_000));
    let (kind, text, cost) = &first;
    if *kind != Some(CelErrorKind::CostLimit) {
        assert!(*cost <= 100_000, "{cost}");
        assert_eq!(first, evaluated(&program, &bindings, *cost));
        if *cost > 0 {
            let (less, ..) = evaluated(&program, &bindings, cost - 1);
            assert!(less.is_some(), "{text}: a limit of less than the cost");
        }
    }
    let result = program.result_type().to_string();
    Outcome::of((
        kind.is_some(),
        result.get(..4).map(str::to_owned),
        cost.checked_ilog2(),
    ))
}

/// The kind of error, if it is one; the value or the error as text; the cost.
fn evaluated(
    program: &CelProgram,
    bindings: &CelBindings<'_>,
    cost: u64,
) -> (Option<CelErrorKind>, String, u64) {
    let limits = EvaluationLimits {
        cost,
        work: 200_000,
        ..EvaluationLimits::default()
    };
    let evaluation = program.evaluate_within(bindings, &limits);
    assert!(evaluation.work <= limits.work);
    match evaluation.result {
        Ok(value) => (None, value.to_string(), evaluation.cost),
        Err(error) => (Some(error.kind()), error.to_string(), evaluation.cost),
    }
}

fn refused(source: &str, error: &CelCompileError) -> Outcome {
    let text = error.to_string();
    assert!(!text.is_empty(), "{source}");
    match error {
        CelCompileError::Program(_) => Outcome::of("program"),
        CelCompileError::Issues(issues) => {
            let kinds: Vec<String> = issues
                .issues()
                .iter()
                .take(3)
                .map(|issue| issue.message.chars().take(24).collect())
                .collect();
            assert!(!kinds.is_empty() && text.starts_with("ERROR: <input>:"));
            Outcome::of(kinds)
        }
    }
}
