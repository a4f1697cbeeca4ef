//! Why objects of the upstream cannot be watched, in words for operators.

use std::time::Duration;

use kube::{core::Status, runtime::watcher};

use crate::client::with_causes;

/// Why objects cannot be listed or watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// An error response.
    #[error("the upstream answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message of its `Status`.
        message: String,
    },
    /// No response, or an invalid one.
    #[error("{0}")]
    Broken(String),
    /// A list or an open watch on which nothing has arrived for so long.
    #[error("nothing was received for {seconds} s", seconds = .0.as_secs())]
    Silent(Duration),
}

impl WatchError {
    /// Whether the upstream refuses, so that the next attempt would be in vain, too, unless somebody changes something.
    pub fn is_final(&self) -> bool {
        // 408 and 429 are about this moment.
        matches!(self, Self::Refused { code, .. } if (400..500).contains(code) && ![408, 429].contains(code))
    }

    /// Whether the upstream does not serve the kind.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

impl From<kube::Error> for WatchError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::Service(error) => Self::Broken(with_causes(&*error)),
            kube::Error::HyperError(error) => Self::Broken(with_causes(&error)),
            error => Self::Broken(error.to_string()),
        }
    }
}

impl From<Status> for WatchError {
    fn from(status: Status) -> Self {
        Self::Refused {
            code: status.code,
            message: status.message,
        }
    }
}

impl From<watcher::Error> for WatchError {
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
        let text = WatchError::from(watcher::Error::InitialListFailed(refused)).to_string();
        assert_eq!(text, "the upstream answered 403: flowschemas is forbidden");

        let cause = io::Error::other("no route");
        let failed = kube::Error::Service(Box::new(io::Error::other(cause)));
        assert_eq!(WatchError::from(failed).to_string(), "no route");
    }
}
