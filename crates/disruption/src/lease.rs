//! The calls about the lease, and the time at which leadership ends.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::{random::Random, time::Time};
use http::Method;
use serde_json::Value;

use crate::{
    calls::{CallError, Calls, JSON, api_path, object_path},
    election::{Election, LeaseCall, LeaseWrite, RETRY_PERIOD},
};

/// The namespace of the lease: that of the leases of Kubernetes' own controllers.
const NAMESPACE: &str = "kube-system";
const API_VERSION: &str = "coordination.k8s.io/v1";
/// How long the release of the lease may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// A candidate for leadership; without a lease, always the leader.
#[derive(Debug)]
pub(crate) struct Leadership<'c> {
    calls: &'c Calls,
    clock: Clock,
    election: Option<Election>,
    name: String,
    random: Random,
    /// The reason of the last failure, so that each is logged once.
    failure: String,
}

impl<'c> Leadership<'c> {
    /// A candidate for the lease `name`, if there is one, with an identity that no other candidate has.
    pub(crate) fn new(
        calls: &'c Calls,
        clock: &Clock,
        name: Option<&str>,
        identity: String,
        seed: u64,
    ) -> Self {
        Self {
            calls,
            clock: clock.clone(),
            election: name.map(|name| Election::new(NAMESPACE, name, identity)),
            name: name.unwrap_or_default().to_owned(),
            random: Random::seeded(seed),
            failure: String::new(),
        }
    }

    /// Waits until this gateway leads.
    pub(crate) async fn acquire(&mut self) {
        let Some(election) = &self.election else {
            return;
        };
        tracing::debug!(lease = self.name, holder = election.holder(), "candidate");
        while self.leads_until().is_none() {
            self.advance(None).await;
        }
    }

    /// Renews the lease, until it is lost.
    pub(crate) async fn keep(&mut self) {
        if self.election.is_none() {
            std::future::pending::<()>().await;
        }
        while let Some(until) = self.leads_until() {
            self.advance(Some(until)).await;
        }
    }

    /// Gives the lease up, so that another gateway can take it at once.
    pub(crate) async fn release(&mut self) {
        match tokio::time::timeout(RELEASE_LIMIT, self.try_release()).await {
            Ok(None) => {}
            Ok(Some(LeaseWrite::Stored(_))) => tracing::info!(lease = self.name, "lease released"),
            _ => tracing::warn!(
                lease = self.name,
                "the lease could not be released; another gateway takes it when it has expired"
            ),
        }
    }

    /// Gives the lease up; `None` if this gateway does not have it.
    async fn try_release(&mut self) -> Option<LeaseWrite> {
        let date = self.calls.date();
        let lease = self.election.as_mut()?.release(date)?;
        let outcome = self.write(Method::PUT, &lease).await;
        if outcome != LeaseWrite::Conflict {
            return Some(outcome);
        }
        // A renewal was under way when this was called, so the version that is known here is not the last.
        let lease = self.calls.get(&path(&self.name)).await.ok()?;
        let now = self.clock.now();
        let election = self.election.as_mut()?;
        election.read(Some(lease), now, Duration::ZERO);
        let lease = election.release(date)?;
        Some(self.write(Method::PUT, &lease).await)
    }

    fn leads_until(&self) -> Option<Time> {
        let now = self.clock.now();
        self.election.as_ref()?.leads_until(now)
    }

    /// Waits for the next call, and makes it; but not beyond `until`.
    async fn advance(&mut self, until: Option<Time>) {
        let limit = self
            .clock
            .instant(until.unwrap_or(Time::from_nanos(u64::MAX)));
        let attempt = self.attempt();
        if tokio::time::timeout_at(limit, attempt).await.is_err() {
            let now = self.clock.now();
            if let Some(election) = &mut self.election {
                election.failed(now, Duration::ZERO);
            }
        }
    }

    async fn attempt(&mut self) {
        let Some(election) = &self.election else {
            return;
        };
        tokio::time::sleep_until(self.clock.instant(election.due())).await;
        let sent = self.clock.now();
        let jitter = RETRY_PERIOD.mul_f64(fraction(&mut self.random));
        match election.call(sent, self.calls.date()) {
            LeaseCall::Read => {
                let read = self.calls.get(&path(&self.name)).await;
                let now = self.clock.now();
                match read {
                    Ok(lease) => self.with(|election| election.read(Some(lease), now, jitter)),
                    Err(error) if error.code() == Some(404) => {
                        self.with(|election| election.read(None, now, jitter));
                    }
                    Err(error) => {
                        self.warn(&error);
                        self.with(|election| election.failed(now, jitter));
                    }
                }
            }
            LeaseCall::Create(lease) => {
                let outcome = self.write(Method::POST, &lease).await;
                let now = self.clock.now();
                self.with(|election| election.wrote(outcome, sent, now, jitter));
            }
            LeaseCall::Update(lease) => {
                let outcome = self.write(Method::PUT, &lease).await;
                let now = self.clock.now();
                self.with(|election| election.wrote(outcome, sent, now, jitter));
            }
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut Election)) {
        if let Some(election) = &mut self.election {
            change(election);
        }
    }

    async fn write(&mut self, method: Method, lease: &Value) -> LeaseWrite {
        let name = if method == Method::POST {
            ""
        } else {
            &self.name
        };
        let path = path(name);
        match self.calls.call(method, &path, JSON, Some(lease)).await {
            Ok(stored) => {
                self.failure.clear();
                LeaseWrite::Stored(stored)
            }
            Err(CallError::Refused {
                code: 404 | 409, ..
            }) => LeaseWrite::Conflict,
            Err(error) => {
                self.warn(&error);
                LeaseWrite::Failed
            }
        }
    }

    fn warn(&mut self, error: &CallError) {
        let why = error.to_string();
        if self.failure != why {
            tracing::warn!(lease = self.name, %why, "the lease of the disruption controller cannot be read or written; trying again");
            self.failure = why;
        }
    }
}

/// The path of a lease; of all, if the name is empty.
fn path(name: &str) -> String {
    object_path(&api_path(API_VERSION), NAMESPACE, "leases", name)
}

/// A random number from 0 to 1.
fn fraction(random: &mut Random) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    let thousandths = random.within(0..1000) as f64;
    thousandths / 1000.0
}
