//! The store in etcd: several replicas share one set of objects.
//!
//! etcd's revision is ours, its transactions compare a key's mod revision, its watch feeds the
//! [`Mirror`] that cached reads and watches are served from. Nothing is distributed by us: what one
//! replica writes reaches the others as an event of etcd's.
//!
//! A newest read asks etcd, linearizably: for one object directly, for a list for the current revision,
//! after which it waits until the mirror has come that far. So a list costs etcd one key, not all.
//!
//! Every write also compares that our marker is there, so nothing is written into a cluster that was
//! emptied or exchanged underneath us.
//!
//! Connection lost: cached reads and watches go on; the feed comes back by itself and resumes where it
//! was. Not here: leases, and data of anybody else's below the prefix, which is refused.

mod compaction;
mod feed;
mod keys;
mod link;

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

use self::{compaction::Turn, keys::Keys, link::Link};
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

/// How long a write that is done waits for the mirror to show it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// How long a read waits for the mirror to come as far as etcd.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// How often etcd is asked for a revision that it does not have yet.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where etcd is, and what below it is ours.
#[derive(Clone)]
pub struct EtcdSettings {
    /// Such as `https://10.0.0.7:2379`; all of one cluster.
    pub endpoints: Vec<String>,
    /// Such as `/fairgate`. Different sets of objects in one cluster have different prefixes.
    pub prefix: String,
    /// For `https` endpoints; required there.
    pub tls: Option<EtcdTls>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// How much history is kept in memory.
    pub limits: HistoryLimits,
    /// Whether the whole cluster is compacted, and how often: to what was newest that long before.
    /// For a cluster of our own whose operator does not compact it.
    pub compaction: Option<Duration>,
}

/// How etcd is known, and how we are known to it. All in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Who signed etcd's certificate.
    pub ca: Vec<u8>,
    /// Our certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it is not the endpoint's.
    pub server_name: Option<String>,
}

/// A store in etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    feed: JoinHandle<()>,
}

/// What the store and its feed have in common.
struct Shared {
    link: Link,
    keys: Keys,
    mirror: Arc<Mirror>,
    limits: HistoryLimits,
    clock: Clock,
    /// Why the feed does not run, if it does not.
    trouble: ArcSwapOption<StoreError>,
    /// The revision that readers want to see in the mirror.
    wanted: watch::Sender<u64>,
    /// The cluster that was read; 0 before.
    cluster: AtomicU64,
    compaction: Option<Turn>,
}

impl EtcdStore {
    /// Begins to follow etcd, on the current runtime, and returns at once. Until it was read, reads and
    /// writes fail, and [`health`](Store::health) says why; [`wait_for`](Store::wait_for) revision 1
    /// waits for that.
    ///
    /// # Errors
    ///
    /// When the settings make no sense: the prefix, the endpoints.
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
            trouble: ArcSwapOption::empty(),
            wanted: watch::Sender::new(0),
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
                // etcd does not say which.
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
                () = self.shared.pursue(revision) => {}
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
            // Others' keys move the revision as well. Following it keeps us above the floor of etcd's.
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
    /// Fails at once where trying is of no use; otherwise says whether etcd is known to be away.
    fn away(&self) -> Result<bool, StoreError> {
        match self.trouble.load().as_deref() {
            None => Ok(false),
            Some(
                error @ (StoreError::Foreign { .. }
                | StoreError::WentBack { .. }
                | StoreError::Denied(_)),
            ) => Err(error.clone()),
            Some(_) => Ok(true),
        }
    }

    /// As [`away`](Self::away); fails, too, before it is known that the prefix is ours.
    fn loaded(&self) -> Result<bool, StoreError> {
        let away = self.away()?;
        match self.mirror.revision() {
            0 => Err(self.mirror.not_loaded()),
            _ => Ok(away),
        }
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let away = self.loaded()?;
        let mut kv = self.link.kv().await?;
        let count = GetOptions::new().with_count_only();
        let seen = self.mirror.revision();
        let found = link::answer(away, kv.get(self.keys.marker(), Some(count))).await?;
        self.not_before(seen, revision_of(found.header())?)
    }

    /// Gives `found`, a revision that etcd named after we had `seen` one, unless it is older.
    fn not_before(&self, seen: u64, found: u64) -> Result<u64, StoreError> {
        if found >= seen {
            return Ok(found);
        }
        let error = StoreError::WentBack { seen, found };
        self.trouble.store(Some(Arc::new(error.clone())));
        Err(error)
    }

    /// Waits until the mirror shows all that etcd has now.
    async fn catch_up(&self) -> Result<(), StoreError> {
        let revision = self.revision().await?;
        self.want(revision);
        let caught_up = self.mirror.wait_for(revision);
        if tokio::time::timeout(READ_WITHIN, caught_up).await.is_err() {
            return Err(self.mirror.not_loaded());
        }
        Ok(())
    }

    /// Waits until etcd and the mirror have come as far as `revision`, which a client may have made up.
    async fn pursue(&self, revision: u64) {
        while !matches!(self.revision().await, Ok(newest) if newest >= revision) {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        self.want(revision);
        self.mirror.wait_for(revision).await;
    }

    /// Has the feed ask etcd how far it is, should no change tell. The revision must exist: it asks until
    /// the mirror has come so far.
    fn want(&self, revision: u64) {
        if self.mirror.revision() < revision {
            self.wanted.send_if_modified(|wanted| {
                let more = *wanted < revision;
                *wanted = revision.max(*wanted);
                more
            });
        }
    }

    async fn get(&self, key: &str, at: Option<u64>) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        let away = self.loaded()?;
        let mut kv = self.link.kv().await?;
        let options = at.map(at_revision).transpose()?;
        let call = kv.get(self.keys.full(key), options);
        let mut found = link::answer(away, call)
            .await
            .map_err(|error| self.dated(error, at))?;
        let found = found.take_kvs().into_iter().next();
        found.map(|found| self.entry(key, found)).transpose()
    }

    /// A page from etcd itself, of before what the mirror remembers or after what it has seen.
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
            let away = self.away()?;
            let found = self
                .range(away, prefix, after.as_deref(), most, Some(revision))
                .await?;
            let (more, mut last) = (found.more(), None);
            let got = found.kvs().len();
            for found in found.kvs() {
                let keys::Kind::Object(key) = self.keys.kind(found.key())? else {
                    // Ours, but no object: they are counted, and come first of all.
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

    /// One answer's worth of what is below `prefix`; waits less if etcd is known to be `away`.
    async fn range(
        &self,
        away: bool,
        prefix: &str,
        after: Option<&str>,
        most: usize,
        at: Option<u64>,
    ) -> Result<GetResponse, StoreError> {
        // Of the longest values, about 150 MB.
        const AT_ONCE: usize = 100;
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
            .with_limit(most.clamp(1, AT_ONCE) as i64);
        link::answer(away, kv.get(start, Some(options)))
            .await
            .map_err(|error| self.dated(error, at))
    }

    /// Puts into an error what etcd leaves out.
    fn dated(&self, error: StoreError, at: Option<u64>) -> StoreError {
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

    /// The entry for what etcd gave: the mirror's own, if it has it, with its memo.
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
        let away = self.loaded()?;
        let seen = self.mirror.revision();
        let mut kv = self.link.kv().await?;
        let transaction = transaction(&self.keys, key, expected, value.as_ref());
        let ended = link::answer(away, kv.txn(transaction)).await?;
        self.not_before(seen, revision_of(ended.header())?)?;
        if ended.succeeded() {
            self.done(key, value, &ended).await
        } else {
            self.lost(key, &ended)
        }
    }

    /// The answer to a write that would change nothing, if it would not.
    ///
    /// What the mirror shows is compared first; only if that has the same bytes, etcd is asked whether
    /// it still has.
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
        // It is durable: should the feed be down, the answer does not wait for it.
        let shown = self.mirror.wait_for(revision);
        let _ = tokio::time::timeout(SHOWN_WITHIN, shown).await;
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
            Some(_) => {
                let current = current.map(|current| self.entry(key, current));
                Ok(WriteOutcome::Lost(current.transpose()?))
            }
            None => Err(StoreError::Unavailable(
                "etcd was emptied of what was fairgate's; nothing was written".to_owned(),
            )),
        }
    }
}

/// Changes `key` if it is as expected and the prefix is ours; otherwise tells how both are.
fn transaction(keys: &Keys, key: &str, expected: Precondition, value: Option<&Bytes>) -> Txn {
    let (key, marker) = (keys.full(key), keys.marker());
    let is_expected = match expected {
        Precondition::Absent => Compare::version(key.clone(), CompareOp::Equal, 0),
        Precondition::At(revision) => {
            // Beyond what etcd can count to is nothing.
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            Compare::mod_revision(key.clone(), CompareOp::Equal, revision)
        }
    };
    let is_ours = Compare::version(marker.clone(), CompareOp::Greater, 0);
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

/// What an internal key is called as the key of an object, to go on after it.
fn internal_name(keys: &Keys, found: &KeyValue) -> String {
    let prefix = keys.full("").len();
    String::from_utf8_lossy(&found.key()[prefix..]).into_owned()
}

fn at_revision(revision: u64) -> Result<GetOptions, StoreError> {
    // To etcd 0 means the newest.
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
        None => Err(StoreError::Failed("etcd names no revision".to_owned())),
    }
}

fn unsigned(revision: i64) -> Result<u64, StoreError> {
    u64::try_from(revision)
        .map_err(|_| StoreError::Failed(format!("etcd names the revision {revision}")))
}
