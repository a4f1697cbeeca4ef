//! What a server would say of a write before it asks its policies, as far as its body tells. It counts if a policy denies the write: what
//! policies allow is forwarded, and the upstream says it itself, without their warnings.

use fairgate_admission::InputFailure;
use fairgate_apihttp::status_error::StatusError;
use fairgate_cel::CelJson;

/// What was found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyFindings {
    /// The server's warnings about the body, in its order.
    pub(crate) warnings: Vec<String>,
    /// Why it would have refused the request.
    error: Option<Box<StatusError>>,
    /// Why it would have refused it if its namespace exists.
    late_error: Option<Box<StatusError>>,
    /// Why it would refuse a write that states no version, if its kind needs one.
    unversioned: Option<Box<StatusError>>,
}

impl BodyFindings {
    /// Notes an error. The first one counts.
    pub(crate) fn note(&mut self, error: Option<StatusError>) {
        if self.error.is_none() {
            self.error = error.map(Box::new);
        }
    }

    /// Notes an error that comes after the one that there is no such namespace.
    pub(crate) fn note_late(&mut self, error: Option<StatusError>) {
        if self.late_error.is_none() {
            self.late_error = error.map(Box::new);
        }
    }

    /// Notes that the write has to state a version, and does not.
    pub(crate) fn note_unversioned(&mut self, error: StatusError) {
        self.note(Some(error.clone()));
        self.unversioned = Some(Box::new(error));
    }

    /// What the server says of the version that the write does not state. One that is inserted here would have it accepted.
    pub(crate) fn unversioned(&self) -> Option<&StatusError> {
        self.unversioned.as_deref()
    }

    pub(crate) fn error(&self) -> Option<&StatusError> {
        self.error.as_deref()
    }

    pub(crate) fn late_error(&self) -> Option<&StatusError> {
        self.late_error.as_deref()
    }
}

/// The state of the namespace of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundNamespace {
    /// There is none.
    Absent,
    /// It is being deleted.
    Ending,
    Active,
    /// It could not be read.
    Unknown,
}

impl FoundNamespace {
    pub(crate) fn of(read: Result<&CelJson<'_>, &InputFailure>) -> Self {
        match read {
            Ok(namespace) if namespace.text_at(&["status", "phase"]) == "Terminating" => {
                Self::Ending
            }
            Ok(_) => Self::Active,
            Err(InputFailure::NotFound) => Self::Absent,
            Err(_) => Self::Unknown,
        }
    }
}
