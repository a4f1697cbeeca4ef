//! Reads the budgets that evictions wait for, to find out whose turn it is. Runs on the control runtime
//! while any eviction waits.
//!
//! A read decides only when an eviction is tried again; whether it is granted is decided by its procedure, which
//! reads everything anew. Budgets are read one by one instead of watched: their number is small, a lost watch
//! event cannot delay an eviction, and the upstream's budgets and hosted ones are read alike. What this gateway's own
//! disruption controller writes is known at once, without a read.

use std::{sync::Arc, time::Duration};

use fairgate_disruption::{
    budget::DisruptionBudget,
    procedure::calls::{CallOutcome, UpstreamCall},
    waiting::BudgetName,
};

use serde_json::Value;

use crate::evictor::Evictor;

/// How often each budget is read, if there are few of them.
const PERIOD: Duration = Duration::from_millis(200);
/// The least pause between two reads, however many budgets there are: at most 50 are read in a second.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

impl Evictor {
    /// Records that the disruption controller wrote the status of `budget`, so that the evictions that wait for it need
    /// not wait for the next read.
    pub fn budget_written(&self, budget: Value) {
        self.waits.written(self.clock.now(), budget);
    }

    /// Reads budgets until no eviction waits.
    pub(crate) async fn read_budgets(self: Arc<Self>) {
        loop {
            let budgets = self.waits.followed();
            let count = u32::try_from(budgets.len()).unwrap_or(u32::MAX);
            if count == 0 {
                return;
            }
            let pause = (PERIOD / count).max(LEAST_PAUSE);
            for budget in &budgets {
                match self.read(budget).await {
                    ReadBudget::Found(read) => {
                        let allowed = read.allows();
                        self.waits.observed(self.clock.now(), budget, allowed);
                        if allowed == 0 {
                            self.announce(budget, &read);
                        }
                    }
                    // No eviction has to wait for it any more.
                    ReadBudget::Gone => {
                        self.waits.observed(self.clock.now(), budget, usize::MAX);
                    }
                    ReadBudget::Unknown => {}
                }
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn read(&self, budget: &BudgetName) -> ReadBudget {
        let name = budget.name.clone();
        let call = UpstreamCall::GetBudget { name };
        match self.call(&budget.namespace, &call).await.outcome {
            CallOutcome::Success(object) => {
                let read = DisruptionBudget::from_value(object);
                read.map_or(ReadBudget::Unknown, |budget| {
                    ReadBudget::Found(Box::new(budget))
                })
            }
            CallOutcome::Failure { code: 404, .. } => ReadBudget::Gone,
            CallOutcome::Failure { .. } | CallOutcome::NotSent | CallOutcome::Unknown => {
                ReadBudget::Unknown
            }
        }
    }
}

/// A budget that evictions wait for.
enum ReadBudget {
    Found(Box<DisruptionBudget>),
    /// It does not exist.
    Gone,
    /// It cannot be read.
    Unknown,
}
