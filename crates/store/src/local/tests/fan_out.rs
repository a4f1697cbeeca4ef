//! In which order a thread serves its watches, and what else it has to do.

use std::{cell::Cell, future::poll_fn, pin::pin, rc::Rc, sync::Arc, task::Poll};

use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::{FanOut, fan_out::AT_ONCE};
use fairgate_base::turns::spawn_local;
use fairgate_testkit::client::soon;

const WATCHES: usize = 20 * AT_ONCE;

/// Watches of `prefix`, each by a task of this thread, and how often they were polled.
fn watches(fan_out: &Arc<FanOut>, store: &Arc<dyn Store>, prefix: &str) -> Rc<Cell<usize>> {
    let polls = Rc::new(Cell::new(0));
    for _ in 0..WATCHES {
        let mut watch = fan_out.follow(store.watch(prefix, store.cached_revision()).unwrap());
        let polls = Rc::clone(&polls);
        spawn_local(async move {
            loop {
                let mut next = pin!(watch.next());
                let next = poll_fn(|cx| {
                    polls.set(polls.get() + 1);
                    next.as_mut().poll(cx)
                });
                next.await.unwrap();
            }
        });
    }
    polls
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    soon(waiting).await;
    assert!(is_so(), "{what}");
}

/// A write may be one of those that wait for their turn.
#[tokio::test(flavor = "current_thread")]
async fn others_have_their_turn_while_many_watches_are_served() {
    let mut place = FilePlace::new();
    let store = place.open().await.unwrap();
    let work = async {
        let (fan_out, task) = FanOut::new(Arc::clone(&store)).unwrap();
        spawn_local(task);
        let polls = watches(&fan_out, &store, "/a/");
        until("all wait", || polls.get() == WATCHES).await;
        let most = Rc::new(Cell::new(0));
        let bystander = spawn_local({
            let (polls, most) = (Rc::clone(&polls), Rc::clone(&most));
            async move {
                // Each is polled twice: with the change, and to wait for the next one.
                while polls.get() < 3 * WATCHES {
                    let before = polls.get();
                    yield_now().await;
                    most.set(most.get().max(polls.get() - before));
                }
            }
        });
        conformance::create(&*store, "/a/x", "").await;
        soon(bystander).await.unwrap();
        assert!(
            most.get() <= 4 * AT_ONCE,
            "{} polls of {WATCHES} watches between two turns",
            most.get()
        );
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_change_elsewhere_wakes_no_watch() {
    let mut place = FilePlace::new();
    let store = place.open().await.unwrap();
    let work = async {
        let (fan_out, task) = FanOut::new(Arc::clone(&store)).unwrap();
        spawn_local(task);
        let polls = watches(&fan_out, &store, "/a/");
        until("all wait", || polls.get() == WATCHES).await;
        let mut other = fan_out.follow(store.watch("/c/", store.cached_revision()).unwrap());
        let mut next = pin!(other.next());
        assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
        for n in 0..3 {
            conformance::create(&*store, &format!("/b/{n}"), "").await;
        }
        // It was noted after those.
        conformance::create(&*store, "/c/x", "").await;
        soon(next).await.unwrap();
        assert_eq!(polls.get(), WATCHES);
        conformance::create(&*store, "/a/x", "").await;
        until("all have it", || polls.get() == 3 * WATCHES).await;
    };
    LocalSet::new().run_until(work).await;
}
