//! Why the policy objects of the upstream cannot be watched, in words for operators.

use fairgate_core::apf::objects::GROUP;
use fairgate_upstream::informer::WatchError;

/// Why the policy objects cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchFailure {
    /// The versions could not be read.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The upstream serves no supported version.
    #[error("the upstream serves {GROUP} only in versions that are not supported: {0:?}")]
    NoVersion(Vec<String>),
    /// The upstream has not said in time which versions it serves.
    #[error("discovery took too long")]
    TimedOut,
}
