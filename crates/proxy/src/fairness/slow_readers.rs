//! Clients that read their answers slowly, so that the upstream cannot come to an end.
//!
//! At each sweep a core looks at the answers that hold seats. If it is the client that does not keep
//! up, its answer is spooled, and the seat comes free as soon as the upstream is done. What does not
//! fit the spool has to be read at the least rate: when no seat of the level is free, whoever reads
//! more slowly is cut. When the spool itself is full, those go first that have been in it longest and read
//! more slowly than that. An answer whose client keeps up costs a look, and nothing else.
//!
//! Not here: how an answer is read without its client ([`Pipe`]).

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::{Rc, Weak},
};

use super::{
    gate::{Gate, SWEEP},
    hub::Enforcement,
    slots::{OnItsWay, Waiter},
};
use fairgate_call::{Cut, Look, Pipe, SpoolLimits};
use fairgate_core::apf::level::Level;

/// After how many looks it is told how many clients were cut meanwhile.
const TELL_AFTER: u32 = 4;

/// The slow readers of one core.
#[derive(Debug, Default)]
pub(super) struct SlowReaders {
    /// Answers that went into the spool, the first one first.
    spooled: RefCell<VecDeque<Weak<Pipe>>>,
    told: RefCell<Told>,
}

/// What is to be told of those that were cut: one line for many.
#[derive(Debug, Default)]
struct Told {
    cut: u32,
    looks: u32,
    last_user: String,
    why: Option<Cut>,
}

impl SlowReaders {
    /// Looks at the answers on their way, to be called once in a [`SWEEP`]. O(slots).
    pub(super) fn look(&self, gate: &Gate) {
        let policy = gate.policy();
        let limits = per_sweep(policy.spool);
        let spool = &gate.hub().spool;
        let enforces = policy.enforcement == Enforcement::Enforce;
        for on_its_way in gate.on_their_way() {
            match on_its_way.answer.look(limits, spool) {
                Look::Spools => {
                    spool.count_answer();
                    let answer = Rc::downgrade(&on_its_way.answer);
                    self.spooled.borrow_mut().push_back(answer);
                }
                Look::TooSlow if enforces && is_full(&on_its_way.level) => {
                    self.cut(gate, &on_its_way, Cut::NoSeatFree);
                }
                Look::KeepsUp | Look::TooSlow => {}
            }
        }
        self.make_room(gate, limits);
        self.tell();
    }

    /// Cuts clients that read slowly from the spool, as long as it is full.
    fn make_room(&self, gate: &Gate, limits: SpoolLimits) {
        let mut spooled = self.spooled.borrow_mut();
        spooled.retain(|answer| answer.upgrade().is_some_and(|answer| answer.is_unread()));
        for answer in spooled.iter().filter_map(Weak::upgrade) {
            // Each is looked at, whether or not there is need: its rate is judged over several looks.
            if answer.lags(limits) && gate.hub().spool.bytes() >= limits.total {
                answer.cut();
                self.count(gate, "", Cut::SpoolFull);
            }
        }
    }

    fn cut(&self, gate: &Gate, on_its_way: &OnItsWay, why: Cut) {
        on_its_way.answer.cut();
        let user = on_its_way.digest.as_ref().map(|digest| &*digest.user.name);
        self.count(gate, user.unwrap_or_default(), why);
    }

    fn count(&self, gate: &Gate, user: &str, why: Cut) {
        gate.hub().spool.count_cut(why);
        let mut told = self.told.borrow_mut();
        told.cut += 1;
        told.why = Some(why);
        user.clone_into(&mut told.last_user);
    }

    /// Tells of those that were cut, in one line for many: clients must not be able to fill the log.
    fn tell(&self) {
        let mut told = self.told.borrow_mut();
        let Some(why) = told.why else {
            return;
        };
        told.looks += 1;
        if told.looks < TELL_AFTER {
            return;
        }
        let told = std::mem::take(&mut *told);
        tracing::info!(
            cut = told.cut,
            reason = why.as_str(),
            user = ?told.last_user,
            "cut clients that read their answers too slowly while no seat or no memory was free; the reason and the user are the last one's"
        );
    }
}

/// The rate that is configured is per second.
fn per_sweep(limits: SpoolLimits) -> SpoolLimits {
    let millis = u64::try_from(SWEEP.as_millis()).unwrap_or(u64::MAX);
    SpoolLimits {
        least: limits.least.saturating_mul(millis) / 1000,
        ..limits
    }
}

/// Whether no seat of the level is free.
fn is_full(level: &Level<Waiter>) -> bool {
    let summary = level.inspect(|set| set.summary());
    summary.waiting > 0 || summary.seats_in_use >= summary.limit
}
