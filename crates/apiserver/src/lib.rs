//! The hosted API: what kubectl talks to where no API server is behind, or where the gateway answers
//! in its place.
//!
//! [`Hosted`] answers one call at a time, on the control runtime: `route` finds the place that a
//! path names, [`authorize`] decides whether the user may, `calls` are the verbs, the same for every [`Kind`].
//! Objects live in a [`Store`]. [`HostedLayer`] puts it in front of the leaf of
//! the request path.
//!
//! Over an upstream with an API of its own, [`access`] asks it who may, and a call for a document that
//! both have goes there first: ours is put into its answer.
//!
//! What an object is (tables of kinds, codecs, patches, ownership of fields) is in [`fairgate_objects`].
//! A new kind is an entry there; nothing here knows a kind by name.
//!
//! Not here: who asks (`auth`), whether it is their turn (`fairness`), what the objects mean (`apf`).

pub mod access;
mod answer;
pub mod authorize;
mod calls;
pub mod continue_token;
pub mod discovery;
mod documents;
mod fault;
mod layer;
mod list_options;
mod merged;
mod merging;
mod negotiate;
mod openapi;
mod operators;
mod query;
mod random;
mod request;
mod reviews;
mod route;
mod stored;
pub mod upkeep;
mod watching;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use answer::{Answer, AnswerBody};
pub use fault::Fault;
pub use layer::{HostedLayer, Hosting, Ownership};
pub use operators::{Asked, Operators, Report};
pub use request::{Caller, MAX_BODY, Request};
pub use watching::Watching;

use authorize::{Attributes, Authorizer};
use documents::Documents;
use fairgate_base::clock::Clock;
use fairgate_core::digest::Verb;
use fairgate_objects::{
    codec::{self, FieldValidation},
    kind::{Kind, KindVersion},
    kinds,
    object::Object,
};
use fairgate_store::Store;
use merged::Merging;
use negotiate::{Media, Output, Produces};
use query::Query;
use route::{Route, route};

/// Reading a body longer than this takes milliseconds.
const LARGE_BODY: usize = 32 << 10;
/// How many heavy calls are answered at once.
const HEAVY_AT_ONCE: usize = 2;
/// Writing a list of more objects than this may take milliseconds.
const MANY_OBJECTS: usize = 500;

/// Every kind that is hosted, those that are only answered included.
pub fn all_kinds() -> Vec<&'static Kind> {
    let mut all: Vec<&'static Kind> = kinds::KINDS.to_vec();
    all.extend(reviews::REVIEWS);
    all
}

/// What the hosted API is made with.
pub struct HostedSettings {
    /// Where the objects are.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Clock,
    /// Who may do what. Where the upstream says so, the gateway answers for the kinds of policy
    /// objects alone, and all else is the upstream's.
    pub authorizer: Authorizer,
    /// The version of Kubernetes that `/version` claims, such as `v1.36.3`.
    pub version: String,
    /// What clients are told to reach the server by, `host:port`.
    pub address: String,
    /// Metrics, health and dumps.
    pub operators: Arc<dyn Operators>,
}

/// The hosted API.
pub struct Hosted {
    store: Arc<dyn Store>,
    clock: Clock,
    authorizer: Authorizer,
    documents: Documents,
    merging: Merging,
    operators: Arc<dyn Operators>,
    kinds: Vec<&'static Kind>,
    /// For heavy calls, so that many of them leave the machine to others.
    heavy: Arc<Semaphore>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").finish_non_exhaustive()
    }
}

impl Hosted {
    /// An API over a store.
    pub fn new(settings: HostedSettings) -> Arc<Self> {
        let kinds = match &settings.authorizer {
            Authorizer::Rules(_) => all_kinds(),
            Authorizer::Upstream(_) => kinds::KINDS.to_vec(),
        };
        Arc::new(Self {
            documents: Documents::new(&kinds, &settings.version, settings.address),
            merging: Merging::default(),
            store: settings.store,
            clock: settings.clock,
            authorizer: settings.authorizer,
            operators: settings.operators,
            kinds,
            heavy: Arc::new(Semaphore::new(HEAVY_AT_ONCE)),
        })
    }

    /// Whether a path is answered here where another server is behind; see `knows`.
    pub fn knows(&self, path: &str) -> bool {
        route::knows(&self.kinds, path)
    }

    /// Whether a path is that of a group of which there are objects here; see `covers`.
    pub fn covers(&self, path: &str) -> bool {
        route::covers(&self.kinds, path)
    }

    /// Whether a client's call is allowed; if not, its answer. Nothing of its body has to be there yet.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub async fn admit(&self, request: &Request) -> Result<(), Answer> {
        let wanted = Attributes::of(&request.digest.info);
        self.authorize(request, &wanted)
            .await
            .map_err(|refused| finished(request, refused))
    }

    /// How many bytes of a body a call may have, if it is of those of which the body counts.
    pub fn takes_body(&self, request: &Request) -> Option<usize> {
        let may_have = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        if !may_have.contains(&request.method) {
            return None;
        }
        match route(&self.kinds, &request.path) {
            Route::Objects(_) => Some(MAX_BODY),
            Route::Answered(_) => Some(request::MAX_REVIEW),
            _ => None,
        }
    }

    /// Whether a call may keep a thread busy for so long that others would notice.
    pub fn is_heavy(&self, request: &Request) -> bool {
        let body = request.body.as_ref().map_or(0, Bytes::len);
        let lists = request.digest.info.verb == Verb::List;
        body > LARGE_BODY || (lists && self.store.size().entries > MANY_OBJECTS)
    }

    /// Waits for leave to answer a [heavy](Self::is_heavy) call.
    pub async fn heavy_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.heavy).acquire_owned().await.ok() // nobody closes it
    }

    /// Answers a client's call that was [admitted](Self::admit), or one of the gateway's own.
    pub async fn serve(&self, request: &Request) -> Answer {
        finished(request, self.answer(request).await)
    }

    /// Answers a call that is allowed.
    async fn answer(&self, request: &Request) -> Answer {
        let query = Query::parse(&request.query);
        match route(&self.kinds, &request.path) {
            Route::Objects(place) => {
                let may_create = self.authorize_creation(request).await;
                calls::serve(self, request, &place, &query, may_create).await
            }
            Route::Answered(kind) => self.review(request, kind, &query),
            Route::Operators => operators::serve(&self.operators, request).await,
            Route::Nothing => {
                let accept = request.header("accept");
                let agent = request.header("user-agent");
                let output = negotiate::output(accept, Produces::Objects, &query, agent);
                Answer::fault(&Fault::no_route(), output.unwrap_or(Output::JSON))
            }
            Route::Unknown => Answer::not_found(),
            place => self.documents.serve(request, &place, &query),
        }
    }

    /// Whether whoever asks may do what is wanted; otherwise the answer that they get.
    async fn authorize(&self, request: &Request, wanted: &Attributes) -> Result<(), Answer> {
        let user = request.user();
        match self.authorizer.decide(user, wanted).await {
            Ok(decision) if decision.allowed => Ok(()),
            Ok(decision) => {
                let fault = wanted.refusal(user, &decision.reason);
                Err(Answer::fault(&fault, Output::JSON))
            }
            Err(error) => {
                let target = match request.query.as_str() {
                    "" => request.path.clone(),
                    query => format!("{}?{query}", request.path),
                };
                let text = format!("Internal Server Error: {target:?}: {error}\n");
                let text = authorize::escaped(&text);
                Err(Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }

    /// Whether an apply may make an object. It is asked before it is known whether there is one, and
    /// heeded only where one is made: what there was a moment ago says nothing.
    async fn authorize_creation(&self, request: &Request) -> Result<(), Fault> {
        let applies = request.method == Method::PATCH
            && negotiate::patch_type(request.header("content-type"))
                .is_ok_and(|how| how == negotiate::PatchType::Apply);
        if !applies || request.caller == Caller::Gateway {
            return Ok(());
        }
        let mut wanted = Attributes::of(&request.digest.info);
        "create".clone_into(&mut wanted.verb);
        let user = request.user();
        match self.authorizer.decide(user, &wanted).await {
            Ok(decision) if decision.allowed => Ok(()),
            Ok(decision) => Err(wanted.refusal(user, &decision.reason)),
            Err(error) => Err(Fault::internal(error.to_string())),
        }
    }

    /// Answers a review that a user makes of itself.
    fn review(&self, request: &Request, kind: &'static Kind, query: &Query) -> Answer {
        let mut output = Output::JSON;
        let answered = (|| {
            if request.method != Method::POST {
                return Err(Fault::method_not_allowed());
            }
            let agent = request.header("user-agent");
            output = negotiate::output(request.header("accept"), Produces::Objects, query, agent)?;
            let media = negotiate::input(request.header("content-type"))?;
            let options = query::WriteOptions::read(query, query::Write::Create, agent)?;
            let version = kind.stored();
            let strict = options.validation == FieldValidation::Strict;
            let too_long = || Fault::too_large(&format!("limit is {}", request::MAX_REVIEW));
            let body = request.body.as_ref().ok_or_else(too_long)?;
            let read = self.read_body(media, body, kind, version, strict);
            let (mut value, _) = read.map_err(|error| Fault::bad_request(error.to_string()))?;
            // Where the upstream decides, it is also the one to be asked.
            let Authorizer::Rules(rules) = &self.authorizer else {
                return Err(Fault::no_route());
            };
            reviews::answer(rules, kind, request.user(), &mut value)?;
            let object = Object::new(kind, value);
            answer::Writer::plain(kind, version, output).object(StatusCode::CREATED, &object)
        })();
        answered.unwrap_or_else(|fault| Answer::fault(&fault, output))
    }

    /// Reads a body as an object of a kind in one version: its canonical form, and what strictness
    /// would object to.
    fn read_body(
        &self,
        media: Media,
        body: &[u8],
        kind: &'static Kind,
        version: &'static KindVersion,
        strict: bool,
    ) -> Result<(Value, Vec<String>), codec::DecodeError> {
        let format = match media {
            Media::Json => codec::BodyFormat::Json,
            Media::Yaml => codec::BodyFormat::Yaml,
            Media::Protobuf => codec::BodyFormat::Protobuf,
        };
        let scheme = self.scheme();
        let expect = codec::Expect {
            group: kind.group,
            version: version.name,
            kind: kind.kind,
            shape: version.shape,
            scheme: &scheme,
        };
        codec::decode_body(format, body, &expect, strict).map(|body| (body.value, body.problems))
    }

    /// All kinds in all versions, for telling what a body is that is not what it should be.
    fn scheme(&self) -> Vec<codec::Registered<'static>> {
        let lists = self.kinds.iter().flat_map(|kind| {
            kind.versions.iter().map(|version| codec::Registered {
                group: kind.group,
                version: version.name,
                kind: kind.list_kind,
                shape: None,
            })
        });
        let versions = |kind: &&'static Kind| {
            let kind = *kind;
            kind.versions.iter().map(move |version| codec::Registered {
                group: kind.group,
                version: version.name,
                kind: kind.kind,
                shape: Some(version.shape),
            })
        };
        self.kinds.iter().flat_map(versions).chain(lists).collect()
    }

    /// Now, RFC 3339 in whole seconds.
    fn now_text(&self) -> String {
        jiff::Timestamp::from_second(self.now_seconds())
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
            .to_string()
    }

    /// Now, in seconds since 1970.
    fn now_seconds(&self) -> i64 {
        i64::try_from(self.clock.unix_seconds()).unwrap_or(i64::MAX)
    }
}

/// An answer as it goes out: to `HEAD` without its body, otherwise compressed if that is wanted.
fn finished(request: &Request, answer: Answer) -> Answer {
    if request.method == Method::HEAD {
        return answer.without_body();
    }
    documents::compressed(request, answer)
}
