//! What a case expects, and whether it came so.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    evaluated::{EvaluatedRequest, TestVerdict},
    fields::FileFields,
};

/// What a case expects.
#[derive(Clone, Debug)]
pub(super) struct ExpectedResult {
    pub(super) verdict: TestVerdict,
    /// Of one denial; texts that are contained in it.
    policy: Option<String>,
    binding: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    /// A text for each warning, which is contained in it. `None`: any.
    warnings: Option<Vec<String>>,
    audit_annotations: Vec<(String, String)>,
}

impl ExpectedResult {
    /// Nothing but this verdict.
    pub(super) fn of(verdict: TestVerdict) -> Self {
        Self {
            verdict,
            policy: None,
            binding: None,
            message: None,
            reason: None,
            warnings: None,
            audit_annotations: Vec::new(),
        }
    }

    /// Reads the key `expect` of a case: `allowed`, `denied`, or a mapping.
    pub(super) fn read(case: &mut FileFields<'_, '_>) -> Self {
        let remedy = "write allowed, denied, or a mapping with verdict, policy, message, warnings";
        match case.value("expect") {
            None => case.error("expect", "it is missing", remedy),
            Some(Value::String(text)) => match verdict(text) {
                Some(verdict) => return Self::of(verdict),
                None => case.error("expect", format!("{text:?} is no verdict"), remedy),
            },
            Some(_) => {
                if let Some(fields) = case.section("expect") {
                    return Self::read_section(fields);
                }
            }
        }
        Self::of(TestVerdict::Allowed)
    }

    fn read_section(mut fields: FileFields<'_, '_>) -> Self {
        let mut of_denial = |key| {
            let text = fields.text(key);
            if text == Some("") {
                fields.error(key, "it is empty", "leave it out if any will do");
            }
            text.map(str::to_owned)
        };
        let [policy, binding, message, reason] =
            ["policy", "binding", "message", "reason"].map(&mut of_denial);
        let is_about_denial = [&policy, &binding, &message, &reason]
            .iter()
            .any(|text| text.is_some());
        let named = fields.text("verdict");
        let found = match named {
            Some(text) => verdict(text),
            None if is_about_denial => Some(TestVerdict::Denied),
            None => Some(TestVerdict::Allowed),
        };
        match found {
            None => fields.error("verdict", "it is no verdict", "write allowed or denied"),
            Some(TestVerdict::Allowed) if is_about_denial => fields.error(
                "verdict",
                "policy, binding, message and reason are those of a denial",
                "write denied, or leave them out",
            ),
            Some(_) => {}
        }
        let warnings = fields.texts("warnings");
        let audit_annotations = fields.text_map("auditAnnotations").unwrap_or_default();
        fields.finish();
        Self {
            verdict: found.unwrap_or(TestVerdict::Denied),
            policy,
            binding,
            message,
            reason,
            warnings,
            audit_annotations,
        }
    }

    /// What differs from the expectation, each in a sentence.
    pub(super) fn surprises(&self, evaluated: &EvaluatedRequest) -> Vec<String> {
        let mut surprises = Vec::new();
        if self.verdict != evaluated.verdict {
            surprises.push(format!(
                "expected to be {}, but it was {}{}",
                self.verdict.as_str(),
                evaluated.verdict.as_str(),
                shown_denials(evaluated)
            ));
        } else if self.verdict == TestVerdict::Denied && !self.is_met_by_a_denial(evaluated) {
            surprises.push(format!(
                "expected a denial{}, but it was denied{}",
                self.shown_denial(),
                shown_denials(evaluated)
            ));
        }
        self.compare_warnings(evaluated, &mut surprises);
        for (key, wanted) in &self.audit_annotations {
            match evaluated.audit_annotations.get(key) {
                Some(found) if found.contains(wanted) => {}
                Some(found) => surprises.push(format!(
                    "expected audit annotation {key} with {wanted:?}, but it was {found:?}"
                )),
                None => surprises.push(format!(
                    "expected audit annotation {key}, but there was none"
                )),
            }
        }
        surprises
    }

    fn is_met_by_a_denial(&self, evaluated: &EvaluatedRequest) -> bool {
        let equal = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let contained = |wanted: &Option<String>, found: &str| {
            wanted
                .as_ref()
                .is_none_or(|wanted| found.contains(wanted.as_str()))
        };
        if evaluated.denials.is_empty() {
            // Refused before policies decided: the namespace is not available.
            let message = evaluated
                .status
                .as_ref()
                .map_or("", |status| &status.message);
            return self.policy.is_none() && contained(&self.message, message);
        }
        evaluated.denials.iter().any(|denial| {
            equal(&self.policy, &denial.policy)
                && equal(&self.binding, &denial.binding)
                && equal(&self.reason, &denial.reason)
                && contained(&self.message, &denial.message)
        })
    }

    fn compare_warnings(&self, evaluated: &EvaluatedRequest, surprises: &mut Vec<String>) {
        let Some(wanted) = &self.warnings else {
            return;
        };
        let mut left: Vec<&String> = evaluated.warnings.iter().collect();
        for text in wanted {
            match left
                .iter()
                .position(|warning| warning.contains(text.as_str()))
            {
                Some(at) => {
                    left.remove(at);
                }
                None => surprises.push(format!(
                    "expected a warning with {text:?}, but there was none"
                )),
            }
        }
        for warning in left {
            surprises.push(format!("did not expect the warning {warning:?}"));
        }
    }

    fn shown_denial(&self) -> String {
        let parts = [
            (" by policy", &self.policy),
            (" with binding", &self.binding),
            (" with reason", &self.reason),
            (" with a message that contains", &self.message),
        ];
        let mut shown = String::new();
        for (words, text) in parts {
            if let Some(text) = text {
                let _ = write!(shown, "{words} {text:?}");
            }
        }
        shown
    }
}

fn verdict(text: &str) -> Option<TestVerdict> {
    let all = [TestVerdict::Allowed, TestVerdict::Denied];
    all.into_iter().find(|verdict| verdict.as_str() == text)
}

/// The denials as the end of a sentence.
fn shown_denials(evaluated: &EvaluatedRequest) -> String {
    let mut shown = String::new();
    for denial in &evaluated.denials {
        let _ = write!(shown, "; by policy {:?}", denial.policy);
        if !denial.binding.is_empty() {
            let _ = write!(shown, " with binding {:?}", denial.binding);
        }
        let _ = write!(shown, ", {}: {}", denial.reason, denial.message);
    }
    if let (true, Some(status)) = (evaluated.denials.is_empty(), &evaluated.status) {
        let _ = write!(shown, ": {}", status.message);
    }
    shown
}
