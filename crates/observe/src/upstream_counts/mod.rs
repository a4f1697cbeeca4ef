//! Object counts from the upstream's own metrics.
//!
//! An API server exposes how many objects it stores of each resource, and since 1.34 how large they are.
//! Where the gateway may read its `/metrics`, [`follow`] does so about every minute, so that the width of
//! lists does not depend on which lists passed. Names and labels are those of Kubernetes' metrics
//! reference.
//!
//! Not here: the connection to the upstream, which is an argument, and the use of the counts
//! ([`fairgate_core::apf::counts`]).

mod reader;
#[cfg(test)]
mod tests;

use std::{
    fmt::Display,
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use reader::CountReader;

/// The longest response that is read, in bytes.
const MAX_BODY_BYTES: u64 = 512 << 20;

/// The time limit of one request and its response.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How often failures double the interval at most: to 8 times its length.
const MAX_DOUBLINGS: u32 = 3;

/// How many objects there are of a resource, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The resource, plural.
    pub resource: Box<str>,
    /// The number of objects.
    pub count: u64,
    /// The bytes that all objects take together as the server stores them, if it knows.
    pub total_bytes: Option<u64>,
}

/// Why the upstream's metrics could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The upstream answered 401 or 403: it does not let the gateway read them.
    #[error("forbidden; allow the gateway's user to get the path /metrics")]
    Forbidden,
    /// Anything else; may pass.
    #[error("{0}")]
    Failed(Box<str>),
}

impl FetchError {
    fn failed(why: impl Display) -> Self {
        Self::Failed(why.to_string().into())
    }
}

/// Reads the upstream's metrics until it is dropped, first at once and then about every `every`, and
/// passes their counts to `seed`.
///
/// `fetch` requests `/metrics` and returns the uncompressed body of a 200 response. With each failure after the
/// first the interval doubles, up to 8 times `every`; if the request is forbidden, it is 8 times `every` at once. Each
/// kind of failure is logged when it begins; that the request is forbidden, only once.
pub async fn follow<F, A, B>(fetch: F, every: Duration, seed: impl Fn(&[ObjectCount]))
where
    F: Fn() -> A,
    A: Future<Output = Result<B, FetchError>>,
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let mut interval = PollInterval::new(every);
    let mut failures = FailureLog::default();
    loop {
        let outcome = read_once(&fetch, &seed).await;
        failures.log(outcome.as_ref().err());
        let random = RandomState::new().hash_one(0);
        tokio::time::sleep(interval.next(outcome.as_ref().err(), random)).await;
    }
}

/// Reads the metrics once.
async fn read_once<F, A, B>(fetch: &F, seed: &impl Fn(&[ObjectCount])) -> Result<(), FetchError>
where
    F: Fn() -> A,
    A: Future<Output = Result<B, FetchError>>,
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let read = async { read_body(fetch().await?).await };
    let counts = tokio::time::timeout(TIME_LIMIT, read)
        .await
        .map_err(|_| FetchError::failed("it took longer than a minute"))??;
    tracing::debug!(resources = counts.len(), "read object counts");
    seed(&counts);
    Ok(())
}

async fn read_body<B>(body: B) -> Result<Vec<ObjectCount>, FetchError>
where
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let mut body = pin!(body);
    let mut reader = CountReader::default();
    let mut seen = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(FetchError::failed)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        seen = seen.saturating_add(data.len() as u64);
        if seen > MAX_BODY_BYTES {
            return Err(FetchError::failed("they are longer than 512 MiB"));
        }
        reader.read(data);
    }
    Ok(reader.finish())
}

/// The time between two reads.
#[derive(Debug)]
struct PollInterval {
    every: Duration,
    failures: u32,
}

impl PollInterval {
    fn new(every: Duration) -> Self {
        Self {
            every: every.max(Duration::from_millis(1)),
            failures: 0,
        }
    }

    /// How long to wait after this outcome: up to a fifth longer than is due, by `random`, so that
    /// gateways that start together do not stay in step.
    fn next(&mut self, error: Option<&FetchError>, random: u64) -> Duration {
        let doublings = match error {
            None => {
                self.failures = 0;
                0
            }
            Some(FetchError::Failed(_)) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures - 1).min(MAX_DOUBLINGS)
            }
            Some(FetchError::Forbidden) => MAX_DOUBLINGS,
        };
        let due = self.every.saturating_mul(1 << doublings);
        let thousandths = u32::try_from(random % 200).unwrap_or(0);
        due.saturating_add((due / 1000).saturating_mul(thousandths))
    }
}

/// Logs each kind of failure when it begins.
#[derive(Debug, Default)]
struct FailureLog {
    logged_forbidden: bool,
    is_failing: bool,
}

impl FailureLog {
    fn log(&mut self, error: Option<&FetchError>) {
        match error {
            None => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("reading the upstream's metrics succeeds again");
                }
            }
            Some(FetchError::Forbidden) => {
                if !std::mem::replace(&mut self.logged_forbidden, true) {
                    tracing::info!(
                        "the upstream forbids reading its metrics, so object counts are learnt from \
                         lists only; grant the gateway's user `get` on the non-resource URL /metrics"
                    );
                }
            }
            Some(error @ FetchError::Failed(_)) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "cannot read the upstream's metrics; list sizes are estimated from responses alone");
                }
            }
        }
    }
}
