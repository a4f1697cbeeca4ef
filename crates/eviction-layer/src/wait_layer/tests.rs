//! Waiting evictions whose attempts end as the test wants.

use std::{
    cell::Cell,
    future::{pending, poll_fn},
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use fairgate_base::events::EventSink;
use fairgate_call::FlowRejection;
use fairgate_core::{digest::User, rejection::RejectReason};
use fairgate_disruption::waiting::WaitLimits;

use super::*;
use crate::{events::EvictionEvent, test_side, wait_rules::EvictionWaitRules};

/// The inner layers: decides what becomes of an attempt, by its number.
#[derive(Clone)]
struct Attempts {
    begun: Rc<Cell<usize>>,
    end: fn(usize, Call) -> Ending,
}

type Ending = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;
type End = fn(usize, Call) -> Ending;

impl Service<Call> for Attempts {
    type Response = Reply;
    type Error = Refusal;
    type Future = Ending;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Ending {
        let number = self.begun.get();
        self.begun.set(number + 1);
        (self.end)(number, call)
    }
}

fn foo() -> BudgetName {
    BudgetName {
        namespace: "ns".to_owned(),
        name: "foo".to_owned(),
    }
}

/// The budget refuses the attempt.
fn refused() -> Ending {
    let mut reply = Response::new(ReplyBody::full("no"));
    reply.extensions_mut().insert(BudgetRefusal {
        budget: foo(),
        cause: "one is needed".to_owned(),
        body: Bytes::new(),
    });
    Box::pin(async { Ok(reply) })
}

fn rules() -> EvictionWaitRules {
    EvictionWaitRules {
        limit: Duration::from_secs(3600),
        users: [User::default().name].into(),
        places: WaitLimits {
            per_budget: 10,
            total: 10,
        },
        ..EvictionWaitRules::none()
    }
}

/// An eviction, and what it needs.
struct Evicting {
    side: Rc<DataSide>,
    context: Rc<RequestContext>,
    begun: Rc<Cell<usize>>,
    answer: Ending,
}

impl Evicting {
    fn new(events: EventSink<EvictionEvent>, end: fn(usize, Call) -> Ending) -> Self {
        let side = test_side::without_upstream(rules(), events);
        let begun = Rc::<Cell<usize>>::default();
        let inner = Attempts {
            begun: Rc::clone(&begun),
            end,
        };
        let mut service = EvictionWaitService {
            shared: Some(Rc::clone(&side)),
            inner,
        };
        let call = test_side::eviction(&side);
        Self {
            context: Rc::clone(&call.context),
            answer: Box::pin(service.call(call)),
            side,
            begun,
        }
    }

    /// Polls the eviction until this holds.
    async fn until(&mut self, holds: impl Fn(&DataSide, usize) -> bool) {
        poll_fn(|cx| {
            assert!(self.answer.as_mut().poll(cx).is_pending());
            if holds(&self.side, self.begun.get()) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Waits until the eviction waits, and gives it its turn.
    async fn turn(&mut self) {
        self.until(|side, _| side.evictor.waiting() == 1).await;
        let now = self.side.clock.now();
        self.side.evictor.waits.observed(now, &foo(), 1);
    }
}

#[tokio::test]
async fn an_attempt_that_flow_control_rejects_or_that_fails_lets_others_pass() {
    let rejected = |number, _| match number {
        0 => refused(),
        _ => Box::pin(async {
            Err(Refusal::TooManyRequests(Box::new(FlowRejection {
                reason: RejectReason::QueueFull,
                retry_after: 1,
            })))
        }) as Ending,
    };
    let failed = |number, _| match number {
        0 => refused(),
        _ => Box::pin(async {
            let mut reply = Response::new(ReplyBody::empty());
            reply.extensions_mut().insert(FailedAttempt);
            Ok(reply)
        }) as Ending,
    };
    let ends: [fn(usize, Call) -> Ending; 2] = [rejected, failed];
    for end in ends {
        let mut evicting = Evicting::new(EventSink::default(), end);
        evicting.turn().await;
        let waits = Arc::clone(&evicting.side.evictor.waits);
        let now = evicting.side.clock.now();
        let other = EvictionWait {
            user: "other".to_owned(),
            pod: "q".to_owned(),
            since: now,
            until: now,
            reason: String::new(),
        };
        let other = waits.join(&foo(), other).unwrap();
        evicting.until(|_, begun| begun == 2).await;
        waits.observed(now, &foo(), 1);
        assert!(waits.may_charge(now, &foo(), Some(other.place())));
    }
}

#[tokio::test]
async fn an_eviction_that_is_abandoned_before_it_is_carried_out_again_is_counted() {
    let in_queue = |number, _| match number {
        0 => refused(),
        _ => Box::pin(pending()) as Ending,
    };
    // The procedure counts its end itself.
    let carried_out = |number, mut call: Call| match number {
        0 => refused(),
        _ => Box::pin(async move {
            let attempt = call.request.extensions_mut().remove::<EvictionAttempt>();
            attempt.unwrap().carry_out();
            pending().await
        }) as Ending,
    };
    let ends: [(End, usize); 2] = [(in_queue, 1), (carried_out, 0)];
    for (end, expected) in ends {
        let counted = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&counted);
        let events = EventSink::new(move |event: EvictionEvent| {
            assert_eq!(event.outcome, EvictionOutcome::Abandoned);
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mut evicting = Evicting::new(events, end);
        evicting.turn().await;
        evicting.until(|_, begun| begun == 2).await;
        drop(evicting);
        assert_eq!(counted.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test]
async fn the_times_in_queues_and_on_seats_of_all_attempts_are_added_up() {
    let seconds = Duration::from_secs;
    let mut evicting = Evicting::new(EventSink::default(), |number, call: Call| {
        let trace = &call.context.trace;
        trace.waited(Duration::from_secs(10));
        trace.executed(Duration::from_secs(1));
        match number {
            0 => refused(),
            _ => Box::pin(async { Ok(Response::new(ReplyBody::empty())) }),
        }
    });
    evicting.turn().await;
    evicting.answer.as_mut().await.unwrap();
    let trace = &evicting.context.trace;
    let spent = (trace.wait.get(), trace.execution.get());
    assert_eq!(spent, (Some(seconds(20)), Some(seconds(2))));
}
