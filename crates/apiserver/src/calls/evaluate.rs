//! Evaluation of admission policies on writes to hosted objects.
//!
//! Policies are evaluated on a write after it was validated, in every attempt to store it. That authors of policies may read their
//! params is part of their validation, and is checked here, where a check may wait.

use serde_json::{Value, json};

use super::{CallContext, StatusError, delete_options::DeleteOptions};
use crate::admission::{HostedAudit, HostedWrite};
use fairgate_admission::AdmissionOperation;
use fairgate_apihttp::request::Caller;
use fairgate_objects::metadata;

/// The API version of the options of writes.
const OPTIONS_VERSION: &str = "meta.k8s.io/v1";

static NO_OPTIONS: Value = Value::Null;

impl CallContext<'_> {
    /// Evaluates policies on the creation of an object, which is in its stored version.
    pub(super) async fn evaluate_creation(
        &self,
        object: &Value,
        dry_run: bool,
    ) -> Result<HostedAudit, StatusError> {
        self.evaluate(HostedWrite {
            operation: AdmissionOperation::Create,
            name: metadata::name(object),
            dry_run,
            options: &self.write_options("CreateOptions"),
            object: Some(object),
            ..self.any_write()
        })
        .await
    }

    /// Evaluates policies on the replacement of `old` by `object`; both are in their stored version.
    pub(super) async fn evaluate_update(
        &self,
        object: &Value,
        old: &Value,
        dry_run: bool,
    ) -> Result<HostedAudit, StatusError> {
        self.evaluate(HostedWrite {
            operation: AdmissionOperation::Update,
            dry_run,
            options: &self.write_options("UpdateOptions"),
            object: Some(object),
            old_object: Some(old),
            ..self.any_write()
        })
        .await
    }

    /// Evaluates policies on the deletion of an object. An object of a `deletecollection` has no name in the request.
    pub(super) async fn evaluate_deletion(
        &self,
        old: &Value,
        options: &DeleteOptions,
    ) -> Result<HostedAudit, StatusError> {
        let mut sent = options.sent.clone();
        sent["apiVersion"] = json!(OPTIONS_VERSION);
        sent["kind"] = json!("DeleteOptions");
        self.evaluate(HostedWrite {
            operation: AdmissionOperation::Delete,
            dry_run: options.dry_run,
            options: &sent,
            old_object: Some(old),
            ..self.any_write()
        })
        .await
    }

    /// What all writes of this call have in common.
    fn any_write(&self) -> HostedWrite<'_> {
        HostedWrite {
            operation: AdmissionOperation::Update,
            kind: self.kind,
            version: self.version,
            subresource: self.subresource(),
            namespace: &self.place.namespace,
            name: &self.place.name,
            user: self.request.user(),
            audit_id: self.request.audit_id(),
            dry_run: false,
            options: &NO_OPTIONS,
            object: None,
            old_object: None,
        }
    }

    /// The options of a `POST`, `PUT` or `PATCH`, as they were sent.
    fn write_options(&self, kind: &str) -> Value {
        let mut options = json!({"apiVersion": OPTIONS_VERSION, "kind": kind});
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        if !dry_run.is_empty() {
            options["dryRun"] = json!(dry_run);
        }
        for key in ["fieldManager", "fieldValidation"] {
            let text = self.query.text(key);
            if !text.is_empty() {
                options[key] = json!(text);
            }
        }
        options
    }

    /// What is returned is to be kept until the write was stored, and withdrawn if it is tried again.
    async fn evaluate(&self, write: HostedWrite<'_>) -> Result<HostedAudit, StatusError> {
        if self.request.caller == Caller::Gateway {
            return Ok(HostedAudit::default());
        }
        if let (Some(object), "") = (write.object, write.subresource) {
            let (rights, store) = (&self.state.param_rights, &*self.state.store);
            let old = write.old_object;
            rights
                .check(store, write.kind, object, old, write.user)
                .await?;
        }
        let Some(policies) = &self.state.policies else {
            return Ok(HostedAudit::default());
        };
        let evaluation = policies.evaluate(&self.state.store, &write).await?;
        for warning in evaluation.warnings {
            self.warn(warning);
        }
        evaluation.refusal.map_or(Ok(evaluation.audit), Err)
    }
}
