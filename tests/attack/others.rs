//! The other clients, which do nothing wrong, and how they are served.
//!
//! Readers, writers and watchers of the user `victim` (or of another) in closed loops with a pause, on a thread
//! of their own, so that the attackers' load slows them down only as far as they share the machine.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use crate::{
    gateway::VICTIM,
    goal::ServedClient,
    time::{LIVENESS, ms, now},
};

/// An object of the upstream's.
const POD: &str = "/api/v1/namespaces/v/pods/p";
/// The pause between two requests of one client.
const PAUSE: Duration = ms(10);

/// The number and kind of the other clients.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// Clients that read, half of them over HTTP/2.
    pub(crate) readers: usize,
    pub(crate) writers: usize,
    pub(crate) watches: usize,
    /// Clients without a credential that request `/livez`.
    pub(crate) anonymous: usize,
    /// The user that reads, writes and watches.
    pub(crate) user: &'static str,
    /// What the readers read.
    pub(crate) read: &'static str,
}

impl Mix {
    /// No other clients.
    pub(crate) const NOBODY: Self = Self {
        readers: 0,
        writers: 0,
        watches: 0,
        anonymous: 0,
        user: "",
        read: POD,
    };
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            readers: 4,
            writers: 2,
            watches: 12,
            anonymous: 0,
            user: VICTIM,
            read: POD,
        }
    }
}

/// How the other clients were served in a period.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceStats {
    /// How long each successful request took; sorted by [`Others::stats`].
    times: Vec<Duration>,
    /// Requests that failed, and watches that ended.
    pub(crate) failures: usize,
    pub(crate) ended_watches: usize,
    /// The first failure, in words.
    pub(crate) first: Option<String>,
}

impl ServiceStats {
    /// Of requests that took these times, and failures.
    pub(crate) fn of(mut times: Vec<Duration>, failures: Vec<String>) -> Self {
        times.sort_unstable();
        Self {
            times,
            failures: failures.len(),
            first: failures.into_iter().next(),
            ..Self::default()
        }
    }

    /// The number of requests, failed ones included.
    pub(crate) fn requests(&self) -> usize {
        self.times.len() + self.failures
    }

    /// The number of successful requests.
    pub(crate) fn served(&self) -> usize {
        self.times.len()
    }

    /// The time that `percent` of the successful requests did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(rank).copied().unwrap_or_default()
    }

    fn fail(&mut self, what: String) {
        self.failures += 1;
        self.first.get_or_insert(what);
    }
}

/// The other clients. They work until this is dropped.
pub(crate) struct Others {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    address: SocketAddr,
    mix: Mix,
    stats: Mutex<ServiceStats>,
    /// In the order in which [`work`] starts them.
    served: Arc<[ServedClient]>,
    over: AtomicBool,
}

impl Others {
    /// Starts the clients.
    pub(crate) fn start(address: SocketAddr, mix: Mix) -> Self {
        let shared = Arc::new(Shared {
            address,
            mix,
            stats: Mutex::default(),
            served: served_clients(mix),
            over: AtomicBool::new(false),
        });
        let clients = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(work(clients));
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// How often each client was served.
    pub(crate) fn served(&self) -> &Arc<[ServedClient]> {
        &self.shared.served
    }

    /// How the clients were served since the last call.
    pub(crate) fn stats(&self) -> ServiceStats {
        let mut stats = std::mem::take(&mut *self.shared.stats.lock().unwrap());
        stats.times.sort_unstable();
        stats
    }

    /// Stops the clients. Returns how they were served since the last call of [`stats`](Self::stats).
    pub(crate) fn end(mut self) -> ServiceStats {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the others do not panic");
        }
        self.stats()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

/// The clients of a mix, in the order in which [`work`] starts them.
fn served_clients(mix: Mix) -> Arc<[ServedClient]> {
    let requesting = mix.readers + mix.writers + mix.anonymous;
    let client = |number| ServedClient {
        count: AtomicUsize::new(0),
        is_watch: number >= requesting,
    };
    (0..requesting + mix.watches).map(client).collect()
}

async fn work(shared: Arc<Shared>) {
    let mut clients = JoinSet::new();
    let mix = shared.mix;
    let mut numbers = 0..;
    let mut next = move || numbers.next().unwrap_or(0);
    for number in 0..mix.readers {
        let read = (Method::GET, mix.read, true);
        clients.spawn(send_requests(
            Arc::clone(&shared),
            next(),
            read,
            number % 2 == 1,
        ));
    }
    for _ in 0..mix.writers {
        let write = (Method::POST, "/api/v1/namespaces/v/configmaps", true);
        clients.spawn(send_requests(Arc::clone(&shared), next(), write, false));
    }
    for _ in 0..mix.anonymous {
        let probe = (Method::GET, "/livez", false);
        clients.spawn(send_requests(Arc::clone(&shared), next(), probe, false));
    }
    for _ in 0..mix.watches {
        clients.spawn(watch(Arc::clone(&shared), next()));
    }
    while clients.join_next().await.is_some() {}
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The client of this number got something.
    fn serve(&self, number: usize) {
        self.served[number].count.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, note: impl FnOnce(&mut ServiceStats)) {
        note(&mut self.stats.lock().unwrap());
    }
}

/// Sends requests one after the other until the clients are stopped.
async fn send_requests(
    shared: Arc<Shared>,
    number: usize,
    what: (Method, &'static str, bool),
    is_http2: bool,
) {
    let (method, path, has_token) = what;
    let mut client = None;
    while !shared.is_over() {
        let begun = now();
        let once = async {
            let mut connected = match client.take() {
                Some(client) => client,
                None => Client::connect(shared.address, is_http2).await?,
            };
            let user = has_token.then_some(shared.mix.user);
            let response = connected.send(method.clone(), path, user).await?;
            let status = response.status();
            let whole = response.into_body().collect().await;
            whole.map_err(|error| format!("{path}: the response broke off: {error}"))?;
            if !status.is_success() {
                return Err(format!("{method} {path}: {status}"));
            }
            Ok(connected)
        };
        match tokio::time::timeout(LIVENESS, once).await {
            Ok(Ok(connected)) => {
                client = Some(connected);
                let took = begun.elapsed();
                shared.serve(number);
                shared.note(|stats| stats.times.push(took));
            }
            Ok(Err(error)) => shared.note(|stats| stats.fail(error)),
            Err(_) => {
                shared.note(|stats| stats.fail(format!("{method} {path}: no response in time")));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches, and starts another watch when one has ended.
async fn watch(shared: Arc<Shared>, number: usize) {
    while !shared.is_over() {
        let error = match watch_once(&shared, number).await {
            Ok(()) => return,
            Err(error) => error,
        };
        shared.note(|stats| {
            stats.ended_watches += 1;
            stats.fail(error);
        });
        tokio::time::sleep(ms(200)).await;
    }
}

/// Watches until the clients are stopped. Fails if the watch ends before.
async fn watch_once(shared: &Shared, number: usize) -> Result<(), String> {
    const PATH: &str = "/api/v1/namespaces/v/pods?watch=true&resourceVersion=1";
    let silent = |_| "a watch is silent".to_owned();
    let mut client = Client::connect(shared.address, true).await?;
    let sent = client.send(Method::GET, PATH, Some(shared.mix.user));
    let answer = tokio::time::timeout(LIVENESS, sent).await;
    let mut answer = answer.map_err(silent)??;
    if !answer.status().is_success() {
        return Err(format!("a watch: {}", answer.status()));
    }
    loop {
        if shared.is_over() {
            return Ok(());
        }
        match tokio::time::timeout(LIVENESS, answer.body_mut().frame()).await {
            Ok(Some(Ok(_))) => shared.serve(number),
            Ok(Some(Err(error))) => return Err(format!("a watch broke off: {error}")),
            Ok(None) => return Err("a watch ended".to_owned()),
            Err(late) => return Err(silent(late)),
        }
    }
}

/// Opens a connection from the local address `127.0.0.last`, so that it counts as another peer.
pub(crate) async fn connect_from(last: u8, address: SocketAddr) -> Result<TcpStream, String> {
    let connecting = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
        socket.connect(address).await
    };
    let connected: std::io::Result<_> = connecting.await;
    connected.map_err(|error| format!("cannot connect: {error}"))
}

/// A well-behaved connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Opens a connection.
    pub(crate) async fn connect(address: SocketAddr, is_http2: bool) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        Self::over(stream, is_http2).await
    }

    /// Speaks HTTP over a connection.
    pub(crate) async fn over(stream: TcpStream, is_http2: bool) -> Result<Self, String> {
        let failed = |error: hyper::Error| format!("cannot connect: {error}");
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let stream = TokioIo::new(stream);
        if is_http2 {
            let handshake = http2::handshake(TokioExecutor::new(), stream);
            let (sender, connection) = handshake.await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(Self::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(Self::Http1(sender))
        }
    }

    /// Another sender of the same connection; of HTTP/2 only.
    pub(crate) fn share(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        user: Option<&str>,
    ) -> Result<http::Response<Incoming>, String> {
        let body = if method == Method::POST { "{}" } else { "" };
        self.send_body(method, path, user, ("", Bytes::from(body)))
            .await
    }

    /// Sends a request with a body and its content type, unless that is empty. Waits for the head of the response.
    pub(crate) async fn send_body(
        &mut self,
        method: Method,
        path: &str,
        user: Option<&str>,
        (content_type, body): (&str, Bytes),
    ) -> Result<http::Response<Incoming>, String> {
        let headers = [("content-type", content_type)];
        self.send_with((method, path, user), &headers, body).await
    }

    /// The same with these headers, without those that are empty.
    pub(crate) async fn send_with(
        &mut self,
        (method, path, user): (Method, &str, Option<&str>),
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>, String> {
        let request = self.request((method, path, user), headers, body);
        let sent = match self {
            Self::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
            Self::Http2(sender) => sender.send_request(request).await,
        };
        sent.map_err(|error| format!("{path}: {error}"))
    }

    fn request(
        &self,
        (method, path, user): (Method, &str, Option<&str>),
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method);
        request = match self {
            Self::Http1(_) => request.uri(path).header("host", "gate"),
            Self::Http2(_) => request.uri(format!("http://gate{path}")),
        };
        if let Some(user) = user {
            request = request.header("authorization", format!("Bearer {user}"));
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        request.body(Full::from(body)).unwrap()
    }
}
