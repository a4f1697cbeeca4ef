//! The verbs, one file each, the same for every kind.
//!
//! A [`CallContext`] is a call to one resource: which kind and version, which object, how to answer. Every
//! verb takes one and gives an [`ApiResponse`](crate::response::Answer) or a [`StatusError`].

mod create;
mod delete;
mod delete_options;
mod patch;
mod read;
mod update;
mod watch;

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::{
    negotiate::{self, Output, PatchType, Produces, Representation},
    object_writer::ObjectWriter,
    query::Query,
    request::ApiRequest,
    response::ApiResponse,
    route::ResourcePath,
    state::ApiState,
    status_error::StatusError,
};
use fairgate_core::{
    apf::objects::names,
    sync::{Mutex, lock},
};
use fairgate_objects::{
    kind::{Kind, KindVersion},
    metadata,
    object::{self, Object},
    schema::canonical,
    ssa,
    table::{IncludeObject, TableLayout},
};
use fairgate_store::{ReadRevision, StoreEntry, StoreError};

/// Who the gateway is to itself.
pub(super) const GATEWAY: &str = "system:apiserver";

/// A call to one resource.
pub(super) struct CallContext<'a> {
    pub(super) state: &'a ApiState,
    pub(super) request: &'a ApiRequest,
    pub(super) kind: &'static Kind,
    pub(super) version: &'static KindVersion,
    pub(super) place: &'a ResourcePath,
    pub(super) query: &'a Query,
    pub(super) output: Output,
    /// Whether an apply may make the object.
    may_create: Result<(), StatusError>,
    warnings: Mutex<Vec<String>>,
}

/// Answers a call to a resource. `may_create` tells whether an apply may make the object.
pub(super) async fn serve(
    state: &ApiState,
    request: &ApiRequest,
    place: &ResourcePath,
    query: &Query,
    may_create: Result<(), StatusError>,
) -> ApiResponse {
    let mut output = Output::JSON;
    let scope = match CallContext::new(state, request, place, query, &mut output) {
        Ok(scope) => CallContext {
            may_create,
            ..scope
        },
        Err(fault) => {
            let answer = ApiResponse::error(&fault, output);
            // What no route leads to is of no version; all else is told that it is of an old one.
            return if fault.is_unrouted() {
                answer
            } else {
                answer.warn(deprecation(place).as_slice())
            };
        }
    };
    let answer = match scope.dispatch().await {
        Ok(answer) => answer,
        Err(fault) => ApiResponse::error(&fault, scope.output),
    };
    let warnings = lock(&scope.warnings);
    answer.warn(&warnings)
}

/// What a method on a place means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch(PatchType),
    Delete,
    DeleteCollection,
}

impl Verb {
    fn of(request: &ApiRequest, place: &ResourcePath) -> Result<Self, StatusError> {
        use http::Method as M;
        let on_collection = place.name.is_empty();
        if place.watch {
            return if request.method == M::GET {
                Ok(Self::Watch)
            } else {
                Err(StatusError::method_not_allowed())
            };
        }
        let everywhere = place.kind.namespaced && place.namespace.is_empty();
        Ok(match (&request.method, on_collection) {
            (&M::GET, true) => Self::List,
            (&M::POST, true) if !everywhere => Self::Create,
            (&M::DELETE, true) if !everywhere => Self::DeleteCollection,
            (&M::GET, false) => Self::Get,
            (&M::PUT, false) => Self::Update,
            (&M::PATCH, false) => {
                Self::Patch(negotiate::patch_type(request.header("content-type"))?)
            }
            (&M::DELETE, false) if !place.status => Self::Delete,
            _ => return Err(StatusError::method_not_allowed()),
        })
    }
}

impl<'a> CallContext<'a> {
    fn new(
        state: &'a ApiState,
        request: &'a ApiRequest,
        place: &'a ResourcePath,
        query: &'a Query,
        output: &mut Output,
    ) -> Result<Self, StatusError> {
        let verb = Verb::of(request, place);
        let produces = match verb {
            Ok(Verb::List | Verb::Watch) => Produces::Collections,
            _ => Produces::Objects,
        };
        let accept = request.header("accept");
        let agreed = negotiate::output(accept, produces, query, request.header("user-agent"));
        if let Ok(agreed) = &agreed {
            *output = *agreed;
        }
        // The route comes first, though its refusal is written as agreed.
        verb?;
        *output = agreed?;
        for (what, segment) in [("Name", &place.name), ("Namespace", &place.namespace)] {
            let wrong = names::path_segment(segment, false);
            if !wrong.is_empty() {
                return Err(StatusError::bad_request(format!(
                    "{what} parameter invalid: {segment:?}: {}",
                    wrong.join(";")
                )));
            }
        }
        let scope = Self {
            state,
            request,
            kind: place.kind,
            version: place.version,
            place,
            query,
            output: *output,
            may_create: Ok(()),
            warnings: Mutex::default(),
        };
        if let Some(warning) = deprecation(place) {
            scope.warn(warning);
        }
        Ok(scope)
    }

    async fn dispatch(&self) -> Result<ApiResponse, StatusError> {
        match Verb::of(self.request, self.place)? {
            Verb::Get => self.get().await,
            Verb::List => self.list().await,
            Verb::Watch => self.watch().await,
            Verb::Create => self.create().await,
            Verb::Update => self.update().await,
            Verb::Patch(how) => self.patch(how).await,
            Verb::Delete => self.delete().await,
            Verb::DeleteCollection => self.delete_collection().await,
        }
    }

    /// Adds a warning to the answer.
    fn warn(&self, text: impl Into<String>) {
        lock(&self.warnings).push(text.into());
    }

    /// What all keys of the resource begin with, as far as the call reaches.
    fn prefix(&self) -> String {
        let plural = self.kind.plural;
        if self.place.namespace.is_empty() {
            format!("/{plural}/")
        } else {
            format!("/{plural}/{}/", self.place.namespace)
        }
    }

    fn key(&self, name: &str) -> String {
        self.prefix() + name
    }

    /// The entry of the object of a name, if there is one. What cannot be the last part of a path is
    /// refused; any other name that no object can have is one that none has.
    async fn find(
        &self,
        name: &str,
        at: ReadRevision,
    ) -> Result<Option<Arc<StoreEntry>>, StatusError> {
        let wrong = names::path_segment(name, false);
        if !wrong.is_empty() {
            let wrong = wrong.join(";");
            return Err(StatusError::bad_request(format!(
                "Name parameter invalid: {name:?}: {wrong}"
            )));
        }
        match self.state.store.get(&self.key(name), at).await {
            Err(StoreError::BadKey(_)) => Ok(None),
            found => found.map_err(|error| store_fault(&error)),
        }
    }

    fn decode(&self, entry: &StoreEntry) -> Result<Arc<Object>, StatusError> {
        crate::stored::object(self.kind, entry)
    }

    /// The subresource, as managed fields name it.
    fn subresource(&self) -> &'static str {
        if self.place.status { "status" } else { "" }
    }

    fn writer(&self) -> Result<ObjectWriter, StatusError> {
        let (meta, include) = match self.output.form {
            Some(Representation::Table(meta)) => (
                meta,
                IncludeObject::parse(self.query.text("includeObject"))
                    .map_err(StatusError::bad_request)?,
            ),
            _ => ("v1", IncludeObject::default()),
        };
        Ok(ObjectWriter {
            kind: self.kind,
            version: self.version,
            output: self.output,
            layout: TableLayout {
                kind: self.kind,
                version: self.version,
                meta,
                include,
                now: self.state.now_seconds(),
            },
        })
    }

    /// Answers with an object in its stored version.
    fn answer(&self, status: StatusCode, stored: Value) -> Result<ApiResponse, StatusError> {
        let object = Object::new(self.kind, stored);
        self.writer()?.object(status, &object)
    }

    /// The namespace an object has to name, if any: its own, or none.
    fn settle_namespace(&self, object: &mut Value) -> Result<(), StatusError> {
        if !self.kind.namespaced {
            metadata::set(object, "namespace", Value::Null);
            return Ok(());
        }
        let given = metadata::text(object, "namespace").to_owned();
        let wanted = &self.place.namespace;
        if given.is_empty() {
            metadata::set(object, "namespace", Value::String(wanted.clone()));
        } else if given != *wanted {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }
}

/// What callers of a deprecated version are warned of.
fn deprecation(place: &ResourcePath) -> Option<String> {
    let deprecation = place.version.deprecated?;
    let kind = place.kind;
    let old = kind.api_version(place.version.name);
    let new = kind.api_version(kind.stored().name);
    Some(format!(
        "{old} {name} is deprecated in v{since}+, unavailable in v{removed}+; use {new} {name}",
        name = kind.kind,
        since = deprecation.since,
        removed = deprecation.removed,
    ))
}

/// What a fault of the store's is to a client.
pub(super) fn store_fault(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { .. } => {
            StatusError::expired("The resourceVersion for the provided list is too old.")
        }
        StoreError::Future { asked, newest } => StatusError::too_large_version(*asked, *newest),
        StoreError::TooLarge { .. } => StatusError::too_large(&error.to_string()),
        StoreError::BadKey(_) => StatusError::bad_request(error.to_string()),
        StoreError::Full { .. } => StatusError::internal(error.to_string()),
        // Whatever else is wrong with it, it may be mended while clients try again.
        _ => StatusError::unavailable(error.to_string()),
    }
}

/// What a fault of the store's is to a client whose write had come to it. The write may have happened, so
/// the client is not asked to repeat it.
fn write_fault(error: &StoreError) -> StatusError {
    store_fault(error).without_retry()
}

/// A kind as the ownership of its fields sees it.
pub(super) struct OwnedKind(pub(super) &'static Kind);

impl ssa::ManagedKind for OwnedKind {
    fn shape(&self, api_version: &str) -> Option<&'static fairgate_objects::schema::Struct> {
        self.version(api_version).map(|version| version.shape)
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let from = object["apiVersion"].as_str()?;
        if from == to {
            return Some(object.clone());
        }
        let (from, to) = (self.version(from)?, self.version(to)?);
        let stored = object::to_stored(self.0, from, object.clone());
        let versioned = object::versioned(self.0, to, &stored);
        // What an apply merged is not in canonical form yet.
        Some(canonical::decode(to.shape, &versioned).ok()?.value)
    }

    fn reset_fields(&self, _: &str, subresource: &str) -> &'static [&'static str] {
        match (subresource, self.0.has_status) {
            ("status", _) if self.0.rules.status_writes_metadata => &["spec"],
            ("status", _) => &["metadata", "spec"],
            (_, true) => &["status"],
            (_, false) => &[],
        }
    }
}

impl OwnedKind {
    fn version(&self, api_version: &str) -> Option<&'static KindVersion> {
        self.0
            .versions
            .iter()
            .find(|version| self.0.api_version(version.name) == api_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_have_been_written_is_to_be_repeated() {
        let away = StoreError::Unavailable("away".to_owned());
        assert_eq!(store_fault(&away).retry_after(), Some(1));
        let fault = write_fault(&away);
        assert_eq!(fault.code, http::StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(fault.retry_after(), None);
    }

    #[test]
    fn a_full_store_is_an_internal_error_that_says_where_to_make_room() {
        let full = StoreError::Full {
            place: "/data".to_owned(),
        };
        let fault = write_fault(&full);
        assert_eq!(fault.code, http::StatusCode::INTERNAL_SERVER_ERROR);
        assert!(fault.message.contains("/data"), "{}", fault.message);
        assert_eq!(fault.retry_after(), None);
    }
}
