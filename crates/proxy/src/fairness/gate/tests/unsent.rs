//! What becomes of seats by which nothing was carried out.

use std::{future::ready, task::Poll};

use fairgate_call::{Refusal, Reply, RequestProgress};
use fairgate_core::{
    apf::{SeatSeconds, queueset::Phase},
    digest::RequestInfo,
};
use futures_util::future::LocalBoxFuture;
use tower::{Layer as _, Service};

use super::*;
use crate::fairness::FairnessLayer;

const SEMANTICS: [Semantics; 2] = [Semantics::Improved, Semantics::Compatible];

/// The work that the level assumes of a request of one seat, of which nothing else is known, when it begins to wait.
fn assumed_work(gate: &Rc<Gate>, user: &str) -> (QueuedRequest, SeatSeconds) {
    let queued = waits(gate, &get(gate, user));
    let requests = level(gate).inspect(QueueSet::requests);
    let waiting = requests.iter().map(|request| &request.entry);
    let newest =
        waiting.filter(|entry| entry.phase == Phase::Waiting && entry.waiter == queued.waiter);
    let work = newest.map(|entry| entry.total_work).next();
    (queued, work.expect("it waits"))
}

/// Watchers, for which a write takes final seats.
fn register_watchers(gate: &Gate) {
    let watch = RequestInfo::parse("GET", PODS, Some("watch=true")).unwrap();
    gate.flow_control().with_watchers(|watchers| {
        for _ in 0..100 {
            assert!(watchers.register(&watch).is_some());
        }
    });
}

fn write(gate: &Gate) -> Call {
    call(gate, "writer", "DELETE", POD, ClientBody::empty())
}

#[test]
fn a_ticket_that_comes_back_unused_has_no_final_seats_and_says_nothing_about_service_times() {
    for semantics in SEMANTICS {
        with_gate(semantics, async |gate| {
            register_watchers(&gate);
            let first = executes(&gate, &get(&gate, "reader"));
            let queued = waits(&gate, &write(&gate));
            tokio::time::advance(Duration::from_millis(100)).await;
            assert_eq!(first.elapsed(), Duration::from_millis(100));
            drop(first);
            assert_eq!(summary(&gate).executing, 1, "the write has a ticket");
            let (_next, before) = assumed_work(&gate, "other");
            // Its client has gone before it was polled.
            drop(queued);
            // In Compatible it ends as if it had executed, as in kube-apiserver.
            let lingers = u32::from(semantics == Semantics::Compatible);
            let (executing, lingering) = (summary(&gate).executing, summary(&gate).lingering);
            assert_eq!(
                (executing, lingering),
                (1 - lingers, lingers),
                "{semantics:?}"
            );
            let (_last, after) = assumed_work(&gate, "another");
            assert_eq!(before, after, "{semantics:?}");
        });
    }
}

/// What the layers inside of flow control do with a request.
#[derive(Clone, Copy, Debug)]
struct Inside {
    reaches: RequestProgress,
    /// Whether the gateway itself carries it out.
    is_served_here: bool,
    /// Whether it fails at once. Otherwise it takes for ever.
    fails: bool,
}

impl Service<Call> for Inside {
    type Response = Reply;
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        call.context.reached(self.reaches);
        call.context.is_served_here.set(self.is_served_here);
        if self.fails {
            Box::pin(ready(Err(Refusal::UpstreamFailed)))
        } else {
            Box::pin(pending())
        }
    }
}

/// Sends a write, of which nothing comes back: it fails, or its client disconnects. Returns how many requests linger then.
fn lingering_after(semantics: Semantics, inside: Inside) -> u32 {
    with_gate(semantics, async |gate| {
        register_watchers(&gate);
        let mut layer = FairnessLayer::new(Rc::clone(&gate)).layer(inside);
        let mut answer = Box::pin(layer.call(write(&gate)));
        let mut cx = Context::from_waker(Waker::noop());
        let is_over = answer.as_mut().poll(&mut cx).is_ready();
        assert_eq!(is_over, inside.fails, "{inside:?}");
        drop(answer);
        assert_eq!(summary(&gate).executing, 0, "{inside:?}");
        summary(&gate).lingering
    })
}

#[test]
fn a_write_that_was_not_sent_has_no_final_seats() {
    for fails in [false, true] {
        let unsent = Inside {
            reaches: RequestProgress::NotSent,
            is_served_here: false,
            fails,
        };
        assert_eq!(
            lingering_after(Semantics::Improved, unsent),
            0,
            "{unsent:?}"
        );
        assert_eq!(
            lingering_after(Semantics::Compatible, unsent),
            1,
            "{unsent:?}"
        );
        let here = Inside {
            is_served_here: true,
            ..unsent
        };
        assert_eq!(lingering_after(Semantics::Improved, here), 1, "{here:?}");
    }
    let failed = Inside {
        reaches: RequestProgress::Sent,
        is_served_here: false,
        fails: true,
    };
    assert_eq!(
        lingering_after(Semantics::Improved, failed),
        1,
        "{failed:?}"
    );
}
