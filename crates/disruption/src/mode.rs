//! What is configured: who decides about evictions.

/// Who decides about evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionMode {
    /// The upstream.
    #[default]
    Relay,
    /// The upstream; but what it would certainly refuse is refused here.
    Precheck,
    /// The gateway.
    Authoritative,
}

impl EvictionMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Relay, Self::Precheck, Self::Authoritative];

    /// The mode's name in the configuration and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Precheck => "precheck",
            Self::Authoritative => "authoritative",
        }
    }
}
