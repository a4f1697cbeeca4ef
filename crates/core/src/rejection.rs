//! Why flow control rejects a request, in the terms of kube-apiserver's metrics.
//!
//! The one place that spells these reasons: the metrics' label `reason`, the header `X-Fairgate-Reason`, the
//! logs and the dumps use [`RejectReason::as_str`].

/// Why flow control rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// The level is at its limit and does not queue.
    ConcurrencyLimit,
    /// The queue is at its limit, the place was given to a flow that had no request waiting, or the gateway's limit of waiting
    /// requests is reached.
    QueueFull,
    /// The request has waited as long as it may. Metrics count a client that leaves its queue here, too, as
    /// kube-apiserver does.
    TimeOut,
}

impl RejectReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut];

    /// The reason as kube-apiserver writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_stand_in_the_order_of_their_discriminants() {
        for (index, reason) in RejectReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{}", reason.as_str());
        }
    }
}
