//! The results of a test.

use serde::Serialize;

use crate::evaluated::{EvaluatedRequest, PolicyOutcome, TestVerdict};
use fairgate_core::finding::Finding;

/// A request with its verdict, compared with what was expected.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TestResult {
    /// The name of the case, or what the request does.
    pub(super) name: String,
    /// Where it is: file and line.
    pub(super) origin: String,
    pub(super) expected: TestVerdict,
    /// What differs from the expectation; empty if nothing does.
    pub(super) surprises: Vec<String>,
    pub(super) request: EvaluatedRequest,
}

impl TestResult {
    /// Whether a policy is about the request.
    pub(super) fn is_evaluated(&self) -> bool {
        let mut policies = self.request.policies.iter();
        policies.any(|policy| policy.outcome != PolicyOutcome::NotMatched)
    }
}

/// The results of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TestReport {
    pub(super) ok: bool,
    /// Whether a policy is about any of the requests.
    #[serde(rename = "isAnyJudged")]
    pub(super) is_any_evaluated: bool,
    /// Whether the requests are cases, which say what they expect.
    #[serde(skip)]
    pub(super) has_cases: bool,
    /// Policies without binding, which were evaluated as if they had one that denies.
    pub(super) policies_without_binding: Vec<String>,
    pub(super) results: Vec<TestResult>,
    pub(super) findings: Vec<Finding>,
}

/// What a request does: `CREATE deployments.apps shop/web`.
pub(super) fn title(request: &EvaluatedRequest) -> String {
    let mut title = format!("{} {}", request.operation, request.resource);
    let parts = [&request.namespace, &request.name];
    let parts: Vec<&str> = parts
        .into_iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    if request.resource == "namespaces" {
        title.push(' ');
        title.push_str(&request.name);
    } else if !parts.is_empty() {
        title.push(' ');
        title.push_str(&parts.join("/"));
    }
    title
}
