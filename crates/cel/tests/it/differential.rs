//! Expressions with what Kubernetes makes of them: type, value, error and cost are the same here.

use std::collections::BTreeMap;

use crate::support::{cases, json_of, kubernetes, policy_variables, type_text, waits};
use fairgate_cel::{CelBindings, CelCompileError, CelEnvironment, CelValue, JsonNode};
use serde_json::Value;

struct World<'v> {
    parts: Vec<(&'static str, JsonNode<'v>)>,
}

const VARIABLES: [&str; 5] = [
    "object",
    "oldObject",
    "params",
    "namespaceObject",
    "request",
];

impl<'v> World<'v> {
    fn of(case: &'v Value) -> Self {
        let part =
            |name: &'static str| (name, serde::Deserialize::deserialize(&case[name]).unwrap());
        Self {
            parts: VARIABLES.map(part).into(),
        }
    }

    fn bindings(&'v self, environment: &CelEnvironment) -> CelBindings<'v> {
        let parts = self.parts.iter();
        let bindings = environment.bindings().with("variables", CelValue::Null);
        parts.fold(bindings, |bindings, (name, node)| {
            bindings.with(name, CelValue::json(node))
        })
    }
}

/// What differs, if anything.
fn difference(
    case: &Value,
    environment: &CelEnvironment,
    bindings: &CelBindings<'_>,
) -> Option<String> {
    let program = match (
        environment.compile(case["expr"].as_str()?),
        case["compile"].as_str(),
    ) {
        (Err(error), Some(expected)) => {
            let phase = match error {
                CelCompileError::Issues(_) => "compilation",
                CelCompileError::Program(_) => "program instantiation",
            };
            let found = format!("{phase} failed: {error}");
            let syntax = found.contains("Syntax error") && expected.contains("Syntax error");
            return (found != expected && !syntax)
                .then(|| format!("compile: {found}\n   not: {expected}"));
        }
        (Err(error), None) => {
            return Some(format!("compile: {error}\n   not: {}", case["outcomes"]));
        }
        (Ok(_), Some(expected)) => return Some(format!("compiles\n   not: {expected}")),
        (Ok(program), None) => program,
    };
    let mut wrong = String::new();
    let of = type_text(program.result_type());
    if case["type"] != of {
        wrong = format!("type {of} not {}; ", case["type"]);
    }
    let evaluation = program.evaluate(bindings);
    let outcomes = case["outcomes"].as_array()?;
    let found = match &evaluation.result {
        Ok(value) => serde_json::json!({"value": [json_of(value)], "cost": evaluation.cost}),
        Err(error) => serde_json::json!({"error": error.to_string(), "cost": evaluation.cost}),
    };
    if !outcomes.contains(&found) {
        let expected = Value::Array(outcomes.clone());
        wrong = format!("{wrong}{found}\n   not: {expected}");
    }
    (!wrong.is_empty()).then_some(wrong)
}

#[test]
fn expressions_give_what_they_give_in_kubernetes() {
    let cases = cases("differential.jsonl");
    let environment = policy_variables(kubernetes()).build();
    let mut worlds = Vec::new();
    let mut wrong: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for case in &cases {
        let Some(group) = case["group"].as_str() else {
            worlds.push(World::of(case));
            continue;
        };
        if case.get("variables").is_some()
            || case.get("compatibility").is_some()
            || group == "authorizer"
        {
            continue;
        }
        if waits(case["expr"].as_str().unwrap()) {
            continue;
        }
        let world = &worlds[usize::try_from(case["world"].as_u64().unwrap()).unwrap()];
        let found = difference(case, &environment, &world.bindings(&environment));
        let count = wrong.entry(group).or_default();
        count.0 += 1;
        if let Some(found) = found {
            count.1 += 1;
            println!("[{group}] w{} {}\n   {found}", case["world"], case["expr"]);
        }
    }
    let total: u32 = wrong.values().map(|(total, _)| total).sum();
    assert!(total > 3_000, "cases are tried: {total}");
    let wrong: Vec<_> = wrong.iter().filter(|(_, (_, wrong))| *wrong > 0).collect();
    assert!(
        wrong.is_empty(),
        "groups with cases, and wrong ones: {wrong:?}"
    );
}
