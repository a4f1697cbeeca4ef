//! The hosted API as a layer of the request path, in front of the innermost service.
//!
//! A hosted call is served on the control runtime, or on a thread of the blocking pool if it is expensive.
//! The call is authorized first; then its body is read, on the data core of the connection. The stream of a
//! watch runs on that data core, too, where it costs nothing while nothing changes. All other calls go to
//! the inner service unchanged; if both have a document, the gateway's part is merged into the response.

use std::{
    cell::OnceCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tower::{Layer, Service};
use uuid::Uuid;

use crate::{
    HostedBody, HostedResponse,
    hosted::{Hosted, ServedResponse},
    limits::hosted_bodies::{self, ReceivedBody},
    merging::{
        MergeRequest, Merger,
        merged_metrics::{self, MetricsRequest},
    },
    objects::watch_stream::WatchStream,
};
use fairgate_apihttp::{negotiate::Output, request::ApiRequest, status_error::StatusError};
use fairgate_base::{account::ByteShare, clock::Clock, tasks, turns};
use fairgate_call::{
    BodyError, Call, ClientBody, PassingOrBoxed, Refusal, Reply, ReplyBody, ResponseShare,
};
use fairgate_core::digest::{User, normalized_path, readable};
use fairgate_store::FanOut;

/// How often a request is served again for which there was no room in memory: until then other responses may take what there
/// is.
const TRIES: usize = 3;
/// How long reading a body may take, also for calls without a deadline.
const BODY_WITHIN: Duration = Duration::from_secs(60);

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Serves hosted calls instead of the inner service.
#[derive(Clone, Debug)]
pub struct HostedLayer {
    shared: Option<Rc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    hosted: Arc<Hosted>,
    control: Handle,
    clock: Clock,
    ownership: Ownership,
    /// Tells the watches of this core of changes; begins with the first of them.
    fan_out: OnceCell<Arc<FanOut>>,
}

/// A request as a whole, with what its body takes of the memory for bodies.
#[derive(Debug)]
struct ReceivedRequest {
    request: ApiRequest,
    /// `None` if it has none.
    _body: Option<ByteShare>,
}

/// Which paths are served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// All: there is no upstream.
    Everything,
    /// All that the hosted API knows; other paths are forwarded.
    Known,
    /// Those of hosted resources. The upstream has an API of its own; hosted resources are merged into its
    /// documents, and all other paths are forwarded.
    Overlay,
}

/// How a call is handled.
enum Plan {
    /// By the hosted API.
    Serve,
    /// By the upstream; the gateway's part is merged into the response.
    Merge(MergeRequest),
    /// By the upstream; the gateway's metrics are merged into the response.
    MergeMetrics(MetricsRequest),
    /// By the inner service.
    Forward,
}

impl HostedLayer {
    /// A layer that forwards every call.
    pub fn none() -> Self {
        Self { shared: None }
    }

    /// A layer for one data core; calls are served on `control`.
    pub fn new(hosted: Arc<Hosted>, control: Handle, clock: Clock, ownership: Ownership) -> Self {
        Self {
            shared: Some(Rc::new(Shared {
                hosted,
                control,
                clock,
                ownership,
                fan_out: OnceCell::new(),
            })),
        }
    }
}

impl HostedLayer {
    /// Whether the hosted API answers a call, and not the upstream. It costs some comparisons of the path.
    pub fn answers(&self, call: &Call) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| matches!(shared.plan(call), Plan::Serve))
    }
}

impl<S> Layer<S> for HostedLayer {
    type Service = HostedService<S>;

    fn layer(&self, inner: S) -> HostedService<S> {
        HostedService {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// See [`HostedLayer`].
#[derive(Clone, Debug)]
pub struct HostedService<S> {
    shared: Option<Rc<Shared>>,
    inner: S,
}

impl<S> Service<Call> for HostedService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = PassingOrBoxed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let plan = self
            .shared
            .as_ref()
            .map(|shared| (shared, shared.plan(&call)));
        match plan {
            None | Some((_, Plan::Forward)) => PassingOrBoxed::passing(self.inner.call(call)),
            Some((shared, Plan::Serve)) => PassingOrBoxed::boxed(serve(Rc::clone(shared), call)),
            Some((shared, Plan::Merge(request))) => {
                request.narrow(&mut call.request);
                let merger = shared.merger(&call);
                PassingOrBoxed::boxed(merger.merge(request, self.inner.call(call)))
            }
            Some((shared, Plan::MergeMetrics(request))) => {
                merged_metrics::narrow(&mut call.request);
                let merger = shared.merger(&call);
                PassingOrBoxed::boxed(merger.merge_metrics(request, self.inner.call(call)))
            }
        }
    }
}

impl Shared {
    fn plan(&self, call: &Call) -> Plan {
        let path = || readable(call.digest.info.path());
        let (is_ours, merges) = match self.ownership {
            Ownership::Everything => (true, false),
            Ownership::Known => (self.hosted.knows(&path()), false),
            Ownership::Overlay => (owns(&self.hosted, &path()), true),
        };
        if is_ours {
            return Plan::Serve;
        }
        if !merges {
            return Plan::Forward;
        }
        if let Some(request) = MetricsRequest::of(call) {
            return Plan::MergeMetrics(request);
        }
        MergeRequest::of(&self.hosted, call).map_or(Plan::Forward, Plan::Merge)
    }

    fn merger(&self, call: &Call) -> Merger {
        Merger {
            hosted: Arc::clone(&self.hosted),
            control: self.control.clone(),
            until: call.deadline.map(|deadline| self.clock.instant(deadline)),
            context: Rc::clone(&call.context),
        }
    }
}

/// Whether a path is that of a hosted resource, also after normalization: the upstream's objects of such a
/// resource must not be reachable by a path that the upstream normalizes.
fn owns(hosted: &Hosted, path: &str) -> bool {
    hosted.owns(path)
        || (path.contains("//") || path.contains("/.")) && hosted.owns(&normalized_path(path))
}

/// Serves a hosted call within its deadline.
async fn serve(shared: Rc<Shared>, mut call: Call) -> Result<Reply, Refusal> {
    // It continues on the control runtime if the client disconnects.
    call.context.is_served_here.set(true);
    let body = std::mem::replace(call.request.body_mut(), ClientBody::empty());
    let deadline = call.deadline.map(|deadline| shared.clock.instant(deadline));
    let mut request = ApiRequest::of_last(&mut call);
    let audit_id = HeaderValue::from_str(&Uuid::from_u128(call.context.id).to_string()).ok();
    request.audit_id.clone_from(&audit_id);
    let user = Arc::clone(&request.digest.user);
    let work = shared.work(request, body);
    let mut response = match deadline {
        None => work.await?,
        Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
            Ok(response) => response?,
            Err(_) => timed_out(),
        },
    };
    if let Some(id) = audit_id {
        response.headers.insert(AUDIT_ID, id);
    }
    Ok(shared.reply(response, user))
}

fn timed_out() -> HostedResponse {
    HostedResponse::error(&StatusError::timeout(), Output::JSON)
}

fn no_room() -> HostedResponse {
    HostedResponse::error(&StatusError::no_body_memory(), Output::JSON)
}

impl Shared {
    /// Authorizes a request, and only then reads its body and serves it. A request without a body is sent
    /// to the control runtime once; others twice.
    async fn work(
        &self,
        mut request: ApiRequest,
        body: ClientBody,
    ) -> Result<HostedResponse, Refusal> {
        let limit = self.hosted.takes_body(&request);
        let share = self.hosted.responses.share(&request.digest.user);
        if limit.is_none() && !self.hosted.is_heavy(&request) {
            let request = Arc::new(ReceivedRequest {
                request,
                _body: None,
            });
            let (hosted, sent) = (Arc::clone(&self.hosted), Arc::clone(&request));
            let served = tasks::spawn_with_result(&self.control, async move {
                match hosted.authorize(&sent.request).await {
                    Ok(()) => hosted.serve_client(&sent.request, share).await,
                    Err(refused) => ServedResponse::short(refused),
                }
            });
            let served = served.await.map_err(|error| internal(&error))?;
            return self.once_there_is_room(&request, served).await;
        }
        let (hosted, head) = (Arc::clone(&self.hosted), request.clone());
        let authorizing = async move { hosted.authorize(&head).await };
        let authorized = tasks::spawn_with_result(&self.control, authorizing)
            .await
            .map_err(|error| internal(&error))?;
        if let Err(refused) = authorized {
            return Ok(refused);
        }
        let mut held = self.hosted.bodies.share(&request.digest.user);
        if let Some(limit) = limit {
            let reading = hosted_bodies::read(body, limit, &mut held);
            match tokio::time::timeout(BODY_WITHIN, reading).await {
                Ok(received) => match received? {
                    ReceivedBody::Whole(body) => request.body = Some(body),
                    ReceivedBody::TooLong => request.body = None,
                    ReceivedBody::NoRoom => return Ok(no_room()),
                },
                Err(_) => return Ok(timed_out()),
            }
        }
        let request = Arc::new(ReceivedRequest {
            request,
            _body: Some(held),
        });
        let served = self.serve(&request, share).await?;
        self.once_there_is_room(&request, served).await
    }

    /// If there was no room in memory for the response to an authorized request, waits for some and serves the request again.
    async fn once_there_is_room(
        &self,
        received: &Arc<ReceivedRequest>,
        mut served: ServedResponse,
    ) -> Result<HostedResponse, Refusal> {
        for _ in 0..TRIES {
            let Some(bytes) = served.missing else {
                break;
            };
            let user = &received.request.digest.user;
            let room = self.hosted.responses.room(user, bytes);
            let Some(share) = room.await else {
                return Ok(served.response);
            };
            served = self.serve(received, share).await?;
        }
        if served.missing.is_some() {
            self.hosted.responses.count_refused();
        }
        Ok(served.response)
    }

    fn reply(&self, response: HostedResponse, user: Arc<User>) -> Reply {
        let body = match response.body {
            HostedBody::Full(bytes) => ReplyBody::made(bytes, response.memory),
            HostedBody::Stream(mut stream) => {
                if let Some(fan_out) = self.fan_out() {
                    stream.follow(fan_out);
                }
                stream.do_heavy_work_by(self.hosted.heavy_work(user, self.control.clone()));
                ReplyBody::boxed(WatchBody::new(*stream, self.clock.clone()))
            }
        };
        let mut reply = Response::new(body);
        *reply.status_mut() = response.status;
        *reply.headers_mut() = response.headers;
        reply
    }

    /// What tells the watches of this core of changes; `None` if the store cannot be watched: then each waits for itself.
    fn fan_out(&self) -> Option<&Arc<FanOut>> {
        if let Some(fan_out) = self.fan_out.get() {
            return Some(fan_out);
        }
        let (fan_out, task) = FanOut::new(self.hosted.store()).ok()?;
        turns::spawn_local(task);
        Some(self.fan_out.get_or_init(|| fan_out))
    }

    /// Serves an authorized request; an expensive one in turns on the blocking pool, so that it does not delay others.
    async fn serve(
        &self,
        received: &Arc<ReceivedRequest>,
        share: ResponseShare,
    ) -> Result<ServedResponse, Refusal> {
        // Held to the end, also if the client has disconnected: the body is in memory until then.
        let (hosted, received) = (Arc::clone(&self.hosted), Arc::clone(received));
        if hosted.is_heavy(&received.request) {
            let worker = hosted.heavy_worker(&received.request, &self.control);
            let turn = worker.turn().await;
            let work = async move { hosted.serve_client(&received.request, share).await };
            let served = tasks::spawn_with_result(&self.control, worker.run(turn, work));
            let served = served.await.map_err(|error| internal(&error))?;
            return served.map_err(|error| internal(&error));
        }
        let served = tasks::spawn_with_result(&self.control, async move {
            hosted.serve_client(&received.request, share).await
        });
        served.await.map_err(|error| internal(&error))
    }
}

fn internal(error: &tokio::task::JoinError) -> Refusal {
    Refusal::Internal(error.to_string().into())
}

type Step = Pin<Box<dyn Future<Output = (WatchStream, Option<Bytes>)>>>;

/// A watch as the body of a response.
struct WatchBody {
    step: Option<Step>,
    clock: Clock,
}

impl WatchBody {
    fn new(stream: WatchStream, clock: Clock) -> Self {
        let mut body = Self { step: None, clock };
        body.start_next(stream);
        body
    }

    fn start_next(&mut self, mut stream: WatchStream) {
        let clock = self.clock.clone();
        self.step = Some(Box::pin(async move {
            let bytes = stream.next(&clock).await;
            (stream, bytes)
        }));
    }
}

impl Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(step) = &mut self.step else {
            return Poll::Ready(None);
        };
        let (stream, bytes) = ready!(step.as_mut().poll(cx));
        self.step = None;
        Poll::Ready(bytes.map(|bytes| {
            self.start_next(stream);
            Ok(Frame::data(bytes))
        }))
    }
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
