//! When seats are lent and borrowed: once a period, and soon after a request could not get a seat.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use fairgate_core::apf::Semantics;

/// The longest time that a level that needs seats waits until seats are lent to it, or its own are returned.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// Brings the next adjustment of limits forward when seats are short.
#[derive(Debug, Default)]
pub(super) struct BorrowingTrigger {
    /// A request could not get a seat since the last adjustment. Checked first, so that only one of many
    /// requests pays for a notification.
    requested: AtomicBool,
    notify: Notify,
}

impl BorrowingTrigger {
    /// A request had to wait, or was rejected for lack of seats.
    pub(super) fn request_soon(&self) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            self.notify.notify_one();
        }
    }

    /// Completes when limits should be adjusted the next time, counted from the call: after `period`, or sooner once
    /// [`request_soon`](Self::request_soon) was called. kube-apiserver lets rising demand wait for the whole period,
    /// and so does [`Semantics::Compatible`].
    pub(super) async fn due(&self, period: Duration, semantics: Semantics) {
        if semantics == Semantics::Compatible {
            return tokio::time::sleep(period).await;
        }
        let soon = (period / 2).min(SOON);
        tokio::time::sleep(soon).await;
        let rest = tokio::time::timeout(period.saturating_sub(soon), self.notify.notified());
        // It is due in either case.
        let _ = rest.await;
        self.requested.store(false, Ordering::Relaxed);
    }
}
