//! Heavy requests in turns: each has a turn and a thread while it works, and mostly neither while it waits for I/O.
//!
//! A turn that were kept for a whole request would be kept for as long as the store or the upstream takes to answer: a few requests
//! that delete thousands of objects, one write after the other, would stop all heavy requests of all users for minutes.
//!
//! What a request has decoded stays in memory while it waits, and is charged to its user. Where there is no room, it keeps its turn: then as many
//! requests as there are turns have decoded objects, as if each kept its turn to the end.
//!
//! What continues has turns of its own, as many as what begins. So the response to a write does not come after what its own change
//! makes others do, such as the events of watches, and requests that wait often delay none that begin.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use fairgate_base::{
    account::{ByteShare, HeavyTurn, HeavyTurns},
    tasks,
};
use tokio::{runtime::Handle, sync::Notify, task::JoinError};

/// Whose turns they are, and where the work is done.
#[derive(Debug)]
pub(crate) struct HeavyWorker {
    /// Those of requests that begin.
    pub(crate) turns: HeavyTurns,
    /// Those of requests that have waited.
    pub(crate) continued: HeavyTurns,
    /// What the user's requests have decoded that wait.
    pub(crate) waiting: ByteShare,
    /// About how much this one has decoded when it waits, in bytes.
    pub(crate) decoded_bytes: usize,
    /// The runtime whose blocking pool does the work.
    pub(crate) runtime: Handle,
}

/// Tells that work can continue.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl HeavyWorker {
    /// Waits for a turn to begin.
    pub(crate) async fn turn(&self) -> Option<HeavyTurn> {
        self.turns.of(self.waiting.payer(), 1).await
    }

    /// Does `work` from now on, in this turn and in others after each time that it waits.
    ///
    /// # Errors
    ///
    /// If it panics, or the runtime ends.
    pub(crate) async fn run<T: Send + 'static>(
        mut self,
        mut turn: Option<HeavyTurn>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut work = tasks::boxed(work);
        let woken = Arc::new(Woken::default());
        loop {
            let (runtime, waker) = (self.runtime.clone(), Waker::from(Arc::clone(&woken)));
            let working = self.runtime.spawn_blocking(move || {
                let _runtime = runtime.enter();
                let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
                // The turn comes back from here, also if nobody waits for the result: the thread is in use until then.
                (work, polled, turn)
            });
            let polled;
            (work, polled, turn) = working.await?;
            if let Poll::Ready(result) = polled {
                return Ok(result);
            }
            if self.waiting.take(self.decoded_bytes) {
                drop(turn);
                woken.0.notified().await;
                turn = self.continued.of(self.waiting.payer(), 1).await;
                self.waiting.give_back(self.decoded_bytes);
            } else {
                woken.0.notified().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_base::account::ByteBudget;
    use fairgate_testkit::client::soon;
    use tokio::sync::Semaphore;

    use super::*;

    /// A request of a user that has decoded a kilobyte when it waits.
    fn worker(turns: &HeavyTurns, continued: &HeavyTurns, payer: &str) -> HeavyWorker {
        worker_within(4 << 10, turns, continued, payer)
    }

    /// The same, where so many bytes may be decoded of requests that wait.
    fn worker_within(
        bytes: usize,
        turns: &HeavyTurns,
        continued: &HeavyTurns,
        payer: &str,
    ) -> HeavyWorker {
        HeavyWorker {
            turns: turns.clone(),
            continued: continued.clone(),
            waiting: ByteBudget::new(bytes).share(payer),
            decoded_bytes: 1 << 10,
            runtime: Handle::current(),
        }
    }

    #[tokio::test]
    async fn what_waits_has_no_turn_and_gets_another_to_continue() {
        let (turns, continued) = (HeavyTurns::new(1), HeavyTurns::new(1));
        let (began, answered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = worker(&turns, &continued, "slow");
        let turn = slow.turn().await;
        let (begins, answer) = (Arc::clone(&began), Arc::clone(&answered));
        let slow = tokio::spawn(slow.run(turn, async move {
            begins.add_permits(1);
            drop(answer.acquire().await);
            7
        }));
        drop(soon(began.acquire()).await);
        let other = worker(&turns, &continued, "other");
        let turn = soon(other.turn()).await;
        let continuing = continued.of("other", 1).await;
        answered.add_permits(1);
        tokio::task::yield_now().await;
        assert!(!slow.is_finished(), "it is not its turn");
        drop(continuing);
        // Although all turns to begin are taken.
        assert_eq!(soon(slow).await.unwrap().unwrap(), 7);
        assert_eq!(other.run(turn, async { 8 }).await.unwrap(), 8);
        assert!(soon(turns.of("next", 1)).await.is_some());
        assert!(soon(continued.of("next", 1)).await.is_some());
    }

    #[tokio::test]
    async fn what_waits_keeps_its_turn_where_there_is_no_room_for_what_it_has_decoded() {
        let (turns, continued) = (HeavyTurns::new(1), HeavyTurns::new(1));
        let (began, answered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = worker_within(512, &turns, &continued, "slow");
        let turn = slow.turn().await;
        let (begins, answer) = (Arc::clone(&began), Arc::clone(&answered));
        let slow = tokio::spawn(slow.run(turn, async move {
            begins.add_permits(1);
            drop(answer.acquire().await);
        }));
        drop(soon(began.acquire()).await);
        let mut next = tokio::spawn(async move { turns.of("next", 1).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!next.is_finished(), "the turn is kept");
        answered.add_permits(1);
        soon(slow).await.unwrap().unwrap();
        assert!(soon(&mut next).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_panic_gives_the_turn_back() {
        let turns = HeavyTurns::new(1);
        let failing = worker(&turns, &turns, "a");
        let turn = failing.turn().await;
        let failed = failing.run(turn, async { panic!("for the test") });
        assert!(failed.await.map(|()| 0).unwrap_err().is_panic());
        assert!(soon(turns.of("next", 1)).await.is_some());
    }
}
