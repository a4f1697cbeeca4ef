//! The order in which the heads of queues are due.
//!
//! Each queue that has waiting requests is in here once, keyed by the virtual finish of its head and, among
//! equals, by its position in the deck. A treap: the next head is found in O(log queues), ties broken
//! cyclically from the queue dispatched last. Nothing is allocated per event.
//!
//! Not here: what a queue holds, and when a head may run ([`super::queueset`]).

use super::units::SeatSeconds;

/// No node.
const NIL: u32 = u32::MAX;

/// The heads of all queues that have one, in dispatch order.
///
/// Queues are named by a small dense number, their *slot*.
#[derive(Debug, Default)]
pub(crate) struct HeadOrder {
    nodes: Vec<OrderNode>,
    root: Option<u32>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct OrderNode {
    finish: SeatSeconds,
    position: u32,
    priority: u32,
    left: u32,
    right: u32,
    present: bool,
}

type Key = (SeatSeconds, u32);

impl HeadOrder {
    /// Makes room for slots below `slots`, so that no later event allocates.
    pub(crate) fn reserve(&mut self, slots: usize) {
        while self.nodes.len() < slots {
            let slot = u32::try_from(self.nodes.len()).unwrap_or(NIL);
            self.nodes.push(OrderNode {
                finish: SeatSeconds::ZERO,
                position: 0,
                priority: scatter(slot),
                left: NIL,
                right: NIL,
                present: false,
            });
        }
    }

    /// How many queues have a head.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The virtual finish that is the key of `slot`, if it is in here.
    #[cfg(test)]
    fn get(&self, slot: u32) -> Option<SeatSeconds> {
        let node = &self.nodes[slot as usize];
        node.present.then_some(node.finish)
    }

    /// Sets the head of `slot`: its virtual finish, and the queue's position in the deck.
    pub(crate) fn set(&mut self, slot: u32, finish: SeatSeconds, position: u32) {
        let node = &self.nodes[slot as usize];
        if node.present {
            if (node.finish, node.position) == (finish, position) {
                return;
            }
            self.remove(slot);
        }
        let node = &mut self.nodes[slot as usize];
        *node = OrderNode {
            finish,
            position,
            left: NIL,
            right: NIL,
            present: true,
            ..*node
        };
        let (left, right) = self.split(self.root.unwrap_or(NIL), (finish, position));
        let left = self.merge(left, slot);
        self.set_root(left, right);
        self.len += 1;
    }

    /// Takes out the head of `slot`, if there is one.
    pub(crate) fn remove(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        if !node.present {
            return;
        }
        // The recursion here and in `set` is as deep as the tree, which keys cannot influence: priorities depend on slots alone.
        let root = self.cut(self.root.unwrap_or(NIL), slot, (node.finish, node.position));
        self.root = (root != NIL).then_some(root);
        self.nodes[slot as usize].present = false;
        self.len -= 1;
    }

    /// Takes out all heads.
    pub(crate) fn clear(&mut self) {
        for node in &mut self.nodes {
            node.present = false;
        }
        self.root = None;
        self.len = 0;
    }

    /// Notes that the queue of `slot` is now at `position`; the order of queues must not change.
    pub(crate) fn renumber(&mut self, slot: u32, position: u32) {
        // Changing a key in place is sound only because the order of all keys stays the same.
        self.nodes[slot as usize].position = position;
    }

    /// The slot whose head has the least virtual finish; among equals the first by position from
    /// `from` on, cyclically.
    pub(crate) fn first(&self, from: u32) -> Option<u32> {
        let root = self.root?;
        let first = self.find(root, (SeatSeconds::ZERO, 0))?;
        // A second search for the same finish from `from` on; if it finds none, the cycle begins again at the first position.
        let finish = self.nodes[first as usize].finish;
        match self.find(root, (finish, from)) {
            Some(later) if self.nodes[later as usize].finish == finish => Some(later),
            _ => Some(first),
        }
    }

    /// The first node in order whose key is at least `from`.
    fn find(&self, root: u32, from: Key) -> Option<u32> {
        let (mut at, mut best) = (root, None);
        while at != NIL {
            let node = &self.nodes[at as usize];
            if node.key() < from {
                at = node.right;
            } else {
                best = Some(at);
                at = node.left;
            }
        }
        best
    }

    fn set_root(&mut self, left: u32, right: u32) {
        let root = self.merge(left, right);
        self.root = (root != NIL).then_some(root);
    }

    /// Splits the tree at `root` into keys below `key` and the rest.
    fn split(&mut self, root: u32, key: Key) -> (u32, u32) {
        if root == NIL {
            return (NIL, NIL);
        }
        let node = self.nodes[root as usize];
        if node.key() < key {
            let (middle, right) = self.split(node.right, key);
            self.nodes[root as usize].right = middle;
            (root, right)
        } else {
            let (left, middle) = self.split(node.left, key);
            self.nodes[root as usize].left = middle;
            (left, root)
        }
    }

    /// Joins two trees, all keys of `left` below those of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.nodes[left as usize].priority > self.nodes[right as usize].priority {
            let joined = self.merge(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = joined;
            left
        } else {
            let joined = self.merge(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = joined;
            right
        }
    }

    /// The tree at `root` without `slot`.
    fn cut(&mut self, root: u32, slot: u32, key: Key) -> u32 {
        if root == NIL {
            debug_assert!(false, "a present head is in the tree");
            return NIL;
        }
        let node = self.nodes[root as usize];
        if root == slot {
            return self.merge(node.left, node.right);
        }
        if key < node.key() {
            let left = self.cut(node.left, slot, key);
            self.nodes[root as usize].left = left;
        } else {
            let right = self.cut(node.right, slot, key);
            self.nodes[root as usize].right = right;
        }
        root
    }
}

impl OrderNode {
    fn key(&self) -> Key {
        (self.finish, self.position)
    }
}

/// A fixed scrambling of slots into priorities: balanced in expectation, the same in every run.
fn scatter(slot: u32) -> u32 {
    let mut x = slot.wrapping_add(0x9e37_79b9);
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reference: a scan of all heads, starting at `from`.
    fn scan(order: &HeadOrder, slots: u32, from: u32) -> Option<u32> {
        (0..slots)
            .map(|i| (from.min(slots) + i) % slots)
            .filter_map(|slot| Some((order.get(slot)?, slot)))
            .min_by_key(|(finish, _)| *finish)
            .map(|(_, slot)| slot)
    }

    proptest! {
        #[test]
        fn the_first_head_is_the_one_that_a_scan_of_all_queues_returns(
            steps in prop::collection::vec((0u32..24, 0u64..6, any::<bool>()), 1..200),
            from in 0u32..25,
        ) {
            let mut order = HeadOrder::default();
            order.reserve(24);
            for (slot, finish, present) in steps {
                if present {
                    order.set(slot, SeatSeconds::from_units(finish), slot);
                } else {
                    order.remove(slot);
                }
                prop_assert_eq!(order.first(from), scan(&order, 24, from));
                prop_assert_eq!(order.len(), (0..24).filter(|s| order.get(*s).is_some()).count());
            }
        }
    }

    #[test]
    fn the_tree_stays_shallow_when_keys_come_sorted() {
        fn depth(order: &HeadOrder, root: u32) -> usize {
            if root == NIL {
                return 0;
            }
            let node = order.nodes[root as usize];
            1 + depth(order, node.left).max(depth(order, node.right))
        }
        let mut order = HeadOrder::default();
        order.reserve(10_000);
        for slot in 0..10_000 {
            order.set(slot, SeatSeconds::from_units(slot.into()), slot);
        }
        assert!(depth(&order, order.root.unwrap()) < 48);
    }
}
