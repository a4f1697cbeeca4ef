//! Why the upstream cannot be followed, in words for operators.

use kube::{core::Status, runtime::watcher};

use fairgate_core::apf::objects::GROUP;
use fairgate_upstream::client::with_causes;

/// Why the upstream cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It says no.
    #[error("it answers {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// What it says.
        message: String,
    },
    /// What it has cannot be read here.
    #[error("it serves {GROUP} in no version that can be read, but in {0:?}")]
    NoVersion(Vec<String>),
    /// It does not answer, or what it answers makes no sense.
    #[error("{0}")]
    Lost(String),
    /// It does not get done.
    #[error("{0} took too long")]
    TooSlow(&'static str),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::Service(error) => Self::Lost(with_causes(&*error)),
            kube::Error::HyperError(error) => Self::Lost(with_causes(&error)),
            error => Self::Lost(error.to_string()),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused {
            code: status.code,
            message: status.message,
        }
    }
}

impl From<watcher::Error> for Failure {
    fn from(error: watcher::Error) -> Self {
        use watcher::Error;
        match error {
            Error::InitialListFailed(error)
            | Error::WatchStartFailed(error)
            | Error::WatchFailed(error) => error.into(),
            Error::WatchError(status) => (*status).into(),
            Error::NoResourceVersion => Self::Lost("it gives no resourceVersion".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failure_is_told_once_and_in_one_line() {
        let status = Status::failure("flowschemas is forbidden", "Forbidden").with_code(403);
        let refused = kube::Error::Api(status.boxed());
        let told = Failure::from(watcher::Error::InitialListFailed(refused)).to_string();
        assert_eq!(told, "it answers 403: flowschemas is forbidden");

        let cause = io::Error::other("no route");
        let failed = kube::Error::Service(Box::new(io::Error::other(cause)));
        assert_eq!(Failure::from(failed).to_string(), "no route");
    }
}
