//! Server-side apply.
//!
//! An applied object contains the fields that its manager wants to own. It is merged into the live
//! object. Fields that the manager applied before, and that no manager applies now, are removed.
//! Changing fields of other managers is a conflict, unless the apply is forced; then the applier
//! becomes their only owner.

use serde_json::Value;

use super::{
    conflict::{ApplyError, ConflictSet},
    context::{ManagedKind, WriteContext},
    field_set::field_set,
    last_applied,
    managers::{ManagerEntry, ManagerKey, ManagerOperation, Managers, set_managed_fields},
    merge, prune,
    shape::ValueType,
    updater::{Updater, strip},
    validate::{DuplicateItems, SchemaErrors, validate},
    versioned_object::VersionedObject,
};
use crate::schema::meta_v1::OBJECT_META;

/// The manager of all fields that existed before the object was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager that may take over what it applied on the client side.
const KUBECTL: &str = "kubectl";

/// Applies `config` to `live` (`None`: creates the object).
///
/// `live` is canonical, in any served version. `config` is as it was sent, unknown fields included;
/// what is not an object counts as an empty one. Its name is ignored.
///
/// The result is in the context's version, with `managedFields` set. If it differs from `live`, it is *not*
/// canonical: nulls and empty values are still in it, fields that are always there may be missing, and a value
/// may still be invalid for its type in ways that the tables do not show (a fraction for an integer, a
/// malformed time).
///
/// # Errors
///
/// [`ApplyError`], which determines the response.
pub fn apply(
    kinds: &dyn ManagedKind,
    live: Option<&Value>,
    config: &Value,
    context: &WriteContext<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let request = Updater { kinds, context };
    let (live, mut managers) = request.start(live)?;
    let config_body = request.checked(config)?;
    live.validate(DuplicateItems::Allowed)
        .map_err(|why| misfit("failed to create typed live object", &live.object(), &why))?;
    if managers.is_empty() {
        request.begin_tracking(&live, &mut managers)?;
    }

    let conflicts = match request.attempt(&live, &config_body, managers.clone(), force) {
        Ok(applied) => return Ok(applied.into_object(&live, config, context)),
        Err(conflicts) => conflicts,
    };
    let released = if context.manager == KUBECTL {
        last_applied::owned(&live)
    } else {
        None
    };
    // A client that changes from `kubectl apply` to server-side apply owns what its annotation says that it
    // applied.
    let remaining = match released {
        Some(owned) => conflicts.except(&owned),
        None => conflicts,
    };
    if !remaining.is_empty() {
        return Err(ApplyError::Conflicts(remaining.describe()));
    }
    match request.attempt(&live, &config_body, managers, true) {
        Ok(applied) => Ok(applied.into_object(&live, config, context)),
        Err(conflicts) => Err(ApplyError::Conflicts(conflicts.describe())),
    }
}

/// The result of an apply.
struct Applied<'a> {
    /// `None` if the live object needs no change.
    changed: Option<VersionedObject<'a>>,
    managers: Managers,
}

impl Applied<'_> {
    fn into_object(
        self,
        live: &VersionedObject<'_>,
        config: &Value,
        context: &WriteContext<'_>,
    ) -> Value {
        let mut object = self.changed.as_ref().unwrap_or(live).object();
        if context.manager == KUBECTL {
            last_applied::sync(&mut object, config);
        }
        set_managed_fields(&mut object, self.managers.encode());
        object
    }
}

impl<'a> Updater<'a> {
    fn start(&self, live: Option<&Value>) -> Result<(VersionedObject<'a>, Managers), ApplyError> {
        let version = self.context.api_version;
        let unserved = || ApplyError::Internal(format!("{version} is not served"));
        let Some(live) = live else {
            let body = VersionedObject::zero(self.kinds, version).ok_or_else(unserved)?;
            return Ok((body, Managers::default()));
        };
        let managers = Managers::decode(
            &live["metadata"]["managedFields"],
            self.kinds.deepest_fields(),
        )
        .map_err(|why| ApplyError::Internal(format!("failed to decode managed fields: {why}")))?;
        let body = VersionedObject::of(self.kinds, live, version).ok_or_else(unserved)?;
        Ok((body, managers))
    }

    /// The applied object, if it may be applied here.
    fn checked(&self, config: &Value) -> Result<VersionedObject<'a>, ApplyError> {
        let version = self.context.api_version;
        let Some(shape) = self.kinds.object_type(version) else {
            return Err(ApplyError::Internal(format!("{version} is not served")));
        };
        if config["apiVersion"] != version || config["kind"] != shape.kind() {
            let message = format!("invalid object type: {}", group_version_kind(config));
            return Err(ApplyError::BadRequest(message));
        }
        check_managed_fields(config)?;
        let unserved = || ApplyError::Internal(format!("{version} is not served"));
        let config_body =
            VersionedObject::with_entries(self.kinds, config, version).ok_or_else(unserved)?;
        config_body
            .validate(DuplicateItems::Refused)
            .map_err(|why| misfit("failed to create typed patch object", config, &why))?;
        Ok(config_body.without_entries())
    }

    /// Gives all existing fields to a separate manager.
    fn begin_tracking(
        &self,
        live: &VersionedObject<'a>,
        managers: &mut Managers,
    ) -> Result<(), ApplyError> {
        let Some(zero) = VersionedObject::zero(self.kinds, live.version()) else {
            return Ok(());
        };
        self.track(&zero, live, managers, BEFORE_FIRST_APPLY)
            .map_err(|why| {
                ApplyError::Internal(format!(
                    "failed to create manager for existing fields: {why}"
                ))
            })
    }

    fn attempt(
        &self,
        live: &VersionedObject<'a>,
        config: &VersionedObject<'a>,
        mut managers: Managers,
        force: bool,
    ) -> Result<Applied<'a>, ConflictSet> {
        let version = live.version();
        let identity = ManagerKey::new(
            self.context.manager_name(),
            ManagerOperation::Apply,
            version,
            self.context.subresource,
        );
        let time = managers.get(&identity).and_then(|entry| entry.time.clone());
        self.reconcile(&mut managers);
        let last = managers.remove(&identity);
        let claim = field_set(config.ty(), config.value());
        let entry = ManagerEntry {
            version: version.to_owned(),
            set: claim.without_trees(&self.reset_fields(version)),
            time,
        };
        managers.insert(identity.clone(), entry);

        let merged = live.with(merge::merge(live.ty(), live.value(), config.value()));
        let new = match last {
            Some(last) => prune::prune(self.kinds, merged, &managers, &last),
            None => merged,
        };
        self.settle(live, &new, &mut managers, Some(&identity), force)?;
        strip(&mut managers, &identity);
        let changed = !super::path::same(live.value(), new.value());
        if changed && let Some(entry) = managers.get_mut(&identity) {
            entry.time = Some(self.context.now.to_owned());
        }
        Ok(Applied {
            changed: changed.then_some(new),
            managers,
        })
    }
}

/// Refuses `managedFields` in the applied object. Anything but a list is left to the validation by
/// schema.
fn check_managed_fields(config: &Value) -> Result<(), ApplyError> {
    let sent = &config["metadata"]["managedFields"];
    if !sent.is_array() {
        return Ok(());
    }
    let list = OBJECT_META.field("managedFields").map(|field| field.ty);
    match list.map(|list| validate(ValueType::Table(list), sent, DuplicateItems::Allowed)) {
        Some(Ok(())) => Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Version and kind of an object: `<group>/<version>, Kind=<kind>`.
fn group_version_kind(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("");
    let version = object["apiVersion"].as_str().unwrap_or("");
    match version.matches('/').count() {
        0 => format!("/{version}, Kind={kind}"),
        1 if version == "/" => format!("/, Kind={kind}"),
        1 => format!("{version}, Kind={kind}"),
        _ => "/, Kind=".to_owned(),
    }
}

/// An object that does not fit its table.
fn misfit(what: &str, object: &Value, why: &SchemaErrors) -> ApplyError {
    let metadata = |name| object["metadata"][name].as_str().unwrap_or("");
    ApplyError::Internal(format!(
        "{what} ({}/{}; {}): {why}",
        metadata("namespace"),
        metadata("name"),
        group_version_kind(object)
    ))
}
