//! The conformance cases of cel-spec.

use std::collections::BTreeMap;

use fairgate_cel::{CelCompileError, CelEnvironment, CelValue, EvaluationLimits};
use serde::Deserialize;
use serde_json::Value;

use super::environments::{NEWEST, base};
use super::known::Report;
use super::values::{canonical, json_of, type_of, value_of};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConformanceCase {
    file: String,
    section: String,
    name: String,
    expr: String,
    outside: Option<String>,
    #[serde(default)]
    mixed: bool,
    #[serde(default)]
    no_check: bool,
    #[serde(default)]
    no_macros: bool,
    #[serde(default)]
    check_only: bool,
    #[serde(default)]
    container: String,
    #[serde(default)]
    types: BTreeMap<String, String>,
    #[serde(default)]
    bindings: BTreeMap<String, Value>,
    value: Option<Vec<Value>>,
    errors: Option<Vec<String>>,
    deduced: Option<String>,
}

impl ConformanceCase {
    fn environment(&self) -> CelEnvironment {
        let mut builder = base(NEWEST)
            .homogeneous_literals(!self.mixed)
            .container(&self.container);
        for (name, of) in &self.types {
            builder = builder.variable(name, type_of(of));
        }
        if self.no_check {
            for name in self
                .bindings
                .keys()
                .filter(|name| !self.types.contains_key(*name))
            {
                builder = builder.variable(name, type_of("dyn"));
            }
        }
        builder.build()
    }

    /// How the result differs from that of cel-spec; `None` if it is the same.
    fn difference(&self) -> Option<String> {
        let environment = self.environment();
        let program = match environment.compile(&self.expr) {
            Ok(program) => program,
            Err(_) if self.errors.is_some() => return None,
            Err(error) if self.no_check => {
                return Some(format!(
                    "  is not to be checked, and does not compile: {error}"
                ));
            }
            Err(CelCompileError::Issues(issues)) => {
                return Some(format!("  does not compile: {issues}"));
            }
            Err(error) => return Some(format!("  does not compile: {error}")),
        };
        if let Some(deduced) = &self.deduced
            && program.result_type().full_name() != *deduced
        {
            return Some(format!(
                "  deduced {} and not {deduced}",
                program.result_type()
            ));
        }
        if self.check_only {
            return None;
        }
        let mut bindings = environment.bindings();
        for (name, value) in &self.bindings {
            bindings.set(name, value_of(value));
        }
        let limits = EvaluationLimits {
            cost: u64::MAX,
            ..EvaluationLimits::default()
        };
        let result = program.evaluate_within(&bindings, &limits).result;
        self.compare(&result)
    }

    fn compare(&self, result: &Result<CelValue<'_>, fairgate_cel::CelError>) -> Option<String> {
        match (result, &self.value) {
            (Err(_), None) => None,
            (Err(error), Some(_)) => Some(format!("  failed: {error}")),
            (Ok(value), None) => Some(format!("  gave {} and should fail", json_of(value))),
            (Ok(value), Some(expected)) => {
                let (got, expected) = (json_of(value), canonical(&expected[0]));
                (got != expected).then(|| format!("  gave {got} and not {expected}"))
            }
        }
    }
}

#[test]
fn expressions_have_the_results_of_cel_spec() {
    let mut report = Report::new("conformance");
    for line in include_str!("../corpus/conformance.jsonl").lines() {
        let case: ConformanceCase = serde_json::from_str(line).expect(line);
        if case.outside.is_some() {
            continue;
        }
        // This crate cannot switch macros off. These cases test an option of cel-go's parser.
        let difference = if case.no_macros {
            Some("  runs without macros".to_owned())
        } else {
            case.difference()
        };
        let name = format!("{}/{}/{}", case.file, case.section, case.name);
        let difference = difference.map(|text| format!("  {}\n{text}", case.expr));
        report.add(&case.file, name, difference);
    }
    report.finish();
}
