//! Writes what the type checker finds into the status of admission policies.
//!
//! kube-controller-manager does this for the policies of a cluster: each generation of a policy is checked once.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{Hosted, ReconcileError, changes::ChangedObjects, path};
use fairgate_admission::{expression_warnings, kinds::VALIDATING_ADMISSION_POLICY};
use fairgate_base::background;
use fairgate_objects::{kind::Kind, metadata, object::Object};

/// The field manager; kube-controller-manager uses the same name.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// Checks the types of the expressions of all policies.
#[derive(Debug)]
pub struct TypeCheckWriter {
    hosted: Arc<Hosted>,
    changed: ChangedObjects,
    kinds: Vec<&'static Kind>,
}

impl TypeCheckWriter {
    /// Writes through `hosted`. Expressions are checked against these kinds.
    pub fn new(hosted: Arc<Hosted>, kinds: Vec<&'static Kind>) -> Self {
        let store = Arc::clone(&hosted.state.store);
        Self {
            hosted,
            changed: ChangedObjects::new(store, vec![&VALIDATING_ADMISSION_POLICY]),
            kinds,
        }
    }

    /// Checks every policy that has changed since the last call and whose generation was not checked yet.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first write that failed.
    pub async fn reconcile(&mut self) -> Result<(), ReconcileError> {
        self.changed.collect().await?;
        while let Some(changed) = self.changed.next(None).await? {
            if let Some(policy) = changed.object.as_ref().map(Object::stored)
                && metadata::generation(policy) > observed(policy)
            {
                match self.write(&changed.name, policy).await {
                    Err(error) if !error.is_race() => return Err(error),
                    _ => {}
                }
            }
            self.changed.done(&changed);
        }
        Ok(())
    }

    async fn write(&self, name: &str, policy: &Value) -> Result<(), ReconcileError> {
        let kind = &VALIDATING_ADMISSION_POLICY;
        let mut checked = json!({});
        let (copy, kinds) = (policy.clone(), self.kinds.clone());
        let checking = background::run(move || expression_warnings(&copy, &kinds));
        let warnings = checking.await.map_err(|error| ReconcileError::TypeChecks {
            policy: name.to_owned(),
            why: error.to_string(),
        })?;
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

/// The generation that was checked last.
fn observed(policy: &Value) -> i64 {
    policy["status"]["observedGeneration"]
        .as_i64()
        .unwrap_or_default()
}
