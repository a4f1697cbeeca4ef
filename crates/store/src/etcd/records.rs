//! A few small records that gateways share, such as those of a fleet: read and compared-and-swapped in etcd itself, without
//! a mirror, history or watches.

use std::{sync::Arc, time::Duration};

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp};
use tokio::task::JoinSet;

use super::{
    EtcdConnections, EtcdSettings,
    compaction::{CompactionElection, compact},
    failures::CallFailure,
    link::Link,
    probes::{self, Prober},
    revision_of, unsigned,
};
use crate::error::StoreError;

/// The pause after a round of the compaction that could not be begun.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Records below one prefix of an etcd, through whichever of its members answer.
pub struct EtcdRecords {
    link: Arc<Link>,
    /// Ends with a slash.
    prefix: String,
    /// The probes of the members, and the compaction.
    _tasks: JoinSet<()>,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdRecord {
    /// The value.
    pub value: Vec<u8>,
    /// The revision of etcd at which it was written; greater than those of all earlier writes.
    pub revision: u64,
}

impl EtcdRecords {
    /// Starts to probe the members on the current runtime, and to compact the cluster if the settings say so, and returns at once.
    /// `limits` of the settings are not used.
    ///
    /// # Errors
    ///
    /// When an endpoint is not valid.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(settings: &EtcdSettings) -> Result<Self, StoreError> {
        let link = Arc::new(Link::new(settings)?);
        let prefix = format!("{}/", settings.prefix.trim_end_matches('/'));
        let prober = Arc::new(Prober {
            link: link.clone(),
            key: prefix.clone(),
            newest_known: Box::new(|| 0),
        });
        let mut tasks = JoinSet::new();
        for member in 0..link.count() {
            tasks.spawn(probes::run(prober.clone(), member));
        }
        if let Some(interval) = settings.compaction {
            let key = format!("{prefix}.compaction");
            tasks.spawn(compact_each(interval, link.clone(), key));
        }
        Ok(Self {
            link,
            prefix,
            _tasks: tasks,
        })
    }

    /// Its connections.
    pub fn connections(&self) -> EtcdConnections {
        EtcdConnections(self.link.clone())
    }

    /// Reads a record, linearizably; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When etcd does not answer within some seconds, or refuses.
    pub async fn get(&self, name: &str) -> Result<Option<EtcdRecord>, StoreError> {
        let found = self.link.get(self.key(name), None).await?;
        found.kvs().first().map(record).transpose()
    }

    /// Reads the records whose names begin with `names`, in the order of their names, linearizably and all at one revision.
    ///
    /// # Errors
    ///
    /// As for [`Self::get`].
    pub async fn list(&self, names: &str) -> Result<Vec<EtcdRecord>, StoreError> {
        let options = GetOptions::new().with_prefix();
        let found = self.link.get(self.key(names), Some(options)).await?;
        found.kvs().iter().map(record).collect()
    }

    /// Writes a record if it has the revision `expected`; 0: if it does not exist. Returns its new revision, or `None` if it has
    /// another one.
    ///
    /// # Errors
    ///
    /// As for [`Self::get`]. The write may then have been carried out, or may still be: a caller reads the record before it
    /// writes again. It is repeated at another member only where the first one has refused to begin.
    pub async fn write(
        &self,
        name: &str,
        expected: u64,
        value: Vec<u8>,
    ) -> Result<Option<u64>, StoreError> {
        let key = self.key(name);
        let revision = i64::try_from(expected)
            .map_err(|_| StoreError::Failed(format!("etcd has no revision {expected}")))?;
        let is_expected = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
        let transaction = Txn::new()
            .when([is_expected])
            .and_then([TxnOp::put(key, value, None)]);
        let mut attempts = self.link.attempts();
        loop {
            let ended = attempts
                .once(|used| self.link.commit_at(used, &transaction))
                .await;
            match ended {
                Ok(ended) if ended.succeeded() => return revision_of(ended.header()).map(Some),
                Ok(_) => return Ok(None),
                Err(CallFailure::NotRun(_)) => {}
                Err(
                    CallFailure::Final(error)
                    | CallFailure::Unfinished(error)
                    | CallFailure::Disconnected(error),
                ) => return Err(error),
            }
        }
    }

    /// The members that are away, and why; `None` if there are none.
    pub fn away(&self) -> Option<String> {
        self.link.away()
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// Takes part in the compaction of the cluster.
async fn compact_each(interval: Duration, link: Arc<Link>, key: String) {
    let election = CompactionElection::default();
    loop {
        let pause = match election.note(&link, key.clone()).await {
            Ok(won) => {
                if let Err(error) = compact(&link, won).await {
                    // Not earlier: the revision that was noted just now is to be an interval old then.
                    tracing::warn!(%error, "etcd was not compacted; trying again after {interval:?}");
                }
                interval
            }
            // That etcd is away is logged where reports fail.
            Err(error) => {
                tracing::debug!(%error, "the election for the compaction of etcd failed");
                interval.min(AFTER_FAILURE)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn record(stored: &KeyValue) -> Result<EtcdRecord, StoreError> {
    Ok(EtcdRecord {
        value: stored.value().to_vec(),
        revision: unsigned(stored.mod_revision())?,
    })
}
