//! Seats and queues of a gateway, or of a kube-apiserver, from its `/metrics` while load runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use super::client::Timing;
use crate::{
    scenario::ConnectionSpec,
    transport::{connection::ConnectionPool, target::LoadTarget},
};
use fairgate_base::metrics_text;
use fairgate_loadkit::pauses;
use fairgate_upstream::dial::HttpVersion;

/// How often the metrics are read.
const PERIOD: Duration = Duration::from_millis(500);

/// The state of the priority levels at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LevelSample {
    /// Seconds from the beginning of the measured time; negative in the warm-up.
    pub(crate) at: f64,
    /// The state of each level, by its name.
    pub(crate) levels: BTreeMap<String, LevelState>,
}

/// Seats and queues of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LevelState {
    /// Waiting requests.
    pub(crate) queued: f64,
    /// Seats in use.
    pub(crate) seats: f64,
    /// The current limit; the nominal one where a server does not report it.
    pub(crate) limit: f64,
}

/// Reads the metrics of all `targets` until the load is over, and adds up their seats and queues. Failures to read leave
/// gaps. The limit of a level is the highest: the targets are a gateway and the one that replaces it, with equal limits.
pub(crate) async fn follow(targets: Vec<Arc<LoadTarget>>, timing: Timing) -> Vec<LevelSample> {
    let sources: Vec<MetricsSource> = targets.into_iter().map(MetricsSource::new).collect();
    let mut samples = Vec::new();
    let mut next = timing.start;
    let mut stop = timing.stop.clone();
    while !sources.is_empty() && pauses::wait_until(&timing.clock, &mut stop, next).await {
        next = next.plus(PERIOD);
        let mut levels: BTreeMap<String, LevelState> = BTreeMap::new();
        for source in &sources {
            let read = tokio::time::timeout(PERIOD * 4, source.read()).await;
            for (name, state) in read.unwrap_or_default() {
                let sum = levels.entry(name).or_default();
                sum.queued += state.queued;
                sum.seats += state.seats;
                sum.limit = sum.limit.max(state.limit);
            }
        }
        if levels.is_empty() {
            continue;
        }
        let now = timing.clock.now();
        let (after, before) = (now.since(timing.settled), timing.settled.since(now));
        let at = after.as_secs_f64() - before.as_secs_f64();
        samples.push(LevelSample { at, levels });
    }
    samples
}

/// A connection to the metrics of one gateway.
struct MetricsSource {
    pool: ConnectionPool,
    request: Request<Full<Bytes>>,
}

impl MetricsSource {
    fn new(target: Arc<LoadTarget>) -> Self {
        let spec = ConnectionSpec {
            protocol: HttpVersion::Http1,
            connections: Some(1),
            streams: 1,
            reconnect: Duration::ZERO,
        };
        let mut request = Request::new(Full::default());
        *request.uri_mut() = http::Uri::from_static("/metrics");
        let host = HeaderValue::try_from(target.authority.as_str());
        let headers = request.headers_mut();
        let unknown = HeaderValue::from_static("localhost");
        headers.insert(header::HOST, host.unwrap_or(unknown));
        headers.extend(target.authorization("metrics"));
        Self {
            pool: ConnectionPool::new(target, spec, 1, false),
            request,
        }
    }

    /// The state of each level; empty if the metrics cannot be read.
    async fn read(&self) -> BTreeMap<String, LevelState> {
        let text = scrape(&self.pool, &self.request).await;
        text.map(|text| levels(&text)).unwrap_or_default()
    }
}

async fn scrape(pool: &ConnectionPool, request: &Request<Full<Bytes>>) -> Option<String> {
    let mut pooled = pool.send(request).await.ok()?;
    let success = pooled.response.status().is_success();
    let body = pooled.response.body_mut().collect().await.ok()?.to_bytes();
    pooled.finish();
    success.then(|| String::from_utf8_lossy(&body).into_owned())
}

/// The state of each level in metrics in Prometheus' text format.
fn levels(text: &str) -> BTreeMap<String, LevelState> {
    let mut levels: BTreeMap<String, LevelState> = BTreeMap::new();
    let (mut nominal, mut current) = (BTreeMap::new(), BTreeMap::new());
    for sample in metrics_text::samples(text) {
        let Some(metric) = sample.name.strip_prefix("apiserver_flowcontrol_") else {
            continue;
        };
        let Some(level) = sample.label("priority_level") else {
            continue;
        };
        let value = sample.value;
        match metric {
            "current_inqueue_requests" => {
                levels.entry(level.to_owned()).or_default().queued += value;
            }
            "current_executing_seats" => {
                levels.entry(level.to_owned()).or_default().seats += value;
            }
            "current_limit_seats" => drop(current.insert(level.to_owned(), value)),
            "nominal_limit_seats" => drop(nominal.insert(level.to_owned(), value)),
            _ => {}
        }
    }
    // A current limit may be 0. It replaces the nominal one.
    for (level, limit) in nominal.into_iter().chain(current) {
        levels.entry(level).or_default().limit = limit;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_summed_over_schemas_and_have_their_current_limit() {
        let text = "\
# HELP apiserver_flowcontrol_current_inqueue_requests waiting
apiserver_flowcontrol_current_inqueue_requests{apiserver=\"a\",flow_schema=\"x\",priority_level=\"work\"} 3
apiserver_flowcontrol_current_inqueue_requests{apiserver=\"a\",flow_schema=\"y\",priority_level=\"work\"} 4
apiserver_flowcontrol_current_executing_seats{flow_schema=\"x\",priority_level=\"work\"} 10
apiserver_flowcontrol_nominal_limit_seats{priority_level=\"work\"} 12
apiserver_flowcontrol_current_limit_seats{priority_level=\"work\"} 10
apiserver_flowcontrol_nominal_limit_seats{priority_level=\"exempt\"} 1
apiserver_flowcontrol_current_limit_seats{priority_level=\"lent\"} 0
apiserver_flowcontrol_nominal_limit_seats{priority_level=\"lent\"} 5
nonsense{ 3
";
        let found = levels(text);
        let work = LevelState {
            queued: 7.0,
            seats: 10.0,
            limit: 10.0,
        };
        assert_eq!(found["work"], work);
        let limited = |limit: f64| LevelState {
            limit,
            ..LevelState::default()
        };
        assert_eq!(
            (found["exempt"], found["lent"]),
            (limited(1.0), limited(0.0))
        );
        assert_eq!(found.len(), 3);
    }
}
