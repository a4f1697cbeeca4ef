//! Turns of heavy requests: a few are served at a time, and users that wait take turns.
//!
//! A request is heavy if serving it may block a thread for milliseconds: it encodes a long list, compiles the expressions of a
//! policy, or is judged by policies. Such requests are served on threads of the blocking pool. A user with many of them waits
//! for its own, and not the others.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use fairgate_core::sync::{Mutex, lock};
use tokio::sync::oneshot;

/// Gives turns.
#[derive(Clone)]
pub(crate) struct HeavyTurns(Arc<Mutex<TurnQueue>>);

struct TurnQueue {
    /// How many turns can still be given at once.
    free: usize,
    by_user: HashMap<String, VecDeque<oneshot::Sender<HeavyTurn>>>,
    /// The users of `by_user`, in the order of their turns.
    users: VecDeque<String>,
}

/// The right to serve a heavy request. It is given back when it is dropped.
pub(crate) struct HeavyTurn(Option<HeavyTurns>);

impl HeavyTurns {
    /// Gives so many turns at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(TurnQueue {
            free: at_once,
            by_user: HashMap::new(),
            users: VecDeque::new(),
        })))
    }

    /// Waits for a turn of `user`. A caller that no longer waits loses its place.
    pub(crate) async fn of(&self, user: &str) -> Option<HeavyTurn> {
        let waiting = {
            let mut queue = lock(&self.0);
            if queue.free > 0 {
                queue.free -= 1;
                return Some(HeavyTurn(Some(self.clone())));
            }
            queue.wait(user)
        };
        // Whoever waits is told before the queue is dropped.
        waiting.await.ok()
    }
}

impl TurnQueue {
    fn wait(&mut self, user: &str) -> oneshot::Receiver<HeavyTurn> {
        let (sender, waiting) = oneshot::channel();
        if let Some(of_user) = self.by_user.get_mut(user) {
            of_user.push_back(sender);
        } else {
            self.users.push_back(user.to_owned());
            self.by_user.insert(user.to_owned(), [sender].into());
        }
        waiting
    }

    fn next(&mut self) -> Option<oneshot::Sender<HeavyTurn>> {
        let user = self.users.pop_front()?;
        let of_user = self.by_user.get_mut(&user)?;
        let next = of_user.pop_front();
        if of_user.is_empty() {
            self.by_user.remove(&user);
        } else {
            self.users.push_back(user);
        }
        next
    }
}

impl HeavyTurn {
    /// Passes the turn on to the user who is next, or keeps it for later.
    fn pass_on(mut self) {
        while let Some(turns) = &self.0 {
            let mut queue = lock(&turns.0);
            let Some(next) = queue.next() else {
                queue.free += 1;
                drop(queue);
                self.0 = None;
                return;
            };
            drop(queue);
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
        match pin!(turns.of(user)).poll(&mut Context::from_waker(Waker::noop())) {
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
            let mut one: Waiting<'_> = Box::pin(turns.of(user));
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
        let mut gone: Waiting<'_> = Box::pin(turns.of("b"));
        let mut given: Waiting<'_> = Box::pin(turns.of("c"));
        let mut last: Waiting<'_> = Box::pin(turns.of("d"));
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
        assert!(polled(&mut (Box::pin(turns.of("e")) as Waiting<'_>)).is_pending());
        drop(all);
    }
}
