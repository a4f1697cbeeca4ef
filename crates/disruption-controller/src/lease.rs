//! The calls that read and write the lease, and the waits between them.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::{random::Random, time::Time};
use http::Method;
use serde_json::Value;

use crate::{
    calls::{CallError, Calls, JSON, api_path, object_path},
    election::{Election, LeaseCall, LeaseWrite, RETRY_PERIOD},
};

/// The namespace of the lease, the same as for the leases of Kubernetes' own controllers.
const NAMESPACE: &str = "kube-system";
const API_VERSION: &str = "coordination.k8s.io/v1";
/// How long the release of the lease may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// This gateway as a candidate for leadership. Without a lease it always leads.
#[derive(Debug)]
pub(crate) struct Leadership<'c> {
    calls: &'c Calls,
    clock: Clock,
    election: Option<Election>,
    name: String,
    random: Random,
    read_failure: LastFailure,
    write_failure: LastFailure,
}

impl<'c> Leadership<'c> {
    /// A candidate for the lease `name`, if it is given. The identity must differ from those of all other candidates.
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
            read_failure: LastFailure::default(),
            write_failure: LastFailure::default(),
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

    /// Renews the lease. Returns when the lease is lost; never, without a lease.
    pub(crate) async fn keep(&mut self) {
        if self.election.is_none() {
            std::future::pending::<()>().await;
        }
        while let Some(until) = self.leads_until() {
            self.advance(Some(until)).await;
        }
    }

    /// Releases the lease, so that another gateway can acquire it immediately.
    pub(crate) async fn release(&mut self) {
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
        let date = self.calls.date();
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
        match election.call(sent, self.calls.date()) {
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
    async fn read(&mut self) -> Result<Option<Value>, CallError> {
        let read = match self.calls.get(&path(&self.name)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        };
        self.read_failure.follow(&self.name, read.as_ref().err());
        read
    }

    async fn write(&mut self, method: Method, lease: &Value) -> LeaseWrite {
        let name = if method == Method::POST {
            ""
        } else {
            &self.name
        };
        let path = path(name);
        let (outcome, error) = match self.calls.call(method, &path, JSON, Some(lease)).await {
            Ok(stored) => (LeaseWrite::Stored(stored), None),
            Err(CallError::Refused {
                code: 404 | 409, ..
            }) => (LeaseWrite::Conflict, None),
            Err(error) => (LeaseWrite::Failed, Some(error)),
        };
        self.write_failure.follow(&self.name, error.as_ref());
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
    fn follow(&mut self, lease: &str, error: Option<&CallError>) {
        let why = error.map(CallError::to_string).unwrap_or_default();
        if !why.is_empty() && self.0 != why {
            tracing::warn!(lease, %why, "the lease of the disruption controller cannot be read or written; trying again");
        }
        self.0 = why;
    }
}

/// The path of a lease, or of all leases if `name` is empty.
fn path(name: &str) -> String {
    object_path(&api_path(API_VERSION), NAMESPACE, "leases", name)
}

/// A random number from 0 to less than 1.
fn fraction(random: &mut Random) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    let thousandths = random.within(0..1000) as f64;
    thousandths / 1000.0
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use fairgate_upstream::{
        client::{ApiClient, ConnectionReuse, HeaderSource},
        endpoint::Endpoint,
    };
    use http::{HeaderMap, uri::Authority};
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// What the server answers to one request after the other; then it answers no more.
    async fn calls_answered_with(answers: &[(u16, Value)]) -> Calls {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority: Authority = listener.local_addr().unwrap().to_string().parse().unwrap();
        let mut answers: VecDeque<_> = answers.to_vec().into();
        tokio::spawn(async move {
            while let Some((code, body)) = answers.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                read_request(&mut stream).await;
                let body = body.to_string();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {code} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        let credentials: HeaderSource = Arc::new(HeaderMap::new);
        let endpoint = Endpoint::new(authority, None);
        let client = ApiClient::new(endpoint, credentials, ConnectionReuse::Pooled);
        Calls::new(client, Clock::manual(Time::ZERO))
    }

    /// Reads a request with its body.
    async fn read_request(stream: &mut tokio::net::TcpStream) {
        let mut request = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&request).to_lowercase();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.split("content-length: ").nth(1);
                let length = length.and_then(|rest| rest.lines().next());
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    return;
                }
            }
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
    }

    fn candidate(calls: &Calls) -> Leadership<'_> {
        let clock = Clock::manual(Time::ZERO);
        Leadership::new(calls, &clock, Some("lease"), "me".to_owned(), 1)
    }

    fn lease(holder: &str, version: &str) -> Value {
        json!({
            "metadata": {"name": "lease", "namespace": NAMESPACE, "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        })
    }

    /// A candidate that has read the lease, and holds it.
    fn holder(calls: &Calls) -> Leadership<'_> {
        let mut leadership = candidate(calls);
        let held = Some(lease("me", "1"));
        leadership.with(|election| election.read(held, Time::ZERO, Duration::ZERO));
        leadership
    }

    fn refused() -> Value {
        json!({"message": "try later"})
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_read_after_a_conflict_is_not_released() {
        let calls = calls_answered_with(&[(409, refused()), (500, refused())]).await;
        assert_eq!(holder(&calls).try_release().await, Some(LeaseWrite::Failed));
    }

    #[tokio::test]
    async fn a_lease_is_released_at_the_version_that_a_conflict_shows() {
        let stored = lease("", "3");
        let answers = [
            (409, refused()),
            (200, lease("me", "2")),
            (200, stored.clone()),
        ];
        let calls = calls_answered_with(&answers).await;
        let released = holder(&calls).try_release().await;
        assert_eq!(released, Some(LeaseWrite::Stored(stored)));
    }

    #[tokio::test]
    async fn a_lease_that_is_gone_or_of_another_gateway_needs_no_release() {
        for answer in [(404, refused()), (200, lease("other", "2"))] {
            let calls = calls_answered_with(&[(409, refused()), answer]).await;
            assert_eq!(holder(&calls).try_release().await, None);
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
        let calls = calls_answered_with(&answers).await;
        let mut leadership = candidate(&calls);
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
