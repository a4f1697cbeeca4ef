//! Turns of heavy tasks: a few are done at a time, and payers that wait take turns.
//!
//! A task is heavy if it may block a thread for milliseconds: it encodes a long list, compiles the expressions of a policy, or
//! evaluates an object by policies. Such tasks are done on threads of the blocking pool. A payer with many of them waits for its own,
//! and not the others.

use std::sync::Arc;

use fairgate_core::sync::{Mutex, lock};
use tokio::sync::oneshot;

use fairgate_core::turn_queue::TurnQueue;

/// Gives turns.
#[derive(Clone, Debug)]
pub struct HeavyTurns(Arc<Mutex<Turns>>);

#[derive(Debug)]
struct Turns {
    /// How many can still be given at once.
    free: usize,
    waiting: TurnQueue<oneshot::Sender<HeavyTurn>>,
}

/// The right to do a heavy task. It is given back when it is dropped.
#[derive(Debug)]
pub struct HeavyTurn(Option<HeavyTurns>);

impl HeavyTurns {
    /// Gives so many turns at once.
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Turns {
            free: at_once,
            waiting: TurnQueue::default(),
        })))
    }

    /// Waits for a turn of `payer`, for a task of this cost. A caller that no longer waits loses its place.
    pub async fn of(&self, payer: &str, cost: u64) -> Option<HeavyTurn> {
        let waiting = {
            let mut turns = lock(&self.0);
            if turns.free > 0 {
                turns.free -= 1;
                return Some(HeavyTurn(Some(self.clone())));
            }
            let (sender, waiting) = oneshot::channel();
            turns.waiting.push(payer, cost, sender);
            waiting
        };
        // Whoever waits is told before the queue is dropped.
        waiting.await.ok()
    }
}

impl HeavyTurn {
    /// Passes the turn on to the payer who is next, or keeps it for later.
    fn pass_on(mut self) {
        while let Some(of) = &self.0 {
            let mut turns = lock(&of.0);
            let Some(next) = turns.waiting.pop() else {
                turns.free += 1;
                drop(turns);
                self.0 = None;
                return;
            };
            drop(turns);
            match next.send(self) {
                Ok(()) => return,
                // Nobody waits there any more.
                Err(unused) => self = unused,
            }
        }
    }
}

impl Drop for HeavyTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            Self(Some(turns)).pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    type Waiting<'t> = Pin<Box<dyn Future<Output = Option<HeavyTurn>> + 't>>;

    fn polled(waiting: &mut Waiting<'_>) -> Poll<Option<HeavyTurn>> {
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    fn turn(turns: &HeavyTurns, user: &str) -> HeavyTurn {
        match pin!(turns.of(user, 1)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(turn)) => turn,
            _ => panic!("{user} has to wait"),
        }
    }

    /// Gives the turn to those who wait, one after the other, and says in which order.
    fn order<'n>(mut turn: HeavyTurn, waiting: &mut Vec<(&'n str, Waiting<'_>)>) -> Vec<&'n str> {
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let mut given = None;
            for (at, (_, one)) in waiting.iter_mut().enumerate() {
                if let Poll::Ready(Some(next)) = polled(one) {
                    given = Some((at, next));
                }
            }
            let (at, next) = given.expect("somebody has the turn");
            order.push(waiting.remove(at).0);
            turn = next;
        }
        order
    }

    #[test]
    fn users_take_turns_however_many_requests_one_has() {
        let turns = HeavyTurns::new(1);
        let first = turn(&turns, "greedy");
        let mut waiting: Vec<(&str, Waiting<'_>)> = Vec::new();
        for user in [
            "greedy", "greedy", "greedy", "alice", "greedy", "bob", "alice",
        ] {
            let mut one: Waiting<'_> = Box::pin(turns.of(user, 1));
            assert!(polled(&mut one).is_pending());
            waiting.push((user, one));
        }
        let expected = [
            "greedy", "alice", "bob", "greedy", "alice", "greedy", "greedy",
        ];
        assert_eq!(order(first, &mut waiting), expected);
        // All turns are back.
        drop(turn(&turns, "carol"));
    }

    #[test]
    fn a_turn_is_not_lost_with_one_who_no_longer_waits() {
        let turns = HeavyTurns::new(2);
        let (one, other) = (turn(&turns, "a"), turn(&turns, "a"));
        let mut gone: Waiting<'_> = Box::pin(turns.of("b", 1));
        let mut given: Waiting<'_> = Box::pin(turns.of("c", 1));
        let mut last: Waiting<'_> = Box::pin(turns.of("d", 1));
        for waiting in [&mut gone, &mut given, &mut last] {
            assert!(polled(waiting).is_pending());
        }
        drop(gone);
        drop(one);
        // It was given to `c`, which goes before it looks.
        drop(given);
        assert!(matches!(polled(&mut last), Poll::Ready(Some(_))));
        drop((other, last));
        let all = [turn(&turns, "e"), turn(&turns, "e")];
        assert!(polled(&mut (Box::pin(turns.of("e", 1)) as Waiting<'_>)).is_pending());
        drop(all);
    }
}
