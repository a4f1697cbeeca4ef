//! Versioned objects with watch: what a hosted API keeps its objects in.
//!
//! A [`Store`] maps keys such as `/flowschemas/catch-all` to opaque bytes under one revision counter.
//! Every change gets the next revision; writes compare and swap; reads see the newest state, what is
//! in memory, or any revision still in the history; a [`Watch`] tells of every change in order.
//!
//! Two stores keep the same promises, and one set of tests holds both to them: [`local`], a file, and
//! `etcd` (feature `etcd`), which several replicas share. Both serve reads and watches from a
//! `mirror`, the same state in memory.
//!
//! Promises: a revision is visible, and a write acknowledged, only once it is durable; after a crash
//! every acknowledged write is there, and one not acknowledged is there whole or not at all;
//! revisions are never reused and never go back; whoever resumes below the floor of the history is
//! told so.
//!
//! Not here: HTTP, kinds, encodings, admission. A reader may leave what it made of an entry's bytes
//! in the entry's [`Memo`], so that it is made once.

mod entry;
mod error;
mod history;
pub mod local;
mod mirror;
mod store;
mod types;
mod watch;

#[cfg(feature = "etcd")]
pub mod etcd;

#[cfg(test)]
mod conformance;

pub use self::{
    entry::{
        MAX_KEY_BYTES, MAX_VALUE_BYTES, Memo, StoreEntry, StoreEvent, check_key, check_prefix,
    },
    error::StoreError,
    history::HistoryLimits,
    store::{Store, StoreFuture},
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    watch::Watch,
};
