//! The hosted API in the request path, in front of the leaf.
//!
//! A call that is ours is answered on the control runtime, or, if that takes long, on a thread of its
//! own; its body is read before, on its data core, once it is known that the call is allowed. The stream of a watch runs on the data core again, where it costs nothing while nothing changes.
//! All other calls go on to the leaf behind, unread; but where both have a document, ours is put into
//! the one that comes back.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tower::{Layer, Service};

use crate::{
    hosted::Hosted,
    merging::{MergeRequest, Merger},
    negotiate::Output,
    random,
    request::{ApiRequest, Caller},
    response::{ApiBody, ApiResponse},
    status_error::StatusError,
    watch_stream::WatchStream,
};
use fairgate_base::clock::Clock;
use fairgate_call::{BodyError, Call, ClientBody, Refusal, Reply, ReplyBody};
use fairgate_core::digest::readable;

/// How long a body may take, also of a call without a deadline.
const BODY_WITHIN: Duration = Duration::from_secs(60);

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Answers hosted calls instead of the service behind it.
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
}

/// Which paths are answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// All of them: there is nothing behind.
    Everything,
    /// All that mean something here; the rest goes on to what is behind.
    Known,
    /// Those of the hosted groups alone. What is behind has an API of its own, into whose documents
    /// these groups are put; the rest goes on.
    Overlay,
}

/// What becomes of a call.
enum Plan {
    ApiResponse,
    Merge(MergeRequest),
    Pass,
}

impl HostedLayer {
    /// A layer that hosts nothing.
    pub fn none() -> Self {
        Self { shared: None }
    }

    /// A layer for one data core; calls are answered on `control`.
    pub fn new(hosted: Arc<Hosted>, control: Handle, clock: Clock, ownership: Ownership) -> Self {
        Self {
            shared: Some(Rc::new(Shared {
                hosted,
                control,
                clock,
                ownership,
            })),
        }
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
    type Future = HostedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let plan = self
            .shared
            .as_ref()
            .map(|shared| (shared, shared.plan(&call)));
        let answer: Answering = match plan {
            None | Some((_, Plan::Pass)) => {
                return HostedFuture::Passing {
                    future: self.inner.call(call),
                };
            }
            Some((shared, Plan::ApiResponse)) => Box::pin(answer(Rc::clone(shared), call)),
            Some((shared, Plan::Merge(request))) => {
                request.narrow(call.request.headers_mut());
                let merger = shared.merger(&call);
                Box::pin(merger.merge(request, self.inner.call(call)))
            }
        };
        HostedFuture::Hosted { answer }
    }
}

impl Shared {
    fn plan(&self, call: &Call) -> Plan {
        let path = || readable(call.digest.info.path());
        let (is_ours, merges) = match self.ownership {
            Ownership::Everything => (true, false),
            Ownership::Known => (self.hosted.knows(&path()), false),
            Ownership::Overlay => (covers(&self.hosted, &path()), true),
        };
        if is_ours {
            return Plan::ApiResponse;
        }
        let request = merges
            .then(|| MergeRequest::of(&self.hosted, call))
            .flatten();
        request.map_or(Plan::Pass, Plan::Merge)
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

/// Whether a path is one of the hosted groups', also once somebody behind has cleaned it: what is theirs
/// must not be reached by another spelling.
fn covers(hosted: &Hosted, path: &str) -> bool {
    hosted.covers(path)
        || (path.contains("//") || path.contains("/.")) && hosted.covers(&cleaned(path))
}

/// A path without empty segments, `.` and `..`.
fn cleaned(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

type Answering = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

pin_project_lite::pin_project! {
    /// The future of [`HostedService`].
    #[project = HostingProjection]
    pub enum HostedFuture<F> {
        Passing { #[pin] future: F },
        Hosted { answer: Answering },
    }
}

impl<F> Future for HostedFuture<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            HostingProjection::Passing { future } => future.poll(cx),
            HostingProjection::Hosted { answer } => answer.as_mut().poll(cx),
        }
    }
}

/// Has a call answered, and brings the answer.
async fn answer(shared: Rc<Shared>, mut call: Call) -> Result<Reply, Refusal> {
    let body = std::mem::replace(call.request.body_mut(), ClientBody::empty());
    let deadline = call.deadline.map(|deadline| shared.clock.instant(deadline));
    let request = request(&call);
    let audit_id = request.headers.get(&AUDIT_ID).cloned();
    let work = shared.work(request, body);
    let mut answer = match deadline {
        None => work.await?,
        Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
            Ok(answer) => answer?,
            Err(_) => return Ok(reply(timed_out(), &shared.clock)),
        },
    };
    tell_audit_id(&mut answer, audit_id);
    Ok(reply(answer, &shared.clock))
}

/// A call without its body.
fn request(call: &Call) -> ApiRequest {
    let impersonator = call.identity.as_ref().and_then(|who| who.impersonator());
    ApiRequest {
        method: call.request.method().clone(),
        path: readable(call.digest.info.path()).into_owned(),
        query: call.request.uri().query().unwrap_or_default().to_owned(),
        headers: call.request.headers().clone(),
        body: Some(Bytes::new()),
        caller: Caller::Client {
            impersonator: impersonator.cloned(),
        },
        digest: Arc::clone(&call.digest),
    }
}

fn timed_out() -> ApiResponse {
    ApiResponse::error(&StatusError::timeout(), Output::JSON)
}

impl Shared {
    /// Finds out whether a call is allowed, and only then reads its body and answers it. Most calls
    /// cost one way to the control runtime and back.
    async fn work(
        &self,
        mut request: ApiRequest,
        body: ClientBody,
    ) -> Result<ApiResponse, Refusal> {
        let limit = self.hosted.takes_body(&request);
        if limit.is_none() && !self.hosted.is_heavy(&request) {
            let hosted = Arc::clone(&self.hosted);
            let answered = self.control.spawn(async move {
                match hosted.admit(&request).await {
                    Ok(()) => hosted.serve(&request).await,
                    Err(refused) => refused,
                }
            });
            return answered.await.map_err(|error| internal(&error));
        }
        let (hosted, asked) = (Arc::clone(&self.hosted), request.clone());
        let admitted = self
            .control
            .spawn(async move { hosted.admit(&asked).await })
            .await
            .map_err(|error| internal(&error))?;
        if let Err(refused) = admitted {
            return Ok(refused);
        }
        if let Some(limit) = limit {
            match tokio::time::timeout(BODY_WITHIN, read(body, limit)).await {
                Ok(body) => request.body = body?,
                Err(_) => return Ok(timed_out()),
            }
        }
        self.serve(request).await
    }

    /// Has an admitted call answered where it keeps nobody waiting.
    async fn serve(&self, request: ApiRequest) -> Result<ApiResponse, Refusal> {
        let hosted = Arc::clone(&self.hosted);
        let answered = if hosted.is_heavy(&request) {
            let turn = hosted.heavy_turn().await;
            let control = self.control.clone();
            self.control.spawn_blocking(move || {
                // Until it has ended, also if nobody waits for it any more.
                let _turn = turn;
                control.block_on(hosted.serve(&request))
            })
        } else {
            self.control
                .spawn(async move { hosted.serve(&request).await })
        };
        answered.await.map_err(|error| internal(&error))
    }
}

fn internal(error: &tokio::task::JoinError) -> Refusal {
    Refusal::Internal(error.to_string().into())
}

/// Names the request: as its client does, or by a name of our own.
fn tell_audit_id(answer: &mut ApiResponse, given: Option<HeaderValue>) {
    let made = || {
        let uid = random::uid().ok()?;
        HeaderValue::from_str(&uid).ok()
    };
    if let Some(id) = given.or_else(made) {
        answer.headers.insert(AUDIT_ID, id);
    }
}

/// The whole body; `None` if it has more than `limit` bytes.
async fn read(mut body: ClientBody, limit: usize) -> Result<Option<Bytes>, Refusal> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::ClientGone)?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > limit {
                return Ok(None);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(Some(whole.freeze()))
}

fn reply(answer: ApiResponse, clock: &Clock) -> Reply {
    let body = match answer.body {
        ApiBody::Full(bytes) => ReplyBody::full(bytes),
        ApiBody::Watch(watching) => ReplyBody::boxed(WatchBody::new(*watching, clock.clone())),
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = answer.status;
    *reply.headers_mut() = answer.headers;
    reply
}

type Step = Pin<Box<dyn Future<Output = (WatchStream, Option<Bytes>)>>>;

/// A watch as the body of an answer.
struct WatchBody {
    step: Option<Step>,
    clock: Clock,
}

impl WatchBody {
    fn new(watching: WatchStream, clock: Clock) -> Self {
        let mut body = Self { step: None, clock };
        body.go_on(watching);
        body
    }

    fn go_on(&mut self, mut watching: WatchStream) {
        let clock = self.clock.clone();
        self.step = Some(Box::pin(async move {
            let bytes = watching.next(&clock).await;
            (watching, bytes)
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
        let (watching, bytes) = ready!(step.as_mut().poll(cx));
        self.step = None;
        Poll::Ready(bytes.map(|bytes| {
            self.go_on(watching);
            Ok(Frame::data(bytes))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_as_proxies_do_it() {
        for (path, clean) in [
            ("/apis", "/apis"),
            ("//apis///x", "/apis/x"),
            ("/x/../apis/./x/", "/apis/x"),
            ("/../../apis", "/apis"),
            ("/", "/"),
        ] {
            assert_eq!(cleaned(path), clean, "{path}");
        }
    }
}
