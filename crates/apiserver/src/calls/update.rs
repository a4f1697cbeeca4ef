//! `PUT`, and the loop that it shares with `PATCH`: read, change, compare and swap.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{CallContext, HostedResponse, OwnedKind, StatusError};
use fairgate_apihttp::{
    content_type,
    negotiate::Media,
    query::{Write, WriteOptions},
};
use fairgate_gotext::{NumberError, names, parse_uint};
use fairgate_objects::{
    codec,
    field_error::ApiFieldError,
    metadata,
    object::{self, Object},
    ssa::{self, WriteContext},
};
use fairgate_store::{Precondition, ReadRevision, StoreEntry, WriteOutcome};

/// How often a change is tried again after a concurrent write, before the client gets a conflict.
const TRIES: usize = 100;

/// The result of an update.
pub(super) struct Updated {
    /// The object in its stored version.
    pub(super) object: Value,
    /// Whether the object was created.
    pub(super) created: bool,
}

/// The desired state of an object.
pub(super) struct Changed {
    /// The object in the version of the call, defaults filled in, ownership of fields settled.
    pub(super) object: Value,
    /// Whether to create it if it does not exist.
    pub(super) may_create: bool,
}

impl CallContext<'_> {
    pub(super) async fn update(&self) -> Result<HostedResponse, StatusError> {
        let body = self.request.body()?;
        let agent = &self.request.header("user-agent");
        let options = WriteOptions::read(self.query, Write::Update, agent)?;
        let media = content_type::body_media(&self.request.header("content-type"))?;
        let mut object = self.decode_body(media, body, options.validation)?;
        let sent = match media {
            Media::Json => codec::json::parse(body).ok(),
            Media::Yaml => codec::yaml::parse(body).ok(),
            Media::Protobuf => None,
        };
        if let Some(sent) = sent {
            self.carry_empty(&sent.value, &mut object);
        }
        self.settle_namespace(&mut object)?;
        self.check_name(&object)?;
        if let Some(warning) = metadata::dedup_owners(&mut object, "") {
            self.warn(warning);
        }
        let uid = metadata::text(&object, "uid").to_owned();
        let updated = self
            .change(&uid, &options, |live| {
                let live =
                    live.ok_or_else(|| StatusError::not_found(self.kind, &self.place.name))?;
                let mut new = object.clone();
                self.track(Some(live), &mut new, &options);
                Ok(Changed {
                    object: new,
                    may_create: false,
                })
            })
            .await?;
        self.answer(StatusCode::OK, updated.object)
    }

    /// Checks that the name and namespace in the body are those of the path.
    pub(super) fn check_name(&self, object: &Value) -> Result<(), StatusError> {
        let (given, wanted) = (metadata::name(object), self.place.name.as_str());
        if given.is_empty() {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({wanted} based on URL) was undeterminable: name must be \
                 provided"
            )));
        }
        if given != wanted {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({wanted})"
            )));
        }
        let namespace = metadata::text(object, "namespace");
        if self.kind.namespaced && !namespace.is_empty() && namespace != self.place.namespace {
            return Err(StatusError::bad_request(format!(
                "the namespace of the object ({namespace}) does not match the namespace on the \
                 request ({})",
                self.place.namespace
            )));
        }
        Ok(())
    }

    /// Updates `metadata.managedFields`, and removes empty lists.
    pub(super) fn track(&self, live: Option<&Value>, new: &mut Value, options: &WriteOptions) {
        let now = self.state.now_text();
        let api_version = self.kind.api_version(self.version.name);
        let actor = WriteContext {
            manager: &options.manager,
            subresource: self.subresource(),
            api_version: &api_version,
            now: &now,
        };
        ssa::track_update(&OwnedKind(self.kind), live, new, &actor);
        ssa::drop_empty_lists(self.version.shape, new);
    }

    /// Copies those empty lists from the request body that have a meaning. The canonical form drops them.
    pub(super) fn carry_empty(&self, sent: &Value, object: &mut Value) {
        ssa::carry_empty_lists(self.version.shape, sent, object);
        // An empty `managedFields` resets the ownership of all fields.
        let managed = &sent["metadata"]["managedFields"];
        if managed.as_array().is_some_and(Vec::is_empty) {
            metadata::set(object, "managedFields", json!([]));
        }
    }

    /// Changes or creates the object that the call names. `make` gets the present object in the version
    /// of the call, and returns the desired state. Runs again after a concurrent write.
    pub(super) async fn change(
        &self,
        uid: &str,
        options: &WriteOptions,
        make: impl Fn(Option<&Value>) -> Result<Changed, StatusError> + Sync,
    ) -> Result<Updated, StatusError> {
        let name = self.place.name.as_str();
        for _ in 0..TRIES {
            let found = self.find(name, ReadRevision::Newest).await?;
            let outcome = if let Some(entry) = found {
                let live = self.decode(&entry)?;
                self.check_uid(uid, metadata::text(live.stored(), "uid"))?;
                let changed = make(Some(live.value(self.version)))?;
                self.replace(&entry, &live, changed.object, options).await?
            } else {
                let changed = make(None)?;
                if !changed.may_create {
                    return Err(StatusError::not_found(self.kind, name));
                }
                self.make_new(changed.object, options).await?
            };
            if let Some(updated) = outcome {
                return Ok(updated);
            }
        }
        Err(StatusError::modified(self.kind, name))
    }

    /// Checks that the stored object has the UID in the request, if there is one.
    fn check_uid(&self, uid: &str, found: &str) -> Result<(), StatusError> {
        if uid.is_empty() || uid == found {
            return Ok(());
        }
        // The storage key, in the form of kube-apiserver.
        let prefix = self.prefix();
        let key = prefix
            .strip_prefix(&self.kind.group_prefix())
            .unwrap_or(&prefix);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /{key}{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: \
             {found}",
            self.place.name
        );
        Err(StatusError::conflict(self.kind, &self.place.name, &why))
    }

    /// Refuses a UID in an object that does not exist yet.
    pub(super) fn check_no_uid(&self, object: &Value) -> Result<(), StatusError> {
        let uid = metadata::text(object, "uid");
        if uid.is_empty() {
            return Ok(());
        }
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        Err(StatusError::conflict(self.kind, &self.place.name, &why))
    }

    async fn make_new(
        &self,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Option<Updated>, StatusError> {
        self.may_create.clone()?;
        let mut object = object::to_stored(self.kind, self.version, object);
        let version = metadata::text(&object, "resourceVersion");
        if !version.is_empty() {
            parse_uint(version).map_err(bad_version)?;
        }
        // A new object has no earlier version. The response to a dry run shows the version that was sent.
        if !options.dry_run {
            metadata::set(&mut object, "resourceVersion", Value::Null);
        }
        match self.create_stored(object, options.dry_run).await {
            Ok(object) => Ok(Some(Updated {
                object,
                created: true,
            })),
            // A concurrent request created it: try again as an update.
            Err(error) if error.reason == "AlreadyExists" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces `live` by `new`; `None` after a concurrent write.
    async fn replace(
        &self,
        entry: &Arc<StoreEntry>,
        live: &Object,
        new: Value,
        options: &WriteOptions,
    ) -> Result<Option<Updated>, StatusError> {
        let live = live.stored();
        let mut new = object::to_stored(self.kind, self.version, new);
        self.settle_version(&mut new, entry.revision)?;
        self.prepare_update(&mut new, live);
        self.validate_update(&new, live)?;
        ssa::keep_times_if_unchanged(live, &mut new);
        let audit = self.evaluate_update(&new, live, options.dry_run).await?;
        let done = |object| {
            Ok(Some(Updated {
                object,
                created: false,
            }))
        };
        let name = &self.place.name;
        if options.dry_run {
            self.check_quota(name, Some(entry), &object::encode(self.kind, &new))?;
            return done(new);
        }
        // An object that is being deleted is removed with its last finalizer.
        let removes = metadata::is_deleting(live) && metadata::finalizers(&new).next().is_none();
        let bytes = (!removes).then(|| object::encode(self.kind, &new));
        let expected = Precondition::At(entry.revision);
        match self.write(name, expected, bytes).await? {
            WriteOutcome::Done { revision, .. } => {
                if revision != entry.revision {
                    self.log_change("update", name, Some(entry.revision), Some(revision));
                }
                // A removed object is returned as sent: `new` was not stored.
                if !removes {
                    metadata::set(&mut new, "resourceVersion", json!(revision.to_string()));
                }
                done(new)
            }
            WriteOutcome::Lost(_) => {
                audit.withdraw();
                Ok(None)
            }
        }
    }

    /// Checks that the resource version in the request is the stored one. Without one, the update is
    /// unconditional if the kind allows that.
    fn settle_version(&self, new: &mut Value, revision: u64) -> Result<(), StatusError> {
        let name = self.place.name.as_str();
        let given = metadata::text(new, "resourceVersion").to_owned();
        match given.as_str() {
            "" | "0" if self.kind.rules.unconditional_update => {
                metadata::set(new, "resourceVersion", json!(revision.to_string()));
                Ok(())
            }
            "" | "0" => {
                let error = ApiFieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                let (resource, group) = (self.kind.plural, self.kind.group);
                Err(StatusError::invalid(resource, group, name, &[error]))
            }
            _ if parse_uint(&given).map_err(bad_version)? == revision => Ok(()),
            _ => Err(StatusError::modified(self.kind, name)),
        }
    }

    /// Restores the fields that clients cannot set, and increments `generation` if the spec changed.
    fn prepare_update(&self, new: &mut Value, live: &Value) {
        if self.place.status {
            self.keep_all_but_status(new, live);
        } else {
            let generation = metadata::generation(live);
            let changed = new["spec"] != live["spec"];
            let generation = generation + i64::from(changed);
            metadata::set(new, "generation", json!(generation));
            if self.kind.has_status {
                new["status"] = live["status"].clone();
            }
        }
        let keep = |new: &mut Value, field: &str| {
            if let Some(value) = metadata::of(live).get(field) {
                metadata::set(new, field, value.clone());
            }
        };
        if metadata::text(new, "uid").is_empty() {
            keep(new, "uid");
        }
        keep(new, "creationTimestamp");
        if metadata::is_deleting(live) {
            keep(new, "deletionTimestamp");
        }
        if metadata::of(new)
            .get("deletionGracePeriodSeconds")
            .is_none()
        {
            keep(new, "deletionGracePeriodSeconds");
        }
        metadata::set(new, "selfLink", Value::Null);
    }

    fn keep_all_but_status(&self, new: &mut Value, live: &Value) {
        if self.kind.rules.status_writes_metadata {
            metadata::set(new, "generation", json!(metadata::generation(live)));
        } else {
            let managed = metadata::of(new).get("managedFields").cloned();
            new["metadata"] = live["metadata"].clone();
            metadata::set(new, "managedFields", managed.unwrap_or_default());
        }
        new["spec"] = live["spec"].clone();
    }

    fn validate_update(&self, new: &Value, live: &Value) -> Result<(), StatusError> {
        let namespaced = self.kind.namespaced;
        let mut errors = metadata::validate(new, namespaced, names::path_segment);
        errors.extend(metadata::validate_update(new, live));
        if self.place.status {
            errors.extend((self.kind.rules.validate_status)(new));
        } else {
            let rules = self.kind.rules;
            if let Some(rule) = rules.name {
                errors.extend(metadata::validate(new, namespaced, rule));
            }
            errors.extend((rules.validate)(new, Some(live)));
        }
        if !errors.is_empty() {
            let (kind, group) = (self.kind.kind, self.kind.group);
            return Err(StatusError::invalid(
                kind,
                group,
                metadata::name(new),
                &errors,
            ));
        }
        for warning in (self.kind.rules.warnings)(new) {
            self.warn(warning);
        }
        Ok(())
    }
}

/// The error for a resource version that is not a number.
fn bad_version(why: NumberError<'_>) -> StatusError {
    StatusError::internal(why.to_string())
}
