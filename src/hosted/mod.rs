//! The hosted API: what kubectl talks to where no API server is behind, or where the gateway answers
//! in its place.
//!
//! [`Hosted`] answers one call at a time, on the control runtime: [`route`] finds the place that a
//! path names, [`authorize`] says who may, [`calls`] are the verbs, the same for every [`kind`].
//! Objects live in a [`Store`](crate::store::Store). [`HostedLayer`] puts it in front of the leaf of
//! the request path.
//!
//! A new kind is an entry in [`kinds`], a table in [`schema`], and its rules: validation, defaults,
//! columns. Nothing else knows a kind by name.
//!
//! Not here: who asks (`auth`), whether it is their turn (`fairness`), what the objects mean (`apf`).

pub mod answer;
pub mod authorize;
mod calls;
pub mod chance;
pub mod codec;
pub mod continue_token;
pub mod discovery;
mod documents;
pub mod fault;
pub mod field_error;
pub mod kind;
pub mod kinds;
pub mod layer;
pub mod list_options;
pub mod metadata;
pub mod negotiate;
pub mod object;
pub mod openapi;
pub mod operators;
pub mod patch;
pub mod query;
pub mod request;
pub mod reviews;
pub mod route;
pub mod schema;
pub mod selector;
pub mod ssa;
pub mod table;
pub mod upkeep;
pub mod watching;

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::Value;

pub use answer::{Answer, AnswerBody};
pub use fault::Fault;
pub use layer::{HostedLayer, Hosting, Ownership};
pub use operators::{Asked, Operators, Report};
pub use request::{MAX_BODY, Request};
pub use watching::Watching;

use crate::{clock::Clock, store::Store};
use authorize::{Attributes, Rules};
use documents::Documents;
use kind::{Kind, KindVersion};
use negotiate::{Media, Output, Produces};
use query::{Query, Validation};
use route::{Route, route};

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
    /// Who may do what.
    pub rules: Rules,
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
    rules: Rules,
    documents: Documents,
    operators: Arc<dyn Operators>,
    kinds: Vec<&'static Kind>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").finish_non_exhaustive()
    }
}

impl Hosted {
    /// An API over a store.
    pub fn new(settings: HostedSettings) -> Arc<Self> {
        let kinds = all_kinds();
        Arc::new(Self {
            documents: Documents::new(&kinds, &settings.version, settings.address),
            store: settings.store,
            clock: settings.clock,
            rules: settings.rules,
            operators: settings.operators,
            kinds,
        })
    }

    /// Whether a path means something here.
    pub fn knows(&self, path: &str) -> bool {
        !matches!(route(&self.kinds, path), Route::Unknown)
    }

    /// Answers a call. To be run on the control runtime.
    pub async fn serve(&self, request: &Request) -> Answer {
        let answer = self.answer(request).await;
        if request.method == Method::HEAD {
            return answer.without_body();
        }
        documents::compressed(request, answer)
    }

    async fn answer(&self, request: &Request) -> Answer {
        let query = Query::parse(&request.query);
        let place = route(&self.kinds, &request.path);
        let wanted = Attributes::of(&request.digest.info);
        if !self.rules.allow(request.user(), &wanted) {
            return Answer::fault(&wanted.refusal(request.user()), Output::JSON);
        }
        match place {
            Route::Objects(place) => {
                if let Err(fault) = self.authorize_creation(request, &place).await {
                    return Answer::fault(&fault, Output::JSON);
                }
                calls::serve(self, request, &place, &query).await
            }
            Route::Answered(kind) => self.review(request, kind, &query),
            Route::Operators => operators::serve(&self.operators, request).await,
            Route::Nothing => Answer::fault(&Fault::no_route(), Output::JSON),
            Route::Unknown => Answer::not_found(),
            place => self.documents.serve(request, &place, &query),
        }
    }

    /// An apply that may make an object has to be allowed to.
    async fn authorize_creation(
        &self,
        request: &Request,
        place: &route::Place,
    ) -> Result<(), Fault> {
        let applies = request.method == Method::PATCH
            && negotiate::patch_type(request.header("content-type"))
                .is_ok_and(|how| how == negotiate::PatchType::Apply);
        if !applies {
            return Ok(());
        }
        let mut wanted = Attributes::of(&request.digest.info);
        "create".clone_into(&mut wanted.verb);
        if self.rules.allow(request.user(), &wanted) {
            return Ok(());
        }
        let key = format!("/{}/{}", place.kind.plural, place.name);
        let found = self.store.get(&key, crate::store::At::Newest).await;
        let found = found.map_err(|error| calls::store_fault(&error))?;
        if found.is_some() {
            return Ok(());
        }
        Err(wanted.refusal(request.user()))
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
            let strict = options.validation == Validation::Strict;
            let read = self.read_body(media, request.body()?, kind, version, strict);
            let (mut value, _) = read.map_err(|error| Fault::bad_request(error.to_string()))?;
            reviews::answer(&self.rules, kind, request.user(), &mut value)?;
            let object = object::Object::new(kind, value);
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
        let versions = |kind: &&'static Kind| {
            let kind = *kind;
            kind.versions.iter().map(move |version| codec::Registered {
                group: kind.group,
                version: version.name,
                kind: kind.kind,
                shape: Some(version.shape),
            })
        };
        self.kinds.iter().flat_map(versions).collect()
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
