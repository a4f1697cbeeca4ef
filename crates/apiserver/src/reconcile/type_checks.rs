//! Writes what the type checker finds into the status of admission policies.
//!
//! kube-controller-manager does this for the policies of a cluster: each generation of a policy is checked once. Here it is checked
//! again when the kinds change that it is about, and not before they are known.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Hosted, ReconcileError,
    changes::{ChangedObject, ChangedObjects},
    path,
};
use fairgate_admission::{PolicyKinds, expression_warnings, kinds::VALIDATING_ADMISSION_POLICY};
use fairgate_base::background;
use fairgate_core::time::Time;
use fairgate_objects::{kind::Kind, metadata, object::Object};

/// The field manager; kube-controller-manager uses the same name.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// How long after a policy could not be checked it is tried again; twice as long after each further failure, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// What is known of the kinds that policies are about.
pub trait PolicyKindSource: fmt::Debug + Send + Sync {
    /// The kinds that a policy names. Answers from memory.
    ///
    /// # Errors
    ///
    /// Why they are not known yet. They will be looked for.
    fn kinds_of(&self, policy: &Value) -> Result<KnownPolicyKinds, String>;

    /// Changes whenever another answer is possible.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// The kinds that a policy names.
pub struct KnownPolicyKinds {
    /// The kinds with their fields.
    pub kinds: Arc<dyn PolicyKinds>,
    /// Changes with the kinds; `None` if they never change.
    pub version: Option<u64>,
}

impl fmt::Debug for KnownPolicyKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownPolicyKinds")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Checks the types of the expressions of all policies.
#[derive(Debug)]
pub struct TypeCheckWriter {
    hosted: Arc<Hosted>,
    changed: ChangedObjects,
    kinds: Arc<dyn PolicyKindSource>,
    changes: watch::Receiver<u64>,
    /// The policies whose kinds may change, with the version of the kinds that they were checked against.
    followed: HashMap<String, u64>,
    /// The policies that could not be checked, or whose status could not be written.
    failed: BTreeMap<String, FailedCheck>,
}

/// Why a policy has no status, and when it is tried again.
#[derive(Debug)]
struct FailedCheck {
    error: ReconcileError,
    pause: Duration,
    again: Time,
}

/// What became of a policy that has changed, or whose kinds have.
enum Checked {
    Done,
    /// Its kinds are not known, for this reason.
    Waits(String),
}

impl TypeCheckWriter {
    /// Writes through `hosted`. Expressions are checked against these kinds.
    pub fn new(hosted: Arc<Hosted>, kinds: Arc<dyn PolicyKindSource>) -> Self {
        let store = Arc::clone(&hosted.state.store);
        Self {
            hosted,
            changed: ChangedObjects::new(store, vec![&VALIDATING_ADMISSION_POLICY]),
            changes: kinds.changes(),
            kinds,
            followed: HashMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Changes whenever policies may have to be checked that have not changed themselves.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Checks every policy that has changed since the last call and whose generation was not checked yet, and those whose kinds have
    /// changed. Returns why policies could not be checked yet; they are tried again by the next call. A policy whose status cannot be
    /// written is tried again once it or its kinds have changed, and after a pause of one second to one minute, by a later call. It
    /// does not delay others.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first policy that is to be tried again after a pause, by name; or of the store.
    pub async fn reconcile(&mut self) -> Result<Option<String>, ReconcileError> {
        self.changed.collect().await?;
        if self.changes.has_changed().unwrap_or_default() {
            self.changes.borrow_and_update();
            for name in self.followed.keys().chain(self.failed.keys()) {
                self.changed.add(&VALIDATING_ADMISSION_POLICY, name);
            }
        }
        let now = self.hosted.state.clock.now();
        for (name, failed) in &self.failed {
            if failed.again <= now {
                self.changed.add(&VALIDATING_ADMISSION_POLICY, name);
            }
        }
        let (mut last, mut lack) = (None, None);
        while let Some(changed) = self.changed.next(last.as_ref()).await? {
            match self.check(&changed).await {
                Ok(Checked::Done) => {
                    self.failed.remove(&changed.name);
                    self.changed.done(&changed);
                }
                Ok(Checked::Waits(why)) => {
                    self.failed.remove(&changed.name);
                    lack = Some(format!("{}: {why}", changed.name));
                }
                Err(error) => {
                    self.note_failure(&changed.name, error);
                    self.changed.done(&changed);
                }
            }
            last = Some(changed);
            // There may be many policies, and reading one is work.
            tokio::task::yield_now().await;
        }
        let mut failed = self.failed.values();
        failed
            .next()
            .map_or(Ok(lack), |first| Err(first.error.clone()))
    }

    /// Records that a policy is to be tried again, and when.
    fn note_failure(&mut self, name: &str, error: ReconcileError) {
        let last = self.failed.get(name).map(|last| last.pause);
        let pause = last.map_or(FIRST_PAUSE, |last| MAX_PAUSE.min(2 * last));
        let failed = FailedCheck {
            error,
            pause,
            again: self.hosted.state.clock.now().plus(pause),
        };
        self.failed.insert(name.to_owned(), failed);
    }

    async fn check(&mut self, changed: &ChangedObject) -> Result<Checked, ReconcileError> {
        let Some(policy) = changed.object.as_ref().map(Object::stored) else {
            self.followed.remove(&changed.name);
            return Ok(Checked::Done);
        };
        let is_observed = metadata::generation(policy) <= observed(policy);
        let known = match self.kinds.kinds_of(policy) {
            Ok(known) => known,
            Err(why) => return Ok(Checked::Waits(why)),
        };
        let checked = self.followed.get(&changed.name).copied();
        if is_observed && (known.version.is_none() || known.version == checked) {
            return Ok(Checked::Done);
        }
        let warnings = warnings(&changed.name, policy, known.kinds).await?;
        if !is_observed || warnings != stored_warnings(policy) {
            match self.write(&changed.name, policy, &warnings).await {
                // The watch tells that it has changed.
                Err(error) if error.is_race() => return Ok(Checked::Done),
                written => written?,
            }
        }
        match known.version {
            Some(version) => self.followed.insert(changed.name.clone(), version),
            None => self.followed.remove(&changed.name),
        };
        Ok(Checked::Done)
    }

    async fn write(
        &self,
        name: &str,
        policy: &Value,
        warnings: &[Value],
    ) -> Result<(), ReconcileError> {
        let kind: &Kind = &VALIDATING_ADMISSION_POLICY;
        let mut checked = json!({});
        if !warnings.is_empty() {
            checked["expressionWarnings"] = json!(warnings);
        }
        let body = json!({
            "apiVersion": kind.api_version(kind.stored().name),
            "kind": kind.kind,
            "metadata": {"name": name},
            "status": {
                "observedGeneration": metadata::generation(policy),
                "typeChecking": checked,
            },
        });
        let path = format!("{}/status", path(kind, name));
        let query = format!("fieldManager={MANAGER}&force=true");
        let apply = "application/apply-patch+yaml";
        self.hosted
            .call(Method::PATCH, &path, &query, apply, Some(&body))
            .await
    }
}

/// What the checker says about a policy, on a thread of its own.
async fn warnings(
    name: &str,
    policy: &Value,
    kinds: Arc<dyn PolicyKinds>,
) -> Result<Vec<Value>, ReconcileError> {
    let copy = policy.clone();
    let checking = background::run(move || expression_warnings(&copy, &*kinds));
    checking.await.map_err(|error| ReconcileError::TypeChecks {
        policy: name.to_owned(),
        why: error.to_string(),
    })
}

fn stored_warnings(policy: &Value) -> &[Value] {
    let stored = &policy["status"]["typeChecking"]["expressionWarnings"];
    stored.as_array().map_or(&[], Vec::as_slice)
}

/// The generation that was checked last.
fn observed(policy: &Value) -> i64 {
    policy["status"]["observedGeneration"]
        .as_i64()
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "type_checks_tests.rs"]
mod tests;
