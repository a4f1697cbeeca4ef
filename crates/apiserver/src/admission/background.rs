//! Writes that are evaluated once they have been carried out, in mode audit.

use std::{fmt, sync::Arc, time::Duration};

use fairgate_admission::PolicySet;
use fairgate_base::tasks;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::{PolicyEnforcer, objects::HostedObjects, writes::KeptWrite};

/// How many writes are evaluated in the background at once; each keeps its objects.
const MAX_AUDITS: usize = 64;
/// How long a write may be evaluated.
const EVALUATION_LIMIT: Duration = Duration::from_secs(30);

/// Bounds the writes that are evaluated in the background.
pub(super) struct BackgroundAudits(Arc<Semaphore>);

impl Default for BackgroundAudits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AUDITS)))
    }
}

impl BackgroundAudits {
    fn begin(&self, audit: DueAudit) {
        let mut begun = BackgroundAudit {
            enforcer: audit.enforcer,
            write: audit.write,
            unevaluated: Some("the gateway stopped before it was evaluated"),
        };
        match (
            Handle::try_current(),
            Arc::clone(&self.0).try_acquire_owned(),
        ) {
            (Ok(runtime), Ok(permit)) => {
                let evaluating = begun.evaluate(audit.policies, audit.objects, permit);
                tasks::spawn(&runtime, evaluating);
            }
            (Err(_), _) => {}
            (_, Err(_)) => begun.unevaluated = Some("too many writes are being evaluated"),
        }
    }
}

/// An attempt to write that is evaluated, and the verdict recorded, when this is dropped; only recorded if too many are being evaluated.
/// An attempt that is made again is to be [withdrawn](Self::withdraw): what is recorded is the write as it was stored.
#[derive(Default)]
#[must_use = "it begins when it is dropped, which has to be after the write"]
pub(crate) struct HostedAudit(Option<DueAudit>);

struct DueAudit {
    enforcer: Arc<PolicyEnforcer>,
    policies: Arc<PolicySet>,
    objects: HostedObjects,
    write: KeptWrite,
}

impl HostedAudit {
    pub(super) fn new(
        enforcer: Arc<PolicyEnforcer>,
        policies: Arc<PolicySet>,
        objects: HostedObjects,
        write: KeptWrite,
    ) -> Self {
        Self(Some(DueAudit {
            enforcer,
            policies,
            objects,
            write,
        }))
    }

    /// The attempt lost against a concurrent write.
    pub(crate) fn withdraw(mut self) {
        self.0 = None;
    }
}

impl Drop for HostedAudit {
    fn drop(&mut self) {
        if let Some(due) = self.0.take() {
            let enforcer = Arc::clone(&due.enforcer);
            enforcer.audits.begin(due);
        }
    }
}

impl fmt::Debug for HostedAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostedAudit")
            .field(&self.0.is_some())
            .finish()
    }
}

/// A write that is evaluated in the background. It is recorded also if the gateway stops before that is done.
struct BackgroundAudit {
    enforcer: Arc<PolicyEnforcer>,
    write: KeptWrite,
    /// Why it is not evaluated, if that is recorded when this is dropped.
    unevaluated: Option<&'static str>,
}

impl BackgroundAudit {
    async fn evaluate(
        mut self,
        policies: Arc<PolicySet>,
        objects: HostedObjects,
        _permit: OwnedSemaphorePermit,
    ) {
        let write = self.write.as_write();
        let evaluating = self.enforcer.evaluated(&policies, &objects, &write);
        let Ok(end) = tokio::time::timeout(EVALUATION_LIMIT, evaluating).await else {
            self.unevaluated = Some("timed out");
            return;
        };
        match end {
            Ok(evaluated) => self.enforcer.record(evaluated.record),
            Err(error) => {
                let record = write.unevaluated(self.enforcer.mode, error.message);
                self.enforcer.record(Some(record));
            }
        }
        self.unevaluated = None;
    }
}

impl Drop for BackgroundAudit {
    fn drop(&mut self) {
        if let Some(why) = self.unevaluated {
            let record = self
                .write
                .as_write()
                .unevaluated(self.enforcer.mode, why.to_owned());
            self.enforcer.record(Some(record));
        }
    }
}
