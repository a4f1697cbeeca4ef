//! Who has how many bytes of a budget.
//!
//! A payer may hold at most as much as is still free: the dynamic threshold of shared packet buffers. Payers who come one
//! after the other, and leave their bodies unfinished, could still take half of what is left each, until there is nothing.
//! So where there is no room for a payer, an unfinished body of the payer with most of them is given up, as long as that payer
//! has more than the one who asks would have: the push-out of shared packet buffers.
//!
//! Source: A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
//! Transactions on Networking 6(2), 1998, with α = 1.

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap},
    sync::Arc,
};

use tokio::sync::Notify;

/// The bytes that are used.
#[derive(Debug, Default)]
pub(super) struct UsedBytes {
    all: usize,
    /// The most there ever were.
    most: usize,
    /// Payers with no bytes are not there.
    by_payer: HashMap<String, PayerBytes>,
    /// The unfinished bytes of each payer who has any, the most last.
    most_unfinished: BTreeSet<(usize, String)>,
    /// The number of the next unfinished body.
    next: u64,
}

/// What a payer has.
#[derive(Debug, Default)]
struct PayerBytes {
    all: usize,
    /// How many of them are of unfinished bodies.
    unfinished_bytes: usize,
    /// By number.
    unfinished: BTreeMap<u64, UnfinishedBody>,
}

/// A body of which more is to come.
#[derive(Debug)]
struct UnfinishedBody {
    bytes: usize,
    given_up: Arc<Notify>,
}

impl UsedBytes {
    /// Takes bytes of `total` for a payer; for the unfinished body of this number if there is one. Returns `false`, and takes
    /// nothing, if there is no room even when bodies of others are given up, or if that body has been given up.
    pub(super) fn take(
        &mut self,
        payer: &str,
        bytes: usize,
        total: usize,
        unfinished: Option<u64>,
    ) -> bool {
        let own = self.by_payer.get(payer);
        if unfinished
            .is_some_and(|number| !own.is_some_and(|own| own.unfinished.contains_key(&number)))
        {
            return false;
        }
        let wanted = own.map_or(0, |own| own.all).saturating_add(bytes);
        if wanted > total {
            return false;
        }
        let lacking = wanted.saturating_sub(total.saturating_sub(self.all));
        let Some(bodies) = self.bodies_in_the_way(wanted, lacking) else {
            return false;
        };
        for (payer, number) in bodies {
            self.give_up(&payer, number);
        }
        self.change(payer, |own| {
            if let Some(body) = unfinished.and_then(|number| own.unfinished.get_mut(&number)) {
                body.bytes += bytes;
                own.unfinished_bytes += bytes;
            }
            own.all += bytes;
        });
        self.most = self.most.max(self.all);
        true
    }

    /// Gives up unfinished bodies of a payer, the longest first, until there is room for so many bytes more of the same payer. Gives
    /// up none if that would not be enough.
    pub(super) fn make_room_of_own(&mut self, payer: &str, bytes: usize, total: usize) -> bool {
        let lacking = |used: &Self, own: &PayerBytes| {
            let wanted = own.all.saturating_add(bytes);
            wanted.saturating_sub(total.saturating_sub(used.all))
        };
        let Some(own) = self.by_payer.get(payer) else {
            return bytes <= total.saturating_sub(self.all);
        };
        // A byte that is given up is one less of the payer's, and one more that is left.
        if lacking(self, own) > 2 * own.unfinished_bytes {
            return false;
        }
        while let Some(own) = self.by_payer.get(payer) {
            if lacking(self, own) == 0 {
                break;
            }
            let longest = own.unfinished.iter().max_by_key(|(_, body)| body.bytes);
            let Some(longest) = longest.map(|(number, _)| *number) else {
                break;
            };
            self.give_up(payer, longest);
        }
        true
    }

    /// Whether a payer may have so many bytes more of `total`, without any that are given up for them.
    pub(super) fn has_room(&self, payer: &str, bytes: usize, total: usize) -> bool {
        let wanted = self.held_by(payer).saturating_add(bytes);
        wanted <= total.saturating_sub(self.all)
    }

    /// The bytes of one payer.
    pub(super) fn held_by(&self, payer: &str) -> usize {
        self.by_payer.get(payer).map_or(0, |own| own.all)
    }

    /// Takes bytes for which there may be no room.
    pub(super) fn take_beyond(&mut self, payer: &str, bytes: usize) {
        self.change(payer, |own| own.all += bytes);
        self.most = self.most.max(self.all);
    }

    /// All bytes that are used.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// The most bytes that were used at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns bytes that are not of an unfinished body.
    pub(super) fn give_back(&mut self, payer: &str, bytes: usize) {
        self.change(payer, |own| own.all -= bytes);
    }

    /// From now on these bytes of a payer are an unfinished body. Returns its number, and what is notified when it is given up:
    /// then its bytes are no longer counted.
    pub(super) fn begin_unfinished(&mut self, payer: &str, bytes: usize) -> (u64, Arc<Notify>) {
        let (number, given_up) = (self.next, Arc::<Notify>::default());
        self.next += 1;
        let body = UnfinishedBody {
            bytes,
            given_up: Arc::clone(&given_up),
        };
        self.change(payer, |own| {
            own.unfinished_bytes += bytes;
            own.unfinished.insert(number, body);
        });
        (number, given_up)
    }

    /// A body is finished. Returns how many bytes it has, which are counted as others from now on; none if it was given up.
    pub(super) fn end_unfinished(&mut self, payer: &str, number: u64) -> Option<usize> {
        let mut ended = None;
        self.change(payer, |own| {
            ended = own.unfinished.remove(&number).map(|body| body.bytes);
            own.unfinished_bytes -= ended.unwrap_or_default();
        });
        ended
    }

    /// The unfinished bodies that have to be given up for `lacking` bytes: each time the longest one of the payer who then has most
    /// of them, as long as that is more than `bytes`. `None` if all of these are not enough.
    fn bodies_in_the_way(&self, bytes: usize, lacking: usize) -> Option<Vec<(String, u64)>> {
        let (mut found, mut freed) = (Vec::new(), 0);
        let mut untouched = self.most_unfinished.iter().rev().peekable();
        // Payers with less than before: what is left of theirs, and their bodies that are left, the longest last.
        let mut touched = BinaryHeap::<(usize, &str, Vec<(usize, u64)>)>::new();
        while freed < lacking {
            let most = touched.peek().map_or(0, |(left, ..)| *left);
            let next = untouched.next_if(|(unfinished, _)| *unfinished >= most);
            let (left, payer, mut bodies) = if let Some((unfinished, payer)) = next {
                let bodies = self.by_payer.get(payer)?.unfinished.iter();
                let mut bodies: Vec<_> =
                    bodies.map(|(number, body)| (body.bytes, *number)).collect();
                bodies.sort_unstable();
                (*unfinished, payer.as_str(), bodies)
            } else {
                touched.pop()?
            };
            let (longest, number) = bodies.pop().filter(|_| left > bytes)?;
            freed += longest;
            found.push((payer.to_owned(), number));
            touched.push((left - longest, payer, bodies));
        }
        Some(found)
    }

    fn give_up(&mut self, payer: &str, number: u64) {
        self.change(payer, |own| {
            if let Some(body) = own.unfinished.remove(&number) {
                own.all -= body.bytes;
                own.unfinished_bytes -= body.bytes;
                body.given_up.notify_one();
            }
        });
    }

    /// Changes what a payer has.
    fn change(&mut self, payer: &str, change: impl FnOnce(&mut PayerBytes)) {
        if !self.by_payer.contains_key(payer) {
            self.by_payer
                .insert(payer.to_owned(), PayerBytes::default());
        }
        let Some(own) = self.by_payer.get_mut(payer) else {
            return;
        };
        let (all, unfinished) = (own.all, own.unfinished_bytes);
        change(own);
        let now = own.unfinished_bytes;
        self.all = self.all - all + own.all;
        if own.all == 0 && own.unfinished.is_empty() {
            self.by_payer.remove(payer);
        }
        if now != unfinished {
            self.most_unfinished.remove(&(unfinished, payer.to_owned()));
            if now > 0 {
                self.most_unfinished.insert((now, payer.to_owned()));
            }
        }
    }

    /// All bytes, and the number of payers who have any.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize) {
        (
            self.all,
            self.by_payer.len().max(self.most_unfinished.len()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 1 << 20;

    /// Has a payer take as much as possible, in unfinished bodies of at most 64 KiB.
    fn hoard(used: &mut UsedBytes, payer: &str) -> Vec<(u64, Arc<Notify>)> {
        let mut bodies = Vec::new();
        let mut bytes = 64 << 10;
        while bytes > 0 {
            if used.take(payer, bytes, TOTAL, None) {
                bodies.push(used.begin_unfinished(payer, bytes));
            } else {
                bytes /= 2;
            }
        }
        bodies
    }

    #[tokio::test]
    async fn payers_who_leave_bodies_unfinished_leave_room_for_others() {
        let mut used = UsedBytes::default();
        let mut bodies = Vec::new();
        for number in 0..100 {
            let payer = format!("hoarder-{number}");
            let own = hoard(&mut used, &payer);
            bodies.extend(own.into_iter().map(|body| (payer.clone(), body)));
        }
        // Nobody has much more than a fair part, which is less than one of the longest bodies.
        let most = used.by_payer.values().map(|own| own.all).max().unwrap();
        assert!(most <= 64 << 10, "{most}");
        assert!(used.by_payer.len() >= TOTAL / (64 << 10));
        assert!(used.all <= TOTAL);
        for number in 0..20 {
            assert!(used.take(&format!("other-{number}"), 3_000, TOTAL, None));
        }
        // Who was given up is told, and only they.
        let mut given_up = 0;
        for (payer, (number, told)) in bodies {
            let is_told = tokio::time::timeout(std::time::Duration::ZERO, told.notified());
            let is_told = is_told.await.is_ok();
            assert_eq!(used.take(&payer, 0, TOTAL, Some(number)), !is_told);
            match used.end_unfinished(&payer, number) {
                Some(bytes) => used.give_back(&payer, bytes),
                None => given_up += 1,
            }
            assert_eq!(used.end_unfinished(&payer, number), None);
        }
        assert!(given_up > 20, "{given_up}");
        for number in 0..20 {
            used.give_back(&format!("other-{number}"), 3_000);
        }
        assert_eq!(used.counted(), (0, 0));
        assert!(
            (TOTAL / 2..=TOTAL).contains(&used.most()),
            "{}",
            used.most()
        );
    }

    #[test]
    fn nobody_is_pushed_out_by_a_payer_who_would_have_more_or_needs_too_much() {
        let mut used = UsedBytes::default();
        let bodies = hoard(&mut used, "first");
        assert_eq!(used.all, TOTAL / 2);
        assert!(!used.take("first", 1, TOTAL, None));
        assert!(!used.take("other", TOTAL / 2 + 1, TOTAL, None));
        assert!(!used.take("other", usize::MAX, TOTAL, None));
        assert_eq!(used.by_payer["first"].unfinished.len(), bodies.len());
        assert!(used.take("other", TOTAL / 2, TOTAL, None));
    }

    #[test]
    fn nothing_is_given_up_for_a_payer_who_would_still_have_no_room() {
        let mut used = UsedBytes::default();
        assert!(used.take("finished", TOTAL / 2, TOTAL, None));
        for (payer, bytes) in [("first", TOTAL / 4), ("second", TOTAL / 8)] {
            assert!(used.take(payer, bytes, TOTAL, None));
            used.begin_unfinished(payer, bytes);
        }
        // A quarter and an eighth could be given up; with them there would be half.
        assert!(!used.take("other", TOTAL / 8 + TOTAL / 4, TOTAL, None));
        assert_eq!(used.all, TOTAL / 8 * 7);
        assert_eq!(used.most_unfinished.len(), 2);
        assert!(used.take("other", TOTAL / 8 + 1, TOTAL, None));
        let left: Vec<_> = used.most_unfinished.iter().cloned().collect();
        assert_eq!(left, [(TOTAL / 8, "second".to_owned())]);
    }

    #[test]
    fn a_payer_can_give_up_bodies_of_its_own_but_none_in_vain() {
        let mut used = UsedBytes::default();
        assert!(used.take("other", TOTAL / 4, TOTAL, None));
        let unfinished = [TOTAL / 8, TOTAL / 16].map(|bytes| {
            assert!(used.take("own", bytes, TOTAL, None));
            used.begin_unfinished("own", bytes)
        });
        assert!(!used.make_room_of_own("own", TOTAL / 4 * 3 + 1, TOTAL));
        assert_eq!(used.by_payer["own"].unfinished.len(), 2);
        assert!(!used.take("own", TOTAL / 2, TOTAL, None));
        assert!(used.make_room_of_own("own", TOTAL / 2, TOTAL));
        assert!(used.end_unfinished("own", unfinished[0].0).is_none());
        assert!(used.take("own", TOTAL / 2, TOTAL, None));
        assert!(used.end_unfinished("own", unfinished[1].0).is_some());
        assert!(!used.make_room_of_own("new", TOTAL, TOTAL));
        assert!(used.make_room_of_own("new", 1, TOTAL));
    }

    #[test]
    fn what_is_finished_is_not_given_up() {
        let mut used = UsedBytes::default();
        for (number, _) in hoard(&mut used, "first") {
            assert!(used.end_unfinished("first", number).is_some());
        }
        assert!(used.take("second", TOTAL / 2, TOTAL, None));
        assert!(!used.take("third", 1, TOTAL, None));
    }
}
