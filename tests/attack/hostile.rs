//! Clients that send hostile requests one after the other, and check every response.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    gateway::attacker,
    goal::Goal,
    mode,
    others::Client,
    report::Outcome,
    time::{LOW_PRIORITY_LIVENESS, now},
};

/// The lowest priority of a thread, so that the attackers' own work does not slow the gateway down: in service they have
/// machines of their own.
pub(crate) const LOWEST: i32 = 19;

/// Lowers the priority of this thread to [`LOWEST`] where figures are measured. Elsewhere an attack would only take longer.
pub(crate) fn lower_priority() {
    if mode::measures() {
        rustix::process::nice(LOWEST).unwrap();
    }
}

/// What any hostile request may get: there is no room for it, or no time. How much of both there is depends on what else the
/// machine does.
const TOO_BUSY: [u16; 2] = [429, 504];

/// What is refused as HTTP, before anybody knows that the client expects a `Status`: an unknown `Expect`, a head that is too long.
const WITHOUT_STATUS: [u16; 2] = [417, 431];

/// A request, and the codes of its responses besides [`TOO_BUSY`].
#[derive(Clone)]
pub(crate) struct HostileRequest {
    pub(crate) name: &'static str,
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) content_type: Cow<'static, str>,
    /// A further header.
    pub(crate) more: Option<(&'static str, Cow<'static, str>)>,
    pub(crate) body: Bytes,
    pub(crate) codes: &'static [u16],
}

/// The responses to hostile requests.
#[derive(Default)]
pub(crate) struct Responses {
    /// How many there were of each code.
    by_code: BTreeMap<u16, usize>,
    /// Requests without a response, in words.
    lost: Vec<String>,
    /// Responses with another code, or without a clear `Status`.
    unclear: Vec<String>,
    /// The longest time that one took.
    longest: Duration,
}

/// The hostile clients.
#[derive(Clone, Copy)]
pub(crate) struct HostileClients {
    pub(crate) clients: usize,
    /// The users that they are, in turn: [`attacker`].
    pub(crate) users: usize,
    /// How many requests they send, at least.
    pub(crate) requests: usize,
}

impl HostileClients {
    /// Has the clients send `requests` in turn until their time is over. Returns when all have their responses.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        requests: Vec<HostileRequest>,
        goal: Goal,
    ) -> Responses {
        let make = move |number: usize| requests[number % requests.len()].clone();
        self.send_each(address, make, goal, Arc::default()).await
    }

    /// The same for the requests that `make` makes, by their numbers. `answered` counts those that have their response.
    pub(crate) async fn send_each(
        &self,
        address: SocketAddr,
        make: impl Fn(usize) -> HostileRequest + Send + Sync + 'static,
        goal: Goal,
        answered: Arc<AtomicUsize>,
    ) -> Responses {
        let clients = *self;
        let working = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            lower_priority();
            runtime.block_on(clients.send_in_turn(address, make, goal, answered))
        });
        working.await.unwrap()
    }

    async fn send_in_turn(
        self,
        address: SocketAddr,
        make: impl Fn(usize) -> HostileRequest + Send + Sync + 'static,
        goal: Goal,
        answered: Arc<AtomicUsize>,
    ) -> Responses {
        let make = Arc::new(make);
        let next = Arc::new(AtomicUsize::new(0));
        let mut working = JoinSet::new();
        for number in 0..self.clients {
            let (make, next, goal) = (Arc::clone(&make), Arc::clone(&next), goal.clone());
            let answered = Arc::clone(&answered);
            let user = attacker(number % self.users);
            let is_on = move |sent| goal.is_open() || sent < self.requests && goal.has_time();
            working.spawn(async move {
                let mut responses = Responses::default();
                while is_on(next.load(Ordering::Relaxed)) {
                    let request = make(next.fetch_add(1, Ordering::Relaxed));
                    responses
                        .send(address, &request, &user, number % 2 == 1)
                        .await;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                responses
            });
        }
        let mut all = Responses::default();
        while let Some(responses) = working.join_next().await {
            all.add(responses.unwrap());
        }
        all
    }
}

impl Responses {
    /// How many of them had this code.
    pub(crate) fn with_code(&self, code: u16) -> usize {
        self.by_code.get(&code).copied().unwrap_or(0)
    }

    /// How many there were.
    pub(crate) fn number(&self) -> usize {
        self.by_code.values().sum()
    }

    /// Requests of this name over HTTP/2 may be left without a response: the gateway may close their connections.
    pub(crate) fn may_lose_over_http2(&mut self, name: &str) {
        let name = format!("{name} over HTTP/2:");
        self.lost.retain(|lost| !lost.starts_with(&name));
    }

    /// Why the first request that has no response has none.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.first().map(String::as_str)
    }

    /// Sends a request on a connection of its own.
    async fn send(
        &mut self,
        address: SocketAddr,
        request: &HostileRequest,
        user: &str,
        is_http2: bool,
    ) {
        let begun = now();
        let sending = async {
            let mut client = Client::connect(address, is_http2).await?;
            let more = request.more.as_ref().map(|(name, value)| (*name, &**value));
            let headers = [("content-type", &*request.content_type)];
            let headers: Vec<_> = headers.into_iter().chain(more).collect();
            let head = (request.method.clone(), &*request.path, Some(user));
            let sent = client.send_with(head, &headers, request.body.clone());
            read(sent.await?).await
        };
        let HostileRequest { name, codes, .. } = request;
        let protocol = if is_http2 { "HTTP/2" } else { "HTTP/1" };
        let lost = |why: &str| format!("{name} over {protocol}: {why}");
        match tokio::time::timeout(LOW_PRIORITY_LIVENESS, sending).await {
            Ok(Ok((code, status))) => {
                *self.by_code.entry(code).or_default() += 1;
                let is_clear = code < 400
                    || WITHOUT_STATUS.contains(&code)
                    || status["kind"] == "Status" && status["code"].as_u64() == Some(code.into());
                if !is_clear || !TOO_BUSY.contains(&code) && !codes.contains(&code) {
                    self.unclear.push(format!("{name}: {code} {status}"));
                }
            }
            Ok(Err(error)) => self.lost.push(lost(&error)),
            Err(_) => self.lost.push(lost("no response in time")),
        }
        self.longest = self.longest.max(begun.elapsed());
    }

    fn add(&mut self, other: Self) {
        for (code, count) in other.by_code {
            *self.by_code.entry(code).or_default() += count;
        }
        self.lost.extend(other.lost);
        self.unclear.extend(other.unclear);
        self.longest = self.longest.max(other.longest);
    }

    /// Checks that each request had the response of an API server.
    pub(crate) fn check(&self, outcome: &mut Outcome) {
        let shown = |wrong: &[String]| {
            let first = wrong
                .first()
                .map(|text| text.chars().take(200).collect::<String>());
            format!("{} not: {}", wrong.len(), first.unwrap_or_default())
        };
        outcome.check(
            "every hostile request gets a response",
            self.lost.is_empty() && !self.by_code.is_empty(),
            shown(&self.lost),
        );
        outcome.check(
            "each has the code of an API server, and a clear Status",
            self.unclear.is_empty(),
            shown(&self.unclear),
        );
        outcome.check(
            "not every hostile request runs out of time",
            self.number() > self.with_code(504),
            format!("all {} do", self.number()),
        );
        let codes = self.by_code.iter();
        let codes: Vec<String> = codes
            .map(|(code, count)| format!("{count} × {code}"))
            .collect();
        outcome.note(format!(
            "hostile requests: {}; the slowest response took {} ms",
            codes.join(", "),
            self.longest.as_millis()
        ));
    }
}

/// The code of a response, and its body if that is JSON.
async fn read(response: Response<Incoming>) -> Result<(u16, Value), String> {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| format!("{code}, which broke off: {error}"))?;
    let value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    Ok((code, value))
}
