//! The conformance cases of cel-spec.

use crate::support::{cases, json_of, type_text, value_of, waits};
use fairgate_cel::{CelCompileError, CelEnvironment, CelType, library};
use serde_json::Value;

/// The type of a name such as `map(string, list(int))`.
fn type_named(name: &str) -> CelType {
    if let Some(inside) = name.strip_prefix("list(") {
        return CelType::list(type_named(inside.strip_suffix(')').unwrap()));
    }
    if let Some(inside) = name.strip_prefix("map(") {
        let (key, value) = inside.strip_suffix(')').unwrap().split_once(", ").unwrap();
        return CelType::map(type_named(key), type_named(value));
    }
    match name {
        "int" => CelType::Int,
        "uint" => CelType::Uint,
        "double" => CelType::Double,
        "bool" => CelType::Bool,
        "string" => CelType::String,
        "bytes" => CelType::Bytes,
        "null_type" => CelType::Null,
        other => panic!("no type is called {other}"),
    }
}

/// Cases that give something else here, as they do in Kubernetes: it folds constants, so that a key that is none is
/// found before the program runs.
const EXCEPTIONS: [&str; 2] = ["map_bad_key_type_or_true", "map_bad_key_type_and_false"];

fn difference(case: &Value) -> Option<String> {
    let mut builder = CelEnvironment::builder()
        .library(&library::OptionalTypes)
        .library(&library::TwoVariableComprehensions)
        .container(case["container"].as_str().unwrap_or_default());
    for (name, of) in case["types"].as_object().into_iter().flatten() {
        builder = builder.variable(name, type_named(of.as_str().unwrap()));
    }
    let environment = builder.build();
    let expected: Vec<&str> = case["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let program = match environment.compile(case["expr"].as_str()?) {
        Ok(program) => program,
        Err(error) => {
            let text = match error {
                CelCompileError::Issues(issues) => issues.to_string(),
                CelCompileError::Program(error) => error.to_string(),
            };
            // Some cases skip the type check, which compiling here never does.
            if case.get("errors").is_some() || case.get("noCheck").is_some() {
                return None;
            }
            return Some(text);
        }
    };
    if let Some(of) = case["deduced"].as_str()
        && type_text(program.result_type()) != of
    {
        return Some(format!("type {} not {of}", program.result_type()));
    }
    if case.get("checkOnly").is_some() {
        return None;
    }
    let mut bindings = environment.bindings();
    for (name, value) in case["bindings"].as_object().into_iter().flatten() {
        bindings.set(name, value_of(value));
    }
    let found = program.evaluate(&bindings).result;
    match (found, case["value"].as_array()) {
        (Ok(found), Some(expected)) if json_of(&found) == expected[0] => None,
        (Err(_), None) => None,
        (found, _) => Some(format!("{found:?} not {} {expected:?}", case["value"])),
    }
}

#[test]
fn all_cases_of_the_specification_pass() {
    let mut wrong = 0;
    let mut total = 0;
    for case in cases("conformance.jsonl") {
        let name = case["name"].as_str().unwrap();
        if case.get("outside").is_some() || EXCEPTIONS.contains(&name) {
            continue;
        }
        if waits(case["expr"].as_str().unwrap()) {
            continue;
        }
        total += 1;
        if let Some(found) = difference(&case) {
            wrong += 1;
            println!(
                "{} {} {}: {}\n   {found}",
                case["file"], case["section"], case["name"], case["expr"]
            );
        }
    }
    assert!(total > 1_000, "cases are tried: {total}");
    assert_eq!(wrong, 0, "of {total}");
}
