//! Charging the budget: a compare-and-swap on its status, which is what makes an eviction count.
//!
//! After a conflict the budget is read and charged again. If the outcome of a write is unknown, its entry in
//! `disruptedPods` shows whether it was executed. The time of the entry distinguishes it from other evictions of the
//! pod. If another eviction of the same pod was granted in the same second, the budget was charged for the pod anyway.

use jiff::Timestamp;

use super::{ATTEMPTS, AfterPause, Eviction, EvictionResult, Permit, Stage, is_transient};
use crate::{
    budget::DisruptionBudget,
    procedure::{calls::CallOutcome, decision, refusal::EvictionRefusal},
    read::whole_seconds,
};

impl<R> Eviction<R> {
    /// Charges the budget, if it allows that.
    pub(super) fn charge(&mut self, budget: Box<DisruptionBudget>, now: Timestamp) -> Stage<R> {
        self.budget.clone_from(&budget.name);
        if let Err(refusal) = decision::check(&budget).and_then(|()| self.request.check_options()) {
            return Self::refuse(refusal);
        }
        if self.abandoned {
            return self.unavailable();
        }
        if self.request.is_dry_run() {
            self.permit = Permit::Charged;
            return self.begin_deletion(now);
        }
        self.committed = true;
        self.budget_attempts += 1;
        Stage::Charge {
            budget,
            time: whole_seconds(self.clock.at(now)),
        }
    }

    pub(super) fn on_charge(
        &mut self,
        outcome: CallOutcome<R>,
        time: Timestamp,
        now: Timestamp,
    ) -> Stage<R> {
        match outcome {
            CallOutcome::Success(_) => self.charged(now),
            CallOutcome::Failure { code: 409, .. } => {
                self.committed = !self.uncertain_charges.is_empty();
                self.try_budget_again()
            }
            // The status may have been stored in spite of the error.
            CallOutcome::Failure { code, response } if is_transient(code) && code != 429 => {
                self.uncertain_charges.push(time);
                self.failed_charge = Some((code, response));
                self.try_budget_again()
            }
            CallOutcome::Unknown => {
                self.uncertain_charges.push(time);
                self.try_budget_again()
            }
            outcome => {
                self.committed = !self.uncertain_charges.is_empty();
                self.failed(outcome)
            }
        }
    }

    /// Refuses the eviction, as if the budget were exhausted, because other evictions are to charge the budget first.
    /// Returns `false`, and has no effect, unless a charge is the next call and no earlier charge may have been stored.
    pub fn give_way(&mut self) -> bool {
        let Stage::Charge { budget, .. } = &self.stage else {
            return false;
        };
        if !self.uncertain_charges.is_empty() {
            return false;
        }
        self.committed = false;
        self.stage = Self::refuse(EvictionRefusal::exhausted(budget));
        true
    }

    fn charged(&mut self, now: Timestamp) -> Stage<R> {
        self.permit = Permit::Charged;
        self.begin_deletion(now)
    }

    fn try_budget_again(&mut self) -> Stage<R> {
        if self.abandoned && !self.committed {
            return self.unavailable();
        }
        if self.budget_attempts < ATTEMPTS {
            return Stage::Pause(AfterPause::ReadBudget);
        }
        if self.uncertain_charges.is_empty() {
            let budget = self.budget.clone();
            return Self::refuse(EvictionRefusal::BudgetContended { budget });
        }
        match self.failed_charge.take() {
            Some((code, response)) => Stage::Done(EvictionResult::Upstream { code, response }),
            None => self.unavailable(),
        }
    }

    /// Continues with the budget that was read again.
    pub(super) fn on_budget(&mut self, outcome: CallOutcome<R>, now: Timestamp) -> Stage<R> {
        let is_uncertain = !self.uncertain_charges.is_empty();
        let object = match outcome {
            CallOutcome::Success(object) => object,
            CallOutcome::Unknown | CallOutcome::NotSent if is_uncertain => {
                self.budget_attempts += 1;
                return self.try_budget_again();
            }
            CallOutcome::Failure { code, .. } if is_uncertain && is_transient(code) => {
                self.budget_attempts += 1;
                return self.try_budget_again();
            }
            outcome => return self.failed(outcome),
        };
        let budget = match DisruptionBudget::from_value(object) {
            Ok(budget) => Box::new(budget),
            Err(error) => return Self::malformed(error),
        };
        if decision::is_charged(&budget, &self.request.pod, &self.uncertain_charges) {
            return self.charged(now);
        }
        match self.failed_charge.take() {
            Some((code, response)) => Stage::Done(EvictionResult::Upstream { code, response }),
            None => self.charge(budget, now),
        }
    }
}
