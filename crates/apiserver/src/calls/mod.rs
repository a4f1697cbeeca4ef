//! The verbs, one file each. They are the same for every kind.
//!
//! A [`CallContext`] describes a call to one resource: kind, version, object, and response format. Every
//! verb takes one and returns an [`HostedResponse`] or a [`StatusError`].

mod create;
mod delete;
mod delete_options;
mod evaluate;
mod patch;
mod read;
mod store_write;
mod update;
mod watch;

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::{
    HostedResponse, limits::response_room::ResponseRoom, objects::object_writer::ObjectWriter,
    route::ResourcePath, state::ApiState,
};
use fairgate_apihttp::{
    content_type::{self, PatchType},
    negotiate::{self, Output, Produces, Representation},
    query::Query,
    request::ApiRequest,
    status_error::StatusError,
};
use fairgate_core::sync::{Mutex, lock};
use fairgate_gotext::{Quoted, names};
use fairgate_objects::{
    kind::{Kind, KindVersion},
    metadata,
    object::{self, Object},
    schema::canonical,
    ssa,
    table::{IncludeObject, TableLayout},
};
use fairgate_store::{ReadRevision, StoreEntry, StoreError};

/// The user name of the gateway for its own writes; kube-apiserver uses the same for its loopback client.
pub(super) const GATEWAY_USER: &str = "system:apiserver";

/// A call to one resource.
pub(super) struct CallContext<'a> {
    pub(super) state: &'a ApiState,
    pub(super) request: &'a ApiRequest,
    pub(super) kind: &'static Kind,
    pub(super) version: &'static KindVersion,
    pub(super) place: &'a ResourcePath,
    pub(super) query: &'a Query,
    pub(super) output: Output,
    /// The authorization of `create`, for an apply to an object that does not exist.
    may_create: Result<(), StatusError>,
    /// The room in memory for the response.
    room: Option<&'a ResponseRoom>,
    warnings: Mutex<Vec<String>>,
}

/// Serves a call to a resource. `may_create` is the authorization of `create`, which an apply needs if
/// the object does not exist; `room` is where the response has to fit.
pub(super) async fn serve(
    state: &ApiState,
    request: &ApiRequest,
    place: &ResourcePath,
    query: &Query,
    (may_create, room): (Result<(), StatusError>, &ResponseRoom),
) -> HostedResponse {
    let mut output = Output::JSON;
    let context = match CallContext::new(state, request, place, query, &mut output) {
        Ok(context) => CallContext {
            may_create,
            room: Some(room),
            ..context
        },
        Err(error) => {
            let response = HostedResponse::error(&error, output);
            // As kube-apiserver: no deprecation warning if no route matches.
            return if error.is_unrouted() {
                response
            } else {
                response.warn(deprecation(place).as_slice())
            };
        }
    };
    let response = match context.dispatch().await {
        Ok(response) => response,
        Err(error) => HostedResponse::error(&error, context.output),
    };
    let warnings = lock(&context.warnings);
    response.warn(&warnings)
}

/// The verb of a request, from its HTTP method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch(PatchType),
    Delete,
    DeleteCollection,
}

impl CallVerb {
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
                Self::Patch(content_type::patch_type(&request.header("content-type"))?)
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
        let verb = CallVerb::of(request, place);
        let produces = match verb {
            Ok(CallVerb::List | CallVerb::Watch) => Produces::Collections,
            _ => Produces::Objects,
        };
        let accept = &request.header("accept");
        let agreed = negotiate::output(accept, produces, query, &request.header("user-agent"));
        if let Ok(agreed) = &agreed {
            *output = *agreed;
        }
        // A wrong verb takes precedence over a wrong `Accept`, but its error is written in the negotiated
        // format.
        verb?;
        *output = agreed?;
        for (what, segment) in [("Name", &place.name), ("Namespace", &place.namespace)] {
            let wrong = names::path_segment(segment, false);
            if !wrong.is_empty() {
                return Err(StatusError::bad_request(format!(
                    "{what} parameter invalid: {}: {}",
                    Quoted(segment),
                    wrong.join(";")
                )));
            }
        }
        let context = Self {
            state,
            request,
            kind: place.kind,
            version: place.version,
            place,
            query,
            output: *output,
            may_create: Ok(()),
            room: None,
            warnings: Mutex::default(),
        };
        if let Some(warning) = deprecation(place) {
            context.warn(warning);
        }
        Ok(context)
    }

    async fn dispatch(&self) -> Result<HostedResponse, StatusError> {
        // The futures of all but the commonest verbs are on the heap, because those of writes are large: the future of
        // a request is moved several times, and would have room for the largest of them.
        match CallVerb::of(self.request, self.place)? {
            CallVerb::Get => self.get().await,
            CallVerb::List => self.list().await,
            CallVerb::Watch => Box::pin(self.watch()).await,
            CallVerb::Create => Box::pin(self.create()).await,
            CallVerb::Update => Box::pin(self.update()).await,
            CallVerb::Patch(how) => Box::pin(self.patch(how)).await,
            CallVerb::Delete => Box::pin(self.delete()).await,
            CallVerb::DeleteCollection => Box::pin(self.delete_collection()).await,
        }
    }

    /// Adds a `Warning` header to the response.
    fn warn(&self, text: impl Into<String>) {
        lock(&self.warnings).push(text.into());
    }

    /// The key prefix of all objects in the scope of the call: of one namespace, or of all.
    fn prefix(&self) -> String {
        let mut prefix = self.kind.key_prefix();
        if !self.place.namespace.is_empty() {
            prefix.push_str(&self.place.namespace);
            prefix.push('/');
        }
        prefix
    }

    fn key(&self, name: &str) -> String {
        self.prefix() + name
    }

    /// The entry of an object, if it exists. A name that cannot be a path segment is an error; for any
    /// other invalid name there is no object.
    async fn find(
        &self,
        name: &str,
        at: ReadRevision,
    ) -> Result<Option<Arc<StoreEntry>>, StatusError> {
        let wrong = names::path_segment(name, false);
        if !wrong.is_empty() {
            let wrong = wrong.join(";");
            return Err(StatusError::bad_request(format!(
                "Name parameter invalid: {}: {wrong}",
                Quoted(name)
            )));
        }
        match self.state.store.get(&self.key(name), at).await {
            Err(StoreError::BadKey(_)) => Ok(None),
            found => found.map_err(|error| store_fault(&error)),
        }
    }

    /// Makes room in memory for a response of so many bytes.
    fn reserve(&self, bytes: usize) -> Result<(), StatusError> {
        self.room.map_or(Ok(()), |room| room.reserve(bytes))
    }

    fn decode(&self, entry: &StoreEntry) -> Result<Arc<Object>, StatusError> {
        crate::objects::stored::object(self.kind, entry)
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

    /// Responds with an object, which is in its stored version.
    fn answer(&self, status: StatusCode, stored: Value) -> Result<HostedResponse, StatusError> {
        let object = Object::new(self.kind, stored);
        self.writer()?.object(status, &object)
    }

    /// Sets the namespace of the object to that of the path; removes it from cluster-scoped objects.
    fn settle_namespace(&self, object: &mut Value) -> Result<(), StatusError> {
        if !self.kind.namespaced {
            metadata::set(object, "namespace", Value::Null);
            return Ok(());
        }
        let given = metadata::text(object, "namespace").to_owned();
        let expected = &self.place.namespace;
        if given.is_empty() {
            metadata::set(object, "namespace", Value::String(expected.clone()));
        } else if given != *expected {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }
}

/// The warning for requests of a deprecated version.
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

/// Maps an error of the store to the status that a client gets.
pub(super) fn store_fault(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { .. } => {
            StatusError::expired("The resourceVersion for the provided list is too old.")
        }
        StoreError::Future { requested, newest } => {
            StatusError::too_large_version(*requested, *newest)
        }
        StoreError::TooLarge { .. } => StatusError::too_large(&error.to_string()),
        StoreError::BadKey(_) => StatusError::bad_request(error.to_string()),
        StoreError::Full { .. } | StoreError::DatabaseFull => {
            StatusError::internal(error.to_string())
        }
        // Other errors may be temporary: clients try again.
        _ => StatusError::unavailable(error.to_string()),
    }
}

/// Maps an error of the store to the status of a write that was sent to it. The write may have taken
/// place, so there is no `Retry-After`.
fn write_fault(error: &StoreError) -> StatusError {
    store_fault(error).without_retry()
}

/// The levels that sets of fields may have in stored objects: far above those of any hosted kind, and few enough for all who read and
/// show stored objects.
const DEEPEST_FIELDS: usize = 100;

/// The view of a kind that server-side apply needs.
pub(super) struct OwnedKind(pub(super) &'static Kind);

impl ssa::ManagedKind for OwnedKind {
    fn object_type(&self, api_version: &str) -> Option<ssa::ObjectType<'_>> {
        let version = self.version(api_version)?;
        Some(ssa::ObjectType::Table(version.shape))
    }

    fn deepest_fields(&self) -> usize {
        DEEPEST_FIELDS
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let from = object["apiVersion"].as_str()?;
        if from == to {
            return Some(object.clone());
        }
        let (from, to) = (self.version(from)?, self.version(to)?);
        let stored = object::to_stored(self.0, from, object.clone());
        let versioned = object::versioned(self.0, to, &stored);
        // The result of a merge is not in canonical form yet.
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
    fn writes_that_may_have_taken_place_get_no_retry_after() {
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
