//! Whether the policy in force is that of its source, for health checks and metrics.

use std::sync::Arc;

use fairgate_base::clock::Clock;
use fairgate_core::{
    finding::{Finding, summary},
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_observe::{HealthChecks, Telemetry, catalogue};

/// Whether the policy in force is that of its source.
#[derive(Debug)]
pub(crate) struct PolicySync {
    clock: Clock,
    state: Mutex<SyncState>,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Since when the policy of the source is not in force, and why.
    source: Option<(Time, OutOfSync)>,
    /// When a reload was refused because of the policy, and what is wrong.
    reload: Option<(Time, String)>,
    /// Whether the built-in policy is in force because that of the source has errors since the start.
    built_in: bool,
    /// The digest of the last good set that is in force since the start, and when it was kept, in seconds since 1970.
    last_good: Option<(String, u64)>,
}

/// Why the policy of a source is not in force.
#[derive(Debug)]
enum OutOfSync {
    /// It has errors; the first of them.
    Refused(String),
    /// It has not been read since the start.
    Unread,
}

impl PolicySync {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    /// The policy of the source is in force.
    pub(crate) fn in_sync(&self) {
        let mut state = lock(&self.state);
        state.source = None;
        state.built_in = false;
        state.last_good = None;
    }

    /// The policy of the source has errors, and is not in force.
    pub(crate) fn refused(&self, findings: &[Finding]) {
        self.out_of_sync(OutOfSync::Refused(summary(findings)));
    }

    /// The source has not been read yet.
    pub(crate) fn unread(&self) {
        self.out_of_sync(OutOfSync::Unread);
    }

    fn out_of_sync(&self, why: OutOfSync) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let since = state.source.as_ref().map_or(now, |(since, _)| *since);
        state.source = Some((since, why));
    }

    /// The last good set is in force in the place of the source's.
    pub(crate) fn restored(&self, digest: &str, saved_at: u64) {
        lock(&self.state).last_good = Some((digest.to_owned(), saved_at));
    }

    /// The built-in policy is in force in the place of the source's.
    pub(crate) fn started_with_built_in(&self) {
        lock(&self.state).built_in = true;
    }

    /// Whether the last good set is in force.
    pub(crate) fn has_last_good(&self) -> bool {
        lock(&self.state).last_good.is_some()
    }

    /// A reload changed what the policy is made of; `applied` unless that has errors.
    pub(crate) fn reloaded(&self, applied: bool, findings: &[Finding]) {
        let refused = (self.clock.now(), summary(findings));
        lock(&self.state).reload = (!applied).then_some(refused);
    }

    /// Why the policy in force is not what the source and the configuration have; `None` if it is.
    pub(crate) fn problem(&self) -> Option<String> {
        let now = self.clock.now();
        let state = lock(&self.state);
        let seconds = |since: &Time| now.since(*since).as_secs();
        let what = match (&state.source, &state.reload) {
            (Some((since, OutOfSync::Refused(why))), _) => {
                format!("refused for {} s: {why}", seconds(since))
            }
            (None, Some((since, why))) => {
                format!("refused at a reload {} s ago: {why}", seconds(since))
            }
            (Some((since, OutOfSync::Unread)), _) => {
                format!("not read from its source for {} s", seconds(since))
            }
            (None, None) => return None,
        };
        let in_force = match (&state.last_good, &state.source) {
            (Some((digest, saved_at)), _) => {
                let age = self.clock.unix_seconds().saturating_sub(*saved_at);
                format!(
                    "the last good policy, kept {age} s ago with the digest {digest}, is in force"
                )
            }
            (None, Some((_, OutOfSync::Unread))) => "the built-in policy is in force".to_owned(),
            (None, _) if state.built_in => "the built-in policy is in force".to_owned(),
            (None, _) => "the last good policy stays in force".to_owned(),
        };
        Some(format!("{what}; {in_force}"))
    }

    /// Adds it to the health checks. A gateway with an old policy is better than none, so it stays ready.
    pub(crate) fn add_health_check(self: &Arc<Self>, checks: HealthChecks) -> HealthChecks {
        let this = Arc::clone(self);
        checks.note("policy", move || this.problem())
    }

    /// Registers the metric `fairgate_policy_synced`.
    pub(crate) fn register_metrics(self: &Arc<Self>, telemetry: &Telemetry) {
        let this = Arc::clone(self);
        let synced = move || f64::from(u8::from(this.problem().is_none()));
        telemetry
            .metrics()
            .observe_gauge(&catalogue::POLICY_SYNCED, synced);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fairgate_core::finding::Severity;

    fn error(message: &str) -> Finding {
        let finding = Finding::without_object(Severity::Error, "a.yaml", message, "correct it");
        finding.in_field("spec.type")
    }

    #[test]
    fn a_problem_stands_from_the_first_error_until_the_source_is_in_force() {
        let clock = Clock::manual(Time::ZERO);
        let sync = PolicySync::new(clock.clone());
        assert_eq!(sync.problem(), None);
        sync.refused(&[error("is\nwrong"), error("too")]);
        clock.advance(Duration::from_secs(5));
        sync.refused(&[error("differs")]);
        clock.advance(Duration::from_secs(2));
        let text = "refused for 7 s: a.yaml: spec.type: differs; correct it; the last good policy stays in force";
        assert_eq!(sync.problem().as_deref(), Some(text));
        sync.reloaded(true, &[]);
        assert!(sync.problem().is_some());
        sync.in_sync();
        assert_eq!(sync.problem(), None);
    }

    #[test]
    fn a_refused_reload_stands_until_one_is_applied() {
        let clock = Clock::manual(Time::ZERO);
        let sync = PolicySync::new(clock.clone());
        sync.reloaded(false, &[error("is wrong")]);
        clock.advance(Duration::from_secs(3));
        sync.in_sync();
        let text = sync.problem().unwrap();
        assert!(
            text.starts_with("refused at a reload 3 s ago: a.yaml"),
            "{text}"
        );
        sync.reloaded(true, &[]);
        assert_eq!(sync.problem(), None);
    }

    #[test]
    fn what_is_in_force_instead_is_named() {
        let clock = Clock::manual(Time::ZERO);
        let sync = PolicySync::new(clock.clone());
        sync.unread();
        let text = sync.problem().unwrap();
        assert!(
            text.ends_with("for 0 s; the built-in policy is in force"),
            "{text}"
        );
        sync.restored("sha256:ab", clock.unix_seconds() - 60);
        let text = sync.problem().unwrap();
        let kept = "; the last good policy, kept 60 s ago with the digest sha256:ab, is in force";
        assert!(text.ends_with(kept), "{text}");
        sync.in_sync();
        sync.refused(&[]);
        let text = "refused for 0 s: the log says why; the last good policy stays in force";
        assert_eq!(sync.problem().as_deref(), Some(text));
    }
}
