//! Object counts from the upstream's own metrics, read once a minute if the gateway is allowed to.
//!
//! With them the cost of a list is known before the first one has passed through the gateway.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header::ACCEPT};
use http_body_util::Empty;

use fairgate_base::clock::Clock;
use fairgate_core::apf::scope::StatsScope;
use fairgate_observe::upstream_counts::{self, FetchError, ObjectCount};
use fairgate_proxy::fairness::FlowControl;
use fairgate_upstream::client::{ApiClient, ResponseBody};

/// How often the metrics are read; the upstream itself counts about as often.
const PERIOD: Duration = Duration::from_secs(60);

/// Reads the metrics until it is dropped, and seeds flow control's counts with them.
pub(super) async fn follow(flow_control: Arc<FlowControl>, clock: Clock, client: ApiClient) {
    let seed = |counts: &[ObjectCount]| {
        let now = clock.now();
        flow_control.with_counts(|known| {
            for count in counts {
                let scope = StatsScope {
                    group: count.group.as_bytes(),
                    resource: count.resource.as_bytes(),
                    namespace: None,
                };
                known.seed(now, &scope, count.count, count.total_bytes);
            }
        });
    };
    upstream_counts::follow(|| fetch(&client), PERIOD, seed).await;
}

async fn fetch(client: &ApiClient) -> Result<ResponseBody, FetchError> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from_static("/metrics");
    let text = HeaderValue::from_static("text/plain");
    request.headers_mut().insert(ACCEPT, text);
    let response = client.send(request).await;
    let response = response.map_err(|error| FetchError::Failed(error.to_string().into()))?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(FetchError::Forbidden),
        status => Err(FetchError::Failed(
            format!("the upstream answered {status}").into(),
        )),
    }
}
