//! What kind of request it is, as far as time limits and failures depend on it.

use crate::digest::{RequestInfo, Verb};

/// What kind of request it is: how long it may take, and whether it may be done twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// Not known yet, because the request was refused before it was parsed.
    #[default]
    Unknown,
    /// `get` or `list`: may be repeated.
    Read,
    /// Anything else with an end in sight: never repeated once it may have run.
    Mutating,
    /// A watch: has no deadline, ends cleanly whatever happens.
    Watch,
    /// Exec, attach, port-forward, proxy, logs, profiles: no deadline, no flow control.
    LongRunning,
}

impl RequestKind {
    /// The kind of the request `info` describes, by kube-apiserver's own predicate.
    pub fn of(info: &RequestInfo) -> Self {
        match &info.verb {
            Verb::Watch => Self::Watch,
            Verb::Proxy => Self::LongRunning,
            _ if info.is_resource && has_long_subresource(info) => Self::LongRunning,
            _ if !info.is_resource && info.path().starts_with(b"/debug/pprof/") => {
                Self::LongRunning
            }
            Verb::Get | Verb::List => Self::Read,
            Verb::Other(method) if matches!(&**method, "get" | "head") => Self::Read,
            _ => Self::Mutating,
        }
    }

    /// Whether the request has no deadline.
    pub fn is_long_running(self) -> bool {
        matches!(self, Self::Watch | Self::LongRunning)
    }

    /// Whether sending the request again cannot do harm.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::Read | Self::Watch)
    }
}

fn has_long_subresource(info: &RequestInfo) -> bool {
    matches!(
        info.subresource(),
        b"attach" | b"exec" | b"proxy" | b"log" | b"portforward"
    )
}
