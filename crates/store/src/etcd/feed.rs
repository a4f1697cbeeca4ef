//! The task that keeps the mirror like etcd.
//!
//! It claims the prefix, reads what is below it, and follows a watch; when that breaks it comes back,
//! and goes on from the revision it had. When etcd no longer has that, it reads all anew, and the
//! mirror's floor jumps.
//!
//! It reads a state of some time ago and lets the watch bring it up to date, which fills the history:
//! clients that watched another replica, or this one before a restart, can resume here.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, Event as EtcdEvent, EventType, GetOptions, KeyValue, ResponseHeader, Txn,
    TxnOp, TxnOpResponse, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{
    Shared, at_revision,
    keys::{FORMAT, Kind},
    link, revision_of, unsigned,
};
use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
    types::StoreHealth,
};

/// How far back it reads at first, in revisions, which others' keys use up too.
const REACH: u64 = 10_000;
/// How long it waits before it tries again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often etcd is asked how far it is, while somebody wants to know.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long the answer to a new watch may take.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

type Entries = BTreeMap<Arc<str>, Arc<StoreEntry>>;

/// A state being read, not yet as new as etcd was when that began.
struct Loading {
    entries: Entries,
    events: Vec<Arc<StoreEvent>>,
    floor: u64,
    revision: u64,
    target: u64,
}

/// One change, as etcd tells it.
struct Told<'a> {
    revision: u64,
    event: &'a EtcdEvent,
    found: &'a KeyValue,
}

/// A watch of everything below the prefix.
struct Stream {
    sender: WatchRequestSender,
    responses: WatchResponseStream,
    /// Came while it was opened, and was not taken in yet.
    first: Option<WatchResponse>,
}

/// How a watch was answered.
enum Opened {
    Stream(Box<Stream>),
    /// What it was to begin with is gone; this is left.
    Compacted(u64),
}

/// Keeps the mirror like etcd, for ever.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut pause = PAUSE.0;
    loop {
        let Err(error) = shared.follow(&mut pause).await;
        let health = StoreHealth::Degraded(error.to_string().into());
        if shared.mirror.health() != health {
            tracing::warn!(%error, "cannot watch etcd");
            shared.mirror.set_health(health);
        }
        shared.trouble.store(Some(Arc::new(error)));
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// What cannot be: a feed that ends well.
type Endless = std::convert::Infallible;

impl Shared {
    /// Follows etcd until that fails. Once it gets on, the next pause will be short.
    async fn follow(&self, pause: &mut Duration) -> Result<Endless, StoreError> {
        let (newest, cluster) = self.claim().await?;
        let known = self.cluster.load(Ordering::Relaxed);
        let (mut stream, mut loading) = if known == 0 || known == cluster {
            self.resume(self.mirror.revision(), newest).await?
        } else {
            tracing::warn!(
                known,
                cluster,
                "etcd's cluster ID changed; reading everything again"
            );
            self.exchange(newest).await?
        };
        let mut wanted = self.wanted.subscribe();
        let mut ask = interval(ASK_AGAIN);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if loading.is_none() {
            self.is_well(pause);
        }
        loop {
            let behind = loading.is_some() || *wanted.borrow() > self.mirror.revision();
            tokio::select! {
                response = stream.next() => {
                    let response = response?;
                    if response.canceled() {
                        return Err(self.canceled(&response));
                    }
                    if self.take(&response, &mut loading)? {
                        self.cluster.store(cluster, Ordering::Relaxed);
                        self.is_well(pause);
                    }
                }
                _ = wanted.changed() => {
                    ask.reset_immediately();
                }
                _ = ask.tick(), if behind => {
                    stream.ask().await?;
                }
            }
        }
    }

    fn is_well(&self, pause: &mut Duration) {
        *pause = PAUSE.0;
        self.trouble.store(None);
        self.mirror.set_health(StoreHealth::Ready);
    }

    /// Makes sure that what is below the prefix is ours, marks it so if there is nothing, and says
    /// which revision etcd is at, and which cluster it is.
    async fn claim(&self) -> Result<(u64, u64), StoreError> {
        self.link.check_version().await?;
        let mut kv = self.link.kv().await?;
        let marker = self.keys.marker();
        let any = GetOptions::new()
            .with_range(self.keys.end("/")?)
            .with_limit(1)
            .with_keys_only();
        let look = [
            TxnOp::get(marker.clone(), None),
            TxnOp::get(self.keys.full("/"), Some(any)),
        ];
        let seen = self.mirror.revision();
        let found = link::answer(false, kv.txn(Txn::new().and_then(look))).await?;
        // Before anything is marked: an etcd that forgot must not pass for a new one.
        self.not_before(seen, revision_of(found.header())?)?;
        let mut gets = found.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        match (gets.next().flatten(), gets.next().flatten()) {
            (Some(marker), _) if marker.value() == FORMAT.as_bytes() => {
                Ok((revision_of(found.header())?, cluster_of(found.header())))
            }
            (Some(marker), _) => Err(self.keys.foreign(Some(marker.value()))),
            (None, Some(_)) => Err(self.keys.foreign(None)),
            (None, None) => {
                let absent = Compare::version(marker.clone(), CompareOp::Equal, 0);
                let mark = TxnOp::put(marker, FORMAT, None);
                let mark = Txn::new().when([absent]).and_then([mark]);
                // Another replica may be first with the same; one of another format shows next time.
                let marked = link::answer(false, kv.txn(mark)).await?;
                Ok((revision_of(marked.header())?, cluster_of(marked.header())))
            }
        }
    }

    /// Whether what etcd says of `revision` is what is known of it: the same keys, each of the same write.
    /// An etcd begun anew or set back has other objects there, and may have gone past it since. What
    /// was compacted away cannot be told apart, and need not: it is read anew then.
    ///
    /// Costs one look at all keys, once after every break of the connection.
    async fn agrees(&self, revision: u64) -> Result<bool, StoreError> {
        // Of the longest keys, some MB.
        const AT_ONCE: i64 = 5_000;
        let known = self.mirror.list("/", None, None)?.entries;
        let mut known = known.iter();
        let end = self.keys.end("/")?;
        let mut start = self.keys.full("/");
        let mut kv = self.link.kv().await?;
        loop {
            let options = at_revision(revision)?
                .with_range(end.clone())
                .with_limit(AT_ONCE)
                .with_keys_only();
            let found = match link::answer(false, kv.get(start, Some(options))).await {
                Err(StoreError::Compacted { .. }) => return Ok(true),
                found => found?,
            };
            for found in found.kvs() {
                let Kind::Object(key) = self.keys.kind(found.key())? else {
                    continue;
                };
                let same = known.next().is_some_and(|known| {
                    known.key == key
                        && unsigned(found.mod_revision()).is_ok_and(|at| at == known.revision)
                });
                if !same {
                    return Ok(false);
                }
            }
            let Some(last) = found.kvs().last().filter(|_| found.more()) else {
                return Ok(known.next().is_none());
            };
            start = [last.key(), &[0]].concat();
        }
    }

    /// A watch that goes on after `seen`; or, if nothing was seen or etcd no longer has it, a state to
    /// begin with and the watch that goes on from there.
    async fn resume(
        &self,
        seen: u64,
        newest: u64,
    ) -> Result<(Box<Stream>, Option<Loading>), StoreError> {
        let oldest = if seen > 0 {
            if !self.agrees(seen).await? {
                tracing::warn!(
                    seen,
                    "etcd's history differs from ours; was it restored from a backup?"
                );
                return self.exchange(newest).await;
            }
            match self.open(seen).await? {
                Opened::Stream(stream) => return Ok((stream, None)),
                Opened::Compacted(oldest) => {
                    tracing::warn!(
                        seen,
                        oldest,
                        "etcd compacted changes that were not read yet; reading everything again"
                    );
                    oldest
                }
            }
        } else {
            match self.open(0).await? {
                Opened::Stream(_) => 1,
                Opened::Compacted(oldest) => oldest,
            }
        };
        let floor = oldest.max(newest.saturating_sub(REACH)).max(1);
        self.begin(floor, newest).await
    }

    /// All anew, from a cluster that took the place of the one we knew: begun anew, restored, or moved
    /// to. Nobody can go on in it from where they were.
    async fn exchange(&self, newest: u64) -> Result<(Box<Stream>, Option<Loading>), StoreError> {
        let seen = self.mirror.revision();
        if newest <= seen {
            return Err(StoreError::WentBack {
                seen,
                found: newest,
            });
        }
        self.begin(newest, newest).await
    }

    /// The state at `floor`, and the watch that leads on to `target`.
    async fn begin(
        &self,
        floor: u64,
        target: u64,
    ) -> Result<(Box<Stream>, Option<Loading>), StoreError> {
        // Somebody may compact again meanwhile; then the whole begins anew.
        let entries = self.read(floor).await?;
        match self.open(floor).await? {
            Opened::Stream(stream) => {
                let loading = Loading {
                    entries,
                    events: Vec::new(),
                    floor,
                    revision: floor,
                    target,
                };
                Ok((stream, Some(loading)))
            }
            Opened::Compacted(oldest) => Err(StoreError::Compacted {
                asked: floor,
                floor: oldest,
            }),
        }
    }

    /// Watches everything after `after`. It will tell what `after` itself changed once more: etcd does
    /// not say how far a watch is that begins in the future.
    async fn open(&self, after: u64) -> Result<Opened, StoreError> {
        let start = i64::try_from(after.max(1))
            .map_err(|_| StoreError::Failed(format!("etcd cannot count to {after}")))?;
        let options = WatchOptions::new()
            .with_range(self.keys.end("/")?)
            .with_start_revision(start)
            .with_progress_notify();
        let mut watches = self.link.watches().await?;
        let call = watches.watch(self.keys.full("/"), Some(options));
        let (sender, responses) = link::answer(false, call).await?.split();
        let mut stream = Stream {
            sender,
            responses,
            first: None,
        };
        let opened = timeout(OPEN_WITHIN, stream.first()).await;
        let first = opened.map_err(|_| ended())??;
        if !first.canceled() {
            stream.first = Some(first);
            return Ok(Opened::Stream(Box::new(stream)));
        }
        match unsigned(first.compact_revision())? {
            0 => Err(canceled(&first)),
            oldest => Ok(Opened::Compacted(oldest)),
        }
    }

    /// Reads everything as it was at `revision`.
    async fn read(&self, revision: u64) -> Result<Entries, StoreError> {
        let mut entries = Entries::new();
        let mut after: Option<String> = None;
        loop {
            let found = self
                .range(false, "/", after.as_deref(), usize::MAX, Some(revision))
                .await?;
            after = None;
            for found in found.kvs() {
                after = Some(super::internal_name(&self.keys, found));
                if let Kind::Object(key) = self.keys.kind(found.key())? {
                    entries.insert(key.clone(), made(key, found)?);
                }
            }
            if !found.more() || after.is_none() {
                return Ok(entries);
            }
        }
    }

    /// Takes in what a watch told. Says whether it was the last that loading was waiting for.
    fn take(
        &self,
        response: &WatchResponse,
        loading: &mut Option<Loading>,
    ) -> Result<bool, StoreError> {
        if response.created() {
            return Ok(false);
        }
        let known = loading.as_ref().map(|load| load.revision);
        let known = known.unwrap_or_else(|| self.mirror.revision());
        let (told, revision) = told_since(response, known)?;
        let events = self.changes(&told, loading.as_ref())?;
        match loading {
            Some(load) => load.take(events, revision),
            None => self.show(&events, revision),
        }
        self.marker_stays(&told)?;
        let Some(load) = loading.take_if(|load| load.revision >= load.target) else {
            return Ok(false);
        };
        let now = self.clock.now();
        self.mirror
            .load(now, load.entries, load.events, load.floor, load.revision);
        Ok(true)
    }

    fn show(&self, events: &[Arc<StoreEvent>], revision: u64) {
        let now = self.clock.now();
        self.mirror.apply(now, events);
        self.mirror.advance(revision);
        if self.mirror.overflows(&self.limits) {
            let floor = self.mirror.due_floor(now, &self.limits);
            self.mirror.raise_floor(floor);
        }
    }

    /// etcd's events as ours: of objects, with what was there before.
    fn changes(
        &self,
        told: &[Told<'_>],
        loading: Option<&Loading>,
    ) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        let mut events: Vec<Arc<StoreEvent>> = Vec::new();
        let mut since: BTreeMap<Arc<str>, Option<Arc<StoreEntry>>> = BTreeMap::new();
        for &Told {
            revision,
            event,
            found,
        } in told
        {
            let Kind::Object(key) = self.keys.kind(found.key())? else {
                continue;
            };
            let before = match (since.get(&key), loading) {
                (Some(changed), _) => changed.clone(),
                (None, Some(loading)) => loading.entries.get(&key).cloned(),
                (None, None) => self.mirror.get(&key)?,
            };
            let after = match event.event_type() {
                EventType::Put => Some(made(key.clone(), found)?),
                EventType::Delete => None,
            };
            if before.is_none() && after.is_none() {
                continue;
            }
            since.insert(key.clone(), after.clone());
            events.push(Arc::new(StoreEvent::new(revision, key, before, after)));
        }
        Ok(events)
    }

    /// Fails when the marker was deleted or changed, which sends us back to claim the prefix.
    fn marker_stays(&self, told: &[Told<'_>]) -> Result<(), StoreError> {
        for Told { found, .. } in told {
            let is_marker = self.keys.kind(found.key())? == Kind::Marker;
            if is_marker && found.value() != FORMAT.as_bytes() {
                return Err(StoreError::Unavailable(
                    "etcd was emptied of what was fairgate's".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Why an open watch was ended.
    fn canceled(&self, response: &WatchResponse) -> StoreError {
        match unsigned(response.compact_revision()) {
            Ok(0) => canceled(response),
            Ok(floor) => StoreError::Compacted {
                asked: self.mirror.revision(),
                floor,
            },
            Err(error) => error,
        }
    }
}

impl Stream {
    /// The first answer that is more than that the watch was made. That the past is gone etcd says only
    /// then, so it is asked for anything until it says something.
    async fn first(&mut self) -> Result<WatchResponse, StoreError> {
        let mut ask = interval(ASK_AGAIN);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                response = self.next() => {
                    let response = response?;
                    if response.canceled() || !response.created() {
                        return Ok(response);
                    }
                }
                _ = ask.tick() => self.ask().await?,
            }
        }
    }

    async fn next(&mut self) -> Result<WatchResponse, StoreError> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let response = self.responses.message().await;
        let response = response.map_err(|error| link::explain(&error))?;
        response.ok_or_else(ended)
    }

    /// Has etcd say up to where it has told all.
    async fn ask(&mut self) -> Result<(), StoreError> {
        let asked = self.sender.request_progress().await;
        asked.map_err(|error| link::explain(&error))
    }
}

fn canceled(response: &WatchResponse) -> StoreError {
    let reason = response.cancel_reason();
    StoreError::Unavailable(format!("etcd ends the watch: {reason}"))
}

fn cluster_of(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::cluster_id)
}

/// The events of a response that are newer than `known`, with their revisions, and up to where it tells
/// all.
fn told_since(response: &WatchResponse, known: u64) -> Result<(Vec<Told<'_>>, u64), StoreError> {
    if response.events().is_empty() {
        // Without changes it says up to where there were none.
        return Ok((Vec::new(), revision_of(response.header())?));
    }
    let mut told = Vec::new();
    let mut last = known;
    for event in response.events() {
        let Some(found) = event.kv() else { continue };
        let revision = unsigned(found.mod_revision())?;
        if revision > known {
            told.push(Told {
                revision,
                event,
                found,
            });
            last = revision;
        }
    }
    Ok((told, last))
}

impl Loading {
    fn take(&mut self, events: Vec<Arc<StoreEvent>>, revision: u64) {
        for event in &events {
            match &event.after {
                Some(entry) => self.entries.insert(event.key.clone(), entry.clone()),
                None => self.entries.remove(&event.key),
            };
        }
        self.events.extend(events);
        self.revision = self.revision.max(revision);
    }
}

fn made(key: Arc<str>, found: &KeyValue) -> Result<Arc<StoreEntry>, StoreError> {
    let value = Bytes::copy_from_slice(found.value());
    let revision = unsigned(found.mod_revision())?;
    Ok(Arc::new(StoreEntry::new(key, value, revision)))
}

fn ended() -> StoreError {
    StoreError::Unavailable("etcd ended the watch; check it, and the network to it".to_owned())
}
