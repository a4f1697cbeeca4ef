//! What operators get to see, by path: metrics, health, the debug dumps.
//!
//! One for all ports it is seen at. Metrics are rendered on the blocking pool, one at a time, and so
//! are dumps made: no reader, however slow, holds up a request.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::Mutex;

use super::{
    checks::{Checks, Probe},
    dumps::{Dump, PATH},
    own::Own,
    sight::Sight,
};

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What operators get to see.
#[derive(Debug)]
pub struct View {
    sight: Arc<Sight>,
    checks: Checks,
    /// Of what takes time, one of a kind is made at once.
    rendering: Mutex<()>,
    dumping: Mutex<()>,
}

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The HTTP status.
    pub status: StatusCode,
    /// The media type.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

impl View {
    /// A view of `sight` and `checks`.
    pub fn new(sight: Arc<Sight>, checks: Checks) -> Arc<Self> {
        Arc::new(Self {
            sight,
            checks,
            rendering: Mutex::default(),
            dumping: Mutex::default(),
        })
    }

    /// The gateway's own metrics.
    pub(super) fn own(&self) -> &Own {
        self.sight.own()
    }

    /// What there is at `path`; `None` if there is nothing. Without `reasons` it is not told why a check
    /// failed. To be asked on the control runtime.
    pub async fn see(&self, path: &str, query: &str, reasons: bool) -> Option<Seen> {
        match path {
            "/metrics" => Some(self.metrics().await),
            _ if path.starts_with(PATH) => {
                let dump = Dump::of(path.as_bytes(), Some(query))?;
                let _one = self.dumping.lock().await;
                Some(seen(StatusCode::OK, TEXT, self.sight.dump(dump).await))
            }
            _ => self.probe(path, query, reasons),
        }
    }

    async fn metrics(&self) -> Seen {
        let _one = self.rendering.lock().await;
        let sight = Arc::clone(&self.sight);
        let rendered = tokio::task::spawn_blocking(move || sight.metrics()).await;
        let failed = |_| {
            let text = "rendering failed\n".to_owned();
            seen(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
        };
        rendered.map_or_else(failed, |text| seen(StatusCode::OK, METRICS_TEXT, text))
    }

    fn probe(&self, path: &str, query: &str, reasons: bool) -> Option<Seen> {
        let findings = match Probe::of(path)? {
            (probe, None) => self.checks.ask(probe, query, reasons),
            (probe, Some(check)) => self.checks.ask_one(probe, check, reasons)?,
        };
        let status = if findings.ok {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Some(seen(status, TEXT, findings.text))
    }
}

fn seen(status: StatusCode, content_type: &'static str, text: String) -> Seen {
    Seen {
        status,
        content_type,
        text,
    }
}
