//! Writes what policies decide to their audit log, or without one to the log of the gateway.

use std::sync::Arc;

use super::admission_log::{AdmissionLog, AdmissionLogError};
use fairgate_admission::{AdmissionDecision, AdmissionRecord, AdmissionRecorder};
use fairgate_base::{clock::Clock, log_limit::LogLimit};
use fairgate_config::AdmissionAuditConfig;
use fairgate_observe::GatewayMetrics;

/// The log target of evaluated requests.
const LOG: &str = "fairgate::admission";
/// The most lines in 10 s; further ones are only counted.
const LINES: u32 = 100;
/// The longest text of annotations in a line, in characters.
const MAX_ANNOTATIONS: usize = 2048;

/// Counts requests and writes them to the audit log. Without an audit log, requests that are denied, warned about,
/// annotated or cannot be evaluated go to the log of the gateway. Objects are not logged.
#[derive(Debug)]
pub(crate) struct LoggingRecorder {
    next: Arc<dyn AdmissionRecorder>,
    has_file: bool,
    clock: Clock,
    lines: LogLimit,
    /// Dropping it writes the records that are still waiting.
    _log: AdmissionLog,
}

impl LoggingRecorder {
    /// A recorder that writes to the file of `audit`, or without one a bounded number of lines to the log of the gateway.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub(crate) fn start(
        audit: &AdmissionAuditConfig,
        clock: &Clock,
        metrics: &Arc<GatewayMetrics>,
    ) -> Result<Arc<dyn AdmissionRecorder>, AdmissionLogError> {
        let log = AdmissionLog::start(audit, clock, metrics)?;
        Ok(Arc::new(Self {
            next: log.recorder(),
            has_file: audit.file.is_some(),
            clock: clock.clone(),
            lines: LogLimit::new(LINES),
            _log: log,
        }))
    }

    fn log(&self, record: &AdmissionRecord) {
        let is_quiet = record.decision == AdmissionDecision::Allowed
            && record.warnings.is_empty()
            && record.annotations.is_empty();
        if is_quiet {
            return;
        }
        let Some(left_out) = self.lines.next_line(self.clock.now()) else {
            return;
        };
        let request = &record.request;
        let mut checks = record.checks.iter();
        let found = checks.find(|check| !check.message.is_empty());
        let finding = found.filter(|check| !record.may_quote_a_secret(Some(&check.policy)));
        tracing::info!(
            target: LOG,
            audit_id = &*record.audit_id,
            mode = record.mode.as_str(),
            decision = record.decision.as_str(),
            user = &*request.user,
            operation = record.operation.name(),
            group = &*request.group,
            resource = &*request.resource,
            subresource = &*request.subresource,
            namespace = &*request.namespace,
            name = &*request.name,
            policy = found.map(|check| &*check.policy),
            finding = finding.map(|check| &*check.message),
            annotations = annotations(record),
            failure = &*record.failure,
            left_out,
            "evaluated admission policies"
        );
    }
}

/// The audit annotations as text; none if there are none, or if they may quote a Secret.
fn annotations(record: &AdmissionRecord) -> Option<String> {
    if record.annotations.is_empty() || record.may_quote_a_secret(None) {
        return None;
    }
    let pairs = record.annotations.iter();
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    Some(pairs.join(", ").chars().take(MAX_ANNOTATIONS).collect())
}

impl AdmissionRecorder for LoggingRecorder {
    fn record(&self, record: AdmissionRecord) {
        if !self.has_file {
            self.log(&record);
        }
        self.next.record(record);
    }
}
