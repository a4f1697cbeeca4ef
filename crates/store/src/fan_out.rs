//! Many watches of one thread, told of changes a few at a time.
//!
//! A change that ten thousand watches wait for makes as many tasks ready at once. Whatever else the thread has to do, such as
//! to answer the write that made the change, would wait until all of them have been served. So one task of the thread follows
//! the store, and wakes the watches in small groups: between two of them everything else has its turn. And it wakes those
//! only that the change is for; for all others it keeps in mind that they have missed nothing.
//!
//! Not here: what a watch reads once it is woken ([`Watch`]), and on which thread the task runs.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::task::yield_now;

use crate::{entry::StoreEvent, error::StoreError, store::Store, watch::Watch};
use fairgate_core::sync::{Mutex, lock};

/// How many watches are woken at once. Each takes some 20 µs to be served.
pub(crate) const AT_ONCE: usize = 32;

/// How long to wait until a store that could not be watched is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Tells the watches of one thread of changes.
#[derive(Debug)]
pub struct FanOut {
    state: Mutex<FanOutState>,
}

#[derive(Debug, Default)]
struct FanOutState {
    /// Every change up to this revision was noted.
    position: u64,
    /// By prefix, and then by number: in the order in which they began.
    watches: BTreeMap<Arc<str>, BTreeMap<u64, FollowedState>>,
    next: u64,
}

/// What is known of a watch.
#[derive(Debug)]
struct FollowedState {
    /// Whether there may be changes for it: all of them come after this revision.
    changed_after: Option<u64>,
    waker: Option<Waker>,
}

/// A watch that a [`FanOut`] tells of changes.
#[derive(Debug)]
pub struct FollowedWatch {
    watch: Watch,
    fan_out: Arc<FanOut>,
    prefix: Arc<str>,
    number: u64,
}

impl FanOut {
    /// For the watches of one thread, and the task that tells them of changes, which is to be spawned there. The task ends after
    /// the last of them.
    ///
    /// # Errors
    ///
    /// As [`Store::watch`].
    pub fn new(
        store: Arc<dyn Store>,
    ) -> Result<(Arc<Self>, impl Future<Output = ()> + Send + use<>), StoreError> {
        let position = store.cached_revision();
        let changes = store.watch("/", position)?;
        let state = FanOutState {
            position,
            ..FanOutState::default()
        };
        let fan_out = Arc::new(Self {
            state: Mutex::new(state),
        });
        let task = follow(Arc::downgrade(&fan_out), store, changes);
        Ok((fan_out, task))
    }

    /// Tells `watch` of changes from now on.
    pub fn follow(self: &Arc<Self>, watch: Watch) -> FollowedWatch {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        let known = state.watches.get_key_value(watch.prefix());
        let prefix = known.map_or_else(|| watch.prefix().into(), |(prefix, _)| Arc::clone(prefix));
        let same = state.watches.entry(Arc::clone(&prefix)).or_default();
        // What has happened since it began was noted before it was here: at first it looks for itself.
        same.insert(number, FollowedState::LOOK);
        drop(state);
        FollowedWatch {
            watch,
            fan_out: Arc::clone(self),
            prefix,
            number,
        }
    }

    /// Notes changes up to `position`. Returns the watches to be woken.
    fn note(&self, events: &[Arc<StoreEvent>], position: u64) -> Vec<Waker> {
        let mut state = lock(&self.state);
        let mut firsts: BTreeMap<&str, u64> = BTreeMap::new();
        for event in events {
            for (slash, _) in event.key.match_indices('/') {
                let prefix = &event.key[..=slash];
                firsts.entry(prefix).or_insert(event.revision);
            }
        }
        let mut due = Vec::new();
        for (prefix, first) in firsts {
            for watch in state.watches.get_mut(prefix).into_iter().flatten() {
                watch.1.changed(first - 1, &mut due);
            }
        }
        state.position = position;
        due
    }

    /// Has all watches look for themselves: the history no longer has all changes. Those after `position` will be noted.
    fn note_gap(&self, position: u64) -> Vec<Waker> {
        let mut state = lock(&self.state);
        let noted = std::mem::replace(&mut state.position, position);
        let mut due = Vec::new();
        for watch in state.watches.values_mut().flat_map(BTreeMap::values_mut) {
            watch.changed(noted, &mut due);
        }
        due
    }
}

impl FanOutState {
    fn of(&mut self, watch: &FollowedWatch) -> Option<&mut FollowedState> {
        self.watches.get_mut(&watch.prefix)?.get_mut(&watch.number)
    }
}

impl FollowedState {
    /// It is to look whether there are changes.
    const LOOK: Self = Self {
        changed_after: Some(0),
        waker: None,
    };

    /// There are changes for it after `revision`.
    fn changed(&mut self, revision: u64, due: &mut Vec<Waker>) {
        self.changed_after.get_or_insert(revision);
        due.extend(self.waker.take());
    }
}

/// Follows the store, and wakes the watches.
async fn follow(fan_out: Weak<FanOut>, store: Arc<dyn Store>, mut changes: Watch) {
    loop {
        let noted = changes.ready();
        if noted.is_err() {
            // Before the watches look, so that nothing is missed.
            changes = begin_again(&*store).await;
        }
        let Some(all) = fan_out.upgrade() else {
            return;
        };
        let due = match &noted {
            Ok(events) => all.note(events, changes.progress()),
            Err(_) => all.note_gap(changes.progress()),
        };
        drop(all);
        for group in due.chunks(AT_ONCE) {
            group.iter().for_each(Waker::wake_by_ref);
            // Those go first, and whatever else is ready.
            yield_now().await;
        }
        if noted.is_ok_and(|events| events.is_empty()) {
            changes.news().await;
        } else {
            yield_now().await;
        }
    }
}

/// A watch of everything from now on.
async fn begin_again(store: &dyn Store) -> Watch {
    loop {
        if let Ok(changes) = store.watch("/", store.cached_revision()) {
            return changes;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl FollowedWatch {
    /// Waits for the next changes and returns at least one. Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`Watch::next`].
    pub async fn next(&mut self) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        loop {
            let changed_after = poll_fn(|cx| self.poll_changed(cx)).await;
            self.watch.skip_to(changed_after);
            let events = self.watch.ready();
            if !events.as_ref().is_ok_and(Vec::is_empty) {
                // There may be more.
                if let Some(state) = lock(&self.fan_out.state).of(self) {
                    state.changed_after = Some(0);
                }
                return events;
            }
        }
    }

    /// Ready when there may be changes, with the revision after which they all come. To be called again only after they were
    /// read.
    fn poll_changed(&self, cx: &mut Context<'_>) -> Poll<u64> {
        let mut state = lock(&self.fan_out.state);
        let Some(state) = state.of(self) else {
            return Poll::Ready(0);
        };
        // What is noted from now on sets it again.
        if let Some(revision) = state.changed_after.take() {
            return Poll::Ready(revision);
        }
        if !state
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// As [`Watch::progress`].
    pub fn progress(&self) -> u64 {
        let mut state = lock(&self.fan_out.state);
        let noted = state.position;
        match state.of(self) {
            Some(FollowedState {
                changed_after: None,
                ..
            }) => self.watch.progress().max(noted),
            _ => self.watch.progress(),
        }
    }
}

impl Drop for FollowedWatch {
    fn drop(&mut self) {
        let mut state = lock(&self.fan_out.state);
        let Some(same) = state.watches.get_mut(&self.prefix) else {
            return;
        };
        same.remove(&self.number);
        if same.is_empty() {
            state.watches.remove(&self.prefix);
        }
    }
}
