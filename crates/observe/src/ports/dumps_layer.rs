//! The debug dumps on the main port, for members of `system:masters`.
//!
//! The layer belongs inside fairness, so that its clients are authenticated and flow control applies.
//! Requests for other paths pass without an allocation. The dump is made on the control runtime.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName},
};
use tokio::{runtime::Handle, sync::oneshot};
use tower::{Layer, Service};

use super::endpoints::TEXT;
use crate::{
    dumps::{Dump, PATH},
    telemetry::Telemetry,
};
use fairgate_base::tasks;
use fairgate_call::{
    Call, MemoryOf, PassingOrBoxed, Refusal, Reply, ReplyBody, ResponseMemory, ResponseShare,
};
use fairgate_core::digest::{User, readable};

/// Serves the dumps, and passes all other requests on.
#[derive(Clone, Debug)]
pub struct DumpsLayer {
    telemetry: Arc<Telemetry>,
    control: Handle,
    responses: Arc<ResponseMemory>,
}

impl DumpsLayer {
    /// A layer that serves the dumps of `telemetry` on the main port. They are made on `control`, and are in `responses` until
    /// they were read.
    pub fn new(telemetry: Arc<Telemetry>, control: Handle, responses: Arc<ResponseMemory>) -> Self {
        Self {
            telemetry,
            control,
            responses,
        }
    }
}

impl<S> Layer<S> for DumpsLayer {
    type Service = Dumps<S>;

    fn layer(&self, inner: S) -> Dumps<S> {
        Dumps {
            layer: self.clone(),
            inner,
        }
    }
}

/// See `DumpsLayer`.
#[derive(Clone, Debug)]
pub struct Dumps<S> {
    layer: DumpsLayer,
    inner: S,
}

impl<S> Service<Call> for Dumps<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = PassingOrBoxed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        if !call.digest.info.path().starts_with(PATH.as_bytes()) {
            return PassingOrBoxed::passing(self.inner.call(call));
        }
        self.layer.begin(&call)
    }
}

impl DumpsLayer {
    /// Starts the dump that `call` requests.
    fn begin<F>(&self, call: &Call) -> PassingOrBoxed<F> {
        let (info, user) = (&call.digest.info, &call.digest.user);
        if !matches!(*call.request.method(), Method::GET | Method::HEAD) {
            return PassingOrBoxed::ready(Err(Refusal::MethodNotAllowed));
        }
        if !user.in_group(User::MASTERS) {
            let message = format!(
                "forbidden: User {:?} cannot {} path {:?}",
                user.name,
                info.verb,
                readable(info.path())
            );
            return PassingOrBoxed::ready(Err(Refusal::Forbidden(message.into())));
        }
        let Some(dump) = Dump::of(info.path(), call.request.uri().query()) else {
            let unknown = "404 page not found\n".into();
            let method = call.request.method();
            let reply = reply(StatusCode::NOT_FOUND, (TEXT, unknown), method, None);
            return PassingOrBoxed::ready(Ok(reply));
        };
        let (made, text) = oneshot::channel::<String>();
        let telemetry = Arc::clone(&self.telemetry);
        tasks::spawn(&self.control, async move {
            // The requester may have left.
            let _ = made.send(telemetry.dump(dump).await);
        });
        let (content_type, method) = (dump.content_type(), call.request.method().clone());
        let share = self.responses.share(user);
        PassingOrBoxed::boxed(async move {
            match text.await {
                Ok(text) => Ok(charged((content_type, text), &method, Some(share))),
                Err(_) => Err(Refusal::Internal("the dump was not made".into())),
            }
        })
    }
}

/// The response to `HEAD` has the length of the text but no body. On HTTP/2 hyper would send one.
fn reply(
    status: StatusCode,
    (content_type, text): (&'static str, String),
    method: &Method,
    share: Option<ResponseShare>,
) -> Reply {
    let length = text.len();
    let body = match share {
        _ if *method == Method::HEAD => ReplyBody::empty(),
        Some(share) => ReplyBody::made(text.into(), MemoryOf::User(share)),
        None => ReplyBody::full(text),
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    reply
}

/// The response with a dump, or a refusal if there is no room in memory for it.
fn charged(
    (content_type, text): (&'static str, String),
    method: &Method,
    share: Option<ResponseShare>,
) -> Reply {
    let mut share = share;
    let has_room = (share.as_mut()).is_none_or(|share| share.resize(text.len()));
    if *method == Method::HEAD || has_room {
        return reply(StatusCode::OK, (content_type, text), method, share);
    }
    if let Some(share) = &share {
        share.count_refused();
    }
    let why = "the gateway holds too many bytes of responses that were not read yet\n";
    reply(
        StatusCode::TOO_MANY_REQUESTS,
        (TEXT, why.into()),
        method,
        None,
    )
}
