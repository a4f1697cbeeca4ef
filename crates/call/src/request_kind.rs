//! The kind of a request, on which time limits and the handling of failures depend.

use fairgate_core::digest::{RequestInfo, Verb};

/// The kind of a request: whether it has a deadline, and whether it may be repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// Unknown, because the request was refused before it was parsed.
    #[default]
    Unknown,
    /// A read, such as `get` or `list`: may be repeated.
    Read,
    /// Any other request that is not long-running: never repeated once it may have been carried out.
    Mutating,
    /// A watch: no deadline; its response always ends cleanly.
    Watch,
    /// Exec, attach, port-forward, proxy, logs, profiles: no deadline, no flow control.
    LongRunning,
}

impl RequestKind {
    /// The kind of the request `info` describes, by kube-apiserver's own predicate.
    pub fn of(info: &RequestInfo) -> Self {
        match &info.verb {
            Verb::Watch => Self::Watch,
            _ if info.is_long_running() => Self::LongRunning,
            Verb::Get | Verb::List => Self::Read,
            Verb::Other(method) if matches!(&**method, "get" | "head") => Self::Read,
            _ => Self::Mutating,
        }
    }

    /// Whether the request has no deadline.
    pub fn is_long_running(self) -> bool {
        matches!(self, Self::Watch | Self::LongRunning)
    }

    /// Whether the request can safely be sent again.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::Read | Self::Watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_requests_may_be_repeated() {
        let kind =
            |method, target| RequestKind::of(&RequestInfo::from_target(method, target).unwrap());
        for (method, target, expected) in [
            ("GET", "/api/v1/pods", RequestKind::Read),
            ("HEAD", "/livez/ping", RequestKind::Read),
            ("GET", "/api/v1/pods?watch=1", RequestKind::Watch),
            ("POST", "/api/v1/namespaces/a/pods", RequestKind::Mutating),
            ("OPTIONS", "/api/v1/pods", RequestKind::Mutating),
            ("get", "/api/v1/pods", RequestKind::Mutating),
            (
                "GET",
                "/api/v1/namespaces/a/pods/p/log",
                RequestKind::LongRunning,
            ),
            ("GET", "/debug/pprof/heap", RequestKind::LongRunning),
        ] {
            assert_eq!(kind(method, target), expected, "{method} {target}");
        }
    }
}
