//! Verdicts against those of Kubernetes' own dispatcher: status, warnings, audit annotations, metrics, and for each
//! evaluation decisions and cost to the unit.
//!
//! `FAIRGATE_ADMISSION_CORPUS` names a larger corpus, which `crates/admission/oracle/run --large` makes.

use std::collections::BTreeMap;

use fairgate_admission::{AdmissionAbort, AdmissionVerdict, EvaluationBudgets, PolicySet};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde::Deserialize;
use serde_json::Value;

use crate::known::Comparison;
use crate::outcome::{decisions, of_verdict};
use crate::world::{Inputs, Request, World};

#[derive(Deserialize)]
struct AdmissionCase {
    case: String,
    request: String,
    policies: Vec<ValidatingAdmissionPolicy>,
    bindings: Vec<ValidatingAdmissionPolicyBinding>,
    #[serde(default)]
    budgets: CaseBudgets,
    #[serde(default)]
    cancelled: bool,
    outcome: Value,
    #[serde(default)]
    less: Vec<LessBudget>,
}

/// A part with a budget of one less than it costs, and one of exactly that.
#[derive(Deserialize)]
struct LessBudget {
    budgets: CaseBudgets,
    exact: CaseBudgets,
    #[serde(default)]
    denied: String,
    #[serde(default)]
    decisions: Value,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct CaseBudgets {
    conditions: Option<u64>,
    validations: Option<u64>,
    annotations: Option<u64>,
}

impl CaseBudgets {
    fn budgets(self) -> EvaluationBudgets {
        let usual = EvaluationBudgets::default();
        EvaluationBudgets {
            conditions: self.conditions.unwrap_or(usual.conditions),
            validations: self.validations.unwrap_or(usual.validations),
            annotations: self.annotations.unwrap_or(usual.annotations),
        }
    }
}

impl AdmissionCase {
    fn difference(&self, world: &World<'_>, request: &Request<'_>) -> Option<String> {
        let user = request.user();
        let attributes = request.attributes(&user);
        let inputs = Inputs::new(world, request, self.cancelled);
        let set = PolicySet::compile(&self.policies, &self.bindings);
        let evaluate = |budgets: CaseBudgets| set.evaluate(&attributes, &inputs, budgets.budgets());
        let verdict = evaluate(self.budgets);
        let outcome = of_verdict(&verdict, &attributes, request.objects());
        if let Some(difference) = self.compare(&outcome) {
            return Some(difference);
        }
        let decides = verdict.as_ref().is_ok_and(|verdict| {
            let mut evaluations = verdict.evaluations.iter();
            evaluations.any(|one| !one.decisions.is_empty())
        });
        let is_asked = decides || outcome.get("status").is_some();
        if is_asked && !set.may_match(&attributes, &inputs) {
            return Some("  may_match says that no policy matches".to_owned());
        }
        self.less.iter().find_map(|less| {
            let exact = of_verdict(&evaluate(less.exact), &attributes, request.objects());
            if exact != outcome {
                return Some("  a budget of exactly the cost does not suffice".to_owned());
            }
            less.difference(&evaluate(less.budgets), |verdict| {
                of_verdict(verdict, &attributes, request.objects())
            })
        })
    }

    /// Headers are compared where the corpus has them.
    fn compare(&self, outcome: &Value) -> Option<String> {
        let members = outcome.as_object().unwrap();
        let expected = self.outcome.as_object().unwrap();
        let names = [
            "status",
            "warnings",
            "headers",
            "auditAnnotations",
            "metrics",
            "evaluations",
        ];
        assert!(expected.keys().all(|name| names.contains(&name.as_str())));
        let different = names.into_iter().find(|name| {
            let skipped = *name == "headers" && !expected.contains_key("headers");
            !skipped && members.get(*name) != expected.get(*name)
        })?;
        let show = |of: Option<&Value>| of.map_or("none".to_owned(), Value::to_string);
        Some(format!(
            "  {different}\n  {}\n  expected\n  {}",
            show(members.get(different)),
            show(expected.get(different))
        ))
    }
}

impl LessBudget {
    fn difference(
        &self,
        verdict: &Result<AdmissionVerdict<'_>, AdmissionAbort>,
        outcome: impl Fn(&Result<AdmissionVerdict<'_>, AdmissionAbort>) -> Value,
    ) -> Option<String> {
        let message = outcome(verdict)["status"]["message"].clone();
        if message.as_str().unwrap_or_default() != self.denied {
            return Some(format!(
                "  with one less: {message}\n  expected\n  {}",
                self.denied
            ));
        }
        let evaluation = &verdict.as_ref().expect("a verdict").evaluations[0];
        let made = decisions(&evaluation.decisions);
        let same =
            made == self.decisions || self.decisions.is_null() && made == Value::Array(Vec::new());
        (!same).then(|| format!("  with one less: {made}\n  expected\n  {}", self.decisions))
    }
}

#[derive(Deserialize)]
struct WorldLine<'a> {
    #[serde(borrow)]
    world: World<'a>,
}

/// What a corpus holds.
struct Corpus<'a> {
    world: World<'a>,
    requests: BTreeMap<String, Request<'a>>,
    cases: Vec<AdmissionCase>,
}

impl<'a> Corpus<'a> {
    fn read(text: &'a str) -> Self {
        let mut lines = text.lines();
        let first = lines.next().expect("the world");
        let line: WorldLine<'_> = serde_json::from_str(first).expect("the world");
        let mut corpus = Self {
            world: line.world,
            requests: BTreeMap::new(),
            cases: Vec::new(),
        };
        for line in lines {
            if line.starts_with(r#"{"request""#) {
                let request: Request<'_> = serde_json::from_str(line).expect(line);
                corpus.requests.insert(request.case_name.clone(), request);
            } else {
                corpus.cases.push(serde_json::from_str(line).expect(line));
            }
        }
        corpus
    }
}

const CORPUS: &str = include_str!("../corpus/cases.jsonl");

#[test]
fn requests_are_evaluated_as_kubernetes_evaluates_them() {
    let named = std::env::var("FAIRGATE_ADMISSION_CORPUS");
    let text = match named {
        Ok(path) => std::fs::read_to_string(&path).expect("FAIRGATE_ADMISSION_CORPUS names a file"),
        Err(_) => CORPUS.to_owned(),
    };
    let corpus = Corpus::read(&text);
    let mut comparison = Comparison::default();
    for case in &corpus.cases {
        let request = &corpus.requests[&case.request];
        comparison.add(&case.case, case.difference(&corpus.world, request));
    }
    comparison.finish();
}

#[test]
fn a_set_of_many_policies_evaluates_as_each_does_alone() {
    let mut corpus = Corpus::read(CORPUS);
    // Every sixth of the drawn ones, which are quick, with a name of its own.
    corpus.cases.retain(|case| case.case.starts_with("drawn"));
    let (mut policies, mut bindings, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for (number, case) in corpus.cases.iter_mut().step_by(6).enumerate() {
        for policy in &mut case.policies {
            let name = policy.metadata.name.clone().unwrap_or_default();
            let unique = format!("{number}-{name}");
            for binding in &mut case.bindings {
                if binding.spec.policy_name == name {
                    binding.spec.policy_name.clone_from(&unique);
                }
            }
            policy.metadata.name = Some(unique);
        }
        alone.push(PolicySet::compile(&case.policies, &case.bindings));
        policies.append(&mut case.policies);
        bindings.append(&mut case.bindings);
    }
    let set = PolicySet::compile(&policies, &bindings);
    let mut evaluated = 0;
    for request in corpus.requests.values() {
        let user = request.user();
        let attributes = request.attributes(&user);
        let inputs = Inputs::new(&corpus.world, request, false);
        let evaluate = |set: &PolicySet| {
            let verdict = set.evaluate(&attributes, &inputs, EvaluationBudgets::default());
            verdict.map(|verdict| of_verdict(&Ok(verdict), &attributes, request.objects()))
        };
        let Ok(together) = evaluate(&set) else {
            assert!(alone.iter().any(|one| evaluate(one).is_err()));
            continue;
        };
        let each: Vec<_> = alone
            .iter()
            .flat_map(|one| {
                let outcome = evaluate(one).expect("none fails if all together do not");
                let evaluations = outcome["evaluations"].as_array().cloned();
                evaluations.unwrap_or_default()
            })
            .collect();
        evaluated += each.len();
        let together = together["evaluations"].as_array();
        assert_eq!(
            together.cloned().unwrap_or_default(),
            each,
            "{}",
            request.case_name
        );
    }
    assert!(evaluated > 1000, "{evaluated} evaluations are few");
}
