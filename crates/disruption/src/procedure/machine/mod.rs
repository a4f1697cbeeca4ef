//! The state machine of one eviction.
//!
//! ```text
//! GET pod ──exempt──────────────────────────────────┐
//!   │ ▲ conflict: 20 times                           │
//!   │ └──────────────────────────────────────────────┤
//!   ▼                                                ▼
//! LIST budgets ──none, or may go without budget──▶ PATCH pod/status ─▶ DELETE pod ─▶ evicted
//!   │ one                                            ▲
//!   ▼                                                │
//! check ─▶ PUT budget/status ──charged───────────────┘
//!   ▲            │ conflict, or outcome unknown: 20 times
//!   └──GET budget┘
//! ```
//!
//! The budget is charged before the pod is changed. If the gateway dies in between, the budget is too low for
//! two minutes, but no disruption remains uncounted. Once the charge was sent, the eviction continues to its end even
//! if the client has disconnected ([`Eviction::abandon`]).

mod charge;
mod deletion;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    calls::{CallOutcome, CallReply, UpstreamCall},
    decision,
    refusal::{EvictionRefusal, EvictionStatus},
    request::EvictionRequest,
    server_clock::ServerClock,
};
use crate::{
    budget::DisruptionBudget,
    pod::{Pod, PodPhase},
    read::{MalformedObject, ObjectField},
};

/// The maximum number of attempts to delete an exempt pod that keeps changing, and of attempts to charge a budget.
const ATTEMPTS: u32 = 20;
/// The pause between attempts; callers add random jitter of up to a tenth.
pub const PAUSE: Duration = Duration::from_millis(500);
/// The maximum number of repetitions, in total, of patches and deletions that failed or whose outcome is unknown.
const REPEATS: u32 = 5;
/// The maximum number of times that the list of budgets is restarted because a continue token expired.
const RELISTS: u32 = 3;
/// The maximum number of pages of a list of budgets.
const MAX_PAGES: u32 = 200;

/// The maximum number of calls of an eviction: attempts on pods, pages, attempts on budgets, repetitions with
/// their lookups, and a read to explain a conflict.
pub const MAX_CALLS: u32 =
    3 * ATTEMPTS + MAX_PAGES * (RELISTS + 1) + 2 * ATTEMPTS + 2 * (REPEATS + 1) + 3;

/// An eviction in progress. `R` is the caller's type of upstream responses, which are never inspected.
#[derive(Debug)]
pub struct Eviction<R> {
    request: EvictionRequest,
    clock: ServerClock,
    stage: Stage<R>,
    pod: Option<Pod>,
    /// The name of the budget that selects the pod, once it is known and needed; otherwise empty.
    budget: String,
    /// Why the deletion is permitted.
    permit: Permit,
    /// `lastTransitionTime` of the condition `DisruptionTarget`.
    target_since: Timestamp,
    /// The resource version that the pod must have when it is patched and deleted.
    guard: Option<String>,
    pod_attempts: u32,
    budget_attempts: u32,
    repeats: u32,
    pages: u32,
    relists: u32,
    /// The times of charges whose outcome is unknown.
    uncertain_charges: Vec<Timestamp>,
    /// The upstream's error response to the last of these charges that had one.
    failed_charge: Option<(u16, R)>,
    /// Whether a deletion was sent whose outcome is unknown.
    uncertain_deletion: bool,
    committed: bool,
    abandoned: bool,
}

/// The next step of an eviction.
#[derive(Debug, PartialEq)]
pub enum EvictionStep<'a, R> {
    /// Make this call, then continue with [`Eviction::replied`].
    Call(UpstreamCall),
    /// Wait this long plus random jitter of up to a tenth, then continue with [`Eviction::paused`].
    Pause(Duration),
    /// The eviction is done.
    Done(&'a EvictionResult<R>),
}

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionResult<R> {
    /// The pod is being deleted, or would be without the dry run. See [`EvictionStatus::evicted`].
    Evicted,
    /// The eviction is refused.
    Refused(EvictionRefusal),
    /// The upstream refused a call. Its response is passed on to the client.
    Upstream {
        /// The HTTP status.
        code: u16,
        /// The response.
        response: R,
    },
    /// The upstream did not respond, or its response was unusable.
    Unavailable {
        /// Whether the budget may have been charged or the pod deleted.
        outcome_unknown: bool,
    },
}

impl<R> EvictionResult<R> {
    /// The response to the client; `None` if it is the upstream's.
    pub fn status(&self) -> Option<EvictionStatus> {
        Some(match self {
            Self::Evicted => EvictionStatus::evicted(),
            Self::Refused(refusal) => refusal.status(),
            Self::Upstream { .. } => return None,
            Self::Unavailable {
                outcome_unknown: false,
            } => {
                let text = "the upstream did not respond, or its response cannot be used; the pod was not evicted";
                EvictionStatus::unavailable(503, "ServiceUnavailable", text.to_owned())
            }
            Self::Unavailable {
                outcome_unknown: true,
            } => {
                let text = "Timeout: the upstream did not answer; the pod may have been evicted";
                EvictionStatus::unavailable(504, "Timeout", text.to_owned())
            }
        })
    }
}

impl<R> EvictionResult<R> {
    /// Whether the eviction has failed for a reason that may pass, such as a server that is restarted.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Evicted | Self::Refused(_) => false,
            Self::Upstream { code, .. } => is_transient(*code),
            Self::Unavailable { outcome_unknown } => !outcome_unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permit {
    /// The pod is not subject to budgets.
    Exempt,
    /// No budget selects the pod.
    NoBudget,
    /// The pod is not ready, and its budget permits the eviction of such pods.
    Unready,
    /// The budget of the pod was charged.
    Charged,
}

#[derive(Debug)]
enum Stage<R> {
    ReadPod,
    List {
        continue_token: Option<String>,
        found: Option<Box<DisruptionBudget>>,
    },
    Charge {
        budget: Box<DisruptionBudget>,
        time: Timestamp,
    },
    ReadBudget,
    Patch,
    Delete,
    /// Reads the pod after a patch or deletion that failed.
    LookUp(LastStep),
    /// Reads the pod to find out which precondition failed.
    Explain {
        code: u16,
        response: R,
    },
    Pause(AfterPause),
    Done(EvictionResult<R>),
}

#[derive(Clone, Copy, Debug)]
enum AfterPause {
    ReadPod,
    ReadBudget,
    LookUp(LastStep),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastStep {
    Patch,
    Delete,
}

/// Whether a failure is transient. Except after 429, the call may have been executed in spite of it.
fn is_transient(code: u16) -> bool {
    matches!(code, 408 | 429 | 500..=599)
}

impl<R> Eviction<R> {
    /// Starts an eviction. The caller must have been authorized before. `clock` is the current estimate of the
    /// upstream's clock, which the calls of the eviction refine.
    pub fn new(request: EvictionRequest, clock: ServerClock) -> Self {
        Self {
            request,
            clock,
            stage: Stage::ReadPod,
            pod: None,
            budget: String::new(),
            permit: Permit::Exempt,
            target_since: Timestamp::UNIX_EPOCH,
            guard: None,
            pod_attempts: 0,
            budget_attempts: 0,
            repeats: 0,
            pages: 0,
            relists: 0,
            uncertain_charges: Vec::new(),
            failed_charge: None,
            uncertain_deletion: false,
            committed: false,
            abandoned: false,
        }
    }

    /// The next step, until [`replied`](Self::replied) or [`paused`](Self::paused) is called. It costs a copy of the
    /// object to be sent.
    pub fn step(&self) -> EvictionStep<'_, R> {
        let name = || self.request.pod.clone();
        EvictionStep::Call(match &self.stage {
            Stage::ReadPod | Stage::LookUp(_) | Stage::Explain { .. } => {
                UpstreamCall::GetPod { name: name() }
            }
            Stage::List { continue_token, .. } => UpstreamCall::ListBudgets {
                continue_token: continue_token.clone(),
            },
            Stage::Charge { budget, time } => {
                let status = decision::charge(budget, &self.request.pod, *time);
                UpstreamCall::PutBudgetStatus {
                    name: budget.name.clone(),
                    object: budget.with_status(&status),
                }
            }
            Stage::ReadBudget => UpstreamCall::GetBudget {
                name: self.budget.clone(),
            },
            Stage::Patch => UpstreamCall::PatchPodStatus {
                name: name(),
                patch: self.patch(),
            },
            Stage::Delete => UpstreamCall::DeletePod {
                name: name(),
                options: self.delete_options(),
                dry_run: self.request.is_dry_run(),
            },
            Stage::Pause(_) => return EvictionStep::Pause(PAUSE),
            Stage::Done(result) => return EvictionStep::Done(result),
        })
    }

    /// Whether the budget or the pod may have been changed, or will be by the current call. If the caller stops now,
    /// the change stays until the controller reverts it after two minutes.
    #[cfg(test)]
    pub(crate) fn is_committed(&self) -> bool {
        self.committed
    }

    /// The client has disconnected: an eviction that may have changed the budget or the pod continues, any other one
    /// ends. If the eviction is done afterwards, the reply to the current call is not needed.
    pub fn abandon(&mut self) {
        self.abandoned = true;
        if !self.committed && !matches!(self.stage, Stage::Done(_)) {
            self.stage = self.unavailable();
        }
    }

    /// The caller knows that the budget has changed since it was read, so that the charge about to be sent would
    /// conflict: the budget is read again first. This does not count as an attempt, and needs no pause.
    pub fn read_budget_again(&mut self) {
        if matches!(self.stage, Stage::Charge { .. }) {
            self.budget_attempts -= 1;
            self.committed = !self.uncertain_charges.is_empty();
            self.stage = Stage::ReadBudget;
        }
    }

    /// The name of the budget that selects the pod; empty if it is not known yet, or not needed.
    pub fn budget(&self) -> &str {
        &self.budget
    }

    /// The estimate of the upstream's clock.
    pub fn clock(&self) -> ServerClock {
        self.clock
    }

    /// The result; `None` if the eviction is not done.
    pub fn into_result(self) -> Option<EvictionResult<R>> {
        match self.stage {
            Stage::Done(result) => Some(result),
            _ => None,
        }
    }

    /// Continues after a pause.
    pub fn paused(&mut self) {
        let Stage::Pause(next) = &self.stage else {
            debug_assert!(false, "no pause was requested");
            return;
        };
        self.stage = match *next {
            AfterPause::ReadPod => Stage::ReadPod,
            AfterPause::ReadBudget => Stage::ReadBudget,
            AfterPause::LookUp(last) => Stage::LookUp(last),
        };
    }

    /// Continues with the reply to the call.
    pub fn replied(&mut self, reply: CallReply<R>) {
        let CallReply {
            outcome,
            sent,
            received,
            date,
        } = reply;
        if let Some(date) = date {
            self.clock.observe(sent, received, date);
        }
        let now = received;
        // A placeholder until the next stage is known.
        let stage = std::mem::replace(&mut self.stage, Stage::ReadPod);
        self.stage = match stage {
            Stage::ReadPod => self.on_pod(outcome, now),
            Stage::List { found, .. } => self.on_list(outcome, found, now),
            Stage::Charge { time, .. } => self.on_charge(outcome, time, now),
            Stage::ReadBudget => self.on_budget(outcome, now),
            Stage::Patch => self.on_patch(outcome),
            Stage::Delete => self.on_deletion(outcome),
            Stage::LookUp(last) => self.on_look_up(outcome, last),
            Stage::Explain { code, response } => self.on_explanation(outcome, code, response),
            stage @ (Stage::Pause(_) | Stage::Done(_)) => {
                debug_assert!(false, "no call was requested");
                stage
            }
        };
    }

    /// Ends after a failed call that is not repeated.
    fn failed(&self, outcome: CallOutcome<R>) -> Stage<R> {
        Stage::Done(match outcome {
            // The upstream refused the gateway's credentials, not the client's.
            CallOutcome::Failure { code: 401, .. } => return self.unavailable(),
            CallOutcome::Failure { code, response } => EvictionResult::Upstream { code, response },
            CallOutcome::Success(_) | CallOutcome::NotSent | CallOutcome::Unknown => {
                return self.unavailable();
            }
        })
    }

    fn unavailable(&self) -> Stage<R> {
        Stage::Done(self.unavailable_result())
    }

    fn unavailable_result(&self) -> EvictionResult<R> {
        let charged = self.permit == Permit::Charged && !self.request.is_dry_run();
        EvictionResult::Unavailable {
            outcome_unknown: self.uncertain_deletion
                || !self.uncertain_charges.is_empty()
                || charged,
        }
    }

    fn refuse(refusal: EvictionRefusal) -> Stage<R> {
        Stage::Done(EvictionResult::Refused(refusal))
    }

    fn malformed(error: MalformedObject) -> Stage<R> {
        Self::refuse(EvictionRefusal::MalformedUpstream(error))
    }

    fn on_pod(&mut self, outcome: CallOutcome<R>, now: Timestamp) -> Stage<R> {
        let evicted = Stage::Done(EvictionResult::Evicted);
        let object = match outcome {
            CallOutcome::Success(object) => object,
            CallOutcome::Failure { code: 404, .. } if self.uncertain_deletion => return evicted,
            outcome => return self.failed(outcome),
        };
        let pod = match Pod::from_value(&object) {
            Ok(pod) => pod,
            Err(error) => return Self::malformed(error),
        };
        if self.is_deletion_of(&pod) {
            return evicted;
        }
        self.pod_attempts += 1;
        // Each attempt is guarded anew: the version that the one before has read is out of date.
        self.guard.clone_from(&self.request.resource_version);
        let next = if pod.is_exempt() {
            self.permit = Permit::Exempt;
            // A pod that starts meanwhile must not be deleted without its budget.
            if pod.phase == PodPhase::Pending && !pod.terminating {
                self.guard_by(&pod);
            }
            None
        } else {
            Some(Stage::List {
                continue_token: None,
                found: None,
            })
        };
        self.pod = Some(pod);
        next.unwrap_or_else(|| self.begin_deletion(now))
    }

    /// Whether `now` shows that a deletion whose outcome was unknown was executed.
    fn is_deletion_of(&self, now: &Pod) -> bool {
        let began = |before: &Pod| before.uid != now.uid || now.terminating && !before.terminating;
        self.uncertain_deletion && self.pod.as_ref().is_some_and(began)
    }

    /// Guards the deletion with the version that was read, unless the caller demands a version.
    fn guard_by(&mut self, pod: &Pod) {
        self.guard
            .get_or_insert_with(|| pod.resource_version.to_string());
    }

    fn on_list(
        &mut self,
        outcome: CallOutcome<R>,
        mut found: Option<Box<DisruptionBudget>>,
        now: Timestamp,
    ) -> Stage<R> {
        let list = match outcome {
            CallOutcome::Success(list) => list,
            CallOutcome::Failure { code: 410, .. } if self.relists < RELISTS && self.pages > 0 => {
                self.relists += 1;
                self.pages = 0;
                return Stage::List {
                    continue_token: None,
                    found: None,
                };
            }
            // Clients would interpret a 404 as the absence of the pod.
            CallOutcome::Failure { code: 404, .. } => return self.unavailable(),
            outcome => return self.failed(outcome),
        };
        self.pages += 1;
        let Some(pod) = &self.pod else {
            return Stage::ReadPod;
        };
        let (items, token) = match read_page(list) {
            Ok(page) => page,
            Err(error) => return Self::malformed(error),
        };
        for item in items {
            match DisruptionBudget::from_value(item) {
                Ok(budget) if budget.selects(pod) => {
                    if found.is_some() {
                        return Self::refuse(EvictionRefusal::SeveralBudgets);
                    }
                    found = Some(Box::new(budget));
                }
                Ok(_) => {}
                Err(error) => return Self::malformed(error),
            }
        }
        match token {
            None => self.on_budgets(found, now),
            Some(_) if self.pages >= MAX_PAGES => Self::refuse(EvictionRefusal::EndlessList),
            continue_token => Stage::List {
                continue_token,
                found,
            },
        }
    }

    /// Continues once all budgets are known.
    fn on_budgets(&mut self, found: Option<Box<DisruptionBudget>>, now: Timestamp) -> Stage<R> {
        let Some(pod) = &self.pod else {
            return Stage::ReadPod;
        };
        let Some(budget) = found else {
            self.permit = Permit::NoBudget;
            return self.begin_deletion(now);
        };
        if decision::may_skip_budget(pod, &budget) {
            self.permit = Permit::Unready;
            // A pod that becomes ready meanwhile must not be deleted without its budget.
            let pod = pod.clone();
            self.guard_by(&pod);
            self.budget.clone_from(&budget.name);
            return self.begin_deletion(now);
        }
        if let Err(refusal) = self.check_preconditions() {
            return Self::refuse(refusal);
        }
        self.charge(budget, now)
    }

    /// Checks the caller's preconditions, and the guard, against the pod.
    fn check_preconditions(&self) -> Result<(), EvictionRefusal> {
        let Some(pod) = &self.pod else {
            return Ok(());
        };
        let found = |wanted: &Option<String>, found: &str| match wanted {
            Some(wanted) if wanted != found => Some((wanted.clone(), found.to_owned())),
            _ => None,
        };
        let name = || self.request.pod.clone();
        if let Some((wanted, found)) = found(&self.request.uid, &pod.uid) {
            let pod = name();
            return Err(EvictionRefusal::UidMismatch { pod, wanted, found });
        }
        if let Some((wanted, found)) = found(&self.guard, &pod.resource_version) {
            let pod = name();
            return Err(EvictionRefusal::ResourceVersionMismatch { pod, wanted, found });
        }
        Ok(())
    }
}

/// The items of a page, and the continue token of the next page, if there is one.
fn read_page(mut list: Value) -> Result<(Vec<Value>, Option<String>), MalformedObject> {
    let root = ObjectField::root(&list);
    let metadata = root.get("metadata")?;
    let token = metadata.get("continue")?.optional_text()?;
    let token = token.filter(|token| !token.is_empty()).map(str::to_owned);
    root.get("items")?.list()?;
    let items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    Ok((items, token))
}
