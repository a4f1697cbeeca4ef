//! The store in etcd: several replicas share one set of objects.
//!
//! The revisions are those of etcd. Writes are transactions that compare the mod revision of the key. An
//! etcd watch feeds the `Mirror`, which serves cached reads and watches. Replicas do not talk to each
//! other: they see each other's writes as etcd events.
//!
//! A newest read is linearizable. A read of one object goes to etcd. A list gets the current revision from
//! etcd, and waits until the mirror has reached it. So a list costs etcd a read of one key.
//!
//! Every write also checks the marker, so nothing is written to a cluster that was emptied or
//! replaced.
//!
//! While etcd is unreachable, cached reads and watches continue; the feed reconnects and resumes.
//!
//! Not here: leases. Foreign keys below the prefix are refused.

mod compaction;
mod feed;
mod keys;
mod link;
mod migration;

#[cfg(test)]
mod tests;

use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use tokio::{sync::watch, task::JoinHandle};

use self::{
    compaction::Turn,
    keys::{FORMAT, Keys},
    link::Link,
};
use crate::{
    entry::{StoreEntry, check_key, check_prefix, check_size},
    error::StoreError,
    history::HistoryLimits,
    mirror::Mirror,
    store::{Store, StoreFuture},
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    watch::Watch,
};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// How long an acknowledged write waits for the mirror to contain it.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a read waits for the mirror to reach etcd's revision.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How often etcd is polled for a revision that it does not have yet.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How to reach etcd, and which keys to use.
#[derive(Clone)]
pub struct EtcdSettings {
    /// Such as `https://10.0.0.7:2379`. All belong to the same cluster.
    pub endpoints: Vec<String>,
    /// Such as `/fairgate`. Separate sets of objects in one cluster need separate prefixes.
    pub prefix: String,
    /// Required for `https` endpoints, and not allowed for `http`.
    pub tls: Option<EtcdTls>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// How much history is kept in memory.
    pub limits: HistoryLimits,
    /// If set, compacts the whole cluster at this interval, to the revision of an interval before. For a
    /// dedicated cluster that nobody else compacts.
    pub compaction: Option<Duration>,
}

/// TLS settings for etcd. All certificates and keys are PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// The CA certificates that verify etcd's certificate.
    pub ca: Vec<u8>,
    /// The client certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it differs from the host of the endpoint.
    pub server_name: Option<String>,
}

/// A store in etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    feed: JoinHandle<()>,
}

/// The state that the store and its feed share.
struct Shared {
    link: Link,
    keys: Keys,
    mirror: Arc<Mirror>,
    limits: HistoryLimits,
    clock: Clock,
    /// Why the feed is not running; empty while it runs.
    feed_error: ArcSwapOption<StoreError>,
    /// The highest revision that readers wait for in the mirror.
    requested: watch::Sender<u64>,
    /// The ID of the cluster that was read; 0 before the first load.
    cluster: AtomicU64,
    compaction: Option<Turn>,
}

impl EtcdStore {
    /// Starts to follow etcd on the current runtime, and returns at once. Until the first load, reads and
    /// writes fail, and [`health`](Store::health) has the cause; [`wait_for`](Store::wait_for) revision 1
    /// waits for the load.
    ///
    /// # Errors
    ///
    /// When the prefix or an endpoint is not valid.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(settings: &EtcdSettings, clock: Clock) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            link: Link::new(settings)?,
            keys: Keys::new(&settings.prefix)?,
            mirror: Arc::new(Mirror::new()),
            limits: settings.limits,
            clock,
            feed_error: ArcSwapOption::empty(),
            requested: watch::Sender::new(0),
            cluster: AtomicU64::new(0),
            compaction: settings.compaction.map(Turn::every),
        });
        let feed = tokio::spawn(feed::run(shared.clone()));
        Ok(Self { shared, feed })
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

impl Store for EtcdStore {
    fn get<'a>(
        &'a self,
        key: &'a str,
        at: ReadRevision,
    ) -> StoreFuture<'a, Option<Arc<StoreEntry>>> {
        Box::pin(async move {
            check_key(key)?;
            let shared = &self.shared;
            match at {
                ReadRevision::Cached => shared.mirror.get(key),
                ReadRevision::Newest => shared.get(key, None).await,
                ReadRevision::Exactly(revision) => match shared.mirror.get_at(key, revision) {
                    Err(StoreError::Compacted { .. } | StoreError::Future { .. }) => {
                        shared.get(key, Some(revision)).await
                    }
                    read => read,
                },
            }
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<NonZeroUsize>,
        at: ReadRevision,
    ) -> StoreFuture<'a, ListPage> {
        Box::pin(async move {
            check_prefix(prefix)?;
            let shared = &self.shared;
            match at {
                ReadRevision::Cached => shared.mirror.list(prefix, after, limit),
                ReadRevision::Newest => {
                    shared.catch_up().await?;
                    shared.mirror.list(prefix, after, limit)
                }
                ReadRevision::Exactly(revision) => {
                    match shared.mirror.list_at(prefix, after, limit, revision) {
                        Err(StoreError::Compacted { .. } | StoreError::Future { .. }) => {
                            shared.list_at(prefix, after, limit, revision).await
                        }
                        read => read,
                    }
                }
            }
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
    ) -> StoreFuture<'a, WriteOutcome> {
        Box::pin(async move {
            check_key(key)?;
            check_size(key, value.as_ref())?;
            let size = value.as_ref().map_or(0, Bytes::len);
            match self.shared.write(key, expected, value).await {
                // etcd's error does not name the key.
                Err(StoreError::TooLarge { limit, .. }) => Err(StoreError::TooLarge {
                    key: key.to_owned(),
                    bytes: size,
                    limit,
                }),
                written => written,
            }
        })
    }

    fn revision(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.shared.revision())
    }

    fn cached_revision(&self) -> u64 {
        self.shared.mirror.revision()
    }

    fn wait_for(&self, revision: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                () = self.shared.mirror.wait_for(revision) => {}
                () = self.shared.wait_for_etcd(revision) => {}
            }
            Ok(())
        })
    }

    fn watch(&self, prefix: &str, after: u64) -> Result<Watch, StoreError> {
        Watch::new(&self.shared.mirror, prefix, after)
    }

    fn floor(&self) -> u64 {
        self.shared.mirror.floor()
    }

    fn maintain(&self, now: Time) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let shared = &self.shared;
            shared.mirror.forget_stale(now);
            let floor = shared.mirror.due_floor(now, &shared.limits);
            shared.mirror.raise_floor(floor);
            // Writes to other keys of the cluster raise the revision too. Following it keeps the mirror
            // above the revision that etcd has compacted to.
            shared.catch_up().await?;
            match &shared.compaction {
                Some(turn) => turn.take(shared, now).await,
                None => Ok(()),
            }
        })
    }

    fn health(&self) -> StoreHealth {
        self.shared.mirror.health()
    }

    fn size(&self) -> StoreSize {
        self.shared.mirror.size()
    }
}

impl Shared {
    /// Whether etcd is known to be unreachable. Fails if the cause is permanent, so that a call is useless.
    fn is_degraded(&self) -> Result<bool, StoreError> {
        match self.feed_error.load().as_deref() {
            None => Ok(false),
            Some(
                error @ (StoreError::Foreign { .. }
                | StoreError::WentBack { .. }
                | StoreError::Denied(_)),
            ) => Err(error.clone()),
            Some(_) => Ok(true),
        }
    }

    /// As [`is_degraded`](Self::is_degraded); fails also before the first load, which checks the prefix.
    fn loaded(&self) -> Result<bool, StoreError> {
        let is_degraded = self.is_degraded()?;
        match self.mirror.revision() {
            0 => Err(self.mirror.not_loaded()),
            _ => Ok(is_degraded),
        }
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let is_degraded = self.loaded()?;
        let mut kv = self.link.kv().await?;
        let count = GetOptions::new().with_count_only();
        let seen = self.mirror.revision();
        let found = link::call(is_degraded, kv.get(self.keys.marker(), Some(count))).await?;
        self.not_before(seen, revision_of(found.header())?)
    }

    /// Returns `found`, a revision from etcd; an error if it is older than `seen`, one from before.
    fn not_before(&self, seen: u64, found: u64) -> Result<u64, StoreError> {
        if found >= seen {
            return Ok(found);
        }
        let error = StoreError::WentBack { seen, found };
        self.feed_error.store(Some(Arc::new(error.clone())));
        Err(error)
    }

    /// Waits until the mirror has reached etcd's current revision.
    async fn catch_up(&self) -> Result<(), StoreError> {
        let revision = self.revision().await?;
        self.request_progress(revision);
        let caught_up = self.mirror.wait_for(revision);
        if tokio::time::timeout(READ_TIMEOUT, caught_up).await.is_err() {
            return Err(self.mirror.not_loaded());
        }
        Ok(())
    }

    /// Waits until etcd and the mirror have reached `revision`, which comes from a client and may not exist.
    async fn wait_for_etcd(&self, revision: u64) {
        while !matches!(self.revision().await, Ok(newest) if newest >= revision) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.request_progress(revision);
        self.mirror.wait_for(revision).await;
    }

    /// Makes the feed send progress requests until the mirror has reached `revision`. The revision must
    /// exist in etcd.
    fn request_progress(&self, revision: u64) {
        if self.mirror.revision() < revision {
            self.requested.send_if_modified(|requested| {
                let is_higher = *requested < revision;
                *requested = revision.max(*requested);
                is_higher
            });
        }
    }

    async fn get(&self, key: &str, at: Option<u64>) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        let is_degraded = self.loaded()?;
        let mut kv = self.link.kv().await?;
        let options = at.map(at_revision).transpose()?;
        let call = kv.get(self.keys.full(key), options);
        let mut found = link::call(is_degraded, call)
            .await
            .map_err(|error| self.with_revisions(error, at))?;
        let found = found.take_kvs().into_iter().next();
        found.map(|found| self.entry(key, found)).transpose()
    }

    /// Reads a page from etcd, at a revision that is not in the history of the mirror.
    async fn list_at(
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
            let is_degraded = self.is_degraded()?;
            let found = self
                .range(is_degraded, prefix, after.as_deref(), most, Some(revision))
                .await?;
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

    /// Reads at most 100 keys below `prefix`; the timeout is shorter if `is_degraded`.
    async fn range(
        &self,
        is_degraded: bool,
        prefix: &str,
        after: Option<&str>,
        most: usize,
        at: Option<u64>,
    ) -> Result<GetResponse, StoreError> {
        // About 150 MB with values of the maximum length.
        const MAX_KEYS: usize = 100;
        let mut kv = self.link.kv().await?;
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
        link::call(is_degraded, kv.get(start, Some(options)))
            .await
            .map_err(|error| self.with_revisions(error, at))
    }

    /// Adds the revisions to an error, which etcd's error does not contain.
    fn with_revisions(&self, error: StoreError, at: Option<u64>) -> StoreError {
        let asked = at.unwrap_or(0);
        match error {
            StoreError::Compacted { .. } => StoreError::Compacted {
                asked,
                floor: self.mirror.floor(),
            },
            StoreError::Unavailable(text) if text.contains("required revision is a future") => {
                StoreError::Future {
                    asked,
                    newest: self.mirror.revision(),
                }
            }
            error => error,
        }
    }

    /// The entry for a key-value pair of etcd: that of the mirror, with its memo, if it has the same
    /// revision.
    fn entry(&self, key: &str, found: KeyValue) -> Result<Arc<StoreEntry>, StoreError> {
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

    async fn write(
        &self,
        key: &str,
        expected: Precondition,
        value: Option<Bytes>,
    ) -> Result<WriteOutcome, StoreError> {
        if let Some(same) = self.unchanged(key, expected, value.as_ref()).await? {
            return Ok(same);
        }
        let is_degraded = self.loaded()?;
        let seen = self.mirror.revision();
        let mut kv = self.link.kv().await?;
        let transaction = transaction(&self.keys, key, expected, value.as_ref());
        let ended = link::call(is_degraded, kv.txn(transaction)).await?;
        self.not_before(seen, revision_of(ended.header())?)?;
        if ended.succeeded() {
            self.done(key, value, &ended).await
        } else {
            self.lost(key, &ended)
        }
    }

    /// The outcome of a write that would change nothing; `None` if it may change something.
    ///
    /// Compares with the mirror first. Only if the bytes are equal, the entry is read from etcd to check
    /// that it is still the same.
    async fn unchanged(
        &self,
        key: &str,
        expected: Precondition,
        value: Option<&Bytes>,
    ) -> Result<Option<WriteOutcome>, StoreError> {
        let same = |found: Option<&Arc<StoreEntry>>| {
            expected.holds(found) && found.map(|found| &found.value) == value
        };
        let is_nothing = value.is_none() && expected == Precondition::Absent;
        if !is_nothing && !same(self.mirror.get(key)?.as_ref()) {
            return Ok(None);
        }
        let newest = self.get(key, None).await?;
        if !same(newest.as_ref()) {
            return Ok(Some(WriteOutcome::Lost(newest)));
        }
        Ok(Some(WriteOutcome::Done {
            revision: match &newest {
                Some(entry) => entry.revision,
                None => self.mirror.revision(),
            },
            before: newest.clone(),
            after: newest,
        }))
    }

    async fn done(
        &self,
        key: &str,
        value: Option<Bytes>,
        ended: &TxnResponse,
    ) -> Result<WriteOutcome, StoreError> {
        let revision = revision_of(ended.header())?;
        // The write is durable, so a timeout does not matter: the feed may be down.
        let mirrored = self.mirror.wait_for(revision);
        let _ = tokio::time::timeout(MIRROR_TIMEOUT, mirrored).await;
        if let Some(event) = self.mirror.event(key, revision) {
            return Ok(WriteOutcome::Done {
                revision,
                before: event.before.clone(),
                after: event.after.clone(),
            });
        }
        let before = ended.op_responses().into_iter().find_map(|op| match op {
            TxnOpResponse::Put(mut put) => put.take_prev_key(),
            TxnOpResponse::Delete(mut deleted) => deleted.take_prev_kvs().pop(),
            _ => None,
        });
        Ok(WriteOutcome::Done {
            revision,
            before: before.map(|before| self.entry(key, before)).transpose()?,
            after: value.map(|value| Arc::new(StoreEntry::new(key.into(), value, revision))),
        })
    }

    fn lost(&self, key: &str, ended: &TxnResponse) -> Result<WriteOutcome, StoreError> {
        let mut found = ended.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        let (current, marker) = (found.next().flatten(), found.next().flatten());
        match marker {
            Some(marker) if marker.value() != FORMAT.as_bytes() => {
                Err(self.keys.foreign(Some(marker.value())))
            }
            Some(_) => {
                let current = current.map(|current| self.entry(key, current));
                Ok(WriteOutcome::Lost(current.transpose()?))
            }
            None => Err(StoreError::Unavailable(
                "the keys of fairgate were removed from etcd; nothing was written".to_owned(),
            )),
        }
    }
}

/// Writes `key` if the precondition holds and the marker has the present format; otherwise reads both.
fn transaction(keys: &Keys, key: &str, expected: Precondition, value: Option<&Bytes>) -> Txn {
    let (key, marker) = (keys.full(key), keys.marker());
    let is_expected = match expected {
        Precondition::Absent => Compare::version(key.clone(), CompareOp::Equal, 0),
        Precondition::At(revision) => {
            // No etcd revision exceeds `i64::MAX`.
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            Compare::mod_revision(key.clone(), CompareOp::Equal, revision)
        }
    };
    // Not its existence: an older fairgate must not write to keys that a newer one has migrated.
    let is_ours = Compare::value(marker.clone(), CompareOp::Equal, FORMAT);
    let change = if let Some(value) = value {
        let options = PutOptions::new().with_prev_key();
        TxnOp::put(key.clone(), &value[..], Some(options))
    } else {
        let options = DeleteOptions::new().with_prev_key();
        TxnOp::delete(key.clone(), Some(options))
    };
    Txn::new()
        .when([is_expected, is_ours])
        .and_then([change])
        .or_else([TxnOp::get(key, None), TxnOp::get(marker, None)])
}

/// An etcd key without the prefix, from which a list continues.
fn internal_name(keys: &Keys, found: &KeyValue) -> String {
    let prefix = keys.full("").len();
    String::from_utf8_lossy(&found.key()[prefix..]).into_owned()
}

fn at_revision(revision: u64) -> Result<GetOptions, StoreError> {
    // To etcd, 0 means the newest revision.
    let signed = i64::try_from(revision).ok().filter(|&signed| signed > 0);
    match signed {
        Some(signed) => Ok(GetOptions::new().with_revision(signed)),
        None => Err(StoreError::Future {
            asked: revision,
            newest: 0,
        }),
    }
}

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> Result<u64, StoreError> {
    match header {
        Some(header) => unsigned(header.revision()),
        None => Err(StoreError::Failed("etcd returned no revision".to_owned())),
    }
}

fn unsigned(revision: i64) -> Result<u64, StoreError> {
    u64::try_from(revision)
        .map_err(|_| StoreError::Failed(format!("etcd returned the revision {revision}")))
}
