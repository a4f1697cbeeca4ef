//! Draining: how the gateway shuts down.
//!
//! First the gateway reports that it is not ready while it still serves, so that load balancers notice. Then no new
//! connections are accepted: HTTP/1 clients get `Connection: close`, HTTP/2 clients `GOAWAY`, and requests in
//! progress are finished. Watches end cleanly, spread over time, because each of them causes a new watch on
//! another instance. At the time limit all connections are closed.

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

use super::{client_connections::ClientConnections, settings::DrainSettings};
use fairgate_call::{BodyEnd, ReplyGuard};

/// A phase of the shutdown. Phases only move forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPhase {
    /// Normal operation.
    #[default]
    Serving,
    /// Serving, but not ready: load balancers should use other instances.
    Unready,
    /// No new connections are accepted; requests in progress are finished.
    Stopping,
    /// All connections are closed.
    Ended,
    /// The cores stop.
    Over,
}

/// Controls the shutdown, and announces its phases to every core.
#[derive(Clone, Debug)]
pub struct DrainController {
    phase: Arc<watch::Sender<DrainPhase>>,
}

impl Default for DrainController {
    fn default() -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(DrainPhase::Serving)),
        }
    }
}

impl DrainController {
    /// The current phase.
    pub fn phase(&self) -> DrainPhase {
        *self.phase.borrow()
    }

    /// Subscribes to the phases.
    pub fn subscribe(&self) -> watch::Receiver<DrainPhase> {
        self.phase.subscribe()
    }

    /// Advances to `phase`; does nothing if that is not later than the current one.
    pub fn advance(&self, phase: DrainPhase) {
        self.phase.send_if_modified(|now| {
            // Never back: a gateway that is dropped while it drains is over.
            let later = *now < phase;
            if later {
                *now = phase;
            }
            later
        });
    }

    /// Goes through all phases. Completes when all connections have ended, or a second after the limit, and then `farewell` has completed:
    /// requests whose clients have left hold their seats until then.
    pub async fn run(
        &self,
        settings: DrainSettings,
        connections: &ClientConnections,
        farewell: impl Future<Output = ()>,
    ) {
        self.advance(DrainPhase::Unready);
        tokio::time::sleep(settings.delay).await;
        self.advance(DrainPhase::Stopping);
        let _ = tokio::time::timeout(settings.limit, connections.all_ended()).await;
        self.advance(DrainPhase::Ended);
        // Connections close themselves when they see the phase; those that do not are closed with their threads.
        let _ = tokio::time::timeout(Duration::from_secs(1), connections.all_ended()).await;
        farewell.await;
        self.advance(DrainPhase::Over);
    }
}

/// The phase of the drain as one core sees it. Reading it is cheap: it takes no lock before the drain.
pub(super) struct CorePhase {
    current: Cell<DrainPhase>,
    phases: watch::Receiver<DrainPhase>,
}

impl CorePhase {
    pub(super) fn new(phases: watch::Receiver<DrainPhase>) -> Self {
        let current = Cell::new(*phases.borrow());
        Self { current, phases }
    }

    /// The current phase. A core must see it as soon as it is announced, and not only when its connections are woken:
    /// until then a client may already have noticed what other threads do in this phase.
    pub(super) fn get(&self) -> DrainPhase {
        if self.phases.has_changed().unwrap_or(true) {
            self.current.set(*self.phases.borrow());
        }
        self.current.get()
    }

    /// Subscribes to the phases.
    pub(super) fn subscribe(&self) -> watch::Receiver<DrainPhase> {
        self.phases.clone()
    }
}

/// Ends a watch cleanly during a drain.
pub(super) struct WatchEnder(Pin<Box<dyn Future<Output = ()>>>);

impl WatchEnder {
    /// Ends a watch after a part of `spread`, counted from the beginning of the drain. `watches` numbers the
    /// core's watches, and the number decides which part.
    pub(super) fn new(
        mut phase: watch::Receiver<DrainPhase>,
        spread: Duration,
        watches: &Rc<Cell<u32>>,
    ) -> Self {
        let n = watches.get();
        watches.set(n.wrapping_add(1));
        Self(Box::pin(async move {
            if phase
                .wait_for(|now| *now >= DrainPhase::Stopping)
                .await
                .is_err()
            {
                return;
            }
            let wait = spread.mul_f64(share(n));
            let ended = phase.wait_for(|now| *now >= DrainPhase::Ended);
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
    fn a_core_sees_a_phase_from_the_moment_it_is_announced() {
        let drain = DrainController::default();
        let phase = CorePhase::new(drain.subscribe());
        assert_eq!(phase.get(), DrainPhase::Serving);
        for next in [DrainPhase::Unready, DrainPhase::Stopping, DrainPhase::Over] {
            drain.advance(next);
            assert_eq!(phase.get(), next);
        }
        drop(drain);
        assert_eq!(
            phase.get(),
            DrainPhase::Over,
            "the phase stays after the controller is dropped"
        );
    }

    #[test]
    fn phases_never_go_back() {
        let drain = DrainController::default();
        drain.advance(DrainPhase::Stopping);
        drain.advance(DrainPhase::Unready);
        assert_eq!(drain.phase(), DrainPhase::Stopping);
    }

    #[test]
    fn the_ends_of_watches_are_spread_evenly() {
        let mut shares: Vec<f64> = (0..100).map(share).collect();
        shares.sort_by(f64::total_cmp);
        for pair in shares.windows(2) {
            assert!(pair[1] - pair[0] < 0.03, "{pair:?}");
        }
    }
}
