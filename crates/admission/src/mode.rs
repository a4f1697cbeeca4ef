//! What is configured: what a refusal does, and how the object that is evaluated is obtained.

/// What happens to the verdicts of policies on forwarded requests. Without a mode, nothing is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionMode {
    /// They are recorded. Nothing is refused, delayed, or sent to the upstream as a dry run.
    Audit,
    /// They are recorded; requests that are denied are refused, and clients get the warnings.
    Enforce,
}

impl AdmissionMode {
    /// All modes.
    pub const ALL: [Self; 2] = [Self::Audit, Self::Enforce];

    /// The mode's name in the configuration, in metrics and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

/// How the object that a policy evaluates is obtained. An ordered scale: a request is evaluated with the greatest fidelity that
/// one of its policies asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fidelity {
    /// The body as the client sent it.
    AsSent,
    /// The body with what the gateway itself can add: `apiVersion`, `kind` and `metadata.namespace` of the URL, and
    /// patches applied to the stored object.
    Completed,
    /// The response of the upstream to the same request as a dry run: with defaults, mutations and the result of
    /// server-side apply.
    DryRun,
}

impl Fidelity {
    /// The annotation of a policy that says how the objects it evaluates are obtained.
    pub const ANNOTATION: &str = "fairgate.dev/fidelity";

    /// All of them, in ascending order.
    pub const ALL: [Self; 3] = [Self::AsSent, Self::Completed, Self::DryRun];

    /// The name in the configuration, in the annotation of a policy, and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsSent => "asSent",
            Self::Completed => "completed",
            Self::DryRun => "dryRun",
        }
    }

    /// The fidelity of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}
