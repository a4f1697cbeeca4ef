//! `POST`, and the creation of objects by server-side apply.

use http::StatusCode;
use serde_json::{Value, json};

use super::{CallContext, HostedResponse, OwnedKind, StatusError, store_fault, write_fault};
use crate::namespaces;
use fairgate_apihttp::{
    content_type,
    negotiate::Media,
    query::{Write, WriteOptions},
    random,
    request::Caller,
};
use fairgate_gotext::{Quoted, names};
use fairgate_objects::{
    codec::FieldValidation,
    metadata, object,
    schema::canonical,
    ssa::{self, WriteContext},
};
use fairgate_store::{Precondition, WriteOutcome};

/// The log target of the change log: which user changed which object.
const CHANGES: &str = "fairgate::changes";

/// How many generated names are tried.
const TRIES: usize = 8;

impl CallContext<'_> {
    pub(super) async fn create(&self) -> Result<HostedResponse, StatusError> {
        let media = content_type::body_media(&self.request.header("content-type"))?;
        let body = self.request.body()?;
        let agent = &self.request.header("user-agent");
        let options = WriteOptions::read(self.query, Write::Create, agent)?;
        let mut object = self.decode_body(media, body, options.validation)?;
        metadata::wipe(&mut object);
        self.settle_namespace(&mut object)?;
        if let Some(warning) = metadata::dedup_owners(&mut object, "") {
            self.warn(warning);
        }
        let now = self.state.now_text();
        let api_version = self.kind.api_version(self.version.name);
        ssa::track_update(
            &OwnedKind(self.kind),
            None,
            &mut object,
            &WriteContext {
                manager: &options.manager,
                subresource: self.subresource(),
                api_version: &api_version,
                now: &now,
            },
        );
        let stored = object::to_stored(self.kind, self.version, object);
        let stored = self.create_stored(stored, options.dry_run).await?;
        self.answer(StatusCode::CREATED, stored)
    }

    /// Reads the body as an object of the call's kind and version, with defaults.
    pub(super) fn decode_body(
        &self,
        media: Media,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Value, StatusError> {
        let strict = validation == FieldValidation::Strict;
        let read = self
            .state
            .read_body(media, body, self.kind, self.version, strict);
        let (mut value, problems) = read.map_err(|error| {
            self.warn_of(&error.problems, validation);
            StatusError::bad_request(error.to_string())
        })?;
        self.warn_of(&problems, validation);
        (self.version.default)(&mut value);
        Ok(object::converted(
            self.kind,
            self.version,
            self.version,
            value,
        ))
    }

    /// Adds warnings about unknown and duplicate fields, unless `fieldValidation` is `Ignore`.
    pub(super) fn warn_of(&self, problems: &[String], validation: FieldValidation) {
        if validation != FieldValidation::Ignore {
            for problem in problems {
                self.warn(problem);
            }
        }
    }

    /// Creates `object`, which is in its stored version, and returns it as stored.
    pub(super) async fn create_stored(
        &self,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Value, StatusError> {
        let namespace = &self.place.namespace;
        let (all, name) = (self.state.namespaces.as_ref(), metadata::name(&object));
        let uid = namespaces::check(all, self.kind, namespace, name).await?;
        if let (Some(uid), false) = (&uid, dry_run) {
            let entered = self.state.enter_namespace(namespace, uid).await;
            if !entered.map_err(|error| write_fault(&error))? {
                namespaces::check(all, self.kind, namespace, metadata::name(&object)).await?;
                return Err(self.earlier_namespace());
            }
        }
        metadata::set(&mut object, "uid", json!(random::uid()?));
        metadata::set(
            &mut object,
            "creationTimestamp",
            json!(self.state.now_text()),
        );
        let prefix = metadata::text(&object, "generateName").to_owned();
        let generated = !prefix.is_empty() && metadata::name(&object).is_empty();
        let tries = if generated { TRIES } else { 1 };
        let mut name = String::new();
        for _ in 0..tries {
            if generated {
                metadata::set(&mut object, "name", json!(random::generated_name(&prefix)?));
            }
            self.prepare_create(&mut object)?;
            metadata::name(&object).clone_into(&mut name);
            let audit = self.evaluate_creation(&object, dry_run).await?;
            if let Some(object) = self.insert(&name, object.clone(), dry_run).await? {
                if let (Some(uid), false) = (&uid, dry_run) {
                    self.confirm_namespace(uid, &object).await?;
                }
                return Ok(object);
            }
            audit.withdraw();
        }
        // As kube-apiserver: the error is the same if a name is given in addition to `generateName`.
        if !prefix.is_empty() {
            return Err(StatusError::no_unique_name(self.kind, &name));
        }
        Err(self.already_exists(&name).await)
    }

    /// Deletes the object that was just created if its namespace was cleaned up before it was stored. One that is
    /// cleaned up later takes the object with it.
    async fn confirm_namespace(&self, uid: &str, object: &Value) -> Result<(), StatusError> {
        let namespace = &self.place.namespace;
        let recorded = self.state.namespace_is(namespace, uid).await;
        if recorded.map_err(|error| write_fault(&error))? {
            return Ok(());
        }
        let name = metadata::name(object);
        let revision = metadata::text(object, "resourceVersion").parse::<u64>();
        let revision = revision.unwrap_or_default();
        let expected = Precondition::At(revision);
        let deleted = self
            .state
            .store
            .write(&self.key(name), expected, None)
            .await;
        if let WriteOutcome::Done { .. } = deleted.map_err(|error| write_fault(&error))? {
            self.log_change("delete", name, Some(revision), None);
        }
        namespaces::check(self.state.namespaces.as_ref(), self.kind, namespace, name).await?;
        Err(self.earlier_namespace())
    }

    /// The error while the objects of a deleted namespace are in the way of a new one with the same name.
    fn earlier_namespace(&self) -> StatusError {
        StatusError::internal(format!(
            "the objects of an earlier namespace {} are still being deleted; try again",
            Quoted(&self.place.namespace)
        ))
    }

    fn prepare_create(&self, object: &mut Value) -> Result<(), StatusError> {
        if self.kind.has_status {
            object["status"] = self.empty_status();
        }
        metadata::set(object, "generation", json!(1));
        let rules = self.kind.rules;
        let mut errors = match rules.name {
            Some(rule) => metadata::validate(object, self.kind.namespaced, rule),
            None => Vec::new(),
        };
        errors.extend((rules.validate)(object, None));
        if errors.is_empty() {
            errors = metadata::validate(object, self.kind.namespaced, names::path_segment);
        }
        if !errors.is_empty() {
            let (kind, group) = (self.kind.kind, self.kind.group);
            return Err(StatusError::invalid(
                kind,
                group,
                metadata::name(object),
                &errors,
            ));
        }
        for warning in (self.kind.rules.warnings)(object) {
            self.warn(warning);
        }
        Ok(())
    }

    /// The status of a new object: the fields that are always present.
    fn empty_status(&self) -> Value {
        let shape = self.kind.stored().shape;
        match canonical::decode(shape, &json!({"status": {}})) {
            Ok(mut decoded) => decoded.value["status"].take(),
            Err(_) => json!({}),
        }
    }

    /// Stores a new object; `None` if its name is taken.
    async fn insert(
        &self,
        name: &str,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Option<Value>, StatusError> {
        // A version that is not a number is ignored. kube-apiserver checks this in its storage layer,
        // which a dry run does not reach.
        let version = metadata::text(&object, "resourceVersion").parse::<u64>();
        if !dry_run && version.is_ok_and(|version| version > 0) {
            return Err(StatusError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let store = &self.state.store;
        let key = self.key(name);
        if dry_run {
            let found = store.get(&key, fairgate_store::ReadRevision::Newest).await;
            if found.map_err(|error| store_fault(&error))?.is_some() {
                return Ok(None);
            }
            self.check_quota(name, None, &object::encode(self.kind, &object))?;
            return Ok(Some(object));
        }
        metadata::set(&mut object, "resourceVersion", Value::Null);
        let bytes = object::encode(self.kind, &object);
        match self.write(name, Precondition::Absent, Some(bytes)).await? {
            WriteOutcome::Done { revision, .. } => {
                metadata::set(&mut object, "resourceVersion", json!(revision.to_string()));
                self.log_change("create", name, None, Some(revision));
                Ok(Some(object))
            }
            WriteOutcome::Lost(_) => Ok(None),
        }
    }

    /// The error for a name that is in use. Says so if the existing object is being deleted.
    async fn already_exists(&self, name: &str) -> StatusError {
        let mut error = StatusError::already_exists(self.kind, name);
        let found = self
            .state
            .store
            .get(&self.key(name), fairgate_store::ReadRevision::Newest)
            .await;
        if let Ok(Some(entry)) = found
            && let Ok(object) = self.decode(&entry)
            && metadata::is_deleting(object.stored())
        {
            error.message = format!("object is being deleted: {}", error.message);
        }
        error
    }

    /// Writes an entry of the change log.
    pub(super) fn log_change(
        &self,
        verb: &'static str,
        name: &str,
        old: Option<u64>,
        new: Option<u64>,
    ) {
        let impersonator = match &self.request.caller {
            Caller::Client { impersonator } => impersonator.as_ref().map(|user| &*user.name),
            Caller::Gateway => None,
        };
        // The level of an event must be a constant, hence a macro.
        macro_rules! log {
            ($level:expr) => {
                tracing::event!(
                    target: CHANGES,
                    $level,
                    user = %self.request.user().name,
                    impersonator,
                    verb,
                    resource = %self.kind.group_resource(),
                    subresource = self.subresource(),
                    namespace = %self.place.namespace,
                    name,
                    old_resource_version = old,
                    new_resource_version = new,
                    "object changed"
                )
            };
        }
        if self.request.caller == Caller::Gateway {
            // Routine writes of the gateway itself.
            log!(tracing::Level::DEBUG);
        } else {
            log!(tracing::Level::INFO);
        }
    }
}
