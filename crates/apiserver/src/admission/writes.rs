//! Writes to hosted objects, as policies see them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use fairgate_admission::{
    AdmissionAttributes, AdmissionDecision, AdmissionMode, AdmissionOperation, AdmissionRecord,
    GroupVersionKind, GroupVersionResource, RecordedRequest,
};
use fairgate_core::digest::User;
use fairgate_objects::{
    kind::{Kind, KindVersion},
    metadata, object,
};

/// A write to a hosted object.
#[derive(Clone, Copy)]
pub(crate) struct HostedWrite<'a> {
    /// What it does.
    pub(crate) operation: AdmissionOperation,
    /// The kind of the object.
    pub(crate) kind: &'static Kind,
    /// The version that the client asked for.
    pub(crate) version: &'static KindVersion,
    /// `status`, or empty.
    pub(crate) subresource: &'a str,
    /// The namespace, or empty.
    pub(crate) namespace: &'a str,
    /// The name; empty for an object of a `deletecollection`.
    pub(crate) name: &'a str,
    /// Who asks.
    pub(crate) user: &'a User,
    /// The request's `Audit-ID`.
    pub(crate) audit_id: &'a str,
    /// Whether nothing is to be stored.
    pub(crate) dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, with `apiVersion` and `kind`.
    pub(crate) options: &'a Value,
    /// The object as it is to be stored, in the stored version.
    pub(crate) object: Option<&'a Value>,
    /// The object as it is stored, in the stored version.
    pub(crate) old_object: Option<&'a Value>,
}

impl<'a> HostedWrite<'a> {
    /// What is recorded about a write that could not be evaluated.
    pub(super) fn unevaluated(&self, mode: AdmissionMode, failure: String) -> AdmissionRecord {
        let object = self.object.or(self.old_object);
        let name = match self.name {
            "" => object.map_or("", metadata::name),
            name => name,
        };
        AdmissionRecord {
            audit_id: self.audit_id.to_owned(),
            mode,
            operation: self.operation,
            request: RecordedRequest {
                group: self.kind.group.to_owned(),
                version: self.version.name.to_owned(),
                resource: self.kind.plural.to_owned(),
                subresource: self.subresource.to_owned(),
                namespace: self.namespace.to_owned(),
                name: name.to_owned(),
                user: self.user.name.clone(),
                groups: self.user.groups.clone(),
                dry_run: self.dry_run,
            },
            fidelity: None,
            decision: match mode {
                AdmissionMode::Audit => AdmissionDecision::NotEvaluated,
                AdmissionMode::Enforce => AdmissionDecision::Failed,
            },
            guard: None,
            failure,
            checks: Vec::new(),
            usage: Vec::new(),
            secret_params: Vec::new(),
            set_by_server: Vec::new(),
            warnings: Vec::new(),
            annotations: Vec::new(),
            evaluating: Duration::ZERO,
            total: Duration::ZERO,
        }
    }

    /// Its attributes, without its options.
    pub(super) fn attributes(&self) -> AdmissionAttributes<'a> {
        AdmissionAttributes {
            operation: self.operation,
            resource: GroupVersionResource {
                group: self.kind.group,
                version: self.version.name,
                resource: self.kind.plural,
            },
            subresource: self.subresource,
            kind: kind_in(self.kind, self.version),
            namespace: self.namespace,
            name: self.name,
            user: self.user,
            dry_run: self.dry_run,
            options: None,
        }
    }

    /// A copy that outlives the request.
    pub(super) fn to_kept(self) -> KeptWrite {
        KeptWrite {
            operation: self.operation,
            kind: self.kind,
            version: self.version,
            subresource: self.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            user: self.user.clone(),
            audit_id: self.audit_id.to_owned(),
            dry_run: self.dry_run,
            options: self.options.clone(),
            object: self.object.cloned(),
            old_object: self.old_object.cloned(),
        }
    }
}

/// A write that is evaluated while it is carried out. The fields are those of [`HostedWrite`].
pub(super) struct KeptWrite {
    operation: AdmissionOperation,
    kind: &'static Kind,
    version: &'static KindVersion,
    subresource: String,
    namespace: String,
    name: String,
    user: User,
    audit_id: String,
    dry_run: bool,
    options: Value,
    object: Option<Value>,
    old_object: Option<Value>,
}

impl KeptWrite {
    pub(super) fn as_write(&self) -> HostedWrite<'_> {
        HostedWrite {
            operation: self.operation,
            kind: self.kind,
            version: self.version,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            user: &self.user,
            audit_id: &self.audit_id,
            dry_run: self.dry_run,
            options: &self.options,
            object: self.object.as_ref(),
            old_object: self.old_object.as_ref(),
        }
    }
}

pub(super) fn kind_in(
    kind: &'static Kind,
    version: &'static KindVersion,
) -> GroupVersionKind<'static> {
    GroupVersionKind {
        group: kind.group,
        version: version.name,
        kind: kind.kind,
    }
}

/// The JSON of an object in its stored version, in `version`.
pub(super) fn text_in(kind: &'static Kind, version: &'static KindVersion, stored: &Value) -> Bytes {
    if version.name == kind.stored().name {
        return object::compact(version, stored);
    }
    object::compact(version, &object::versioned(kind, version, stored))
}
