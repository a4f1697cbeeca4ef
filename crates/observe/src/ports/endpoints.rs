//! The endpoints for operators by path: metrics, health checks, debug dumps.
//!
//! Shared by all ports that serve them. Metrics are rendered on the blocking pool, and dumps are made on the control
//! runtime, one of each at a time: a slow reader delays no request.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::Mutex;

use super::checks::{HealthChecks, Probe};
use crate::{
    dumps::{Dump, PATH},
    metrics::gateway_metrics::GatewayMetrics,
    telemetry::Telemetry,
};

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str = "fairgate\n\n\
    /metrics\n\
    /livez\n\
    /readyz\n\
    /healthz\n\
    /debug/api_priority_and_fairness/dump_priority_levels\n\
    /debug/api_priority_and_fairness/dump_queues\n\
    /debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1\n\
    /debug/api_priority_and_fairness/dump_tenants\n\
    /debug/api_priority_and_fairness/dump_refusals\n\
    /debug/api_priority_and_fairness/dump_seat_seconds\n\
    /debug/api_priority_and_fairness/dump_watches\n\
    /debug/api_priority_and_fairness/dump_policy\n\
    /debug/api_priority_and_fairness/dump_waiting_evictions\n\
    /debug/api_priority_and_fairness/dump_servers\n\
    /debug/api_priority_and_fairness/dump_fleet\n";

/// The endpoints for operators.
#[derive(Debug)]
pub struct OperatorEndpoints {
    telemetry: Arc<Telemetry>,
    checks: HealthChecks,
    /// One scrape at a time.
    rendering: Mutex<()>,
    /// One dump at a time.
    dumping: Mutex<()>,
}

/// The response of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The media type.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

impl OperatorEndpoints {
    /// Endpoints over `telemetry` and `checks`.
    pub fn new(telemetry: Arc<Telemetry>, checks: HealthChecks) -> Arc<Self> {
        Arc::new(Self {
            telemetry,
            checks,
            rendering: Mutex::default(),
            dumping: Mutex::default(),
        })
    }

    /// The gateway's own metrics.
    pub(crate) fn metrics(&self) -> &GatewayMetrics {
        self.telemetry.metrics()
    }

    /// The response at `path`; `None` if there is no such endpoint. Without `reasons` the causes of failed
    /// checks are withheld. To be called on the control runtime.
    pub async fn get(&self, path: &str, query: &str, reasons: bool) -> Option<EndpointResponse> {
        match path {
            "/" => Some(response(StatusCode::OK, TEXT, INDEX.to_owned())),
            "/metrics" => Some(self.render_metrics().await),
            _ if path.starts_with(PATH) => {
                let dump = Dump::of(path.as_bytes(), Some(query))?;
                let _one = self.dumping.lock().await;
                Some(response(
                    StatusCode::OK,
                    dump.content_type(),
                    self.telemetry.dump(dump).await,
                ))
            }
            _ => self.probe(path, query, reasons),
        }
    }

    async fn render_metrics(&self) -> EndpointResponse {
        let _one = self.rendering.lock().await;
        let rendered = self.telemetry.metrics_text().await;
        let failed = |_| {
            let text = "rendering failed\n".to_owned();
            response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
        };
        rendered.map_or_else(failed, |text| response(StatusCode::OK, METRICS_TEXT, text))
    }

    fn probe(&self, path: &str, query: &str, reasons: bool) -> Option<EndpointResponse> {
        let result = match Probe::of(path)? {
            (probe, None) => self.checks.run(probe, query, reasons),
            (probe, Some(check)) => self.checks.run_one(probe, check, reasons)?,
        };
        let status = if result.ok {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Some(response(status, TEXT, result.text))
    }
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> EndpointResponse {
    EndpointResponse {
        status,
        content_type,
        text,
    }
}
