//! The hosted API as a whole: routes, authorizes and serves requests.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    HostedResponse,
    admin::{self, AdminEndpoints},
    admission::{HostedAdmission, PolicyEnforcer},
    calls, compression,
    documents::{Documents, merged_documents::MergedDocuments},
    limits::{
        hosted_bodies::HostedBodies, metrics_memory::MetricsMemory, quota::HostedQuota,
        response_room::ResponseRoom, work_in_turns::HeavyWorker,
    },
    namespaces::Namespaces,
    objects::{heavy_work::HeavyWork, object_writer::ObjectWriter},
    ownership::ServedSubresource,
    param_rights::ParamRights,
    reviews,
    route::{self, ResourcePath, Route, route},
    state::ApiState,
};
use bytes::Bytes;
use fairgate_apihttp::{
    access,
    authorize::{self, Authorizer},
    content_type::{self, PatchType},
    negotiate::{self, Output, Produces},
    query::{self, Query},
    request::{self, ApiRequest, Caller, MAX_BODY},
    status_error::StatusError,
};
use fairgate_base::{
    account::{ByteBudget, BytesHeld, HeavyTurns},
    clock::Clock,
};
use fairgate_call::{ResponseMemory, ResponseShare};
use fairgate_core::digest::{User, Verb};
use fairgate_objects::{codec::FieldValidation, kind::Kind, metadata, object::Object};
use fairgate_store::Store;
use fairgate_upstream::access_review::Attributes;
use http::{Method, StatusCode};
use tokio::runtime::Handle;

/// Decoding a body of more bytes than this takes milliseconds.
const LARGE_BODY: usize = 32 << 10;
/// How many heavy requests begin at once, and how many others continue; those that wait for I/O do not count.
const HEAVY_AT_ONCE: usize = 2;
/// What heavy requests that wait for I/O may have decoded, in bytes. Others keep their turns while they wait.
const HEAVY_WAITING_BYTES: usize = 128 << 20;
/// How many times as much memory a request has decoded as the texts that it reads, at most: two objects, each a tree.
const DECODED_TIMES: usize = 16;
/// The longest object that the stores take, about.
const LONGEST_OBJECT: usize = 3 << 19;
/// Encoding a list of more objects than this may take milliseconds.
const MANY_OBJECTS: usize = 500;
/// The same for the bytes of the objects.
const LONG_LIST: usize = 256 << 10;
/// The same for reading or changing one object, which is decoded for that.
const LARGE_OBJECT: usize = 32 << 10;

/// The settings and dependencies of a [`Hosted`].
pub struct HostedSettings {
    /// The kinds whose objects are in the store.
    pub kinds: Vec<&'static Kind>,
    /// Subresources of the upstream's resources that another layer of the gateway serves. Discovery shows
    /// them.
    pub subresources: Vec<ServedSubresource>,
    /// The store of the objects.
    pub store: Arc<dyn Store>,
    /// The clock of timestamps and of ages in tables.
    pub clock: Clock,
    /// Authorizes requests. If the upstream does, the gateway serves the kinds of policy objects only,
    /// and forwards everything else.
    pub authorizer: Authorizer,
    /// The version of Kubernetes that `/version` claims, such as `v1.36.3`.
    pub version: String,
    /// The server address in the discovery document `/api`, as `host:port`.
    pub address: String,
    /// Where the namespaces of hosted objects are; `None`: every namespace exists.
    pub namespaces: Option<Arc<dyn Namespaces>>,
    /// The admission policies that evaluate writes.
    pub admission: HostedAdmission,
    /// Serves metrics, health and dumps.
    pub admin: Arc<dyn AdminEndpoints>,
    /// The memory for responses.
    pub responses: Arc<ResponseMemory>,
    /// The memory for bodies of requests, in bytes: at least twice what a body may have.
    pub body_bytes: usize,
    /// The quotas of objects.
    pub quotas: HostedQuota,
}

/// The hosted API.
pub struct Hosted {
    pub(crate) state: ApiState,
    authorizer: Authorizer,
    pub(crate) documents: Documents,
    pub(crate) merged_documents: MergedDocuments,
    admin: Arc<dyn AdminEndpoints>,
    /// Bounds heavy requests, so that they do not occupy all threads.
    heavy: HeavyTurns,
    /// The same for those that continue after they have waited for I/O.
    heavy_continued: HeavyTurns,
    /// What those have decoded that wait.
    heavy_waiting: Arc<ByteBudget>,
    /// The memory for bodies of clients' requests.
    pub(crate) bodies: HostedBodies,
    /// Bounds the merged metrics that are in memory at a time.
    pub(crate) metrics_memory: MetricsMemory,
    /// The memory for all other responses.
    pub(crate) responses: Arc<ResponseMemory>,
}

/// The response to a request of a client.
pub(crate) struct ServedResponse {
    pub(crate) response: HostedResponse,
    /// The bytes for which there was no room in memory. Once there is, the request is to be served again: nothing was done for it.
    pub(crate) missing: Option<usize>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").finish_non_exhaustive()
    }
}

impl Hosted {
    /// An API over a store.
    pub fn new(settings: HostedSettings) -> Arc<Self> {
        let mut kinds = settings.kinds;
        if let Authorizer::BuiltIn(_) = &settings.authorizer {
            kinds.extend(reviews::REVIEWS);
        }
        let (authorizer, clock) = (settings.authorizer.clone(), settings.clock.clone());
        let resources = settings.admission.resources();
        let policies = PolicyEnforcer::new(settings.admission, authorizer, &kinds, clock);
        Arc::new(Self {
            documents: Documents::new(
                &kinds,
                &settings.subresources,
                &settings.version,
                settings.address,
            ),
            merged_documents: MergedDocuments::default(),
            state: ApiState {
                initial_events: kinds.iter().map(|_| Arc::default()).collect(),
                initial_objects: Arc::default(),
                quota_refusals: kinds.iter().map(|_| AtomicU64::new(0)).collect(),
                quotas: settings.quotas,
                store: settings.store,
                clock: settings.clock,
                kinds,
                namespaces: settings.namespaces,
                policies,
                param_rights: ParamRights {
                    authorizer: settings.authorizer.clone(),
                    resources,
                },
            },
            authorizer: settings.authorizer,
            admin: settings.admin,
            heavy: HeavyTurns::new(HEAVY_AT_ONCE),
            heavy_continued: HeavyTurns::new(HEAVY_AT_ONCE),
            heavy_waiting: ByteBudget::new(HEAVY_WAITING_BYTES),
            bodies: HostedBodies::new(settings.body_bytes),
            metrics_memory: MetricsMemory::default(),
            responses: settings.responses,
        })
    }

    /// Whether a kind is hosted.
    pub fn has(&self, kind: &Kind) -> bool {
        let mut kinds = self.state.kinds.iter();
        kinds.any(|hosted| hosted.is_same_resource(kind))
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.state.store)
    }

    /// The quotas of objects.
    pub fn quotas(&self) -> &HostedQuota {
        &self.state.quotas
    }

    /// The bytes of bodies of requests in progress, and the most there ever were.
    pub fn held_bodies(&self) -> BytesHeld {
        self.bodies.held()
    }

    /// The number of writes to objects of a kind that a quota refused.
    pub fn quota_refusals(&self, kind: &Kind) -> u64 {
        let kinds = self.state.kinds.iter().zip(&self.state.quota_refusals);
        let of_kind = kinds.filter(|(hosted, _)| hosted.is_same_resource(kind));
        of_kind
            .map(|(_, count)| count.load(Ordering::Relaxed))
            .sum()
    }

    /// The number of objects that were sent at the beginning of watches of a kind.
    pub fn initial_events(&self, kind: &Kind) -> u64 {
        let kinds = self.state.kinds.iter().zip(&self.state.initial_events);
        let of_kind = kinds.filter(|(hosted, _)| hosted.is_same_resource(kind));
        of_kind
            .map(|(_, count)| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether a path is served here and not forwarded to the upstream.
    pub(crate) fn knows(&self, path: &str) -> bool {
        route::knows(&self.state.kinds, path)
    }

    /// Whether a path is that of a hosted resource.
    pub(crate) fn owns(&self, path: &str) -> bool {
        self.documents.owned().covers(path)
    }

    /// Authorizes a client's request. The body is not needed yet.
    ///
    /// # Errors
    ///
    /// The response to send if the request is not allowed.
    pub async fn authorize(&self, request: &ApiRequest) -> Result<(), HostedResponse> {
        let attributes = Attributes::of(&request.digest.info);
        access::authorize(&self.authorizer, request, &attributes)
            .await
            .map_err(|refused| finished(request, refused))
    }

    /// The maximum size of the request body in bytes; `None` if the body is ignored.
    pub(crate) fn takes_body(&self, request: &ApiRequest) -> Option<usize> {
        let may_have = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        if !may_have.contains(&request.method) {
            return None;
        }
        match route(&self.state.kinds, &request.path) {
            Route::Objects(_) => Some(MAX_BODY),
            Route::Answered(_) => Some(request::MAX_REVIEW),
            _ => None,
        }
    }

    /// Whether serving a request may block its thread for milliseconds.
    pub(crate) fn is_heavy(&self, request: &ApiRequest) -> bool {
        let body = request.body.as_ref().map_or(0, Bytes::len);
        let verb = &request.digest.info.verb;
        let lists = *verb == Verb::List;
        let reads = [Verb::Get, Verb::List, Verb::Watch].contains(verb);
        let policies = self.state.policies.as_deref();
        if body > LARGE_BODY
            || (lists && self.state.store.size().entries > MANY_OBJECTS)
            || (!reads && policies.is_some_and(PolicyEnforcer::is_active))
        {
            return true;
        }
        let Route::Objects(place) = route(&self.state.kinds, &request.path) else {
            return false;
        };
        let compiles = place.kind.rules.slow_validation && !place.status;
        (!reads && compiles) || self.has_large_objects(verb, &place)
    }

    /// Whether the objects that a request reads or changes are large: a short patch of a large object takes as long as its creation.
    fn has_large_objects(&self, verb: &Verb, place: &ResourcePath) -> bool {
        let mut key = place.kind.key_prefix();
        if !place.namespace.is_empty() {
            key.push_str(&place.namespace);
            key.push('/');
        }
        key.push_str(&place.name);
        let limit = match verb {
            // Its objects are decoded one by one, after the head of the response.
            Verb::Watch => return false,
            // Of all objects of the kind only as many are looked at as a list may have that is not heavy.
            Verb::List | Verb::DeleteCollection => LONG_LIST,
            // What is created is in the body.
            _ if place.name.is_empty() => return false,
            _ => LARGE_OBJECT,
        };
        self.state.store.has_more_than(limit, &key)
    }

    /// Where [heavy](Self::is_heavy) requests of a user are served, in turns.
    pub(crate) fn heavy_worker(&self, request: &ApiRequest, control: &Handle) -> HeavyWorker {
        HeavyWorker {
            turns: self.heavy.clone(),
            continued: self.heavy_continued.clone(),
            waiting: self.heavy_waiting.share(&request.digest.user),
            decoded_bytes: DECODED_TIMES * self.read_bytes(request),
            runtime: control.clone(),
        }
    }

    /// About how many bytes of text a heavy request decodes at a time. A collection is deleted one object after the other.
    fn read_bytes(&self, request: &ApiRequest) -> usize {
        let body = request.body.as_ref().map_or(0, Bytes::len);
        let verb = &request.digest.info.verb;
        let stored = match route(&self.state.kinds, &request.path) {
            Route::Objects(place) if place.name.is_empty() => 0,
            Route::Objects(place) if self.has_large_objects(verb, &place) => LONGEST_OBJECT,
            _ => LARGE_OBJECT,
        };
        body + stored
    }

    /// Where the watches of `user` have large objects decoded: what is heavy takes turns, and the memory is that for responses.
    pub(crate) fn heavy_work(&self, user: Arc<User>, control: Handle) -> HeavyWork {
        HeavyWork {
            user,
            turns: self.heavy.clone(),
            responses: Arc::clone(&self.responses),
            control,
        }
    }

    /// The gateway's own metrics as text; `None` while it starts or if they cannot be rendered.
    pub(crate) async fn own_metrics(&self) -> Option<String> {
        let found = self.admin.ask("/metrics", "", false).await?;
        (found.status == StatusCode::OK).then_some(found.text)
    }

    /// Serves a request of the gateway itself.
    pub async fn serve(&self, request: &ApiRequest) -> HostedResponse {
        finished(
            request,
            self.answer(request, &ResponseRoom::default()).await,
        )
    }

    /// Serves a client's request that was [authorized](Self::authorize). The response is charged to `share`.
    pub(crate) async fn serve_client(
        &self,
        request: &ApiRequest,
        share: ResponseShare,
    ) -> ServedResponse {
        let room = ResponseRoom::of(share);
        let response = finished(request, self.answer(request, &room).await);
        ServedResponse::charged(request, response, room)
    }

    /// Routes a request that is allowed.
    async fn answer(&self, request: &ApiRequest, room: &ResponseRoom) -> HostedResponse {
        let query = Query::parse(&request.query);
        match route(&self.state.kinds, &request.path) {
            Route::Objects(place) => {
                let may_create = self.authorize_creation(request).await;
                calls::serve(&self.state, request, &place, &query, (may_create, room)).await
            }
            Route::Answered(kind) => self.review(request, kind, &query),
            Route::Admin => admin::serve(&self.admin, request).await,
            Route::Nothing => {
                let accept = &request.header("accept");
                let agent = &request.header("user-agent");
                let output = negotiate::output(accept, Produces::Objects, &query, agent);
                HostedResponse::error(&StatusError::no_route(), output.unwrap_or(Output::JSON))
            }
            Route::Unknown => HostedResponse::not_found(),
            place => self.documents.serve(request, &place, &query),
        }
    }

    /// Authorizes the verb `create` for an apply. This is decided before the store is read, and used
    /// only if the apply creates the object: whether it exists can change in between.
    async fn authorize_creation(&self, request: &ApiRequest) -> Result<(), StatusError> {
        let applies = request.method == Method::PATCH
            && content_type::patch_type(&request.header("content-type"))
                .is_ok_and(|how| how == PatchType::Apply);
        if !applies || request.caller == Caller::Gateway {
            return Ok(());
        }
        let mut attributes = Attributes::of(&request.digest.info);
        "create".clone_into(&mut attributes.verb);
        let user = request.user();
        match self.authorizer.decide(user, &attributes).await {
            Ok(decision) if decision.allowed => Ok(()),
            Ok(decision) => Err(authorize::forbidden(&attributes, user, &decision.reason)),
            Err(error) => Err(StatusError::internal(error.to_string())),
        }
    }

    /// Answers a self-review, such as `SelfSubjectAccessReview`.
    fn review(&self, request: &ApiRequest, kind: &'static Kind, query: &Query) -> HostedResponse {
        let mut output = Output::JSON;
        let answered = (|| {
            if request.method != Method::POST {
                return Err(StatusError::method_not_allowed());
            }
            let agent = &request.header("user-agent");
            output = negotiate::output(&request.header("accept"), Produces::Objects, query, agent)?;
            let media = content_type::body_media(&request.header("content-type"))?;
            let options = query::WriteOptions::read(query, query::Write::Create, agent)?;
            let version = kind.stored();
            let strict = options.validation == FieldValidation::Strict;
            let too_long = || StatusError::too_large(&format!("limit is {}", request::MAX_REVIEW));
            let body = request.body.as_ref().ok_or_else(too_long)?;
            let read = self.state.read_body(media, body, kind, version, strict);
            let (mut value, _) =
                read.map_err(|error| StatusError::bad_request(error.to_string()))?;
            // If the upstream authorizes, reviews are forwarded to it.
            let Authorizer::BuiltIn(rules) = &self.authorizer else {
                return Err(StatusError::no_route());
            };
            // A review is not stored, and its owners, whatever the client sent, are of no use to it.
            metadata::set(&mut value, "managedFields", serde_json::Value::Null);
            reviews::answer(rules, kind, request.user(), &mut value)?;
            let object = Object::new(kind, value);
            ObjectWriter::plain(kind, version, output).object(StatusCode::CREATED, &object)
        })();
        answered.unwrap_or_else(|error| HostedResponse::error(&error, output))
    }
}

impl ServedResponse {
    /// A response that is too short to be charged.
    pub(crate) fn short(response: HostedResponse) -> Self {
        Self {
            response,
            missing: None,
        }
    }

    /// Charges the response to the room of its request.
    fn charged(request: &ApiRequest, mut response: HostedResponse, room: ResponseRoom) -> Self {
        let (share, missing) = room.into_parts();
        if missing.is_some() {
            return Self { response, missing };
        }
        if let Some(share) = share
            && let Err(bytes) = response.charge(share)
            && request.digest.info.verb.is_read_only()
        {
            response = HostedResponse::error(&StatusError::no_response_memory(), Output::JSON);
            return Self {
                response,
                missing: Some(bytes),
            };
        }
        // What was written must not be refused.
        Self::short(response)
    }
}

/// Removes the body of a response to `HEAD`; compresses any other body if the client accepts that.
fn finished(request: &ApiRequest, response: HostedResponse) -> HostedResponse {
    if request.method == Method::HEAD {
        return response.without_body();
    }
    compression::compressed(request, response)
}
