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
//! While a minority of etcd's members is away, everything continues through the others; see `members`, and `writes` on
//! what is repeated. While etcd is unreachable, cached reads and watches continue; the feed reconnects and resumes.
//!
//! [`EtcdRecords`] is no store: a few small keys that gateways share, without history.
//!
//! Not here: leases. Foreign keys below the prefix are refused.

mod attempts;
mod compaction;
mod event_stream;
mod failures;
mod feed;
mod keys;
mod link;
mod loading;
mod members;
mod migration;
mod probes;
mod reads;
mod records;
mod writes;

#[cfg(test)]
mod tests;

use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use etcd_client::{GetOptions, KeyValue};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

pub use self::records::{EtcdRecord, EtcdRecords};
use self::{compaction::Turn, keys::Keys, link::Link, probes::Prober};
use crate::{
    entry::{StoreEntry, check_key, check_prefix, check_size},
    error::StoreError,
    history::HistoryLimits,
    mirror::Mirror,
    store::{Store, StoreFuture},
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    usage::{PendingChanges, StoreUsage, WriteBounds},
    watch::Watch,
};
use fairgate_base::clock::Clock;
use fairgate_core::{sync::Mutex, time::Time};

/// How to reach etcd, and which keys to use.
#[derive(Clone)]
pub struct EtcdSettings {
    /// The URLs of the servers, such as `https://10.0.0.7:2379`. All belong to the same cluster.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, such as `/fairgate`. Separate sets of objects in one cluster need separate prefixes.
    pub prefix: String,
    /// The settings of TLS. Required for `https` endpoints, and not allowed for `http`.
    pub tls: Option<EtcdTls>,
    /// User name and password, if the servers require them.
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

/// The connections to an etcd, for new certificates and passwords.
#[derive(Clone)]
pub struct EtcdConnections(Arc<Link>);

impl EtcdConnections {
    /// Uses `tls` and `user` of these settings for the connections that are opened from now on; the first call to each member opens one. What
    /// is in progress on older ones goes on there.
    pub fn renew(&self, settings: &EtcdSettings) {
        self.0.renew(settings);
    }
}

/// A store in etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    /// The feed, and the probes of the members.
    _tasks: JoinSet<()>,
}

/// The state that the store and its feed share.
struct Shared {
    link: Arc<Link>,
    keys: Keys,
    mirror: Arc<Mirror>,
    limits: HistoryLimits,
    clock: Clock,
    /// What the writes in progress add. While etcd's response and its event overtake each other, a change may count twice.
    pending: Mutex<PendingChanges>,
    /// Why the feed is not running; empty while it runs.
    feed_error: ArcSwapOption<StoreError>,
    /// Why etcd stores nothing, although it can be read; empty while it does.
    write_error: ArcSwapOption<StoreError>,
    /// Notified when a response shows that etcd, or one of its members, went back.
    went_back: Notify,
    /// The highest revision that readers wait for in the mirror.
    requested: watch::Sender<u64>,
    /// The ID of the cluster that was read; 0 before the first load.
    cluster: AtomicU64,
    /// The revision at which the marker was last written, as far as is known; see `writes`.
    fence: AtomicU64,
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
            link: Arc::new(Link::new(settings)?),
            keys: Keys::new(&settings.prefix)?,
            mirror: Arc::new(Mirror::new()),
            limits: settings.limits,
            clock,
            pending: Mutex::default(),
            feed_error: ArcSwapOption::empty(),
            write_error: ArcSwapOption::empty(),
            went_back: Notify::new(),
            requested: watch::Sender::new(0),
            cluster: AtomicU64::new(0),
            fence: AtomicU64::new(0),
            compaction: settings.compaction.map(Turn::every),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(feed::run(shared.clone()));
        let mirror = shared.mirror.clone();
        let prober = Arc::new(Prober {
            link: shared.link.clone(),
            key: shared.keys.marker(),
            newest_known: Box::new(move || mirror.revision()),
        });
        for member in 0..shared.link.count() {
            tasks.spawn(probes::run(prober.clone(), member));
        }
        Ok(Self {
            shared,
            _tasks: tasks,
        })
    }
}

impl EtcdStore {
    /// Its connections.
    pub fn connections(&self) -> EtcdConnections {
        EtcdConnections(self.shared.link.clone())
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

    fn write_within<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: WriteBounds,
    ) -> StoreFuture<'a, WriteOutcome> {
        Box::pin(async move {
            check_key(key)?;
            check_size(key, value.as_ref())?;
            let size = value.as_ref().map_or(0, Bytes::len);
            let _pending = self.shared.begin_change(key, value.as_ref(), &bounds)?;
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
            let caught_up = shared.catch_up().await;
            let proved = match caught_up {
                Ok(()) => shared.prove_room().await,
                Err(_) => Ok(()),
            };
            // A full etcd needs to be compacted most, and one with so many changes that they cannot be followed.
            let compacted = match &shared.compaction {
                Some(turn) => turn.take(shared, now).await,
                None => Ok(()),
            };
            caught_up.and(compacted).and(proved)
        })
    }

    fn health(&self) -> StoreHealth {
        if let Err(error) = self.shared.check_usable() {
            return StoreHealth::Degraded(error.to_string().into());
        }
        let health = self.shared.mirror.health();
        match &*self.shared.write_error.load() {
            Some(error) if health == StoreHealth::Ready => {
                StoreHealth::ReadOnly(error.to_string().into())
            }
            _ if health != StoreHealth::Ready => health,
            _ => match self.shared.link.away() {
                None => health,
                Some(away) if self.shared.link.are_all_away() => {
                    StoreHealth::Degraded(StoreError::Unavailable(away).to_string().into())
                }
                Some(away) => {
                    StoreHealth::Impaired(format!("members of etcd are away: {away}").into())
                }
            },
        }
    }

    fn members_away(&self) -> usize {
        self.shared.link.members.borrow().away().count()
    }

    fn size(&self) -> StoreSize {
        self.shared.mirror.size()
    }

    fn usage(&self, prefix: &str) -> StoreUsage {
        self.shared.mirror.usage(prefix)
    }

    fn usages(&self) -> Vec<(Arc<str>, StoreUsage)> {
        self.shared.mirror.usages()
    }

    fn has_more_than(&self, bytes: usize, key: &str) -> bool {
        self.shared.mirror.has_more_than(bytes, key)
    }
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
            requested: revision,
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
