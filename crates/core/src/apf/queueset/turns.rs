//! The order in which flows have their turn.
//!
//! A tournament tree: each flow with waiting requests is a leaf, keyed by its start and, among
//! equals, by its turn, and every inner node is the better of its two children. The next flow stands
//! at the root; a change costs one path, at most log2(flows) steps, and usually fewer. Nodes also know
//! the least width below them, so that the next flow whose head fits is found by looking at few of
//! them. Memory grows with the most flows there ever were; nothing else is allocated.

use smallvec::{SmallVec, smallvec};

use super::NONE;
use crate::{
    apf::units::{SeatSeconds, Seats},
    time::Time,
};

/// The number of nodes that a search visits.
const MAX_SCANS: u32 = 128;

/// How many flows [`Turns::next_ones`] gives at most.
const NEXT_ONES: usize = 8;

/// All flows that have waiting requests.
#[derive(Debug)]
pub(super) struct Turns {
    /// The root is at 1, the children of `i` at `2 i` and `2 i + 1`, the leaves in the second half.
    nodes: Vec<TurnNode>,
    len: usize,
}

/// The flow and the turn stand in this order in memory, so that both are read and compared as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct TurnNode {
    start: SeatSeconds,
    /// Number of the flow, or [`NONE`].
    flow: u32,
    turn: u32,
    least_width: Seats,
    /// What a flow would hold for its weight if its head started, in sixteenths of a seat.
    least_hold: u32,
    /// Since when a flow has waited.
    since: Time,
}

/// A flow with waiting requests, as it stands in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowTurn {
    /// The virtual time at which its head is due.
    pub(super) start: SeatSeconds,
    /// Breaks ties.
    pub(super) tie: u32,
    /// The seats of its head.
    pub(super) width: Seats,
    /// What it would hold for its weight with that, in sixteenths of a seat.
    pub(super) hold: u32,
    /// Since when it has waited for its turn.
    pub(super) since: Time,
}

impl TurnNode {
    const EMPTY: Self = Self {
        start: SeatSeconds::MAX,
        turn: u32::MAX,
        flow: NONE,
        least_width: Seats::MAX,
        least_hold: u32::MAX,
        since: Time::NEVER,
    };

    /// The place in the order, as one number, which is compared in fewer steps than two.
    const fn key(&self) -> u128 {
        (self.start.units() as u128) << 64 | (self.turn as u128) << 32 | self.flow as u128
    }

    fn better(one: &Self, other: &Self) -> Self {
        let best = if other.key() < one.key() { other } else { one };
        Self {
            start: best.start,
            turn: best.turn,
            flow: best.flow,
            least_width: one.least_width.min(other.least_width),
            least_hold: one.least_hold.min(other.least_hold),
            since: one.since.min(other.since),
        }
    }
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![TurnNode::EMPTY; 2],
            len: 0,
        }
    }

    /// How many flows have waiting requests.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets the place of a flow in the order of turns.
    pub(super) fn set(&mut self, flow: u32, turn: FlowTurn) {
        self.grow(flow as usize + 1);
        let node = TurnNode {
            start: turn.start,
            turn: turn.tie,
            flow,
            least_width: turn.width,
            least_hold: turn.hold,
            since: turn.since,
        };
        let before = self.replace(flow, node);
        self.len += usize::from(before.flow == NONE);
    }

    /// Takes a flow out, if it is in.
    pub(super) fn remove(&mut self, flow: u32) {
        let leaf = self.nodes.len() / 2 + flow as usize;
        if self.nodes.get(leaf).is_none_or(|leaf| leaf.flow == NONE) {
            return;
        }
        self.replace(flow, TurnNode::EMPTY);
        self.len -= 1;
    }

    /// Takes all flows out.
    pub(super) fn clear(&mut self) {
        self.nodes.fill(TurnNode::EMPTY);
        self.len = 0;
    }

    /// The start of a flow with waiting requests, as it was [set](Self::set).
    pub(super) fn start_of(&self, flow: u32) -> SeatSeconds {
        self.nodes[self.nodes.len() / 2 + flow as usize].start
    }

    /// The flow that is next.
    pub(super) fn first(&self) -> Option<u32> {
        let next = self.nodes[1].flow;
        (next != NONE).then_some(next)
    }

    /// The start of the flow that is next.
    pub(super) fn first_start(&self) -> SeatSeconds {
        self.nodes[1].start
    }

    /// The next flow, and some of those after it.
    pub(super) fn next_ones(&self) -> SmallVec<[u32; NEXT_ONES]> {
        let mut next = SmallVec::new();
        // One node is left for later in each level of the tree.
        let mut nodes: SmallVec<[usize; 32]> = smallvec![1];
        while let Some(at) = nodes.pop() {
            let flow = self.nodes[at].flow;
            if flow == NONE {
                continue;
            }
            if at < self.nodes.len() / 2 {
                let [near, far] = nearer_first(&self.nodes, at);
                nodes.extend([far, near]);
                continue;
            }
            next.push(flow);
            if next.len() == NEXT_ONES {
                break;
            }
        }
        next
    }

    /// The flow that is next among those with a head of at most `width` seats. Among many flows, only some of the next
    /// ones are searched.
    pub(super) fn first_fitting(&self, width: Seats) -> Option<u32> {
        self.first_holding(width, u32::MAX, |_| true)
    }

    /// The flow that is next among those with a head of at most `width` seats that would then hold at most `hold`, by what they
    /// were [set](Self::set) to hold and by `holds`. Among many flows, only some of the next ones are searched.
    pub(super) fn first_holding(
        &self,
        width: Seats,
        hold: u32,
        holds: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut first = First {
            width,
            hold,
            holds,
            best: TurnNode::EMPTY,
            scans: MAX_SCANS,
        };
        first.search(&self.nodes, 1);
        (first.best.flow != NONE).then_some(first.best.flow)
    }

    /// A flow with a head of at most `width` seats and a start of at most `latest`: the one with the
    /// widest head, and of those the next. Among many flows, only some of the next ones are searched.
    pub(super) fn widest_fitting(&self, width: Seats, latest: SeatSeconds) -> Option<u32> {
        let mut widest = Widest {
            width,
            latest,
            best: TurnNode::EMPTY,
            scans: MAX_SCANS,
        };
        widest.search(&self.nodes, 1);
        (widest.best.flow != NONE).then_some(widest.best.flow)
    }

    /// Of the flows with a start of at most `latest` that have waited since a time before `since`, the one that has waited longest
    /// and `may` be next. Among many flows, only some of those that have waited long are searched.
    pub(super) fn longest_waiting(
        &self,
        latest: SeatSeconds,
        since: Time,
        may: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut longest = LongestWaiting {
            latest,
            may,
            best: TurnNode {
                since,
                ..TurnNode::EMPTY
            },
            scans: MAX_SCANS,
        };
        longest.search(&self.nodes, 1);
        (longest.best.flow != NONE).then_some(longest.best.flow)
    }

    /// Replaces a leaf, and updates the nodes above it.
    fn replace(&mut self, flow: u32, node: TurnNode) -> TurnNode {
        let leaf = self.nodes.len() / 2 + flow as usize;
        // The children of node `at` are pair `at`.
        let (pairs, _) = self.nodes.as_chunks_mut::<2>();
        let mut at = leaf / 2;
        let mut pair = &mut pairs[at];
        let before = std::mem::replace(&mut pair[leaf % 2], node);
        while at > 0 {
            let [left, right] = pair;
            let best = TurnNode::better(left, right);
            let place = at % 2;
            at /= 2;
            pair = &mut pairs[at];
            if pair[place] == best {
                break;
            }
            pair[place] = best;
        }
        before
    }

    fn grow(&mut self, flows: usize) {
        let leaves = self.nodes.len() / 2;
        if flows <= leaves {
            return;
        }
        let old = std::mem::take(&mut self.nodes);
        self.nodes = vec![TurnNode::EMPTY; 2 * flows.next_power_of_two()];
        for node in old.into_iter().skip(leaves).filter(|n| n.flow != NONE) {
            self.replace(node.flow, node);
        }
    }
}

/// A search for the next flow that may start.
struct First<H> {
    width: Seats,
    hold: u32,
    holds: H,
    best: TurnNode,
    /// The number of nodes that may still be visited.
    scans: u32,
}

impl<H: Fn(u32) -> bool> First<H> {
    fn search(&mut self, nodes: &[TurnNode], at: usize) {
        let node = nodes[at];
        let may_start = node.least_width <= self.width && node.least_hold <= self.hold;
        if !may_start || node.key() >= self.best.key() || self.scans == 0 {
            return;
        }
        self.scans -= 1;
        if at >= nodes.len() / 2 {
            if (self.holds)(node.flow) {
                self.best = node;
            }
            return;
        }
        for child in nearer_first(nodes, at) {
            self.search(nodes, child);
        }
    }
}

/// A search for the widest head that fits.
struct Widest {
    width: Seats,
    latest: SeatSeconds,
    best: TurnNode,
    /// The number of nodes that may still be visited.
    scans: u32,
}

impl Widest {
    fn search(&mut self, nodes: &[TurnNode], at: usize) {
        let node = nodes[at];
        if node.least_width > self.width || node.start > self.latest || self.scans == 0 {
            return;
        }
        self.scans -= 1;
        if at >= nodes.len() / 2 {
            let is_wider = node.least_width > self.best.least_width;
            let is_as_wide = node.least_width == self.best.least_width;
            if self.best.flow == NONE || is_wider || is_as_wide && node.key() < self.best.key() {
                self.best = node;
            }
            return;
        }
        for child in nearer_first(nodes, at) {
            self.search(nodes, child);
        }
    }
}

/// A search for the flow that has waited longest.
struct LongestWaiting<M> {
    latest: SeatSeconds,
    may: M,
    best: TurnNode,
    /// The number of nodes that may still be visited.
    scans: u32,
}

impl<M: Fn(u32) -> bool> LongestWaiting<M> {
    fn search(&mut self, nodes: &[TurnNode], at: usize) {
        let node = nodes[at];
        if node.start > self.latest || node.since >= self.best.since || self.scans == 0 {
            return;
        }
        self.scans -= 1;
        if at >= nodes.len() / 2 {
            if (self.may)(node.flow) {
                self.best = node;
            }
            return;
        }
        let (left, right) = (2 * at, 2 * at + 1);
        let children = if nodes[left].since <= nodes[right].since {
            [left, right]
        } else {
            [right, left]
        };
        for child in children {
            self.search(nodes, child);
        }
    }
}

/// The children of a node, the one of the next flow first.
fn nearer_first(nodes: &[TurnNode], at: usize) -> [usize; 2] {
    let (left, right) = (2 * at, 2 * at + 1);
    if nodes[left].key() <= nodes[right].key() {
        [left, right]
    } else {
        [right, left]
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    /// A turn of a flow that has waited since so many nanoseconds after the beginning.
    fn turn(start: u64, tie: u32, width: Seats, hold: u32, since: u64) -> FlowTurn {
        FlowTurn {
            start: SeatSeconds::from_units(start),
            tie,
            width,
            hold,
            since: Time::from_nanos(since),
        }
    }

    proptest! {
        #[test]
        fn the_tree_gives_the_same_results_as_a_scan_of_all_flows(
            steps in prop::collection::vec((0u32..40, 0u64..6, 0u32..4, 1u32..5, 0u32..4, 0u64..99, any::<bool>()), 1..200),
            width in 0u32..6,
            most in 0u32..5,
            latest in 0u64..6,
        ) {
            let mut turns = Turns::new();
            let mut all = std::collections::BTreeMap::new();
            for (flow, start, order, head, hold, since, present) in steps {
                if present {
                    // No two flows have the same turn, or have waited equally long.
                    let order = order * 64 + flow;
                    let since = since * 64 + u64::from(flow);
                    turns.set(flow, turn(start, order, head, hold, since));
                    all.insert(flow, (start, order, head, hold, since));
                } else {
                    turns.remove(flow);
                    all.remove(&flow);
                }
                let scan = |widest: u32, most: u32| {
                    let fitting = all.iter().filter(|(_, (_, _, head, hold, _))| *head <= widest && *hold <= most);
                    let least = fitting.min_by_key(|(_, (start, turn, ..))| (*start, *turn));
                    least.map(|(flow, _)| *flow)
                };
                prop_assert_eq!(turns.first(), scan(u32::MAX, u32::MAX));
                prop_assert_eq!(turns.first_fitting(width), scan(width, u32::MAX));
                prop_assert_eq!(turns.first_holding(width, most, |_| true), scan(width, most));
                let fit = all.iter().filter(|(_, (start, _, head, ..))| *head <= width && *start <= latest);
                let widest = fit.min_by_key(|(_, (start, turn, head, ..))| (Reverse(*head), *start, *turn));
                let latest = SeatSeconds::from_units(latest);
                prop_assert_eq!(turns.widest_fitting(width, latest), widest.map(|(flow, _)| *flow));
                let early = all.iter().filter(|(_, (start, ..))| SeatSeconds::from_units(*start) <= latest);
                let longest = early.clone().min_by_key(|(_, (.., since))| *since);
                let found = turns.longest_waiting(latest, Time::NEVER, |_| true);
                prop_assert_eq!(found, longest.map(|(flow, _)| *flow));
                let before = Time::from_nanos(u64::from(width) * 640);
                let may = |flow: &u32| !flow.is_multiple_of(3);
                let early = early.filter(|(flow, (.., since))| may(flow) && Time::from_nanos(*since) < before);
                let longest = early.min_by_key(|(_, (.., since))| *since);
                let found = turns.longest_waiting(latest, before, |flow| may(&flow));
                prop_assert_eq!(found, longest.map(|(flow, _)| *flow));
                prop_assert_eq!(turns.len(), all.len());
            }
        }
    }

    #[test]
    fn a_search_among_too_many_flows_looks_at_the_next_ones() {
        let mut turns = Turns::new();
        // In the order of turns, which is that of neither the flows nor their reverse.
        for order in 0..1024_u32 {
            let flow = order.wrapping_mul(389) % 1024;
            turns.set(flow, turn(order.into(), order, 2, 0, 0));
        }
        assert_eq!(turns.first(), Some(0));
        assert_eq!(turns.widest_fitting(2, SeatSeconds::MAX), Some(0));
        turns.remove(0);
        assert_eq!(turns.widest_fitting(2, SeatSeconds::MAX), Some(389));
    }
}
