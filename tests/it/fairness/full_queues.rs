//! Full queues: a flow with no request waiting takes the place of the newest request of the longest line.

use fairgate_core::{cells::FlowCells, rejection::RejectReason};
use fairgate_proxy::fairness::Enforcement;

use super::{
    seats::{counted, values},
    *,
};
use crate::rules::{Full, Rules};

/// One level of one seat and two queues with four places, which every flow may use; `alice` and `bob` have a FlowSchema each.
/// (In a level of one queue flows are not distinguished.)
fn rules() -> Rules {
    let full = Full::Queue {
        queues: 2,
        hand: 2,
        length: 2,
    };
    Rules::new()
        .level("small", 1, full)
        .schema("large", "small", &["alice"])
        .schema("little", "small", &["bob"])
}

pub(super) fn queue_full(gate: &Gate, schema: &str) -> u64 {
    counted(gate, schema, |cells| {
        cells.rejected(RejectReason::QueueFull).get()
    })
}

fn refused(gate: &Gate, schema: &str) -> u64 {
    let all = |cells: &FlowCells| RejectReason::ALL.map(|reason| cells.rejected(reason).get());
    counted(gate, schema, |cells| all(cells).iter().sum())
}

/// Fills the level with requests of alice: one executes, and four wait, which come one after the other on connections of both
/// cores and of either version.
async fn fill(gate: &Gate) -> (PendingRequest, Vec<PendingRequest>) {
    let first = get(gate, "/api/v1/first").await;
    until(|| small(gate).0 == 1).await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let http2 = number % 2 == 0;
        waiting.push(start_request(gate, http2, "alice", Method::GET, PODS).await);
        until(|| small(gate) == (1, number, 1)).await;
    }
    (first, waiting)
}

#[tokio::test]
async fn a_small_flow_is_served_where_a_large_one_has_filled_the_queue() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    // No more may wait in total either: the request that comes waits in the place of the other.
    let gate = Gate::governed(&upstream, &rules().set(|set| set.max_queued = 4));
    for http2 in [false, true] {
        let before = queue_full(&gate, "large");
        let (first, mut waiting) = fill(&gate).await;
        let mouse = start_request(&gate, http2, "bob", Method::GET, "/api/v1/mouse").await;
        let newest = waiting.pop().unwrap().response().await;
        assert_eq!(newest.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(newest.body, "Too many requests, please try again later.\n");
        assert_eq!(newest.header("x-fairgate-reason"), "queue-full");
        assert_eq!(newest.uids().0, "uid-of-schema-large");
        let retry_after: u32 = newest.header("retry-after").parse().unwrap();
        assert!((1..=32).contains(&retry_after), "{newest:?}");
        assert_eq!(small(&gate), (1, 4, 1));
        until(|| gate.flow_control().queued() == 4).await;
        assert_eq!(queue_full(&gate, "large"), before + 1);
        // One of bob waits, so his next one is refused.
        let second = start_request(&gate, http2, "bob", Method::GET, PODS).await;
        let second = second.response().await;
        assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(second.uids().0, "uid-of-schema-little");

        let mut targets = Vec::new();
        for _ in 0..5 {
            let executing = soon(held.recv()).await.unwrap();
            targets.push(executing.target.clone());
            executing.respond("");
        }
        assert_eq!(targets[0], "/api/v1/first");
        assert!(targets.contains(&"/api/v1/mouse".to_owned()), "{targets:?}");
        mouse.served().await;
        first.served().await;
        for pending in waiting {
            pending.served().await;
        }
        until(|| small(&gate) == (0, 0, 0) && gate.flow_control().queued() == 0).await;
    }
    for schema in ["large", "little"] {
        assert_eq!(refused(&gate, schema), 2, "{schema}");
        let waits = counted(&gate, schema, |cells| values(&cells.wait_refused));
        assert_eq!(waits, 2, "{schema}");
    }
}

#[tokio::test]
async fn in_observe_mode_a_request_whose_place_is_taken_executes_and_is_counted() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = rules().set(|set| set.enforcement = Enforcement::Observe);
    let gate = Gate::governed(&upstream, &rules);
    let mut running = Vec::new();
    for user in ["alice", "alice", "alice", "alice", "alice", "bob"] {
        let pending = start_request(&gate, false, user, Method::GET, PODS).await;
        running.push((pending, soon(held.recv()).await.unwrap()));
    }
    assert_eq!(small(&gate), (1, 4, 1));
    for (pending, upstream) in running {
        upstream.respond("");
        pending.served().await;
    }
    until(|| small(&gate) == (0, 0, 0)).await;
    assert_eq!(queue_full(&gate, "large"), 1);
    assert_eq!((refused(&gate, "large"), refused(&gate, "little")), (1, 0));
}
