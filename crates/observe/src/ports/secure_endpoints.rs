//! The endpoints for operators on the secure admin port: each request is authorized for its path.
//!
//! The service belongs inside authentication. It authorizes as the delegated authorization of Kubernetes'
//! components does: health checks are allowed to everybody, members of `system:masters` everything, and for all
//! other paths the authorizer decides about a non-resource URL, whatever the path looks like.
//!
//! Everything runs on the control runtime. Few responses exist at a time, and each for a limited time: a
//! client that reads slowly keeps neither memory nor others from their scrapes.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, StatusCode, header::CONTENT_LENGTH};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
    time::timeout,
};
use tower::Service;

use super::{
    encoded_reply::{self, EncodedReply, accepts_gzip},
    endpoints::OperatorEndpoints,
};
use fairgate_apihttp::authorize::{self, Authorizer};
use fairgate_base::tasks;
use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use fairgate_core::digest::{User, readable};
use fairgate_upstream::access_review::Attributes;

/// Paths that everybody may read. Those below them name single checks, and are authorized.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Responses of more than [`SMALL`] bytes that are in memory at a time.
const MAX_RESPONSES: usize = 16;
/// Bytes of a response that are not worth counting: each connection has only a few requests.
const SMALL: usize = 16 << 10;
/// How long a request may wait for its authorization and its response.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a response may take to be sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the endpoints to users that are authorized for them.
#[derive(Clone, Debug)]
pub struct SecureEndpoints {
    shared: Arc<Shared>,
    control: Handle,
}

#[derive(Debug)]
struct Shared {
    endpoints: Arc<OperatorEndpoints>,
    authorizer: Authorizer,
    responses: Arc<Semaphore>,
}

/// A request, without its connection and body.
struct EndpointRequest {
    method: Method,
    user: Arc<User>,
    path: String,
    query: String,
    target: String,
    accepts_gzip: bool,
}

/// A response, and the permit to keep it in memory.
struct ServedReply {
    reply: EncodedReply,
    permit: Option<OwnedSemaphorePermit>,
}

impl SecureEndpoints {
    /// Serves `endpoints` to whom `authorizer` allows it, on `control`.
    pub fn new(endpoints: Arc<OperatorEndpoints>, authorizer: Authorizer, control: Handle) -> Self {
        let shared = Arc::new(Shared {
            endpoints,
            authorizer,
            responses: Arc::new(Semaphore::new(MAX_RESPONSES)),
        });
        Self { shared, control }
    }
}

impl Service<Call> for SecureEndpoints {
    type Response = Reply;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let request = EndpointRequest::of(&call);
        let method = request.method.clone();
        let serving = Arc::clone(&self.shared).serve(request);
        let serving = async move { timeout(SERVE_TIMEOUT, serving).await };
        let serving = tasks::spawn_until_dropped(&self.control, serving);
        Box::pin(async move {
            let served = match serving.await {
                Ok(Ok(served)) => served?,
                Ok(Err(_elapsed)) => ServedReply::overloaded(),
                Err(error) => return Err(internal(&error)),
            };
            Ok(served.into_reply(&method))
        })
    }
}

impl EndpointRequest {
    fn of(call: &Call) -> Self {
        let uri = call.request.uri();
        let target = uri.path_and_query();
        Self {
            method: call.request.method().clone(),
            user: Arc::clone(&call.digest.user),
            path: readable(call.digest.info.path()).into_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            target: target.map(ToString::to_string).unwrap_or_default(),
            accepts_gzip: accepts_gzip(call.request.headers()),
        }
    }

    /// What is to be authorized: a path, also one that has the form of a resource.
    fn attributes(&self) -> Attributes {
        Attributes {
            verb: self.method.as_str().to_ascii_lowercase(),
            path: self.path.clone(),
            ..Attributes::default()
        }
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, request: EndpointRequest) -> Result<ServedReply, Refusal> {
        if let Some(failed) = self.authorize(&request).await? {
            return Ok(failed);
        }
        if ![Method::GET, Method::HEAD].contains(&request.method) {
            return Err(Refusal::MethodNotAllowed);
        }
        // The semaphore is never closed.
        let permit = Arc::clone(&self.responses).acquire_owned().await.ok();
        // On a task of its own: if the client disconnects, the permit is held until the threads are free again.
        let rendering = tasks::spawn_with_result(&Handle::current(), async move {
            let reply = self.render(&request).await;
            // Everybody may read health checks, and must not be able to use up the permits.
            let permit = permit.filter(|_| reply.body().len() > SMALL);
            ServedReply { reply, permit }
        });
        rendering.await.map_err(|error| internal(&error))
    }

    /// Checks that the user may send this request. The response is one of an authorizer that failed.
    async fn authorize(&self, request: &EndpointRequest) -> Result<Option<ServedReply>, Refusal> {
        if ALWAYS_ALLOWED.contains(&request.path.as_str()) {
            return Ok(None);
        }
        let attributes = request.attributes();
        match self.authorizer.decide(&request.user, &attributes).await {
            Ok(decision) if decision.allowed => Ok(None),
            Ok(decision) => {
                let error = authorize::forbidden(&attributes, &request.user, &decision.reason);
                Err(Refusal::Forbidden(error.message.into()))
            }
            Err(error) => {
                let text = authorize::undecided(&request.target, &error);
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(Some(ServedReply::short(encoded_reply::text(status, text))))
            }
        }
    }

    async fn render(&self, request: &EndpointRequest) -> EncodedReply {
        // Everybody may see the health checks, but not why one fails.
        let reasons = request.user.in_group(User::MASTERS);
        let (path, query) = (&request.path, &request.query);
        match self.endpoints.get(path, query, reasons).await {
            Some(found) => encoded_reply::encode(found, request.accepts_gzip).await,
            None => encoded_reply::not_found(),
        }
    }
}

impl ServedReply {
    /// A response that needs no permit.
    fn short(reply: EncodedReply) -> Self {
        Self {
            reply,
            permit: None,
        }
    }

    fn overloaded() -> Self {
        let text = "the response was not ready in time\n";
        Self::short(encoded_reply::text(StatusCode::SERVICE_UNAVAILABLE, text))
    }

    /// The response to a request with this method. That to `HEAD` has a length but no body.
    fn into_reply(self, method: &Method) -> Reply {
        let (mut head, bytes) = self.reply.into_parts();
        head.headers.insert(CONTENT_LENGTH, bytes.len().into());
        let body = if *method == Method::HEAD {
            ReplyBody::empty()
        } else {
            ReplyBody::in_memory(bytes, self.permit, SEND_TIMEOUT)
        };
        Reply::from_parts(head, body)
    }
}

fn internal(error: &JoinError) -> Refusal {
    Refusal::Internal(error.to_string().into())
}
