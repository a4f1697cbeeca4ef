//! The guarantees of every store, as tests.
//!
//! [`conformance!`] makes a test of each function in the modules below for one kind of store. All that they know of it
//! is a [`TestStore`]: where one set of objects lives, and can be opened again.

pub(super) mod fan_out;
pub(super) mod limits;
pub(super) mod reads;
pub(super) mod reopening;
pub(super) mod watches;
pub(super) mod writes;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{Precondition, Store, StoreEntry, StoreEvent, StoreFuture, Watch, WriteOutcome};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use fairgate_testkit::client::soon;

/// A place where one set of objects lives.
pub(super) trait TestStore: Send {
    /// Opens it. A store that was opened before must have been dropped.
    fn open(&mut self) -> StoreFuture<'_, Arc<dyn Store>>;
    /// The clock of the stores that it opens.
    fn clock(&self) -> Clock;
}

/// Makes a test of every function here, for the [`TestStore`]s that an expression makes.
macro_rules! conformance {
    ($place:expr => $($module:ident: $($name:ident)*;)*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::conformance::$module::$name(&mut $place).await;
            }
        )*)*
    };
    ($place:expr) => {
        $crate::conformance::conformance! { $place =>
            limits:
                what_is_used_is_counted_by_prefix_also_after_reopening
                a_write_beyond_a_limit_is_refused_and_one_that_shrinks_is_not
                concurrent_writes_do_not_exceed_a_limit_together;
            writes:
                every_change_gets_the_next_revision_whatever_its_prefix
                a_write_that_changes_nothing_gets_no_revision
                writes_compare_before_they_swap
                one_of_several_racing_writers_wins_each_round
                a_value_of_the_maximum_length_is_stored_and_a_longer_one_refused
                an_invalid_key_is_refused;
            reads:
                a_list_is_in_byte_order_and_ends_with_its_prefix
                the_pages_of_a_revision_make_up_its_list
                old_revisions_can_be_read_down_to_the_floor
                reads_of_an_old_revision_are_stable_while_others_write
                an_acknowledged_write_is_read_at_once
                reads_and_events_share_entries_and_their_memos;
            watches:
                a_watch_sends_every_change_with_the_entry_before_it
                every_watch_sees_every_change_once_and_in_order
                a_watch_below_the_floor_is_refused
                a_slow_watch_ends_when_the_floor_overtakes_it
                the_progress_of_a_watch_includes_changes_elsewhere
                a_dropped_wait_loses_nothing;
            fan_out:
                followed_watches_see_every_change_once_and_in_order
                a_followed_watch_misses_nothing_though_it_waits_below_the_floor
                a_followed_watch_ends_when_the_floor_overtakes_what_it_did_not_read
                followed_watches_end_when_changes_are_lost_before_they_were_noted;
            reopening:
                everything_is_there_after_reopening
                a_watch_resumes_after_reopening_or_is_refused;
        }
    };
}
pub(super) use conformance;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The revision of a write that must have succeeded, and the entry before and after it.
fn done(written: WriteOutcome) -> (u64, Option<Arc<StoreEntry>>, Option<Arc<StoreEntry>>) {
    match written {
        WriteOutcome::Done {
            revision,
            before,
            after,
        } => (revision, before, after),
        WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
    }
}

fn lost(written: WriteOutcome) -> Option<Arc<StoreEntry>> {
    match written {
        WriteOutcome::Lost(found) => found,
        done @ WriteOutcome::Done { .. } => panic!("{done:?}"),
    }
}

pub(super) async fn create(store: &dyn Store, key: &str, value: &str) -> u64 {
    let written = store
        .write(key, Precondition::Absent, Some(bytes(value)))
        .await;
    done(written.unwrap()).0
}

async fn put(store: &dyn Store, key: &str, at: u64, value: &str) -> u64 {
    let written = store
        .write(key, Precondition::At(at), Some(bytes(value)))
        .await;
    done(written.unwrap()).0
}

async fn delete(store: &dyn Store, key: &str, at: u64) -> u64 {
    done(store.write(key, Precondition::At(at), None).await.unwrap()).0
}

fn limit(entries: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(entries)
}

/// Entries as `key=value@revision`, for comparison.
fn shown(entries: &[Arc<StoreEntry>]) -> Vec<String> {
    let show = |entry: &Arc<StoreEntry>| {
        let value = String::from_utf8(entry.bytes().into()).unwrap();
        format!("{}={value}@{}", entry.key, entry.revision)
    };
    entries.iter().map(show).collect()
}

fn value(entry: Option<&Arc<StoreEntry>>) -> Option<Bytes> {
    entry.map(|entry| entry.bytes())
}

/// The next `count` changes of a watch.
async fn take(watch: &mut Watch, count: usize) -> Vec<Arc<StoreEvent>> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(soon(watch.next()).await.unwrap());
    }
    assert_eq!(events.len(), count, "{events:?}");
    events
}

/// Applies a change to a state, and checks that the entry before it is that of the state.
fn fold(state: &mut BTreeMap<Arc<str>, Arc<StoreEntry>>, event: &StoreEvent) {
    let before = match &event.after {
        Some(after) => {
            assert_eq!(after.revision, event.revision);
            state.insert(event.key.clone(), after.clone())
        }
        None => state.remove(&event.key),
    };
    let seen = |entry: Option<&Arc<StoreEntry>>| entry.map(|e| (e.revision, e.bytes()));
    assert_eq!(seen(before.as_ref()), seen(event.before.as_ref()));
}

/// Makes all of the history so old that it is dropped.
async fn age(place: &dyn TestStore, store: &dyn Store) {
    place.clock().advance(Duration::from_secs(3600));
    store.maintain(place.clock().now()).await.unwrap();
}

/// A clock that a test moves.
pub(super) fn clock() -> Clock {
    Clock::manual(Time::ZERO.plus(Duration::from_secs(1)))
}
