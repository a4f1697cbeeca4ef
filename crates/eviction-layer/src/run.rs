//! Runs procedures: makes their calls and waits out their pauses. On the control runtime.

use std::time::Duration;

use fairgate_core::{sync::lock, time::Time};
use fairgate_disruption::{
    procedure::{
        calls::{CallReply, UpstreamCall},
        machine::{Eviction, EvictionResult, EvictionStep},
        precheck::{Precheck, PrecheckStep},
        refusal::EvictionRefusal,
        request::EvictionRequest,
    },
    waiting::BudgetName,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    attempt::EvictionAttempt, budget_queue::BudgetTurn, client_link::ProcedureEnd,
    evictor::Evictor, upstream_response::UpstreamResponse,
};

/// How long after its first change a procedure may make another. The entry in `disruptedPods` expires after two
/// minutes, and the controller then gives the disruption back: a pod that is deleted later is not accounted for.
const CHANGE_LIMIT: Duration = Duration::from_secs(90);
/// A warning is logged if the local clock and the upstream's differ by more than this.
const CLOCK_TOLERANCE: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// How a procedure ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) result: EvictionResult<UpstreamResponse>,
    /// Whether anything may have been changed.
    pub(crate) has_changed: bool,
    /// The budget that decided, if one did.
    pub(crate) budget: Option<BudgetName>,
}

/// A procedure that is being run.
struct Run<'a> {
    evictor: &'a Evictor,
    namespace: String,
    eviction: Eviction<UpstreamResponse>,
    link: ProcedureEnd,
    /// Set if the eviction may wait for its budget.
    attempt: Option<EvictionAttempt>,
    /// The turn at the budget that is being charged.
    turn: Option<BudgetTurn>,
    /// When the first change was permitted.
    changing_since: Option<Time>,
    /// Held while the procedure continues without its client.
    without_client: Option<OwnedSemaphorePermit>,
}

/// What may happen next.
enum Next {
    Continue,
    /// The client has disconnected and nothing was changed, or too many procedures continue without clients.
    Stop,
}

impl Evictor {
    /// Runs an eviction to its end; `None` if it was abandoned because its client disconnected.
    pub(crate) async fn run(
        &self,
        request: EvictionRequest,
        link: ProcedureEnd,
        attempt: Option<EvictionAttempt>,
    ) -> Option<Finished> {
        let mut run = Run {
            evictor: self,
            namespace: request.namespace.clone(),
            eviction: Eviction::new(request, *lock(&self.server_clock)),
            link,
            attempt,
            turn: None,
            changing_since: None,
            without_client: None,
        };
        while !matches!(run.eviction.step(), EvictionStep::Done(_)) {
            match run.step().await {
                Next::Continue => {}
                Next::Stop if run.changing_since.is_none() => return None,
                Next::Stop => {
                    return Some(Finished {
                        result: EvictionResult::Unavailable {
                            outcome_unknown: true,
                        },
                        has_changed: true,
                        budget: None,
                    });
                }
            }
        }
        let has_changed = run.changing_since.is_some();
        let budget = Some(run.budget_name(run.eviction.budget()));
        Some(Finished {
            budget: budget.filter(|budget| !budget.name.is_empty()),
            result: run.eviction.into_result()?,
            has_changed,
        })
    }

    /// Runs a check. Returns the refusal, if the upstream would certainly refuse.
    pub(crate) async fn check(&self, request: EvictionRequest) -> Option<EvictionRefusal> {
        let namespace = request.namespace.clone();
        let mut check = Precheck::new(request);
        loop {
            match check.step() {
                PrecheckStep::Refuse(refusal) => return Some(refusal),
                PrecheckStep::Forward => return None,
                PrecheckStep::Call(call) => check.replied(self.call(&namespace, &call).await),
            }
        }
    }

    /// Makes a call in the gateway's own name.
    pub(crate) async fn call(
        &self,
        namespace: &str,
        call: &UpstreamCall,
    ) -> CallReply<UpstreamResponse> {
        let reply = match call {
            UpstreamCall::ListBudgets { .. }
            | UpstreamCall::GetBudget { .. }
            | UpstreamCall::PutBudgetStatus { .. } => self.budgets.call(namespace, call).await,
            UpstreamCall::GetPod { .. }
            | UpstreamCall::PatchPodStatus { .. }
            | UpstreamCall::DeletePod { .. } => self.pods.call(namespace, call).await,
        };
        if let Some(date) = reply.date {
            let ahead = {
                let mut clock = lock(&self.server_clock);
                clock.observe(reply.sent, reply.received, date);
                clock.ahead()
            };
            self.warn_of_clock(ahead);
        }
        reply
    }

    fn warn_of_clock(&self, ahead: jiff::SignedDuration) {
        if ahead.abs() > CLOCK_TOLERANCE
            && let Some(left_out) = self.clock_warnings.next_line(self.clock.now())
        {
            let seconds = ahead.as_secs();
            tracing::warn!(
                seconds,
                left_out,
                "the upstream's clock is ahead of this machine's by this many seconds, or behind if negative; evictions use the upstream's"
            );
        }
    }
}

impl Run<'_> {
    /// Runs one step of the procedure, which must not be done yet.
    async fn step(&mut self) -> Next {
        let call = match self.eviction.step() {
            EvictionStep::Done(_) => return Next::Continue,
            EvictionStep::Pause(pause) => return self.pause(pause).await,
            EvictionStep::Call(call) => call,
        };
        match &call {
            UpstreamCall::GetBudget { name } | UpstreamCall::PutBudgetStatus { name, .. } => {
                if self.turn.is_none() {
                    match self.wait_for_turn(name, &call).await {
                        None => return self.client_disconnected(),
                        Some(IsOutdated(true)) => return Next::Continue,
                        Some(IsOutdated(false)) => {}
                    }
                }
            }
            // The budget has been charged, perhaps as a read has shown: deleting the pod, which may take long, keeps no other
            // eviction waiting.
            _ => self.turn = None,
        }
        if let UpstreamCall::PutBudgetStatus { name, .. } = &call
            // Asked right before the write: evictions that wait may have got their turn since the budget was read.
            && !self.is_next(name)
            && self.eviction.give_way()
        {
            return Next::Continue;
        }
        if !call.is_read_only()
            && let Next::Stop = self.may_change().await
        {
            return Next::Stop;
        }
        self.make(&call).await
    }

    fn budget_name(&self, name: &str) -> BudgetName {
        BudgetName {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// Whether it is this eviction's turn to charge a budget. Evictions that do not wait charge it at any time.
    fn is_next(&self, budget: &str) -> bool {
        let Some(attempt) = &self.attempt else {
            return true;
        };
        let budget = self.budget_name(budget);
        let (waits, now) = (&self.evictor.waits, self.evictor.clock.now());
        waits.may_charge(now, &budget, attempt.place.as_ref())
    }

    async fn pause(&mut self, pause: Duration) -> Next {
        // Others use the budget meanwhile.
        self.turn = None;
        // Evictions that have met at a budget should not all come back at the same moment.
        let tenth = u64::try_from(pause.as_millis() / 10)
            .unwrap_or(u64::MAX)
            .max(1);
        let jitter = Duration::from_millis(self.evictor.random_below(tenth));
        tokio::select! {
            () = tokio::time::sleep(pause + jitter) => {
                self.eviction.paused();
                Next::Continue
            }
            () = self.link.left() => self.client_disconnected(),
        }
    }

    /// Waits for the turn at a budget; `None` if the client has disconnected meanwhile. If the status is
    /// to be written but another procedure has written it since it was read, the budget is read again.
    async fn wait_for_turn(&mut self, budget: &str, call: &UpstreamCall) -> Option<IsOutdated> {
        let turn = tokio::select! {
            turn = self.evictor.queues.turn(&self.namespace, budget) => turn,
            () = self.link.left() => return None,
        };
        let outdated = match call {
            UpstreamCall::PutBudgetStatus { object, .. } => turn.is_outdated(object),
            _ => false,
        };
        self.turn = Some(turn);
        if outdated {
            self.eviction.read_budget_again();
        }
        Some(IsOutdated(outdated))
    }

    /// Whether a change may be made now.
    async fn may_change(&mut self) -> Next {
        let now = self.evictor.clock.now();
        match self.changing_since {
            Some(since) if now.since(since) > CHANGE_LIMIT => Next::Stop,
            Some(_) => Next::Continue,
            None if self.link.may_change().await => {
                self.changing_since = Some(self.evictor.clock.now());
                Next::Continue
            }
            None => Next::Stop,
        }
    }

    async fn make(&mut self, call: &UpstreamCall) -> Next {
        let evictor = self.evictor;
        let namespace = self.namespace.clone();
        let mut calling = std::pin::pin!(evictor.call(&namespace, call));
        let reply = loop {
            tokio::select! {
                reply = &mut calling => break reply,
                () = self.link.left() => match self.client_disconnected() {
                    Next::Stop => return Next::Stop,
                    Next::Continue => {}
                },
            }
            if matches!(self.eviction.step(), EvictionStep::Done(_)) {
                return Next::Continue;
            }
        };
        if let UpstreamCall::PutBudgetStatus { .. } = call {
            self.note_charge(&reply);
        }
        self.eviction.replied(reply);
        Next::Continue
    }

    /// Records which version of the budget was written, for the procedure that has the next turn.
    fn note_charge(&mut self, reply: &CallReply<UpstreamResponse>) {
        use fairgate_disruption::procedure::calls::CallOutcome;
        if let CallOutcome::Success(stored) = &reply.outcome
            && let Some(mut turn) = self.turn.take()
        {
            turn.wrote(stored);
        }
    }

    /// The client has disconnected: changes that were begun are completed, and no others are begun.
    fn client_disconnected(&mut self) -> Next {
        if self.changing_since.is_none() {
            return Next::Stop;
        }
        let permits = std::sync::Arc::clone(&self.evictor.without_client);
        match permits.try_acquire_owned() {
            Ok(permit) => {
                // Their number is limited: clients could otherwise start evictions, disconnect, and start more.
                self.without_client = Some(permit);
                self.eviction.abandon();
                Next::Continue
            }
            Err(_) => Next::Stop,
        }
    }
}

/// Whether the budget that was read before the turn is outdated.
struct IsOutdated(bool);

#[cfg(test)]
mod tests {
    use fairgate_base::events::EventSink;
    use fairgate_disruption::procedure::{calls::CallOutcome, server_clock::ServerClock};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::{client_link, test_side, wait_rules::EvictionWaitRules};

    fn pod() -> Value {
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    fn budget() -> Value {
        json!({
            "metadata": {"name": "foo", "namespace": "ns", "generation": 1, "resourceVersion": "2"},
            "spec": {"selector": {}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3,
                "desiredHealthy": 2, "expectedPods": 3},
        })
    }

    /// Replies to all calls until the pod is to be changed. The write of the budget has an unknown outcome, but was carried out.
    async fn charge(run: &mut Run<'_>) {
        let mut stored = budget();
        loop {
            let call = match run.eviction.step() {
                EvictionStep::Call(call) => call,
                EvictionStep::Pause(_) => {
                    run.eviction.paused();
                    continue;
                }
                EvictionStep::Done(result) => panic!("{result:?}"),
            };
            let outcome = match call {
                UpstreamCall::GetPod { .. } => CallOutcome::Success(pod()),
                UpstreamCall::ListBudgets { .. } => {
                    CallOutcome::Success(json!({"items": [stored]}))
                }
                UpstreamCall::PutBudgetStatus { object, .. } => {
                    stored = object;
                    CallOutcome::Unknown
                }
                UpstreamCall::GetBudget { name } => {
                    run.turn = Some(run.evictor.queues.turn("ns", &name).await);
                    CallOutcome::Success(stored.clone())
                }
                UpstreamCall::PatchPodStatus { .. } | UpstreamCall::DeletePod { .. } => return,
            };
            run.eviction.replied(CallReply {
                outcome,
                sent: Timestamp::UNIX_EPOCH,
                received: Timestamp::UNIX_EPOCH,
                date: None,
            });
        }
    }

    #[tokio::test]
    async fn the_turn_at_a_budget_ends_before_the_pod_is_deleted() {
        let side = test_side::without_upstream(EvictionWaitRules::none(), EventSink::default());
        let (_request, link) = client_link::link();
        let body = json!({"metadata": {"name": "p"}});
        let request = EvictionRequest::new("ns", "p", &[], &body).unwrap();
        let mut run = Run {
            evictor: &side.evictor,
            namespace: "ns".to_owned(),
            eviction: Eviction::new(request, ServerClock::default()),
            link,
            attempt: None,
            turn: None,
            changing_since: Some(side.clock.now()),
            without_client: None,
        };
        charge(&mut run).await;
        assert!(run.turn.is_some(), "the charge was looked up in a turn");
        run.step().await;
        assert!(run.turn.is_none());
    }
}
