//! The fake API server: work takes exactly as long as requested, and is always completed.
//!
//! A segment of a request's path says how long it takes and how large its response is (see
//! [`Wanted`]). Work that has begun is completed, whether or not a client still waits, and
//! [`Executing`] counts it until then, for each user. The limits are checked against these counts.
//!
//! Over HTTP/2 it defends itself as servers do. Like Go's server, a connection executes as many handlers as it
//! allows streams, cancelled ones included. Further handlers wait; if more than four times as many wait, the
//! connection ends with `ENHANCE_YOUR_CALM`. Like nghttp2, it lets a connection reset 1000 streams at once and
//! 33 a second. It limits heads as Go's server ([`header_lists`](crate::header_lists)). Both protocols share a port; the first bytes show which of them a client speaks.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Collected, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
};

use crate::{
    cluster,
    gateway::ATTACKER,
    header_lists::{FRAME_LIMIT, LIST_LIMIT, LimitedHeads},
    pods::{PODS, Pods},
    time::{ms, now},
    token_reviews::TokenReviews,
};

/// Streams that one connection allows by default, as kube-apiserver does.
pub(crate) const STREAMS: u32 = 100;
/// Handlers that may wait on one connection, for each stream it allows, as in Go's server.
const WAITING_PER_STREAM: u32 = 4;
/// Resets that one connection may have at once, and each second, as in nghttp2.
const RESETS_AT_ONCE: f64 = 1000.0;
const RESETS_PER_SECOND: f64 = 33.0;
/// The period of events in a watch of the other clients' namespace, and in any other watch.
const WATCH_PERIOD: Duration = ms(250);
const QUIET_WATCH_PERIOD: Duration = ms(30_000);
/// The namespace of the other clients.
const OTHERS: &str = "/namespaces/v/";
/// The event that a watch gets.
const EVENT: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
    \"metadata\":{\"resourceVersion\":\"7\"}}}\n";
const OBJECT: &[u8] = b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"p\"}}";
/// Reviews of tokens are refused: the gateway has no right to request them.
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The header of a response over HTTP/2 that says how much work of attackers had begun when its request began to execute:
/// [`Executing::work`], in milliseconds.
pub(crate) const ATTACK_WORK: &str = "x-attack-work";

/// A running fake upstream. It stops when dropped.
pub(crate) struct FakeUpstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    ended: Notify,
    executing: Mutex<HashMap<String, Executing>>,
    attackers: Mutex<Executing>,
    /// How many requests over HTTP/2 execute at a time; the others wait in the order of their arrival. Without a limit if `None`.
    seats: Option<Arc<Semaphore>>,
    /// Streams that the gateway has reset, and the most on one connection.
    resets: AtomicU64,
    most_resets: AtomicU64,
    /// Connections that were ended because of too many resets, or too long a head.
    ended_connections: AtomicU64,
    connections: AtomicU64,
    reviews: TokenReviews,
    pods: Pods,
}

/// Requests that execute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Executing {
    pub(crate) now: usize,
    /// The most that ever executed at a time.
    pub(crate) most: usize,
    /// How many have begun.
    pub(crate) begun: usize,
    /// How long those that have begun take, together: the times that they ask for, not measured ones.
    pub(crate) work: Duration,
}

impl Executing {
    fn begin(&mut self, time: Duration) {
        self.now += 1;
        self.begun += 1;
        self.work += time;
        self.most = self.most.max(self.now);
    }
}

/// What a request asks for: `…/t250b1000/…` takes 250 ms and gets a response of 1000 bytes. A request with
/// `early` anywhere in its path is refused before its body is read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wanted {
    time: Duration,
    bytes: Option<usize>,
    is_early: bool,
    is_watch: bool,
    /// How often a watch gets an event.
    period: Duration,
}

impl Wanted {
    fn of(target: &Uri) -> Self {
        let query = target.query().unwrap_or_default();
        let mut wanted = Self {
            is_watch: query.split('&').any(|pair| pair == "watch=true"),
            period: if target.path().contains(OTHERS) {
                WATCH_PERIOD
            } else {
                QUIET_WATCH_PERIOD
            },
            ..Self::default()
        };
        for segment in target.path().split('/') {
            wanted.is_early |= segment == "early";
            let Some(numbers) = segment.strip_prefix('t') else {
                continue;
            };
            let (time, bytes) = numbers.split_once('b').unwrap_or((numbers, ""));
            if let Ok(time) = time.parse() {
                wanted.time = ms(time);
                wanted.bytes = bytes.parse().ok();
            }
        }
        wanted
    }

    fn body(self) -> Bytes {
        self.bytes
            .map_or(Bytes::from_static(OBJECT), |bytes| vec![b'x'; bytes].into())
    }

    fn status(self, method: &Method) -> StatusCode {
        match *method {
            _ if self.is_early => StatusCode::FORBIDDEN,
            Method::POST => StatusCode::CREATED,
            _ => StatusCode::OK,
        }
    }
}

impl FakeUpstream {
    /// Starts an upstream that allows `streams` streams on a connection.
    pub(crate) fn start(streams: u32) -> Self {
        Self::start_with(streams, State::default())
    }

    /// Starts an upstream that executes at most so many requests at a time.
    pub(crate) fn start_with_seats(seats: usize) -> Self {
        let seats = Some(Arc::new(Semaphore::new(seats)));
        let state = State {
            seats,
            ..State::default()
        };
        Self::start_with(STREAMS, state)
    }

    fn start_with(streams: u32, state: State) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 4096).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let accepting = accept(listener, Arc::clone(&shared), streams);
                tokio::select! {
                    () = accepting => {}
                    () = shared.ended.notified() => {}
                }
            });
        });
        Self {
            address,
            state,
            thread: Some(thread),
        }
    }

    /// The executing requests of `user`.
    pub(crate) fn executing(&self, user: &str) -> Executing {
        let executing = self.state.executing.lock().unwrap();
        executing.get(user).copied().unwrap_or_default()
    }

    /// The executing requests of all attackers together.
    pub(crate) fn attackers(&self) -> Executing {
        *self.state.attackers.lock().unwrap()
    }

    /// The number of streams that the gateway reset, and the most on one connection.
    pub(crate) fn resets(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.state.resets), load(&self.state.most_resets))
    }

    /// Connections that were ended because of too many resets, or too long a head.
    pub(crate) fn ended_connections(&self) -> u64 {
        self.state.ended_connections.load(Ordering::Relaxed)
    }

    /// The pods of which the gateway knows.
    pub(crate) fn pods(&self) -> &Pods {
        &self.state.pods
    }

    /// Reviews of tokens.
    pub(crate) fn reviews(&self) -> &TokenReviews {
        &self.state.reviews
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        self.state.ended.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, state: Arc<State>, streams: u32) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let mut first = [0; 3];
            match stream.peek(&mut first).await {
                Ok(3) if &first == b"PRI" => {
                    let _ = serve_http2(stream, state, streams).await;
                }
                Ok(0) | Err(_) => {}
                Ok(_) => serve_http1(stream, state).await,
            }
        });
    }
}

impl State {
    /// Waits until a request may execute.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        let seats = self.seats.clone()?;
        seats.acquire_owned().await.ok()
    }

    /// Does the work of a request to its end, even if the request is cancelled, and keeps its seat until then. The returned
    /// channel signals the end.
    fn execute(
        self: &Arc<Self>,
        user: &str,
        time: Duration,
        seat: Option<OwnedSemaphorePermit>,
    ) -> oneshot::Receiver<()> {
        let is_attacker = user.starts_with(ATTACKER);
        if is_attacker {
            self.attackers.lock().unwrap().begin(time);
        }
        let mut executing = self.executing.lock().unwrap();
        executing.entry(user.to_owned()).or_default().begin(time);
        drop(executing);
        let (done, finished) = oneshot::channel();
        let (state, user) = (Arc::clone(self), user.to_owned());
        let end = move || {
            drop(seat);
            if is_attacker {
                state.attackers.lock().unwrap().now -= 1;
            }
            if let Some(executing) = state.executing.lock().unwrap().get_mut(&user) {
                executing.now -= 1;
            }
            let _ = done.send(());
        };
        if time.is_zero() {
            end();
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                end();
            });
        }
        finished
    }
}

/// The user that the gateway impersonates.
fn user_of(headers: &HeaderMap) -> String {
    let name = headers.get("impersonate-user");
    name.and_then(|name| name.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

async fn serve_http1(stream: TcpStream, state: Arc<State>) {
    state.connections.fetch_add(1, Ordering::Relaxed);
    let service = service_fn(move |request: Request<Incoming>| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer_http1(request, &state).await) }
    });
    let _ = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer_http1(
    request: Request<Incoming>,
    state: &Arc<State>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let (head, body) = request.into_parts();
    let wanted = Wanted::of(&head.uri);
    let body = match body {
        _ if wanted.is_early => Bytes::new(),
        body => body
            .collect()
            .await
            .map_or(Bytes::new(), Collected::to_bytes),
    };
    let user = user_of(&head.headers);
    if let Some((own, time)) = cluster::respond(&head.uri, &body).filter(|_| user.is_empty()) {
        tokio::time::sleep(time).await;
        return json(StatusCode::OK)
            .body(Full::new(own).boxed_unsync())
            .unwrap();
    }
    if user.is_empty() && head.uri.path() == PODS {
        let body = if wanted.is_watch {
            state.pods.watch()
        } else {
            Full::new(state.pods.list()).boxed_unsync()
        };
        return json(StatusCode::OK).body(body).unwrap();
    }
    if user.is_empty()
        && head.method == Method::GET
        && let Some(pod) = state.pods.get(head.uri.path())
    {
        return json(StatusCode::OK)
            .body(Full::new(pod).boxed_unsync())
            .unwrap();
    }
    let is_review = head.uri.path() == TOKEN_REVIEWS;
    if is_review && let Some(review) = state.reviews.review(&body).await {
        return json(StatusCode::CREATED)
            .body(Full::new(review).boxed_unsync())
            .unwrap();
    }
    let status = match wanted.status(&head.method) {
        _ if is_review => StatusCode::FORBIDDEN,
        status => status,
    };
    let _ = state.execute(&user, wanted.time, None).await;
    let body = if wanted.is_watch && wanted.time.is_zero() {
        let events = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(wanted.period).await;
            let event = hyper::body::Frame::data(Bytes::from_static(EVENT));
            Some((Ok::<_, Infallible>(event), ()))
        });
        StreamBody::new(events).boxed_unsync()
    } else {
        Full::new(wanted.body()).boxed_unsync()
    };
    json(status).body(body).unwrap()
}

fn json(status: StatusCode) -> http::response::Builder {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
}

/// The handlers of one HTTP/2 connection.
struct Handlers {
    state: Arc<State>,
    running: Arc<Semaphore>,
    waiting: AtomicU32,
    most_waiting: u32,
    resets: Mutex<Resets>,
    too_many: Notify,
}

/// Resets of one connection.
struct Resets {
    count: u64,
    /// How many more streams may be reset now.
    left: f64,
    since: std::time::Instant,
}

impl Handlers {
    /// A stream was reset by the gateway.
    fn reset(&self) {
        self.state.resets.fetch_add(1, Ordering::Relaxed);
        let mut resets = self.resets.lock().unwrap();
        resets.count += 1;
        let count = resets.count;
        self.state.most_resets.fetch_max(count, Ordering::Relaxed);
        let grown = resets.since.elapsed().as_secs_f64() * RESETS_PER_SECOND;
        resets.left = (resets.left + grown).min(RESETS_AT_ONCE) - 1.0;
        resets.since = now();
        if resets.left < 0.0 {
            self.too_many.notify_one();
        }
    }
}

async fn serve_http2(stream: TcpStream, state: Arc<State>, streams: u32) -> Result<(), h2::Error> {
    state.connections.fetch_add(1, Ordering::Relaxed);
    let mut connection = h2::server::Builder::new()
        .max_concurrent_streams(streams)
        .max_header_list_size(LIST_LIMIT)
        .max_frame_size(FRAME_LIMIT)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        // The rules here decide, not the library's.
        .max_pending_accept_reset_streams(usize::MAX >> 1)
        .max_concurrent_reset_streams(100_000)
        .handshake::<_, Bytes>(LimitedHeads::new(stream))
        .await?;
    let handlers = Arc::new(Handlers {
        state: Arc::clone(&state),
        running: Arc::new(Semaphore::new(streams as usize)),
        waiting: AtomicU32::new(0),
        most_waiting: streams * WAITING_PER_STREAM,
        resets: Mutex::new(Resets {
            count: 0,
            left: RESETS_AT_ONCE,
            since: now(),
        }),
        too_many: Notify::new(),
    });
    let mut is_ended = false;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = handlers.too_many.notified(), if !is_ended => {
                is_ended = true;
                state.ended_connections.fetch_add(1, Ordering::Relaxed);
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                continue;
            }
        };
        let Some(accepted) = accepted else {
            return Ok(());
        };
        let (request, respond) = accepted.inspect_err(|error| {
            let is_too_long = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
            if error.get_io().is_some_and(is_too_long) {
                state.ended_connections.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        if handlers.waiting.load(Ordering::Relaxed) > handlers.most_waiting {
            handlers.too_many.notify_one();
        }
        let handlers = Arc::clone(&handlers);
        tokio::spawn(async move {
            let _ = handle(request, respond, &handlers).await;
        });
    }
}

/// Serves one stream, in its turn.
async fn handle(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    handlers: &Handlers,
) -> Result<(), h2::Error> {
    handlers.waiting.fetch_add(1, Ordering::Relaxed);
    let turn = async {
        let turn = Arc::clone(&handlers.running).acquire_owned().await;
        (turn, handlers.state.seat().await)
    };
    let turn = unless_reset(&mut respond, turn).await;
    handlers.waiting.fetch_sub(1, Ordering::Relaxed);
    let Some((Ok(turn), seat)) = turn else {
        // It was reset before it began to execute.
        handlers.reset();
        return Ok(());
    };
    let wanted = Wanted::of(request.uri());
    let user = user_of(request.headers());
    let status = wanted.status(request.method());
    let is_head = request.method() == Method::HEAD;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if !wanted.is_early {
        let mut body = request.into_body();
        while let Some(piece) = body.data().await {
            body.flow_control().release_capacity(piece?.len())?;
        }
    }
    if method == Method::PATCH {
        handlers.state.pods.patch(&path);
    }
    let attack_work = handlers.state.attackers.lock().unwrap().work.as_millis();
    let mut work = handlers.state.execute(&user, wanted.time, seat);
    if unless_reset(&mut respond, &mut work).await.is_none() {
        handlers.reset();
        // The handler continues to its end, and counts on its connection until then.
        let _ = work.await;
        return Ok(());
    }
    let head = json(status).header(ATTACK_WORK, attack_work.to_string());
    let mut send = respond.send_response(head.body(()).unwrap(), is_head)?;
    if is_head {
        return Ok(());
    }
    if wanted.is_watch && wanted.time.is_zero() {
        let ended = send_events(&mut send, wanted.period).await;
        if ended.is_err() {
            handlers.reset();
        }
        return Ok(());
    }
    if send_all(&mut send, wanted.body()).await.is_err() {
        handlers.reset();
    }
    drop(turn);
    Ok(())
}

/// The output of `other`, or `None` if the stream is reset first.
async fn unless_reset<F: Future>(respond: &mut SendResponse<Bytes>, other: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => None,
        given = other => Some(given),
    }
}

/// Sends events to a watch until it is reset.
async fn send_events(send: &mut SendStream<Bytes>, period: Duration) -> Result<(), h2::Error> {
    loop {
        send.send_data(Bytes::from_static(EVENT), false)?;
        tokio::select! {
            reset = poll_fn(|cx| send.poll_reset(cx)) => {
                reset?;
                return Err(Reason::CANCEL.into());
            }
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Sends a body as fast as the gateway reads it.
async fn send_all(send: &mut SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let Some(room) = poll_fn(|cx| send.poll_capacity(cx)).await else {
            return Err(Reason::CANCEL.into());
        };
        let room = room?.min(body.len());
        send.send_data(body.split_to(room), false)?;
    }
    send.send_data(Bytes::new(), true)
}
