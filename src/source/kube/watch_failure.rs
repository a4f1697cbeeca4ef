//! Why the policy objects of the upstream cannot be watched, in words for operators.

use kube::{core::Status, runtime::watcher};

use fairgate_core::apf::objects::GROUP;
use fairgate_upstream::client::with_causes;

/// Why the policy objects cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchFailure {
    /// An error response.
    #[error("the upstream answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message of its `Status`.
        message: String,
    },
    /// No common version.
    #[error("the upstream serves {GROUP} only in versions that are not supported: {0:?}")]
    NoVersion(Vec<String>),
    /// No response, or an invalid one.
    #[error("{0}")]
    Broken(String),
    /// A request that was not completed in time.
    #[error("{0} took too long")]
    TimedOut(&'static str),
}

impl From<kube::Error> for WatchFailure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::Service(error) => Self::Broken(with_causes(&*error)),
            kube::Error::HyperError(error) => Self::Broken(with_causes(&error)),
            error => Self::Broken(error.to_string()),
        }
    }
}

impl From<Status> for WatchFailure {
    fn from(status: Status) -> Self {
        Self::Refused {
            code: status.code,
            message: status.message,
        }
    }
}

impl From<watcher::Error> for WatchFailure {
    fn from(error: watcher::Error) -> Self {
        use watcher::Error;
        match error {
            Error::InitialListFailed(error)
            | Error::WatchStartFailed(error)
            | Error::WatchFailed(error) => error.into(),
            Error::WatchError(status) => (*status).into(),
            Error::NoResourceVersion => Self::Broken("a list has no resourceVersion".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failure_is_described_once_and_in_one_line() {
        let status = Status::failure("flowschemas is forbidden", "Forbidden").with_code(403);
        let refused = kube::Error::Api(status.boxed());
        let text = WatchFailure::from(watcher::Error::InitialListFailed(refused)).to_string();
        assert_eq!(text, "the upstream answered 403: flowschemas is forbidden");

        let cause = io::Error::other("no route");
        let failed = kube::Error::Service(Box::new(io::Error::other(cause)));
        assert_eq!(WatchFailure::from(failed).to_string(), "no route");
    }
}
