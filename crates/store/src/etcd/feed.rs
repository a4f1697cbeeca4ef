//! The task that synchronises the mirror with etcd.
//!
//! It claims the prefix, reads the keys below it, and follows a watch. When the watch breaks, or its member is
//! away, it opens another one, at any member, and resumes from its last revision. If etcd has compacted this revision, it reads everything again, and
//! the floor of the mirror jumps.
//!
//! The first load reads an earlier state and replays the changes since then from the watch, which fills
//! the history. So clients that watched another replica, or this one before a restart, can resume here.
//!
//! etcd sends the changes that a watch has missed in responses of up to a thousand revisions, so of more than a gigabyte. A load
//! requests fragments instead. etcd does not tell which responses are fragments in a way that the client shows, so a revision may
//! continue in the next one; a load is complete when etcd reports its progress. Then a watch without fragments follows.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, Event as EtcdEvent, EventType, GetOptions, KeyValue, ResponseHeader, Txn,
    TxnOp, TxnOpResponse, WatchOptions, WatchResponse,
};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{
    Shared, at_revision,
    event_stream::{EventStream, PROGRESS_INTERVAL},
    keys::{FORMAT, FORMAT_1, KeyKind},
    loading::{FeedAttempts, Loading, StateEntries},
    revision_of, unsigned,
};
use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
    types::StoreHealth,
};

/// The delay before the second attempt to open a watch again; it doubles with each failure. The first is made at once.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The longest delay.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(800);
/// So many failures in sequence are not reported while there are members to turn to.
const QUIET_FAILURES: u32 = 3;

/// What is known of the keys once they are claimed.
struct ClaimedKeys {
    /// etcd's revision.
    newest: u64,
    /// The ID of the cluster.
    cluster: u64,
    /// The revision of the marker.
    since: u64,
}

/// One etcd event.
struct Received<'a> {
    revision: u64,
    event: &'a EtcdEvent,
    found: &'a KeyValue,
}

/// How etcd sends the changes of a watch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// All changes of a revision in one response, however long.
    Whole,
    /// In responses of about the maximum size of a request.
    Fragments,
}

/// The result of opening a watch.
enum Opened {
    Stream(Box<EventStream>),
    /// The start revision was compacted; this is the oldest revision left.
    Compacted(u64),
}

/// Synchronises the mirror with etcd, forever.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut attempts = FeedAttempts::default();
    loop {
        let Err(error) = shared.follow(&mut attempts).await;
        let failures = attempts.failures;
        let is_quiet = failures < QUIET_FAILURES && shared.may_pass(&error);
        let health = StoreHealth::Degraded(error.to_string().into());
        if is_quiet {
            tracing::debug!(%error, "the watch of etcd ended; opening it again");
        } else {
            if shared.mirror.health() != health {
                tracing::warn!(%error, "cannot watch etcd");
                shared.mirror.set_health(health);
            }
            shared.feed_error.store(Some(Arc::new(error)));
        }
        sleep(retry_delay(failures)).await;
        attempts.failures = failures.saturating_add(1);
    }
}

/// The delay before the next attempt to open a watch, after so many have failed.
fn retry_delay(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => (MIN_RETRY_DELAY * 2_u32.pow(failures.min(5) - 1)).min(MAX_RETRY_DELAY),
    }
}

/// The feed ends with an error only.
type Never = std::convert::Infallible;

impl Shared {
    /// Whether an error may be that of one member, so that another attempt may succeed at once.
    fn may_pass(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Unavailable(_))
            && self.mirror.health() == StoreHealth::Ready
            && !self.link.are_all_away()
    }

    /// Follows etcd until that fails. Resets `attempts` once the mirror is synchronised.
    async fn follow(&self, attempts: &mut FeedAttempts) -> Result<Never, StoreError> {
        let ClaimedKeys {
            newest,
            cluster,
            since,
        } = self.claim().await?;
        let known = self.cluster.load(Ordering::Relaxed);
        let (mut stream, mut loading) = if known == 0 || known == cluster {
            self.resume(newest, since, attempts).await?
        } else {
            tracing::warn!(
                known,
                cluster,
                "etcd's cluster ID changed; reading everything again"
            );
            self.load_new_cluster(newest).await?
        };
        let mut requested = self.requested.subscribe();
        let mut progress_ticks = interval(PROGRESS_INTERVAL);
        progress_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if loading.is_none() {
            self.set_ready(attempts);
        }
        loop {
            let behind = loading.is_some() || *requested.borrow() > self.mirror.revision();
            tokio::select! {
                response = stream.next() => {
                    let response = response?;
                    if response.canceled() {
                        return Err(self.canceled(&response));
                    }
                    if self.take(&response, &mut loading)? {
                        self.cluster.store(cluster, Ordering::Relaxed);
                        self.set_ready(attempts);
                        stream = self.opened(self.mirror.revision(), Delivery::Whole).await?;
                    }
                }
                // It may be one member only. Reads and writes are refused until the prefix is claimed again.
                () = self.went_back.notified() => return Err(ended_to_check()),
                _ = requested.changed() => {
                    progress_ticks.reset_immediately();
                }
                _ = progress_ticks.tick(), if behind => {
                    stream.request_progress().await?;
                }
            }
        }
    }

    fn set_ready(&self, attempts: &mut FeedAttempts) {
        *attempts = FeedAttempts::default();
        self.feed_error.store(None);
        self.mirror.set_health(StoreHealth::Ready);
    }

    /// Checks the marker below the prefix, or writes it if there are no keys. Migrates keys of an older
    /// format.
    async fn claim(&self) -> Result<ClaimedKeys, StoreError> {
        self.link.check_version().await?;
        loop {
            if let Some(claim) = self.try_claim().await? {
                return Ok(claim);
            }
        }
    }

    /// The same; `None` if the keys were changed, so that they have to be checked again.
    async fn try_claim(&self) -> Result<Option<ClaimedKeys>, StoreError> {
        let marker = self.keys.marker();
        let any = GetOptions::new()
            .with_range(self.keys.end("/")?)
            .with_limit(1)
            .with_keys_only();
        let reads = [
            TxnOp::get(marker.clone(), None),
            TxnOp::get(self.keys.migrating(), None),
            TxnOp::get(self.keys.full("/"), Some(any)),
        ];
        let seen = self.mirror.revision();
        let found = self.link.commit(&Txn::new().and_then(reads)).await?;
        // Checked before the marker is written: an etcd that lost its data must not count as a new one.
        self.not_before(seen, revision_of(found.header())?)?;
        let mut gets = found.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        let mut next = || gets.next().flatten();
        match (next(), next(), next()) {
            (Some(marker), ..) if marker.value() == FORMAT.as_bytes() => {
                let fence = unsigned(marker.mod_revision())?;
                self.fence.store(fence, Ordering::Relaxed);
                Ok(Some(ClaimedKeys {
                    newest: revision_of(found.header())?,
                    cluster: cluster_of(found.header()),
                    since: unsigned(marker.create_revision())?,
                }))
            }
            (Some(marker), ..) if marker.value() == FORMAT_1.as_bytes() => {
                self.begin_migration().await?;
                Ok(None)
            }
            (Some(marker), ..) => Err(self.keys.foreign(Some(marker.value()))),
            (None, Some(_), _) => {
                self.finish_migration().await?;
                Ok(None)
            }
            (None, None, Some(_)) => Err(self.keys.foreign(None)),
            (None, None, None) => {
                let absent = Compare::version(marker.clone(), CompareOp::Equal, 0);
                let mark = TxnOp::put(marker, FORMAT, None);
                let mark = Txn::new().when([absent]).and_then([mark]);
                // Another replica may have written it first.
                self.link.commit(&mark).await?;
                Ok(None)
            }
        }
    }

    /// Whether etcd's state at `revision` is the one in the mirror: the same keys with the same mod
    /// revisions. A cluster that was recreated or restored has a different state there, even if its
    /// revision has become higher since. A compacted revision cannot be compared, and counts as equal:
    /// everything is read again then.
    ///
    /// Costs one read of all keys, without values, after every reconnect.
    async fn agrees(&self, revision: u64) -> Result<bool, StoreError> {
        // About 10 MB with keys of the maximum length.
        const MAX_KEYS: i64 = 5_000;
        let known = self.mirror.list("/", None, None)?.entries;
        let mut known = known.iter();
        let end = self.keys.end("/")?;
        let mut start = self.keys.full("/");
        loop {
            let options = at_revision(revision)?
                .with_range(end.clone())
                .with_limit(MAX_KEYS)
                .with_keys_only();
            let found = match self.link.get(start, Some(options)).await {
                Err(StoreError::Compacted { .. }) => return Ok(true),
                found => found?,
            };
            for found in found.kvs() {
                let KeyKind::Object(key) = self.keys.kind(found.key())? else {
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

    /// Opens a watch that resumes after the revision of the mirror. If there is none or it was compacted, starts a load; not from
    /// before `since`, when the keys had another format.
    async fn resume(
        &self,
        newest: u64,
        since: u64,
        attempts: &mut FeedAttempts,
    ) -> Result<(Box<EventStream>, Option<Loading>), StoreError> {
        let seen = self.mirror.revision();
        let oldest = if seen > 0 {
            if !self.agrees(seen).await? {
                tracing::warn!(
                    seen,
                    "etcd's history differs from ours; was it restored from a backup?"
                );
                return self.load_new_cluster(newest).await;
            }
            if attempts.may_resume() {
                match self.open(seen, Delivery::Whole).await? {
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
                tracing::warn!(
                    seen,
                    "cannot resume the watch of etcd; reading everything again"
                );
                seen
            }
        } else {
            1
        };
        let floor = newest.saturating_sub(attempts.history_to_load());
        self.begin(floor.max(oldest).max(since), newest).await
    }

    /// Starts a load from a cluster that replaced the former one: recreated, restored, or another one. The
    /// floor is its newest revision, so no earlier watch can resume.
    async fn load_new_cluster(
        &self,
        newest: u64,
    ) -> Result<(Box<EventStream>, Option<Loading>), StoreError> {
        let seen = self.mirror.revision();
        if newest <= seen {
            return Err(StoreError::WentBack {
                seen,
                found: newest,
            });
        }
        self.begin(newest, newest).await
    }

    /// Opens the watch from `floor`, or from the oldest revision that is left, to `target` and on, and reads the state there.
    async fn begin(
        &self,
        floor: u64,
        target: u64,
    ) -> Result<(Box<EventStream>, Option<Loading>), StoreError> {
        let (floor, stream) = match self.open(floor, Delivery::Fragments).await? {
            Opened::Stream(stream) => (floor, stream),
            Opened::Compacted(oldest) => {
                let floor = floor.max(oldest);
                (floor, self.opened(floor, Delivery::Fragments).await?)
            }
        };
        // If etcd is compacted in between, the load fails and starts again.
        let entries = self.read(floor).await?;
        Ok((stream, Some(Loading::new(entries, floor, target))))
    }

    /// Opens a watch after a revision that should not have been compacted.
    async fn opened(&self, after: u64, delivery: Delivery) -> Result<Box<EventStream>, StoreError> {
        match self.open(after, delivery).await? {
            Opened::Stream(stream) => Ok(stream),
            Opened::Compacted(floor) => Err(StoreError::Compacted {
                requested: after,
                floor,
            }),
        }
    }

    /// Opens a watch after the revision `after`. It starts at `after` itself and repeats its changes,
    /// because etcd does not report progress of a watch that starts at a future revision.
    async fn open(&self, after: u64, delivery: Delivery) -> Result<Opened, StoreError> {
        let start = i64::try_from(after.max(1)).map_err(|_| {
            StoreError::Failed(format!("revision {after} is out of range for etcd"))
        })?;
        let mut options = WatchOptions::new()
            .with_range(self.keys.end("/")?)
            .with_start_revision(start)
            .with_progress_notify();
        if delivery == Delivery::Fragments {
            options = options.with_fragment();
        }
        let key = self.keys.full("/");
        let stream = EventStream::open(&self.link, &key, &options).await?;
        let Some(canceled) = stream.canceled() else {
            return Ok(Opened::Stream(Box::new(stream)));
        };
        match unsigned(canceled.compact_revision())? {
            0 => Err(self::canceled(canceled)),
            oldest => Ok(Opened::Compacted(oldest)),
        }
    }

    /// Reads everything as it was at `revision`.
    async fn read(&self, revision: u64) -> Result<StateEntries, StoreError> {
        let mut entries = StateEntries::new();
        let mut after: Option<String> = None;
        loop {
            let found = self
                .range("/", after.as_deref(), usize::MAX, Some(revision))
                .await?;
            after = None;
            for found in found.kvs() {
                after = Some(super::internal_name(&self.keys, found));
                if let KeyKind::Object(key) = self.keys.kind(found.key())? {
                    entries.insert(key.clone(), made(key, found)?);
                }
            }
            if !found.more() || after.is_none() {
                return Ok(entries);
            }
        }
    }

    /// Applies a response of the watch. Returns whether it completed the load.
    fn take(
        &self,
        response: &WatchResponse,
        loading: &mut Option<Loading>,
    ) -> Result<bool, StoreError> {
        if response.created() {
            return Ok(false);
        }
        let start = loading.as_ref().map(|load| load.start);
        let known = start.unwrap_or_else(|| self.mirror.revision());
        let (received, revision) = received_after(response, known)?;
        let events = self.changes(&received, loading.as_ref())?;
        match loading {
            Some(load) => load.take(events, revision, &self.limits),
            None => self.show(&events, revision),
        }
        self.check_marker(&received)?;
        // The revision of changes may continue in the next response.
        let is_whole = response.events().is_empty();
        let Some(load) = loading.take_if(|load| is_whole && load.is_complete()) else {
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

    /// Converts etcd events of objects, and adds the entries before each change.
    fn changes(
        &self,
        received: &[Received<'_>],
        loading: Option<&Loading>,
    ) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        let mut events: Vec<Arc<StoreEvent>> = Vec::new();
        let mut since: BTreeMap<Arc<str>, Option<Arc<StoreEntry>>> = BTreeMap::new();
        for &Received {
            revision,
            event,
            found,
        } in received
        {
            let KeyKind::Object(key) = self.keys.kind(found.key())? else {
                continue;
            };
            let before = match (since.get(&key), loading) {
                (Some(changed), _) => changed.clone(),
                (None, Some(loading)) => loading.entries.get(&key).cloned(),
                (None, None) => self.mirror.get(&key)?,
            };
            // All versions share one copy of the key.
            let key = before
                .as_ref()
                .map_or(key, |before| Arc::clone(&before.key));
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

    /// Fails if the marker was deleted or changed, so that the feed claims the prefix again. It is written with the same
    /// value to move the fence of `writes`.
    fn check_marker(&self, received: &[Received<'_>]) -> Result<(), StoreError> {
        for Received {
            found, revision, ..
        } in received
        {
            if self.keys.kind(found.key())? != KeyKind::Marker {
                continue;
            }
            if found.value() != FORMAT.as_bytes() {
                return Err(StoreError::Unavailable(
                    "the keys of fairgate were removed from etcd".to_owned(),
                ));
            }
            self.note_fence(*revision);
        }
        Ok(())
    }

    /// The error of a watch that etcd has cancelled.
    fn canceled(&self, response: &WatchResponse) -> StoreError {
        match unsigned(response.compact_revision()) {
            Ok(0) => canceled(response),
            Ok(floor) => StoreError::Compacted {
                requested: self.mirror.revision(),
                floor,
            },
            Err(error) => error,
        }
    }
}

fn ended_to_check() -> StoreError {
    StoreError::Unavailable("a response of etcd was older than an earlier one".to_owned())
}

fn canceled(response: &WatchResponse) -> StoreError {
    let reason = response.cancel_reason();
    StoreError::Unavailable(format!("etcd cancelled the watch: {reason}"))
}

fn cluster_of(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::cluster_id)
}

/// The events of a response that are newer than `known`, and the revision up to which it is complete.
fn received_after(
    response: &WatchResponse,
    known: u64,
) -> Result<(Vec<Received<'_>>, u64), StoreError> {
    if response.events().is_empty() {
        // A progress response: there were no further changes up to this revision.
        return Ok((Vec::new(), revision_of(response.header())?));
    }
    let mut received = Vec::new();
    let mut last = known;
    for event in response.events() {
        let Some(found) = event.kv() else { continue };
        let revision = unsigned(found.mod_revision())?;
        if revision > known {
            received.push(Received {
                revision,
                event,
                found,
            });
            last = revision;
        }
    }
    Ok((received, last))
}

fn made(key: Arc<str>, found: &KeyValue) -> Result<Arc<StoreEntry>, StoreError> {
    let value = Bytes::copy_from_slice(found.value());
    let revision = unsigned(found.mod_revision())?;
    Ok(Arc::new(StoreEntry::new(key, value, revision)))
}
