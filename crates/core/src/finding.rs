//! Findings: errors and probable mistakes in a set of policy objects.

use std::fmt;

/// How many characters of an error a [`summary`] has.
const MAX_SUMMARY: usize = 400;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The set of objects cannot be used.
    Error,
    /// The set can be used, but something in it is probably not intended.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// An error or warning: which object and field, what is wrong, what to do. `Display` writes it in one line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// Where the object comes from, such as `file.yaml, document 2`.
    pub origin: String,
    /// The object's kind; empty when there is none.
    pub kind: String,
    /// The object's name; empty when it has none.
    pub name: String,
    /// The field as Kubernetes writes it, such as `spec.rules[0].subjects`; empty when the object
    /// as a whole is meant.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// A finding about what comes from `origin` as a whole, such as a file: about no object, and, unless [`in_field`](Self::in_field) says
    /// one, about no field.
    pub fn without_object(
        severity: Severity,
        origin: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            origin: origin.into(),
            kind: String::new(),
            name: String::new(),
            field: String::new(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// The same finding about this field.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }

    /// Whether it makes the set of objects unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.origin)?;
        if !self.kind.is_empty() {
            write!(f, ": {}", self.kind)?;
            if !self.name.is_empty() {
                write!(f, " {:?}", self.name)?;
            }
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}; {}", self.message, self.remedy)
    }
}

/// The first error in one line of bounded length, and how many more there are: for a health check. The log has all.
pub fn summary(findings: &[Finding]) -> String {
    let mut errors = findings.iter().filter(|finding| finding.is_error());
    let Some(first) = errors.next() else {
        return "the log says why".to_owned();
    };
    let text = first.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let is_control = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().map(is_control).take(MAX_SUMMARY).collect();
    match errors.count() {
        0 => line,
        more => format!("{line} (and {more} more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding {
            severity: Severity::Error,
            origin: "flows.yaml, document 2".into(),
            kind: "FlowSchema".into(),
            name: "batch".into(),
            field: "spec.rules[0].subjects".into(),
            message: "Required value: subjects must contain at least one value".into(),
            remedy: "add a subject".into(),
        }
    }

    #[test]
    fn a_finding_is_one_line_with_object_field_and_remedy() {
        assert_eq!(
            finding().to_string(),
            "error: flows.yaml, document 2: FlowSchema \"batch\": spec.rules[0].subjects: Required \
             value: subjects must contain at least one value; add a subject"
        );
    }

    #[test]
    fn a_finding_without_object_has_no_empty_parts() {
        let Finding {
            severity,
            origin,
            message,
            remedy,
            ..
        } = finding();
        let bare = Finding::without_object(severity, origin, message, remedy);
        assert_eq!(
            bare.to_string(),
            "error: flows.yaml, document 2: Required value: subjects must contain at least one \
             value; add a subject"
        );
        assert_eq!(
            bare.in_field("spec.rules").to_string(),
            "error: flows.yaml, document 2: spec.rules: Required value: subjects must contain at \
             least one value; add a subject"
        );
    }

    #[test]
    fn a_summary_is_one_line_of_bounded_length() {
        let error = |message: String| {
            let finding = Finding::without_object(Severity::Error, "a.yaml", message, "correct it");
            finding.in_field("spec.type")
        };
        let long = error(format!("one\ntwo {}", "x".repeat(9999)));
        let warning = Finding {
            severity: Severity::Warning,
            ..finding()
        };
        let text = summary(&[warning, long, error("too".to_owned())]);
        assert!(text.starts_with("a.yaml: spec.type: one two xxx"), "{text}");
        assert!(
            text.ends_with("xxx (and 1 more)") && text.len() < 500,
            "{text}"
        );
        assert_eq!(summary(&[]), "the log says why");
    }

    #[test]
    fn findings_serialize_with_a_lower_case_severity() {
        let json = serde_json::to_value(finding()).unwrap();
        assert_eq!(json["severity"], "error");
        assert_eq!(json["field"], "spec.rules[0].subjects");
    }
}
