//! The limit of open file descriptors. Each connection needs one, and the usual soft limit is only 1024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of the process to the hard limit, and returns the new limit; `None` is unlimited. If that
/// fails, it logs a warning and returns the old limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open file descriptors");
            current
        }
    }
}
