//! Ends requests whose clients send the body slowly, and so keep seats from others.
//!
//! Short bodies are complete before their request gets a seat ([`super::receiving`]). At each check a core looks at the other
//! bodies whose request holds a seat: while no seat of the level is free, a client has to send at a minimum rate, unless the
//! upstream is the slow side. The upstream then gets no complete request, so the seat is free once the request has been reset.

use super::{
    gate::Gate,
    level_fullness::{LevelFullness, is_full},
    settings::Enforcement,
    slow_readers::bytes_per_check,
    unfinished_bodies::LateBody,
    waiters::BodyInProgress,
};

/// After how many checks the requests that were ended meanwhile are logged.
const LOG_AFTER: u32 = 4;

/// The slow senders of one core: requests that were ended, and are not logged yet. Many are logged in one line, so that clients
/// cannot fill the log.
#[derive(Debug, Default)]
pub(super) struct SlowSenders {
    unlogged: u32,
    /// Checks since the first of them.
    checks: u32,
    last_user: String,
}

impl SlowSenders {
    /// Checks the bodies in progress; to be called once every [`super::slow_readers::CHECK_INTERVAL`]. O(requests of the core).
    pub(super) fn check(&mut self, gate: &Gate) {
        let policy = gate.policy();
        let least = bytes_per_check(policy.min_send_rate);
        let enforces = policy.enforcement == Enforcement::Enforce;
        let mut fullness = LevelFullness::default();
        for in_progress in gate.bodies_in_progress() {
            let is_slow = in_progress.body.is_slow(least);
            if is_slow && enforces && fullness.get(&in_progress.level, is_full) {
                self.cut(gate, &in_progress);
                fullness.forget(&in_progress.level);
            }
        }
        self.log();
    }

    fn cut(&mut self, gate: &Gate, in_progress: &BodyInProgress) {
        in_progress.body.cut();
        gate.flow_control().bodies.count_late(LateBody::NoSeatFree);
        self.unlogged += 1;
        let user = in_progress.digest.as_ref().map(|digest| &*digest.user.name);
        user.unwrap_or_default().clone_into(&mut self.last_user);
    }

    fn log(&mut self) {
        if self.unlogged == 0 {
            return;
        }
        self.checks += 1;
        if self.checks < LOG_AFTER {
            return;
        }
        let ended = std::mem::take(self);
        tracing::info!(
            ended = ended.unlogged,
            user = ?ended.last_user,
            "ended requests whose clients sent the body more slowly than limits.minSendRate while no seat was free; user is that of the last one"
        );
    }
}
