//! Reads from etcd, and waiting until the mirror has reached a revision of etcd.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use etcd_client::{GetOptions, GetResponse, KeyValue};

use super::{Shared, at_revision, internal_name, keys, revision_of, unsigned};
use crate::{entry::StoreEntry, error::StoreError, types::ListPage};

/// How long a read waits for the mirror to reach etcd's revision.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How often etcd is polled for a revision that it does not have yet.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Shared {
    /// Fails if calls are useless for a reason that does not pass by itself.
    pub(super) fn check_usable(&self) -> Result<(), StoreError> {
        match self.feed_error.load().as_deref() {
            Some(
                error @ (StoreError::Foreign { .. }
                | StoreError::WentBack { .. }
                | StoreError::Denied(_)),
            ) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// As [`check_usable`](Self::check_usable); fails also before the first load, which checks the prefix.
    pub(super) fn check_loaded(&self) -> Result<(), StoreError> {
        self.check_usable()?;
        match self.mirror.revision() {
            0 => Err(self.mirror.not_loaded()),
            _ => Ok(()),
        }
    }

    /// The current revision of etcd, which a read of the marker returns.
    pub(super) async fn revision(&self) -> Result<u64, StoreError> {
        self.check_loaded()?;
        let count = GetOptions::new().with_count_only();
        let seen = self.mirror.revision();
        let found = self.link.get(self.keys.marker(), Some(count)).await?;
        self.not_before(seen, revision_of(found.header())?)
    }

    /// Returns `found`, a revision from etcd; an error if it is older than `seen`, one from before.
    pub(super) fn not_before(&self, seen: u64, found: u64) -> Result<u64, StoreError> {
        if found >= seen {
            return Ok(found);
        }
        let error = StoreError::WentBack { seen, found };
        self.feed_error.store(Some(Arc::new(error.clone())));
        self.went_back.notify_one();
        Err(error)
    }

    /// Waits until the mirror has reached etcd's current revision.
    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        let revision = self.revision().await?;
        self.request_progress(revision);
        let caught_up = self.mirror.wait_for(revision);
        if tokio::time::timeout(READ_TIMEOUT, caught_up).await.is_err() {
            let reached = self.mirror.revision();
            return Err(StoreError::Unavailable(format!(
                "etcd has revision {revision}, and has sent the changes up to {reached} only; try again"
            )));
        }
        Ok(())
    }

    /// Waits until etcd and the mirror have reached `revision`, which comes from a client and may not exist.
    pub(super) async fn wait_for_etcd(&self, revision: u64) {
        while !matches!(self.revision().await, Ok(newest) if newest >= revision) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.request_progress(revision);
        self.mirror.wait_for(revision).await;
    }

    /// Makes the feed send progress requests until the mirror has reached `revision`. The revision must
    /// exist in etcd.
    pub(super) fn request_progress(&self, revision: u64) {
        if self.mirror.revision() < revision {
            self.requested.send_if_modified(|requested| {
                let is_higher = *requested < revision;
                *requested = revision.max(*requested);
                is_higher
            });
        }
    }

    /// Reads an object from etcd, at its newest or at a given revision.
    pub(super) async fn get(
        &self,
        key: &str,
        at: Option<u64>,
    ) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        self.check_loaded()?;
        let options = at.map(at_revision).transpose()?;
        let seen = self.mirror.revision();
        let mut found = self
            .link
            .get(self.keys.full(key), options)
            .await
            .map_err(|error| self.with_revisions(error, at))?;
        self.not_before(seen, revision_of(found.header())?)?;
        let found = found.take_kvs().into_iter().next();
        found.map(|found| self.entry(key, found)).transpose()
    }

    /// Reads a page from etcd, at a revision that is not in the history of the mirror.
    pub(super) async fn list_at(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<NonZeroUsize>,
        revision: u64,
    ) -> Result<ListPage, StoreError> {
        let mut page = ListPage {
            entries: Vec::new(),
            revision,
            remaining: 0,
        };
        let mut after = after.map(str::to_owned);
        loop {
            let most = limit.map_or(usize::MAX, NonZeroUsize::get) - page.entries.len();
            self.check_usable()?;
            let seen = self.mirror.revision();
            let found = self
                .range(prefix, after.as_deref(), most, Some(revision))
                .await?;
            self.not_before(seen, revision_of(found.header())?)?;
            let (more, mut last) = (found.more(), None);
            let got = found.kvs().len();
            for found in found.kvs() {
                let keys::KeyKind::Object(key) = self.keys.kind(found.key())? else {
                    // An internal key: etcd counts it, and it sorts before all objects.
                    last = Some(internal_name(&self.keys, found));
                    continue;
                };
                last = Some(key.to_string());
                page.entries.push(self.entry(&key, found.clone())?);
            }
            page.remaining = u64::try_from(found.count()).unwrap_or(0) - got as u64;
            let full = limit.is_some_and(|limit| page.entries.len() >= limit.get());
            if !more || full || last.is_none() {
                return Ok(page);
            }
            after = last;
        }
    }

    /// Reads at most 100 keys below `prefix`.
    pub(super) async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
        at: Option<u64>,
    ) -> Result<GetResponse, StoreError> {
        // About 150 MB with values of the maximum length.
        const MAX_KEYS: usize = 100;
        let mut start = self.keys.full(after.unwrap_or(prefix));
        if after.is_some() {
            start.push(0);
        }
        let end = self.keys.end(prefix)?;
        if start >= end {
            start.clone_from(&end);
        }
        let options = at.map(at_revision).transpose()?.unwrap_or_default();
        #[expect(clippy::cast_possible_wrap, reason = "a hundred at most")]
        let options = options
            .with_range(end)
            .with_limit(most.clamp(1, MAX_KEYS) as i64);
        self.link
            .get(start, Some(options))
            .await
            .map_err(|error| self.with_revisions(error, at))
    }

    /// Adds the revisions to an error, which etcd's error does not contain.
    fn with_revisions(&self, error: StoreError, at: Option<u64>) -> StoreError {
        let requested = at.unwrap_or(0);
        match error {
            StoreError::Compacted { .. } => StoreError::Compacted {
                requested,
                floor: self.mirror.floor(),
            },
            StoreError::Unavailable(text) if text.contains("required revision is a future") => {
                StoreError::Future {
                    requested,
                    newest: self.mirror.revision(),
                }
            }
            error => error,
        }
    }

    /// The entry for a key-value pair of etcd: that of the mirror, with its memo, if it has the same
    /// revision.
    pub(super) fn entry(&self, key: &str, found: KeyValue) -> Result<Arc<StoreEntry>, StoreError> {
        let revision = unsigned(found.mod_revision())?;
        if let Ok(Some(known)) = self.mirror.get(key)
            && known.revision == revision
        {
            return Ok(known);
        }
        let (_, value) = found.into_key_value();
        Ok(Arc::new(StoreEntry::new(
            key.into(),
            value.into(),
            revision,
        )))
    }
}
