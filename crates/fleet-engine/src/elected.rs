//! Whether this gateway is elected: the election by the engine's lease, and what is announced of it.
//!
//! Not here: elections themselves (`fairgate-election`), and what a coordinator does (`coordination`).

use std::{sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_election::{Leadership, LeaseApi, LeaseCallError};
use fairgate_fleet::identity::Fence;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::{engine::FleetEngine, status::FleetStatus};

/// How long a gateway that cannot coordinate leaves it to others: longer than it takes them to be elected.
const STANDS_BACK: Duration = Duration::from_secs(60);

/// Announces whether this gateway is elected, and with which fence. One that `resigns` leaves coordinating to others for a while.
pub(crate) async fn follow_election<A: LeaseApi>(
    leadership: &mut Leadership<'_, A>,
    elected: &watch::Sender<Option<Fence>>,
    resigns: &Notify,
) {
    loop {
        leadership.acquire().await;
        if let Some(version) = leadership.version() {
            tracing::info!(fence = version, "fleet: this gateway is the coordinator");
            elected.send_replace(Some(Fence(version)));
        } else {
            tracing::error!(
                "fleet: the version of the coordinator's lease is no number; this gateway cannot coordinate"
            );
        }
        let is_resigning = tokio::select! {
            () = leadership.keep() => false,
            () = resigns.notified() => true,
        };
        if elected.send_replace(None).is_some() {
            tracing::warn!("fleet: this gateway is no longer the coordinator");
        }
        if is_resigning {
            leadership.release().await;
            tokio::time::sleep(STANDS_BACK).await;
        }
    }
}

/// The engine's lease, for the election. What is seen of it tells whether some gateway coordinates.
pub(crate) struct ElectionCalls<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) clock: Clock,
    pub(crate) status: Arc<FleetStatus>,
}

impl<E: FleetEngine> LeaseApi for ElectionCalls<E> {
    fn date(&self) -> Timestamp {
        Timestamp::try_from(self.clock.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    async fn call(
        &self,
        method: Method,
        _: &str,
        _: &str,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let lease = self.engine.lease_call(method, lease).await?;
        self.status.saw_lease(&lease, self.clock.now());
        Ok(lease)
    }
}
