//! Which levels have changed since the last rebalancing.
//!
//! Rebalancing must not look at ten thousand levels ten times a second because three of them have requests. A level whose
//! demand can change by an event only is left *at rest* with a [`ChangeNotice`]; the first event takes the notice and sends
//! it to the [`ChangeList`], which the next rebalancing reads. Events after that find no notice, so a busy level pays for one
//! comparison per event and, once per rebalancing, for one lock.
//!
//! Not here: when a level may rest (`dispatcher`).

use crate::{
    sync::{Arc, AtomicU64, Mutex, Ordering, lock},
    time::Time,
};

/// The levels that have changed, by number.
#[derive(Debug)]
pub(crate) struct ChangeList {
    /// When it was last read: nanoseconds.
    read: AtomicU64,
    numbers: Mutex<Vec<u32>>,
}

/// What a level at rest holds, to be sent when an event changes it.
#[derive(Debug)]
pub(crate) struct ChangeNotice {
    list: Arc<ChangeList>,
    number: u32,
}

/// The number of no level.
const OF_LEASE: u32 = u32::MAX;

impl ChangeList {
    /// An empty list for `levels` levels, which was read at `now`. It allocates 4 bytes a level; nothing later does.
    pub(crate) fn new(levels: usize, now: Time) -> Self {
        Self {
            read: AtomicU64::new(now.as_nanos()),
            numbers: Mutex::new(Vec::with_capacity(levels)),
        }
    }

    /// Reads and empties the list at `now`; `numbers`, which must be empty and may have room, takes its place. The order is
    /// that of the changes. O(1).
    pub(crate) fn read(&self, now: Time, numbers: &mut Vec<u32>) {
        debug_assert!(numbers.is_empty(), "the list begins empty");
        let mut listed = lock(&self.numbers);
        self.read.store(now.as_nanos(), Ordering::Relaxed);
        std::mem::swap(&mut *listed, numbers);
    }
}

impl ChangeNotice {
    /// The notice of the level with this number.
    pub(crate) const fn new(list: Arc<ChangeList>, number: u32) -> Self {
        Self { list, number }
    }

    /// Stands for something else to do before each event: the level is not at rest.
    pub(crate) fn of_lease(list: &Arc<ChangeList>) -> Self {
        Self::new(Arc::clone(list), OF_LEASE)
    }

    /// Whether it was left with a level at rest.
    pub(crate) fn ends_rest(&self) -> bool {
        self.number != OF_LEASE
    }

    /// When the list was last read: the period in which the level changes began then.
    pub(crate) fn last_read(&self) -> Time {
        Time::from_nanos(self.list.read.load(Ordering::Relaxed))
    }

    /// Enters the level into the list. One short lock; not to be called under that of the level.
    pub(crate) fn send(self) {
        lock(&self.list.numbers).push(self.number);
    }
}
