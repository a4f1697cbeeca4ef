//! Records each request when it ends: counts it, and writes its line of the access log.
//!
//! [`TraceLayer`] is the outermost layer. A request ends with the last byte of its response, or when its
//! client disconnects earlier; either way it is recorded once, without an allocation. A disabled access log costs
//! one load.
//!
//! Not here: request heads so malformed that they never reach the stack.

use std::{
    cell::Cell,
    convert::Infallible,
    fmt::{self, Write as _},
    future::Future,
    ops::Range,
    pin::Pin,
    rc::Rc,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{
    StatusCode,
    header::{CONTENT_TYPE, USER_AGENT},
};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::Level;
use uuid::Uuid;

use super::{
    request_counts::{DryRun, FinishedRequest, RequestRegistry, RequestTable},
    request_phases::RequestPhases,
    user_counts::{UserRefusal, UserRegistry, UserRequest, UserTable},
};
use crate::{metrics::catalogue::ACCESS_LOG, sanitized::sanitize};
use fairgate_base::clock::Clock;
use fairgate_call::{
    BodyEnd, Inbound, Reply, ReplyGuard, RequestContext, Trace, UnenforcedDecision,
};
use fairgate_core::cells::Counter;
use fairgate_gotext::GoDuration;

/// The status of requests whose client disconnected before there was a response (nginx' "client closed request").
pub(crate) const CLIENT_GONE: u16 = 499;

/// Why an eviction failed that the gateway has not refused.
const UPSTREAM_ERROR: &str = "upstream-error";

/// The maximum number of different reasons; there are fewer.
const REASONS: usize = 32;
/// Bytes of a target or user agent that are logged.
const MAX_TEXT: usize = 1024;
/// Bytes of the names of schemas and levels that are logged.
const MAX_NAME: usize = 64;

/// One core's counts of refusals.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    pub(crate) enforced: ReasonCounts,
    /// Of requests that were let pass, because flow control only observes.
    pub(crate) not_enforced: ReasonCounts,
}

/// Counts by reason.
#[derive(Debug, Default)]
pub(crate) struct ReasonCounts([(OnceLock<&'static str>, Counter); REASONS]);

impl ReasonCounts {
    fn count(&self, reason: &'static str) {
        for (name, count) in &self.0 {
            if *name.get_or_init(|| reason) == reason {
                count.increment();
                return;
            }
        }
    }

    /// Reasons and counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0
            .iter()
            .map_while(|(name, count)| Some((*name.get()?, count.get())))
    }
}

/// What the recorder of one core counts into, and scrapes read.
#[derive(Clone, Debug)]
pub(crate) struct RecorderCounts {
    pub(crate) requests: Arc<RequestRegistry>,
    pub(crate) refusals: Arc<RefusalCounts>,
    pub(crate) phases: Arc<RequestPhases>,
    /// Refusals by user.
    pub(crate) refused_users: Arc<UserRegistry>,
    /// Seat-microseconds by user.
    pub(crate) seat_users: Arc<UserRegistry>,
    /// Evictions that failed, by user.
    pub(crate) failed_evictions: Arc<UserRegistry>,
}

/// Records the requests of one core.
#[derive(Debug)]
pub(crate) struct RequestRecorder {
    clock: Clock,
    table: RequestTable,
    refusals: Arc<RefusalCounts>,
    phases: Arc<RequestPhases>,
    refused_users: UserTable,
    seat_users: UserTable,
    failed_evictions: UserTable,
}

impl RequestRecorder {
    /// A recorder that counts into what a scrape reads.
    pub(crate) fn new(clock: Clock, counts: RecorderCounts) -> Rc<Self> {
        Rc::new(Self {
            clock,
            table: RequestTable::new(counts.requests),
            refusals: counts.refusals,
            phases: counts.phases,
            refused_users: UserTable::new(counts.refused_users),
            seat_users: UserTable::new(counts.seat_users),
            failed_evictions: UserTable::new(counts.failed_evictions),
        })
    }

    /// Stores what is only known from the request itself.
    fn begin(self: &Rc<Self>, inbound: &Inbound) {
        let context = &inbound.context;
        context.trace.received.set(inbound.received);
        let headers = inbound.request.headers();
        if context.method == http::Method::PATCH {
            let kind = headers.get(CONTENT_TYPE);
            let is_apply =
                kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch+"));
            context.trace.is_apply.set(is_apply);
        }
        if tracing::enabled!(target: ACCESS_LOG, Level::INFO) {
            context.trace.remote.set(Some(inbound.peer.remote));
            if let Some(agent) = headers.get(USER_AGENT) {
                let _ = context.trace.user_agent.set(agent.clone());
            }
        }
        context.notify(Rc::clone(self) as Rc<dyn fairgate_call::RequestObserver>);
    }

    fn count(&self, context: &RequestContext, how: BodyEnd, took: Duration) {
        let code = status(context);
        if let Some(reason) = context.trace.reason.get() {
            self.refusals.enforced.count(reason);
        }
        let Some(digest) = context.trace.digest.get() else {
            return;
        };
        self.count_user(context, &digest.user.name, code);
        if code >= 500 && digest.info.subresource() == b"eviction" {
            self.count_failed_eviction(context, &digest.user.name, code);
        }
        let refused = context.trace.reason.get().is_some();
        self.table.count(&FinishedRequest {
            info: &digest.info,
            method: &context.method,
            is_apply: context.trace.is_apply.get(),
            dry_run: DryRun::of(context.target.as_ref().and_then(|target| target.query())),
            code,
            terminated: refused && (code == 429 || code >= 500),
            executed: !refused || code != 429 || seat_time(&context.trace).is_some(),
            aborted: how == BodyEnd::Failed,
            duration: took,
            bytes: context.reply_bytes.get(),
            took: took
                .saturating_sub(context.trace.wait.get().unwrap_or_default())
                .saturating_sub(context.trace.eviction_wait.get().unwrap_or_default()),
        });
    }

    /// Counts the refusal of a request, and the time for which it held seats.
    fn count_user(&self, context: &RequestContext, user: &str, code: u16) {
        let trace = &context.trace;
        if let Some(reason) = trace.reason.get() {
            let refusal = Some(UserRefusal { reason, code });
            self.refused_users
                .count(&of_user(context, user, refusal), 1);
        }
        if let Some(held) = seat_time(trace) {
            self.seat_users.count(&of_user(context, user, None), held);
        }
    }

    /// Counts an eviction that ended with a server error. Few do, and no other request comes here.
    fn count_failed_eviction(&self, context: &RequestContext, user: &str, code: u16) {
        let reason = context.trace.reason.get().unwrap_or(UPSTREAM_ERROR);
        let failed = UserRequest {
            user,
            level: "",
            refusal: Some(UserRefusal { reason, code }),
        };
        self.failed_evictions.count(&failed, 1);
    }
}

/// What is counted of a user.
fn of_user<'a>(
    context: &'a RequestContext,
    user: &'a str,
    refusal: Option<UserRefusal>,
) -> UserRequest<'a> {
    UserRequest {
        user,
        level: context.trace.level.get().map_or("", |level| &**level),
        refusal,
    }
}

/// For how long a request held how many seats, in seat-microseconds; `None` if it held none.
fn seat_time(trace: &Trace) -> Option<u64> {
    let executed = trace.execution.get().or(trace.watch_init.get())?;
    let part = |seats: u32, time: Duration| {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        u64::from(seats).saturating_mul(micros)
    };
    let lingered = part(trace.final_seats.get(), trace.additional_latency.get());
    Some(part(trace.initial_seats.get(), executed).saturating_add(lingered))
}

impl fairgate_call::RequestObserver for RequestRecorder {
    fn not_enforced(&self, context: &RequestContext, decision: &UnenforcedDecision) {
        if let Some(reason) = decision.refused {
            self.refusals.not_enforced.count(reason);
            if let Some(user) = context.user.get() {
                let refusal = Some(UserRefusal { reason, code: 0 });
                self.refused_users
                    .count(&of_user(context, &user.name, refusal), 1);
            }
        }
        if tracing::enabled!(target: ACCESS_LOG, Level::INFO) {
            log_not_enforced(context, decision);
        }
    }

    fn ended(&self, context: &RequestContext, how: BodyEnd) {
        let now = self.clock.now();
        let took = now.since(context.trace.received.get());
        self.phases.observe(context, now);
        self.count(context, how, took);
        if tracing::enabled!(target: ACCESS_LOG, Level::INFO) {
            log(context, how, took);
        }
    }
}

fn status(context: &RequestContext) -> u16 {
    match context.trace.status.get() {
        0 => CLIENT_GONE,
        code => code,
    }
}

/// Texts of values of a line, one after the other in one allocation.
struct LineTexts(String);

impl Default for LineTexts {
    fn default() -> Self {
        Self(String::with_capacity(192)) // what nearly all lines need
    }
}

impl LineTexts {
    /// Adds the text of `value`; returns where it is.
    fn add(&mut self, value: impl fmt::Display) -> Range<usize> {
        let start = self.0.len();
        let _ = write!(self.0, "{value}"); // a string takes everything
        start..self.0.len()
    }

    fn duration(&mut self, duration: Duration) -> Range<usize> {
        self.add(GoDuration(duration))
    }

    fn get(&self, range: Range<usize>) -> &str {
        &self.0[range]
    }
}

/// Writes the line of a request. Text of clients is logged as strings, which every format escapes.
fn log(context: &RequestContext, how: BodyEnd, took: Duration) {
    let target = context.target.as_ref();
    let path = sanitize(target.map_or("", |target| target.as_str()), MAX_TEXT);
    let agent = context
        .trace
        .user_agent
        .get()
        .map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let agent = agent.as_ref().map(|agent| sanitize(agent, MAX_TEXT));
    let user = context
        .user
        .get()
        .map(|user| sanitize(&user.name, MAX_TEXT));
    let mut texts = LineTexts::default();
    let level = context
        .trace
        .level
        .get()
        .map(|name| sanitize(name, MAX_NAME));
    let schema = context
        .trace
        .schema
        .get()
        .map(|name| sanitize(name, MAX_NAME));
    let trace = &context.trace;
    let latency = texts.duration(took);
    let additional = level
        .is_some()
        .then(|| texts.duration(trace.additional_latency.get()));
    let mut optional = |duration: Option<Duration>| Some(texts.duration(duration?));
    let wait = optional(trace.wait.get());
    let eviction_wait = optional(trace.eviction_wait.get());
    let execution = optional(trace.execution.get());
    let watch_init = optional(trace.watch_init.get());
    let remote = trace.remote.get().map(|remote| texts.add(remote));
    let audit_id = texts.add(Uuid::from_u128(context.id).as_hyphenated());
    let text = |range: Option<Range<usize>>| range.map(|range| texts.get(range));
    let how = match how {
        BodyEnd::Complete => "complete",
        BodyEnd::Failed => "failed",
        BodyEnd::Abandoned => "abandoned",
    };
    tracing::event!(
        target: ACCESS_LOG,
        Level::INFO,
        method = context.method.as_str(),
        path = &*path,
        user = user.as_deref(),
        status = status(context),
        latency = texts.get(latency),
        bytes_in = trace.request_bytes.get(),
        bytes_out = context.reply_bytes.get(),
        end = how,
        reason = trace.reason.get(),
        apf_pl = level.as_deref(),
        apf_fs = schema.as_deref(),
        apf_iseats = level.is_some().then(|| trace.initial_seats.get()),
        apf_fseats = level.is_some().then(|| trace.final_seats.get()),
        apf_additionalLatency = text(additional),
        apf_wait = text(wait),
        eviction_wait = text(eviction_wait),
        apf_execution_time = text(execution),
        apf_init_latency = text(watch_init),
        upstream = trace.upstream.borrow().as_deref(),
        remote = text(remote),
        audit_id = texts.get(audit_id),
        user_agent = agent.as_deref(),
        "request"
    );
}

/// Writes the line of a decision that is not enforced. Its `audit_id` is that of the line of the request.
fn log_not_enforced(context: &RequestContext, decision: &UnenforcedDecision) {
    let trace = &context.trace;
    let user = context
        .user
        .get()
        .map(|user| sanitize(&user.name, MAX_TEXT));
    let level = trace.level.get().map(|name| sanitize(name, MAX_NAME));
    let schema = trace.schema.get().map(|name| sanitize(name, MAX_NAME));
    tracing::event!(
        target: ACCESS_LOG,
        Level::INFO,
        user = user.as_deref(),
        decision = if decision.refused.is_some() { "refuse" } else { "execute" },
        reason = decision.refused,
        apf_pl = level.as_deref(),
        apf_fs = schema.as_deref(),
        apf_wait = GoDuration(decision.wait).to_string(),
        audit_id = Uuid::from_u128(context.id).to_string(),
        "decision not enforced"
    );
}

/// Records the requests of a core. The outermost layer.
#[derive(Clone, Debug)]
pub struct TraceLayer {
    recorder: Rc<RequestRecorder>,
}

impl TraceLayer {
    /// A layer that notifies `recorder` when a request ends.
    pub(crate) fn new(recorder: Rc<RequestRecorder>) -> Self {
        Self { recorder }
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced {
            recorder: Rc::clone(&self.recorder),
            inner,
        }
    }
}

/// See [`TraceLayer`].
#[derive(Clone, Debug)]
pub struct Traced<S> {
    recorder: Rc<RequestRecorder>,
    inner: S,
}

impl<S> Service<Inbound> for Traced<S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = Tracing<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        self.recorder.begin(&inbound);
        Tracing {
            context: Rc::clone(&inbound.context),
            answered: Cell::new(false),
            inner: Some(self.inner.call(inbound)),
        }
    }
}

pin_project! {
    /// The future of [`Traced`]. Dropped before the response, it records that the client has disconnected.
    pub struct Tracing<F> {
        #[pin]
        inner: Option<F>,
        context: Rc<RequestContext>,
        answered: Cell<bool>,
    }

    impl<F> PinnedDrop for Tracing<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Drops the seat first, which records how long the request held it.
            this.inner.set(None);
            if !this.answered.get() {
                this.context.end(BodyEnd::Abandoned);
            }
        }
    }
}

impl<F> Future for Tracing<F>
where
    F: Future<Output = Result<Reply, Infallible>>,
{
    type Output = Result<Reply, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else {
            return Poll::Pending;
        };
        let Ok(mut reply) = ready!(inner.poll(cx));
        this.answered.set(true);
        reply.body_mut().count_in(Rc::clone(this.context));
        if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            // The body ends long before the tunnel.
            let ending = TunnelEnd(Rc::clone(this.context));
            reply.body_mut().hold(Box::new(ending));
        }
        Poll::Ready(Ok(reply))
    }
}

/// Records a request that became a tunnel, when the tunnel ends.
struct TunnelEnd(Rc<RequestContext>);

impl ReplyGuard for TunnelEnd {
    fn end(self: Box<Self>, how: BodyEnd) {
        self.0.end(how);
    }
}
