//! The calls that read and write the lease, and the waits between them.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::{random::Random, time::Time};
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use crate::election::{Election, LeaseCall, LeaseWrite, RETRY_PERIOD};

/// How long the release of the lease may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// The API server that has the lease.
pub trait LeaseApi {
    /// The current time by the server's clock, as far as it is known. It is only written into the lease.
    fn date(&self) -> Timestamp;

    /// Sends a request for the lease `name` in `namespace`, or to all leases of it if `name` is empty, with `lease` as the body.
    /// Returns the object of a successful response.
    ///
    /// It ends by itself when the server does not respond.
    fn call(
        &self,
        method: Method,
        namespace: &str,
        name: &str,
        lease: Option<&Value>,
    ) -> impl Future<Output = Result<Value, LeaseCallError>> + Send;
}

/// Why a call about the lease failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct LeaseCallError {
    /// The HTTP status of an error response; `None` without a response that can be read. A write may have been executed then.
    pub code: Option<u16>,
    /// What the server says, or what happened to the request.
    pub why: String,
}

/// Who is elected by which lease.
#[derive(Clone, Debug)]
pub struct LeaseCandidate {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The identity of this gateway as the holder of the lease. It must differ from those of all other candidates.
    pub identity: String,
    /// What the leader is elected for, as log messages name it: "the disruption controller".
    pub task: &'static str,
}

/// This gateway as a candidate for leadership. Without a lease it always leads.
#[derive(Debug)]
pub struct Leadership<'c, A> {
    api: &'c A,
    clock: Clock,
    election: Option<Election>,
    namespace: String,
    name: String,
    task: &'static str,
    random: Random,
    read_failure: LastFailure,
    write_failure: LastFailure,
}

impl<'c, A: LeaseApi> Leadership<'c, A> {
    /// The given candidate, if there is one. `seed` is that of random pauses.
    pub fn new(api: &'c A, clock: &Clock, candidate: Option<LeaseCandidate>, seed: u64) -> Self {
        let election = candidate.clone().map(|candidate| {
            Election::new(&candidate.namespace, &candidate.name, candidate.identity)
        });
        let (namespace, name, task) = candidate.map_or_else(Default::default, |candidate| {
            (candidate.namespace, candidate.name, candidate.task)
        });
        Self {
            api,
            clock: clock.clone(),
            election,
            namespace,
            name,
            task,
            random: Random::seeded(seed),
            read_failure: LastFailure::default(),
            write_failure: LastFailure::default(),
        }
    }

    /// Waits until this gateway leads.
    pub async fn acquire(&mut self) {
        let Some(election) = &self.election else {
            return;
        };
        tracing::debug!(lease = self.name, holder = election.holder(), "candidate");
        while self.leads_until().is_none() {
            self.advance(None).await;
        }
    }

    /// The version of the lease as it was last seen, if it is a number, as those of Kubernetes are. Right after [`Self::acquire`] it is
    /// greater than that of any leader before.
    pub fn version(&self) -> Option<u64> {
        self.election.as_ref()?.version().parse().ok()
    }

    /// Renews the lease. Returns when the lease is lost; never, without a lease.
    pub async fn keep(&mut self) {
        if self.election.is_none() {
            std::future::pending::<()>().await;
        }
        while let Some(until) = self.leads_until() {
            self.advance(Some(until)).await;
        }
    }

    /// Releases the lease, so that another gateway can acquire it immediately.
    pub async fn release(&mut self) {
        match tokio::time::timeout(RELEASE_LIMIT, self.try_release()).await {
            Ok(None) => {}
            Ok(Some(LeaseWrite::Stored(_))) => tracing::info!(lease = self.name, "lease released"),
            _ => tracing::warn!(
                lease = self.name,
                "the lease could not be released; another gateway acquires it after it has expired"
            ),
        }
    }

    /// Gives the lease up; `None` if this gateway does not have it, which the server has confirmed.
    async fn try_release(&mut self) -> Option<LeaseWrite> {
        let date = self.api.date();
        let lease = self.election.as_mut()?.release(date)?;
        let outcome = self.write(Method::PUT, &lease).await;
        if outcome != LeaseWrite::Conflict {
            return Some(outcome);
        }
        // A renewal was under way when this was called, so the version that is known here is not the last.
        let Ok(lease) = self.read().await else {
            return Some(LeaseWrite::Failed);
        };
        let now = self.clock.now();
        let election = self.election.as_mut()?;
        election.read(lease, now, Duration::ZERO);
        let lease = election.release(date)?;
        Some(self.write(Method::PUT, &lease).await)
    }

    fn leads_until(&self) -> Option<Time> {
        let now = self.clock.now();
        self.election.as_ref()?.leads_until(now)
    }

    /// Waits until the next call is due, and makes it. Gives up at `until`.
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
        match election.call(sent, self.api.date()) {
            LeaseCall::Read => {
                let read = self.read().await;
                let now = self.clock.now();
                self.with(|election| match read {
                    Ok(lease) => election.read(lease, now, jitter),
                    Err(_) => election.failed(now, jitter),
                });
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

    /// The lease; `None` if there is none.
    async fn read(&mut self) -> Result<Option<Value>, LeaseCallError> {
        let call = self
            .api
            .call(Method::GET, &self.namespace, &self.name, None);
        let read = match call.await {
            Ok(lease) => Ok(Some(lease)),
            Err(LeaseCallError {
                code: Some(404), ..
            }) => Ok(None),
            Err(error) => Err(error),
        };
        self.read_failure
            .follow(&self.name, self.task, read.as_ref().err());
        read
    }

    async fn write(&mut self, method: Method, lease: &Value) -> LeaseWrite {
        let is_new = method == Method::POST;
        let name = if is_new { "" } else { &self.name };
        let call = self.api.call(method, &self.namespace, name, Some(lease));
        let (outcome, error) = match call.await {
            Ok(stored) => (LeaseWrite::Stored(stored), None),
            Err(LeaseCallError {
                code: Some(409), ..
            }) => (LeaseWrite::Conflict, None),
            // Where a new lease has no place, reading it finds nothing new.
            Err(LeaseCallError {
                code: Some(404), ..
            }) if !is_new => (LeaseWrite::Conflict, None),
            Err(error) => (LeaseWrite::Failed, Some(error)),
        };
        self.write_failure
            .follow(&self.name, self.task, error.as_ref());
        outcome
    }
}

/// Why the last read, or the last write, failed; empty if it succeeded. A failure that lasts is logged once.
///
/// Reads and writes are apart: a gateway that may read the lease but not write it would log each write otherwise.
#[derive(Debug, Default)]
struct LastFailure(String);

impl LastFailure {
    /// Takes the outcome of a call, and logs a failure that the call before it did not have.
    fn follow(&mut self, lease: &str, task: &str, error: Option<&LeaseCallError>) {
        let why = error.map(LeaseCallError::to_string).unwrap_or_default();
        if !why.is_empty() && self.0 != why {
            tracing::warn!(lease, %why, "the lease of {task} cannot be read or written; trying again");
        }
        self.0 = why;
    }
}

/// A random number from 0 to less than 1.
fn fraction(random: &mut Random) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    let thousandths = random.within(0..1000) as f64;
    thousandths / 1000.0
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fairgate_core::sync::{Mutex, lock};
    use serde_json::json;

    use super::*;

    const NAMESPACE: &str = "kube-system";

    /// What the server answers to one request after the other; then it answers no more.
    #[derive(Debug)]
    struct ScriptedApi(Mutex<VecDeque<(u16, Value)>>);

    impl LeaseApi for ScriptedApi {
        fn date(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        async fn call(
            &self,
            method: Method,
            namespace: &str,
            name: &str,
            lease: Option<&Value>,
        ) -> Result<Value, LeaseCallError> {
            assert_eq!(namespace, NAMESPACE);
            assert_eq!(name.is_empty(), method == Method::POST);
            assert_eq!(lease.is_none(), method == Method::GET);
            let (code, body) = lock(&self.0)
                .pop_front()
                .expect("a request that is answered");
            if (200..300).contains(&code) {
                return Ok(body);
            }
            Err(LeaseCallError {
                code: Some(code),
                why: body["message"].to_string(),
            })
        }
    }

    fn api_that_answers(answers: &[(u16, Value)]) -> ScriptedApi {
        ScriptedApi(Mutex::new(answers.to_vec().into()))
    }

    fn candidate(api: &ScriptedApi) -> Leadership<'_, ScriptedApi> {
        let clock = Clock::manual(Time::ZERO);
        let candidate = LeaseCandidate {
            namespace: NAMESPACE.to_owned(),
            name: "lease".to_owned(),
            identity: "me".to_owned(),
            task: "the test",
        };
        Leadership::new(api, &clock, Some(candidate), 1)
    }

    fn lease(holder: &str, version: &str) -> Value {
        json!({
            "metadata": {"name": "lease", "namespace": NAMESPACE, "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        })
    }

    /// When the next call is due.
    fn due(leadership: &Leadership<'_, ScriptedApi>) -> Time {
        leadership.election.as_ref().unwrap().due()
    }

    /// A candidate that has read the lease, and holds it.
    fn holder(api: &ScriptedApi) -> Leadership<'_, ScriptedApi> {
        let mut leadership = candidate(api);
        let held = Some(lease("me", "1"));
        leadership.with(|election| election.read(held, Time::ZERO, Duration::ZERO));
        leadership
    }

    fn refused() -> Value {
        json!({"message": "try later"})
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_read_after_a_conflict_is_not_released() {
        let api = api_that_answers(&[(409, refused()), (500, refused())]);
        assert_eq!(holder(&api).try_release().await, Some(LeaseWrite::Failed));
    }

    #[tokio::test]
    async fn a_lease_is_released_at_the_version_that_a_conflict_shows() {
        let stored = lease("", "3");
        let answers = [
            (409, refused()),
            (200, lease("me", "2")),
            (200, stored.clone()),
        ];
        let api = api_that_answers(&answers);
        let released = holder(&api).try_release().await;
        assert_eq!(released, Some(LeaseWrite::Stored(stored)));
    }

    #[tokio::test]
    async fn a_lease_that_is_gone_or_of_another_gateway_needs_no_release() {
        for answer in [(404, refused()), (200, lease("other", "2"))] {
            let api = api_that_answers(&[(409, refused()), answer]);
            assert_eq!(holder(&api).try_release().await, None);
        }
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_created_is_tried_again_after_a_pause() {
        // There is no such namespace, or the server does not have the API.
        let api = api_that_answers(&[(404, refused()), (404, refused())]);
        let mut leadership = candidate(&api);
        leadership.attempt().await;
        assert_eq!(due(&leadership), Time::ZERO, "there is no lease");
        leadership.attempt().await;
        assert!(due(&leadership) > Time::ZERO);
        assert!(!leadership.write_failure.0.is_empty(), "it is logged");
    }

    #[tokio::test]
    async fn a_lease_that_another_client_changed_meanwhile_is_read_again_at_once() {
        let created_meanwhile = [(404, refused()), (409, refused())];
        let deleted_meanwhile = [(200, lease("me", "1")), (404, refused())];
        for answers in [created_meanwhile, deleted_meanwhile] {
            let api = api_that_answers(&answers);
            let mut leadership = candidate(&api);
            leadership.attempt().await;
            leadership.attempt().await;
            assert_eq!(due(&leadership), Time::ZERO, "{answers:?}");
            assert!(leadership.write_failure.0.is_empty());
        }
    }

    #[tokio::test]
    async fn a_success_forgets_the_failure_of_its_kind_so_that_the_next_is_logged() {
        let held = lease("other", "1");
        let answers = [
            (500, refused()),
            (200, held.clone()),
            (500, refused()),
            (404, refused()),
            (500, refused()),
            (200, held.clone()),
            (409, refused()),
        ];
        let api = api_that_answers(&answers);
        let mut leadership = candidate(&api);
        let mut failed = Vec::new();
        for _ in 0..4 {
            drop(leadership.read().await);
            failed.push(!leadership.read_failure.0.is_empty());
        }
        assert_eq!(failed, [true, false, true, false]);
        leadership.write(Method::PUT, &held).await;
        drop(leadership.read().await);
        assert!(!leadership.write_failure.0.is_empty());
        leadership.write(Method::PUT, &held).await;
        assert!(leadership.write_failure.0.is_empty());
    }
}
