//! Why the policy objects of the upstream cannot be watched, in words for operators.

use fairgate_core::apf::objects::GROUP;
use fairgate_upstream::watch_error::WatchError;

/// Why the policy objects cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchFailure {
    /// A list or watch failed.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The upstream serves no supported version.
    #[error("the upstream serves {GROUP} only in versions that are not supported: {0:?}")]
    NoVersion(Vec<String>),
    /// The watches ended.
    #[error("the watches ended")]
    Ended,
    /// A request that was not completed in time.
    #[error("{0} took too long")]
    TimedOut(&'static str),
}
