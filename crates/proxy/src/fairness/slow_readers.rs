//! Handles clients that read their replies slowly, and so keep seats from others.
//!
//! At each check a core looks at its replies that hold seats. A reply whose client does not keep up is
//! spooled, and its seat is free as soon as the upstream is done. A reply that does not fit into the spool has
//! to be read at a minimum rate: while no seat of the level is free, slower clients are disconnected. Users share
//! the spool, and one may have at most as much of it as is still free. While a user has that much, its clients that read more slowly
//! than that are disconnected, beginning with the reply that was spooled first. A reply whose client keeps up costs a check, and nothing else.
//!
//! A reply that the gateway made itself is in memory already, so its seat is free at once; the memory is its user's part.
//!
//! Not here: how a reply is read without its client ([`ReplyPipe`]).

use std::{
    collections::VecDeque,
    rc::{Rc, Weak},
    time::Duration,
};

use super::{
    gate::Gate,
    level_fullness::{LevelFullness, is_full},
    settings::Enforcement,
    waiters::ReplyInProgress,
};
use fairgate_call::{CutReason, ReaderPace, ReplyPipe, SpoolLimits};

/// How often replies are checked, and seats that are held for too long are taken back.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// After how many checks the clients that were disconnected meanwhile are logged.
const LOG_AFTER: u32 = 4;

/// The slow readers of one core.
#[derive(Debug, Default)]
pub(super) struct SlowReaders {
    /// Replies that went into the spool, the oldest first.
    spooled: VecDeque<Weak<ReplyPipe>>,
    unlogged: UnloggedCuts,
}

/// Clients that were disconnected and not logged yet. Many are logged in one line, so that clients cannot fill the
/// log.
#[derive(Debug, Default)]
struct UnloggedCuts {
    count: u32,
    /// Checks since the first of them.
    checks: u32,
    last_user: String,
    last_reason: Option<CutReason>,
}

impl SlowReaders {
    /// Checks the replies in progress; to be called once every [`CHECK_INTERVAL`]. O(requests of the core).
    pub(super) fn check(&mut self, gate: &Gate) {
        let policy = gate.policy();
        let limits = per_interval(policy.spool);
        let spool = &gate.flow_control().spool;
        let enforces = policy.enforcement == Enforcement::Enforce;
        let mut stalled_seats = 0;
        let mut fullness = LevelFullness::default();
        for in_progress in gate.replies_in_progress() {
            let pace = in_progress
                .reply
                .check_pace(limits, spool, in_progress.user());
            if in_progress.reply.is_slow() {
                stalled_seats += gate.seats_at(in_progress.index);
            }
            match pace {
                ReaderPace::SpoolingStarted => {
                    spool.count_answer();
                    let reply = Rc::downgrade(&in_progress.reply);
                    self.spooled.push_back(reply);
                }
                ReaderPace::TooSlow if enforces && fullness.get(&in_progress.level, is_full) => {
                    self.cut(gate, &in_progress, CutReason::NoSeatFree);
                    fullness.forget(&in_progress.level);
                }
                ReaderPace::KeepsUp | ReaderPace::TooSlow => {}
            }
        }
        gate.note_stalled_seats(stalled_seats);
        self.make_room(gate, limits);
        self.log();
    }

    /// Disconnects clients that read slowly from the spool, as long as their user may have no more of it.
    fn make_room(&mut self, gate: &Gate, limits: SpoolLimits) {
        self.spooled
            .retain(|reply| reply.upgrade().is_some_and(|reply| reply.is_unread()));
        for reply in self.spooled.iter().filter_map(Weak::upgrade) {
            // All are checked even while there is room: a client's rate is measured over several checks.
            if !reply.leaves_spooled(limits) {
                continue;
            }
            if reply.is_made() {
                // Its own memory, and others who need some, decide.
                reply.may_be_given_up();
            } else if let Some(user) = reply.user_without_room() {
                reply.cut();
                gate.flow_control().spool.count_cut(CutReason::SpoolFull);
                self.unlogged.add(&user, CutReason::SpoolFull);
            }
        }
    }

    fn cut(&mut self, gate: &Gate, in_progress: &ReplyInProgress, why: CutReason) {
        in_progress.reply.cut();
        gate.flow_control().spool.count_cut(why);
        self.unlogged.add(in_progress.user(), why);
    }

    fn log(&mut self) {
        let Some(reason) = self.unlogged.last_reason else {
            return;
        };
        self.unlogged.checks += 1;
        if self.unlogged.checks < LOG_AFTER {
            return;
        }
        let cuts = std::mem::take(&mut self.unlogged);
        tracing::info!(
            cut = cuts.count,
            reason = reason.as_str(),
            user = ?cuts.last_user,
            "disconnected clients that read their responses too slowly while no seat or no spool memory was free; reason and user are those of the last one"
        );
    }
}

impl UnloggedCuts {
    fn add(&mut self, user: &str, reason: CutReason) {
        self.count += 1;
        self.last_reason = Some(reason);
        user.clone_into(&mut self.last_user);
    }
}

/// Limits per check; the configured rate is per second.
fn per_interval(limits: SpoolLimits) -> SpoolLimits {
    SpoolLimits {
        min_read_bytes: bytes_per_check(limits.min_read_bytes),
        ..limits
    }
}

/// The bytes from one check to the next, at a rate per second.
pub(super) fn bytes_per_check(rate: u64) -> u64 {
    let millis = u64::try_from(CHECK_INTERVAL.as_millis()).unwrap_or(u64::MAX);
    rate.saturating_mul(millis) / 1000
}
