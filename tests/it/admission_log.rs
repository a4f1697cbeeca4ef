//! The audit log of admission policies, through the public API.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use fairgate::{
    app::admission_log::AdmissionLog, config::AdmissionAuditConfig, observe::GatewayMetrics,
};
use fairgate_admission::{
    AdmissionDecision, AdmissionMode, AdmissionOperation, AdmissionRecord, EnforcementAction,
    Fidelity, PolicyUsage, RecordedCheck, RecordedRequest, audit::AuditEntry,
};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

fn record(number: u32, decision: AdmissionDecision) -> AdmissionRecord {
    let denies = decision == AdmissionDecision::Denied;
    AdmissionRecord {
        audit_id: format!("id-{number}"),
        mode: AdmissionMode::Audit,
        operation: AdmissionOperation::Create,
        request: RecordedRequest {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            user: "alice".to_owned(),
            ..RecordedRequest::default()
        },
        fidelity: Some(Fidelity::AsSent),
        decision,
        guard: None,
        failure: String::new(),
        checks: vec![RecordedCheck {
            policy: "p".to_owned(),
            binding: "b".to_owned(),
            error_type: "invalid_error",
            action: denies.then_some(EnforcementAction::Deny),
            message: "no".to_owned(),
            reason: "Invalid".to_owned(),
            took: Duration::from_micros(8),
        }],
        warnings: Vec::new(),
        annotations: Vec::new(),
        usage: vec![PolicyUsage {
            policy: "p".to_owned(),
            cost: 7,
            took: Duration::from_micros(9),
        }],
        secret_params: Vec::new(),
        set_by_server: Vec::new(),
        evaluating: Duration::from_micros(30),
        total: Duration::from_micros(40),
    }
}

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("fairgate-admission-log-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(file: Option<PathBuf>, metrics: &Arc<GatewayMetrics>) -> AdmissionLog {
    let settings = AdmissionAuditConfig {
        file,
        max_size: 1 << 20,
        max_files: 2,
    };
    AdmissionLog::start(&settings, &Clock::manual(Time::ZERO), metrics).unwrap()
}

#[test]
fn records_are_written_before_the_log_ends() {
    let scratch = Scratch::new("written");
    let file = scratch.0.join("audit.jsonl");
    let log = start(Some(file.clone()), &GatewayMetrics::new());
    let recorder = log.recorder();
    for number in 0..1000 {
        let decision = match number % 2 {
            0 => AdmissionDecision::Denied,
            _ => AdmissionDecision::Allowed,
        };
        recorder.record(record(number, decision));
    }
    drop(log);
    let text = fs::read_to_string(file).unwrap();
    let entries: Vec<AuditEntry> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // What nothing was found about is not written.
    let ids: Vec<&str> = entries.iter().map(|entry| &*entry.audit_id).collect();
    let expected: Vec<String> = (0..1000)
        .step_by(2)
        .map(|number| format!("id-{number}"))
        .collect();
    assert_eq!(ids, expected);
    assert!(entries[0].time.ends_with('Z'), "{}", entries[0].time);
    // Whoever still has the recorder can go on using it.
    recorder.record(record(0, AdmissionDecision::Denied));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
    let settings = AdmissionAuditConfig {
        file: Some(PathBuf::from("/nonexistent/audit.jsonl")),
        max_size: 1 << 20,
        max_files: 2,
    };
    let metrics = GatewayMetrics::new();
    let error = AdmissionLog::start(&settings, &Clock::manual(Time::ZERO), &metrics).unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/audit.jsonl"),
        "{error}"
    );
    assert!(
        error.to_string().contains("admission.audit.file"),
        "{error}"
    );
}
