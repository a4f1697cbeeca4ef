//! What operators get to see, by path: metrics, health, the debug dumps.
//!
//! One for all ports it is seen at. Metrics are rendered on the blocking pool, one at a time, and so
//! are dumps made: no reader, however slow, holds up a request.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::Mutex;

use super::{
    checks::{HealthChecks, Probe},
    dumps::{Dump, PATH},
    gateway_metrics::GatewayMetrics,
    telemetry::Telemetry,
};

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What operators get to see.
#[derive(Debug)]
pub(crate) struct OperatorEndpoints {
    telemetry: Arc<Telemetry>,
    checks: HealthChecks,
    /// Of what takes time, one of a kind is made at once.
    rendering: Mutex<()>,
    dumping: Mutex<()>,
}

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointResponse {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    /// The media type.
    pub(crate) content_type: &'static str,
    /// The text.
    pub(crate) text: String,
}

impl OperatorEndpoints {
    /// A view of `telemetry` and `checks`.
    pub(crate) fn new(telemetry: Arc<Telemetry>, checks: HealthChecks) -> Arc<Self> {
        Arc::new(Self {
            telemetry,
            checks,
            rendering: Mutex::default(),
            dumping: Mutex::default(),
        })
    }

    /// The gateway's own metrics.
    pub(super) fn metrics(&self) -> &GatewayMetrics {
        self.telemetry.metrics()
    }

    /// What there is at `path`; `None` if there is nothing. Without `reasons` it is not told why a check
    /// failed. To be asked on the control runtime.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &str,
        reasons: bool,
    ) -> Option<EndpointResponse> {
        match path {
            "/metrics" => Some(self.render_metrics().await),
            _ if path.starts_with(PATH) => {
                let dump = Dump::of(path.as_bytes(), Some(query))?;
                let _one = self.dumping.lock().await;
                Some(response(
                    StatusCode::OK,
                    TEXT,
                    self.telemetry.dump(dump).await,
                ))
            }
            _ => self.probe(path, query, reasons),
        }
    }

    async fn render_metrics(&self) -> EndpointResponse {
        let _one = self.rendering.lock().await;
        let telemetry = Arc::clone(&self.telemetry);
        let rendered = tokio::task::spawn_blocking(move || telemetry.render_metrics()).await;
        let failed = |_| {
            let text = "rendering failed\n".to_owned();
            response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
        };
        rendered.map_or_else(failed, |text| response(StatusCode::OK, METRICS_TEXT, text))
    }

    fn probe(&self, path: &str, query: &str, reasons: bool) -> Option<EndpointResponse> {
        let findings = match Probe::of(path)? {
            (probe, None) => self.checks.ask(probe, query, reasons),
            (probe, Some(check)) => self.checks.ask_one(probe, check, reasons)?,
        };
        let status = if findings.ok {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Some(response(status, TEXT, findings.text))
    }
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> EndpointResponse {
    EndpointResponse {
        status,
        content_type,
        text,
    }
}
