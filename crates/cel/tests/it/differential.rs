//! Expressions with the results of Kubernetes: type or compile error, value or error, and the exact cost.

use std::collections::HashMap;

use fairgate_cel::{CelCompileError, CelEnvironment, CelProgram, EvaluationLimits};
use serde::Deserialize;
use serde_json::Value;

use super::environments::{NEWEST, policies};
use super::known::Report;
use super::values::{canonical, json_of};
use super::variables::{CompiledVariables, VariableValues, compile_text};
use super::worlds::World;

#[derive(Deserialize)]
struct DifferentialCase {
    group: String,
    world: usize,
    expr: String,
    compatibility: Option<String>,
    #[serde(default)]
    variables: Vec<(String, String)>,
    compile: Option<String>,
    #[serde(rename = "type")]
    result_type: Option<String>,
    #[serde(default)]
    outcomes: Vec<Outcome>,
}

/// A result of the original. Expressions that iterate over maps, whose order is random, may have several.
#[derive(Deserialize)]
struct Outcome {
    value: Option<Vec<Value>>,
    error: Option<String>,
    cost: u64,
}

impl DifferentialCase {
    fn minor(&self) -> u32 {
        let Some(version) = &self.compatibility else {
            return NEWEST;
        };
        let minor = version
            .strip_prefix("1.")
            .and_then(|minor| minor.parse().ok());
        minor.expect("a version such as 1.28")
    }

    fn name(&self) -> String {
        let version = self.compatibility.as_deref().unwrap_or("stored");
        let variables = self.variables.iter();
        let variables: Vec<_> = variables
            .map(|(name, expr)| format!("{name} = {expr} ;; "))
            .collect();
        let variables = variables.concat();
        format!("#{} {version} {variables}{}", self.world, self.expr)
    }

    fn difference(&self, environment: &CelEnvironment, world: &World<'_>) -> Option<String> {
        let variables = CompiledVariables::new(environment, &self.variables);
        let program = match variables.environment.compile(&self.expr) {
            Ok(program) => program,
            Err(error) => return self.compare_compile(&error),
        };
        if let Some(expected) = &self.compile {
            return Some(format!("  compiles, and should not: {expected}"));
        }
        let result_type = program.result_type().full_name();
        let expected = self.result_type.as_deref().unwrap_or_default();
        if result_type != expected {
            return Some(format!("  type {result_type}, expected {expected}"));
        }
        self.compare_outcome(&program, &variables, world)
    }

    /// Compares the messages, except those of syntax errors, which come from the original's parser generator.
    fn compare_compile(&self, error: &CelCompileError) -> Option<String> {
        let got = compile_text(error);
        let Some(expected) = &self.compile else {
            return Some(format!("  does not compile: {got}"));
        };
        let syntax = |text: &str| text.contains("Syntax error");
        let same = unnumbered(expected) == unnumbered(&got) || syntax(expected) && syntax(&got);
        (!same).then(|| format!("  compile error\n{got}\n  expected\n{expected}"))
    }

    fn compare_outcome(
        &self,
        program: &CelProgram,
        variables: &CompiledVariables,
        world: &World<'_>,
    ) -> Option<String> {
        let mut bindings = world.bindings(&variables.environment);
        if !self.variables.is_empty() {
            bindings = bindings.with_lazy("variables");
        }
        let values = VariableValues::new(variables, &bindings);
        let limits = EvaluationLimits::default();
        let mut evaluation = program.evaluate_lazy(&bindings, &values, &limits);
        evaluation.cost += values.cost.get();
        let (value, error) = match &evaluation.result {
            Ok(value) => (Some(json_of(value)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let same = |outcome: &Outcome| {
            let expected = outcome.value.as_ref().map(|value| canonical(&value[0]));
            let over = |error: &Option<String>| {
                error
                    .as_ref()
                    .is_some_and(|error| error.contains("cost limit exceeded"))
            };
            let cost = evaluation.cost == outcome.cost || over(&error) && over(&outcome.error);
            expected == value && outcome.error == error && cost
        };
        if self.outcomes.iter().any(same) {
            return None;
        }
        let expected: Vec<_> = self.outcomes.iter().map(Outcome::text).collect();
        let got = match (value, error) {
            (Some(value), _) => value.to_string(),
            (None, error) => format!("error {}", error.unwrap_or_default()),
        };
        Some(format!(
            "  {got} cost {}\n  expected\n  {}",
            evaluation.cost,
            expected.join("\n  ")
        ))
    }
}

/// A message without the numbers of type variables: the original numbers those of an overload in random order.
fn unnumbered(message: &str) -> String {
    let mut parts = message.split("_var");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("_var");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

impl Outcome {
    fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{} cost {}", canonical(&value[0]), self.cost),
            None => format!(
                "error {} cost {}",
                self.error.as_deref().unwrap_or_default(),
                self.cost
            ),
        }
    }
}

#[test]
fn expressions_have_the_results_of_kubernetes() {
    let named = std::env::var("FAIRGATE_CEL_CORPUS");
    let corpus = match named {
        Ok(path) => std::fs::read_to_string(&path).expect("FAIRGATE_CEL_CORPUS names a file"),
        Err(_) => include_str!("../corpus/differential.jsonl").to_owned(),
    };
    let mut worlds = Vec::new();
    let mut environments: HashMap<u32, CelEnvironment> = HashMap::new();
    let mut report = Report::new("differential");
    for line in corpus.lines() {
        if line.starts_with(r#"{"world""#) {
            worlds.push(serde_json::from_str::<World<'_>>(line).expect(line));
            continue;
        }
        let case: DifferentialCase = serde_json::from_str(line).expect(line);
        let minor = case.minor();
        let environment = environments.entry(minor).or_insert_with(|| policies(minor));
        let difference = case.difference(environment, &worlds[case.world]);
        report.add(&case.group, case.name(), difference);
    }
    report.finish();
}
