//! Sees everybody out.
//!
//! First readiness turns false and all goes on, for load balancers to notice. Then nothing new is
//! accepted: HTTP/1 clients are told to close, HTTP/2 clients to go away, requests in hand are
//! finished. Watches end cleanly, spread over time, because each end is a new request somewhere
//! else. At the limit everything ends.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::watch;

use super::{acceptor::Connections, settings::DrainSettings};
use fairgate_call::{BodyEnd, ReplyGuard};

/// How far the end has come. Only ever moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// All is well.
    #[default]
    Serving,
    /// Serving, but not ready: load balancers should look elsewhere.
    Unready,
    /// Nothing new is accepted; what is in hand is finished.
    Stopping,
    /// Everything ends now.
    Ended,
    /// Everything has ended: the cores stop.
    Over,
}

/// Announces the phases to every core.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(Phase::Serving)),
        }
    }
}

impl Drain {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Follows the phases.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Goes on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = *now < phase;
            if later {
                *now = phase;
            }
            later
        });
    }

    /// Goes through all phases. Completes when every connection has ended, or soon after the limit.
    pub async fn run(&self, settings: DrainSettings, connections: &Connections) {
        self.advance(Phase::Unready);
        tokio::time::sleep(settings.delay).await;
        self.advance(Phase::Stopping);
        let _ = tokio::time::timeout(settings.limit, connections.all_ended()).await;
        self.advance(Phase::Ended);
        let _ = tokio::time::timeout(Duration::from_secs(1), connections.all_ended()).await;
        self.advance(Phase::Over);
    }
}

/// Ends a watch cleanly when its time has come.
pub(super) struct WatchEnder(Pin<Box<dyn Future<Output = ()>>>);

impl WatchEnder {
    /// An ender that waits a share of `spread` after the drain began; shares follow one another in
    /// `turn`.
    pub(super) fn new(
        mut phase: watch::Receiver<Phase>,
        spread: Duration,
        turn: &Rc<Cell<u32>>,
    ) -> Self {
        let n = turn.get();
        turn.set(n.wrapping_add(1));
        Self(Box::pin(async move {
            if phase.wait_for(|now| *now >= Phase::Stopping).await.is_err() {
                return;
            }
            let wait = spread.mul_f64(share(n));
            let ended = phase.wait_for(|now| *now >= Phase::Ended);
            let _ = tokio::time::timeout(wait, ended).await;
        }))
    }
}

/// Spreads numbers evenly over 0 to 1, however many of them there are.
fn share(n: u32) -> f64 {
    f64::from(n.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX)
}

impl ReplyGuard for WatchEnder {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }

    fn end(self: Box<Self>, _: BodyEnd) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_never_go_back() {
        let drain = Drain::default();
        drain.advance(Phase::Stopping);
        drain.advance(Phase::Unready);
        assert_eq!(drain.phase(), Phase::Stopping);
    }

    #[test]
    fn consecutive_watches_end_far_apart() {
        let mut shares: Vec<f64> = (0..100).map(share).collect();
        shares.sort_by(f64::total_cmp);
        for pair in shares.windows(2) {
            assert!(pair[1] - pair[0] < 0.03, "{pair:?}");
        }
    }
}
