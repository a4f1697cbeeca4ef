//! What waits to be done, and whose turn it is.
//!
//! Start-time fair queuing: the work of a payer starts, in virtual time, where its work before it ended, and at least now. While
//! payers have work that waits, each gets the same cost done, to within the cost of one work. Virtual time is at least the start of
//! what was taken last, and what is taken advances it by its part of the cost: so payers whom nobody has seen before, who start
//! now, cannot keep the others from their turns, however many of them come.
//!
//! Source: P. Goyal, H. M. Vin and H. Cheng, "Start-time fair queuing", IEEE/ACM Transactions on Networking 5(5), 1997.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

/// How many parts of a unit of cost virtual time counts.
const PARTS: u64 = 1 << 10;

/// Work of several payers. Taking some is O(log p) with p payers that wait.
#[derive(Debug)]
pub struct TurnQueue<T> {
    /// Payers without work are not there.
    by_payer: HashMap<Arc<str>, VecDeque<QueuedWork<T>>>,
    /// Those of `by_payer`, by the start of their first work and the order in which they got there.
    order: BTreeMap<(u64, u64), Arc<str>>,
    /// Virtual time.
    now: u64,
    /// The ends of work, of payers for whom that is in the future.
    ends: HashMap<Arc<str>, u64>,
    next: u64,
    len: usize,
}

#[derive(Debug)]
struct QueuedWork<T> {
    /// In parts.
    cost: u64,
    what: T,
}

impl<T> Default for TurnQueue<T> {
    fn default() -> Self {
        Self {
            by_payer: HashMap::new(),
            order: BTreeMap::new(),
            now: 0,
            ends: HashMap::new(),
            next: 0,
            len: 0,
        }
    }
}

impl<T> TurnQueue<T> {
    /// How much work waits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no work waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How much work of a payer waits.
    pub fn len_of(&self, payer: &str) -> usize {
        self.by_payer.get(payer).map_or(0, VecDeque::len)
    }

    /// Adds work of a payer behind its other work. What it costs is counted in units that are the same for all; at least 1.
    pub fn push(&mut self, payer: &str, cost: u64, what: T) {
        self.len += 1;
        let cost = cost.max(1).saturating_mul(PARTS);
        let work = QueuedWork { cost, what };
        if let Some(more) = self.by_payer.get_mut(payer) {
            more.push_back(work);
            return;
        }
        let payer = Arc::<str>::from(payer);
        let end = self.ends.remove(&payer).unwrap_or(0);
        self.enter(end.max(self.now), Arc::clone(&payer));
        self.by_payer.insert(payer, [work].into());
    }

    /// Charges a payer for more than was said of its work: so much later is its next turn but one. It may get up to twice its part
    /// if all of what its work costs is only charged afterwards.
    pub fn charge(&mut self, payer: &str, cost: u64) {
        let cost = cost.saturating_mul(PARTS);
        let mut waiting = self.by_payer.len() as u64;
        if let Some(work) = self.by_payer.get_mut(payer).and_then(VecDeque::front_mut) {
            work.cost = work.cost.saturating_add(cost);
            return;
        }
        waiting += 1;
        let end = self.ends.get(payer).copied().unwrap_or(0).max(self.now);
        self.now = self.now.saturating_add(cost / waiting);
        self.ends.insert(Arc::from(payer), end.saturating_add(cost));
        self.forget_passed();
    }

    /// Takes the first work of the payer whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes the work of the first payer whose first work may be taken. They are asked in the order of their turns.
    pub fn pop_if(&mut self, mut may_be_taken: impl FnMut(&T) -> bool) -> Option<T> {
        let first = |payer: &Arc<str>| self.by_payer.get(payer).and_then(VecDeque::front);
        let mut turns = self.order.iter();
        let (&at, _) =
            turns.find(|(_, payer)| first(payer).is_some_and(|work| may_be_taken(&work.what)))?;
        let waiting = self.by_payer.len() as u64;
        let payer = self.order.remove(&at)?;
        let of_payer = self.by_payer.get_mut(&payer)?;
        let work = of_payer.pop_front()?;
        let end = at.0.saturating_add(work.cost);
        self.now = (self.now.max(at.0)).saturating_add(work.cost / waiting);
        self.len -= 1;
        if of_payer.is_empty() {
            self.by_payer.remove(&payer);
            self.ends.insert(payer, end);
        } else {
            self.enter(end, payer);
        }
        self.forget();
        Some(work.what)
    }

    /// Gives up the last work of a payer, which costs it nothing. Takes O(p) if it is its only work.
    pub fn remove_last_of(&mut self, payer: &str) -> Option<T> {
        let of_payer = self.by_payer.get_mut(payer)?;
        let work = of_payer.pop_back()?;
        self.len -= 1;
        if of_payer.is_empty() {
            self.by_payer.remove(payer);
            let at = self.order.iter().find(|(_, of)| ***of == *payer);
            if let Some((&at, _)) = at
                && let Some(payer) = self.order.remove(&at)
            {
                // It is owed no more than before.
                self.ends.insert(payer, at.0);
            }
            self.forget();
        }
        Some(work.what)
    }

    fn enter(&mut self, start: u64, payer: Arc<str>) {
        self.order.insert((start, self.next), payer);
        self.next += 1;
    }

    /// Forgets the ends that say nothing any more: all when nobody waits, else those that have passed, once there are more of
    /// them than payers who wait.
    fn forget(&mut self) {
        if self.is_empty() {
            self.ends.clear();
        } else {
            self.forget_passed();
        }
    }

    fn forget_passed(&mut self) {
        if self.ends.len() > 2 * self.by_payer.len() + 64 {
            let now = self.now;
            self.ends.retain(|_, end| *end > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &mut TurnQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn payers_take_turns_however_much_work_one_has() {
        let mut queue = TurnQueue::default();
        for payer in ["greedy", "greedy", "alice", "greedy", "bob", "alice"] {
            queue.push(payer, 1, payer);
        }
        assert_eq!((queue.len(), queue.len_of("greedy")), (6, 3));
        assert_eq!(
            order(&mut queue),
            ["greedy", "alice", "bob", "greedy", "alice", "greedy"]
        );
        assert!(queue.is_empty() && queue.by_payer.is_empty() && queue.ends.is_empty());
    }

    #[test]
    fn costly_work_has_fewer_turns() {
        let mut queue = TurnQueue::default();
        for _ in 0..2 {
            queue.push("costly", 10, "costly");
        }
        for _ in 0..15 {
            queue.push("cheap", 1, "cheap");
        }
        let order = order(&mut queue);
        let second = order.iter().rposition(|what| *what == "costly");
        assert_eq!((order[0], second), ("costly", Some(11)));
    }

    #[test]
    fn who_comes_later_is_not_owed_the_past() {
        let mut queue = TurnQueue::default();
        for _ in 0..100 {
            queue.push("busy", 1, "busy");
        }
        for _ in 0..50 {
            queue.pop();
        }
        for _ in 0..30 {
            queue.push("late", 1, "late");
        }
        let next = order(&mut queue);
        let late = next[..20].iter().filter(|what| **what == "late").count();
        assert!((9..=11).contains(&late), "{next:?}");
    }

    #[test]
    fn who_comes_back_still_pays_for_what_was_done() {
        let mut queue = TurnQueue::default();
        for _ in 0..30 {
            queue.push("busy", 1, "busy");
        }
        queue.push("costly", 10, "costly");
        assert_eq!([queue.pop(), queue.pop()], [Some("busy"), Some("costly")]);
        queue.push("costly", 10, "costly");
        let before = order(&mut queue).iter().position(|what| *what == "costly");
        assert!(
            before.is_some_and(|before| (8..=10).contains(&before)),
            "{before:?}"
        );
    }

    #[test]
    fn new_payers_do_not_keep_others_from_their_turns() {
        let mut queue = TurnQueue::default();
        for _ in 0..100 {
            queue.push("known", 1, "known");
        }
        let mut known = 0;
        for number in 0..100 {
            if queue.len_of("known") == queue.len() {
                queue.push(&format!("new-{number}"), 1, "new");
            }
            known += usize::from(queue.pop() == Some("known"));
        }
        assert!(known >= 33, "{known} of 100");
    }

    #[test]
    fn what_is_charged_afterwards_counts_like_what_was_said_before() {
        let mut queue = TurnQueue::default();
        for payer in ["costly", "cheap"] {
            queue.push(payer, 1, payer);
        }
        let mut order = Vec::new();
        for _ in 0..66 {
            let Some(payer) = queue.pop() else { break };
            order.push(payer);
            queue.charge(payer, if payer == "costly" { 9 } else { 0 });
            queue.push(payer, 1, payer);
        }
        let costly = order.iter().filter(|payer| **payer == "costly").count();
        // A tenth of the turns would be six. What is charged afterwards moves virtual time, at which the other one starts, who has
        // nothing that waits at that moment.
        assert_eq!(costly, 10, "{order:?}");
        queue.charge("cheap", 20);
        let other = (0..3).find_map(|_| queue.pop().filter(|payer| *payer == "costly"));
        assert_eq!(other, Some("costly"));
    }

    #[test]
    fn work_that_may_not_be_taken_keeps_its_turn() {
        let mut queue = TurnQueue::default();
        queue.push("a", 1, 5);
        queue.push("b", 1, 0);
        queue.push("a", 1, 0);
        assert_eq!(queue.pop_if(|bytes| *bytes == 0), Some(0));
        assert_eq!(queue.pop_if(|bytes| *bytes == 0), None);
        assert_eq!(queue.len(), 2);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(5), Some(0), None]
        );
    }

    #[test]
    fn work_that_is_given_up_costs_its_payer_nothing() {
        let mut queue = TurnQueue::default();
        for (payer, cost, what) in [("a", 9, 1), ("b", 1, 2), ("a", 1, 3), ("b", 1, 4)] {
            queue.push(payer, cost, what);
        }
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.remove_last_of("a"), Some(3));
        assert_eq!(queue.remove_last_of("a"), None);
        assert_eq!((queue.len(), queue.len_of("a")), (2, 0));
        queue.push("a", 1, 5);
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [2, 4, 5].map(Some));
        assert!(queue.is_empty() && queue.by_payer.is_empty() && queue.order.is_empty());
    }

    #[test]
    fn what_is_known_of_payers_is_bounded() {
        let mut queue = TurnQueue::default();
        queue.push("busy", 1, 0);
        for number in 0..10_000 {
            queue.push("busy", 1, 0);
            queue.push(&format!("one-shot-{number}"), 1, 0);
            queue.pop();
            queue.pop();
            assert!(queue.ends.len() <= 128, "{}", queue.ends.len());
        }
    }
}
