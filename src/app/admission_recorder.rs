//! Writes what policies find to the log of the gateway.

use fairgate_admitter::{AdmissionDecision, AdmissionRecord, AdmissionRecorder};
use fairgate_base::{clock::Clock, log_limit::LogLimit};

/// The log target of judged requests.
const LOG: &str = "fairgate::admission";
/// How many lines are written at once; further ones are counted.
const LINES: u32 = 100;

/// Logs requests that are denied or cannot be judged, and audit annotations. Objects are not logged.
#[derive(Debug)]
pub(super) struct LoggingRecorder {
    clock: Clock,
    lines: LogLimit,
}

impl LoggingRecorder {
    /// A recorder that writes a bounded number of lines.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            lines: LogLimit::new(LINES),
        }
    }
}

impl AdmissionRecorder for LoggingRecorder {
    fn record(&self, record: AdmissionRecord) {
        let is_quiet = record.decision == AdmissionDecision::Allowed
            && record.warnings.is_empty()
            && record.annotations.is_empty();
        if is_quiet {
            return;
        }
        let Some(left_out) = self.lines.admit(self.clock.now()) else {
            return;
        };
        // A message about a Secret may quote it.
        let is_secret = record.group.is_empty() && record.resource == "secrets";
        let mut checks = record.checks.iter();
        let found = checks.find(|check| !check.message.is_empty());
        tracing::info!(
            target: LOG,
            audit_id = record.audit_id,
            mode = record.mode.as_str(),
            decision = record.decision.as_str(),
            user = record.user,
            operation = record.operation.name(),
            group = record.group,
            resource = record.resource,
            subresource = record.subresource,
            namespace = record.namespace,
            name = record.name,
            policy = found.map(|check| &*check.policy),
            finding = found.filter(|_| !is_secret).map(|check| &*check.message),
            failure = record.failure,
            left_out,
            "judged by admission policies"
        );
    }
}
