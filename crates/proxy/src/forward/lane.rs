//! Which requests may share upstream connections.
//!
//! Traffic that could harm other traffic has a separate [`Lane`]: watches occupy streams for an hour,
//! and a Kubernetes API server closes a whole connection over one anonymous request.

/// Requests that may share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Requests that are not long-running.
    Ordinary,
    /// Long-running requests other than watches: logs, proxied services.
    LongRunning,
    /// Watches.
    Watches,
    /// Requests of anonymous users.
    Anonymous,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 4] = [
        Self::Ordinary,
        Self::LongRunning,
        Self::Watches,
        Self::Anonymous,
    ];
}
