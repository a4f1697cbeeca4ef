//! Versioned objects with watch: what a hosted API keeps its objects in.
//!
//! A [`Store`] maps keys such as `/flowcontrol.apiserver.k8s.io/flowschemas/catch-all` to opaque bytes under
//! one revision counter.
//! Every change gets the next revision. Writes compare and swap. Reads see the newest state, the cached
//! state, or any revision still in the history. A [`Watch`] sends every change in order.
//!
//! There are two stores with the same guarantees, checked by the same tests: [`local`], a file, and
//! `etcd` (feature `etcd`), which several replicas share. Both serve reads and watches from a
//! `mirror`, the same state in memory.
//!
//! Guarantees:
//! - A revision is visible, and a write acknowledged, only once it is durable.
//! - After a crash every acknowledged write is there. Any other write is there completely or not at all.
//! - Revisions are never reused and never go back.
//! - A watch or read below the floor of the history fails with [`StoreError::Compacted`].
//!
//! Not here: HTTP, kinds, encodings, admission. A reader may cache what it decoded from an entry in the
//! entry's [`Memo`].
//!
#![doc = include_str!("design.md")]

mod entry;
mod error;
mod fan_out;
mod history;
pub mod local;
mod migration;
mod mirror;
mod store;
mod stored_value;
mod types;
mod usage;
mod watch;

#[cfg(feature = "etcd")]
pub mod etcd;

#[cfg(test)]
mod conformance;

pub use self::{
    entry::{Memo, StoreEntry, StoreEvent},
    error::StoreError,
    fan_out::{FanOut, FollowedWatch},
    history::HistoryLimits,
    store::{Store, StoreFuture},
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    usage::{ExceededLimit, StoreLimit, StoreUsage, WriteBounds},
    watch::Watch,
};
