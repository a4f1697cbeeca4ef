//! Results of tests as text.

use std::io::{self, Write};

use crate::{
    evaluated::{EvaluatedExpression, EvaluatedPolicy, EvaluatedRequest, PolicyOutcome},
    results::{TestReport, TestResult, title},
};
use fairgate_cel::DEFAULT_COST_LIMIT;
use fairgate_core::finding::Finding;

/// The most characters of an expression or a value that are shown.
const MAX_SHOWN: usize = 160;

/// What is wrong with a test in which no policy matched a request.
pub(super) const NOTHING_EVALUATED: &str =
    "no policy matches any of them: are its rules for other resources or operations?";

/// Writes a finding. The lines that a compiler shows below its message are indented.
///
/// # Errors
///
/// When `out` cannot be written.
pub fn write_finding(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    let Some((first, excerpt)) = finding.message.split_once('\n') else {
        return writeln!(out, "{finding}");
    };
    let first = Finding {
        message: first.to_owned(),
        ..finding.clone()
    };
    writeln!(out, "{first}")?;
    for line in excerpt.lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Writes the results.
pub(super) fn write(out: &mut dyn Write, report: &TestReport) -> io::Result<()> {
    for name in &report.policies_without_binding {
        writeln!(
            out,
            "policy {name} has no binding: it is evaluated as if it had one with validationActions: [Deny]"
        )?;
    }
    for result in &report.results {
        write_result(out, result, report.has_cases)?;
    }
    let total = report.results.len();
    let failed = report
        .results
        .iter()
        .filter(|result| !result.surprises.is_empty())
        .count();
    let noun = match (report.has_cases, total) {
        (true, 1) => "case",
        (true, _) => "cases",
        (false, 1) => "request",
        (false, _) => "requests",
    };
    let unevaluated = report
        .results
        .iter()
        .filter(|result| !result.is_evaluated())
        .count();
    if !report.is_any_evaluated {
        return writeln!(out, "{total} {noun}: {NOTHING_EVALUATED}");
    }
    // What no policy was asked about is not allowed by any.
    let as_expected = if report.has_cases {
        total - failed
    } else {
        total - failed - unevaluated
    };
    let unevaluated = match unevaluated {
        0 => String::new(),
        unevaluated => format!("; {unevaluated} evaluated by no policy"),
    };
    if report.has_cases {
        writeln!(
            out,
            "{total} {noun}: {as_expected} passed, {failed} failed{unevaluated}"
        )
    } else {
        writeln!(
            out,
            "{total} {noun}: {as_expected} allowed, {failed} denied{unevaluated}"
        )
    }
}

fn write_result(out: &mut dyn Write, result: &TestResult, is_case: bool) -> io::Result<()> {
    let request = &result.request;
    if is_case {
        let mark = if result.surprises.is_empty() {
            "ok"
        } else {
            "FAIL"
        };
        writeln!(out, "{mark:<7}{} ({})", result.name, result.origin)?;
        for surprise in &result.surprises {
            writeln!(out, "  {surprise}")?;
        }
        if result.surprises.is_empty() {
            return Ok(());
        }
        writeln!(out, "  {} {}", request.verdict.as_str(), title(request))?;
    } else {
        let verdict = if result.is_evaluated() {
            request.verdict.as_str()
        } else {
            "no policy"
        };
        writeln!(out, "{verdict:<8} {} ({})", result.name, result.origin)?;
    }
    write_request(out, request)?;
    writeln!(out)
}

fn write_request(out: &mut dyn Write, request: &EvaluatedRequest) -> io::Result<()> {
    let (others, evaluated): (Vec<_>, Vec<_>) = request
        .policies
        .iter()
        .partition(|policy| policy.outcome == PolicyOutcome::NotMatched);
    for policy in evaluated {
        write_policy(out, policy)?;
    }
    for policy in others {
        let binding = match &*policy.binding {
            "" => String::new(),
            binding => format!(", binding {binding}"),
        };
        let field = policy.messages.join(", ");
        writeln!(
            out,
            "  not for this request: policy {}{binding} ({field})",
            policy.policy
        )?;
    }
    if let Some(status) = &request.status {
        writeln!(
            out,
            "  response: {} {}: {}",
            status.code, status.reason, status.message
        )?;
    }
    for warning in &request.warnings {
        writeln!(out, "  warning: {warning}")?;
    }
    for (key, value) in &request.audit_annotations {
        writeln!(out, "  audit annotation {key}: {value}")?;
    }
    for note in &request.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

fn write_policy(out: &mut dyn Write, policy: &EvaluatedPolicy) -> io::Result<()> {
    write!(
        out,
        "  {}: policy {}",
        policy.outcome.as_str(),
        policy.policy
    )?;
    if !policy.binding.is_empty() && !policy.is_binding_assumed {
        write!(
            out,
            ", binding {} ({})",
            policy.binding,
            policy.actions.join(", ")
        )?;
    }
    if !policy.param.is_empty() {
        write!(out, ", param {}", policy.param)?;
    }
    writeln!(out, ", cost {}", policy.cost)?;
    for expression in &policy.expressions {
        write_expression(out, expression)?;
    }
    for message in &policy.messages {
        let mut lines = message.lines();
        writeln!(out, "    message: {}", lines.next().unwrap_or_default())?;
        for line in lines {
            writeln!(out, "      {line}")?;
        }
    }
    Ok(())
}

fn write_expression(out: &mut dyn Write, expression: &EvaluatedExpression) -> io::Result<()> {
    let EvaluatedExpression { field, cost, .. } = expression;
    let result = match (&expression.value, &expression.error) {
        (Some(value), _) => one_line(value),
        (None, Some(_)) => "error".to_owned(),
        (None, None) => String::new(),
    };
    // An expression that costs a tenth of its limit deserves a look.
    let share = cost.saturating_mul(100) / DEFAULT_COST_LIMIT;
    let share = if share >= 10 {
        format!(", {share} % of the limit")
    } else {
        String::new()
    };
    writeln!(out, "    {field} = {result} (cost {cost}{share})")?;
    writeln!(out, "      {}", one_line(&expression.expression))?;
    if let Some(error) = &expression.error {
        for line in error.lines() {
            writeln!(out, "      {line}")?;
        }
    }
    Ok(())
}

/// A text in one line, cut if it is long.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
