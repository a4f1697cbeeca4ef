//! Who has how many bytes of a budget.
//!
//! What a payer has may become as much as is left for all: the dynamic threshold of shared packet buffers. Payers who come one
//! after the other, and leave their bodies unfinished, could still take half of what is left each, until there is nothing.
//! So where there is no room for a payer, an unfinished body of the payer with most of them is given up, as long as that payer
//! has more than the one who asks would have: the push-out of shared packet buffers.
//!
//! Source: A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
//! Transactions on Networking 6(2), 1998, with α = 1.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
        while wanted > total.saturating_sub(self.all) {
            if wanted > total || !self.give_up_more_than(wanted) {
                return false;
            }
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

    /// Gives up the longest unfinished body of the payer who has most of them, if that is more than `bytes`. Returns whether
    /// there is one.
    fn give_up_more_than(&mut self, bytes: usize) -> bool {
        let most = self.most_unfinished.last();
        let Some((_, payer)) = most.filter(|(most, _)| *most > bytes).cloned() else {
            return false;
        };
        self.change(&payer, |own| {
            let longest = own.unfinished.iter().max_by_key(|(_, body)| body.bytes);
            let longest = longest.map(|(number, _)| *number);
            if let Some(body) = longest.and_then(|number| own.unfinished.remove(&number)) {
                own.all -= body.bytes;
                own.unfinished_bytes -= body.bytes;
                body.given_up.notify_one();
            }
        });
        true
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
    fn what_is_finished_is_not_given_up() {
        let mut used = UsedBytes::default();
        for (number, _) in hoard(&mut used, "first") {
            assert!(used.end_unfinished("first", number).is_some());
        }
        assert!(used.take("second", TOTAL / 2, TOTAL, None));
        assert!(!used.take("third", 1, TOTAL, None));
    }
}
