//! Writes that are judged while they are carried out, in mode audit.

use std::{sync::Arc, time::Duration};

use fairgate_admission::PolicySet;
use fairgate_base::tasks;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::{PolicyEnforcer, judgement::unjudged, objects::HostedObjects, writes::KeptWrite};

/// How many writes are judged in the background at once; each keeps its objects.
const MAX_AUDITS: usize = 64;
/// How long a write may be judged.
const JUDGE_LIMIT: Duration = Duration::from_secs(30);

/// Bounds the writes that are judged in the background.
pub(super) struct BackgroundAudits(Arc<Semaphore>);

impl Default for BackgroundAudits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AUDITS)))
    }
}

impl BackgroundAudits {
    /// Judges a write and records the verdict; only records it if too many are being judged.
    pub(super) fn begin(
        &self,
        enforcer: Arc<PolicyEnforcer>,
        policies: Arc<PolicySet>,
        objects: HostedObjects,
        write: KeptWrite,
    ) {
        let mut audit = BackgroundAudit {
            enforcer,
            write,
            unjudged: Some("the gateway stopped before it was judged"),
        };
        match Arc::clone(&self.0).try_acquire_owned() {
            Ok(permit) => {
                tasks::spawn(&Handle::current(), audit.judge(policies, objects, permit));
            }
            Err(_) => audit.unjudged = Some("too many writes are being judged"),
        }
    }
}

/// A write that is judged in the background. It is recorded also if the gateway stops before that is done.
struct BackgroundAudit {
    enforcer: Arc<PolicyEnforcer>,
    write: KeptWrite,
    /// Why it is not judged, if that is recorded when this is dropped.
    unjudged: Option<&'static str>,
}

impl BackgroundAudit {
    async fn judge(
        mut self,
        policies: Arc<PolicySet>,
        objects: HostedObjects,
        _permit: OwnedSemaphorePermit,
    ) {
        let write = self.write.as_write();
        let judging = self.enforcer.judged(&policies, &objects, &write);
        let Ok(end) = tokio::time::timeout(JUDGE_LIMIT, judging).await else {
            self.unjudged = Some("timed out");
            return;
        };
        match end {
            Ok(judged) => self.enforcer.record(judged.record),
            Err(error) => {
                let record = unjudged(&write, self.enforcer.mode, error.message);
                self.enforcer.record(Some(record));
            }
        }
        self.unjudged = None;
    }
}

impl Drop for BackgroundAudit {
    fn drop(&mut self) {
        if let Some(why) = self.unjudged {
            let record = unjudged(&self.write.as_write(), self.enforcer.mode, why.to_owned());
            self.enforcer.record(Some(record));
        }
    }
}
