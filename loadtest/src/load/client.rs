//! The users of a client: closed loops, open loops, watches, and what follows a 429.
//!
//! Latency counts from the time at which a request was meant to be sent: in an open loop that is its time in the
//! schedule, whether or not the client or its connections were ready by then; after a 429 it is still that of the
//! first attempt.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::{sync::watch, task::JoinSet};

use super::{
    recorder::{LoadRecorder, RequestOutcome},
    request::LoadRequest,
    schedule::Schedule,
};
use crate::{
    scenario::{ClientSpec, LoadSpec, RetryBehavior, Scenario},
    transport::{
        connection::{ConnectionPool, LoadClientError},
        target::LoadTarget,
    },
};
use fairgate_base::clock::Clock;
use fairgate_core::{random::Random, time::Time};
use fairgate_loadkit::pauses;

/// The requests of one open loop in flight; further ones fail, as a real client would run out of memory.
const OPEN_LOOP_IN_FLIGHT: u32 = 2000;
/// The connections of one open loop, unless the scenario says otherwise.
const OPEN_LOOP_CONNECTIONS: u32 = 64;
/// The longest pause of a client, whatever `Retry-After` says.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause of a thread after a request without a response.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// So many bytes of a response that is no success are kept, to see what the server says.
const BEGINNING: usize = 2000;
/// How often a request is repeated after a 429; client-go does the same.
const REPETITIONS: u32 = 10;

/// When a slice begins and ends.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) clock: Clock,
    /// The beginning of the warm-up.
    pub(crate) start: Time,
    /// The beginning of the measured time.
    pub(crate) settled: Time,
    pub(crate) end: Time,
    /// Turns true when no further request may be sent.
    pub(crate) stop: watch::Receiver<bool>,
}

/// One user.
pub(crate) struct LoadUser {
    number: u32,
    spec: ClientSpec,
    /// Mean seat-seconds of each request of the mix at a server that is not overloaded.
    work: Vec<f64>,
    requests: Vec<LoadRequest>,
    pool: ConnectionPool,
    recorder: Arc<LoadRecorder>,
    timing: Timing,
    seed: u64,
    /// The time over which the starts of a closed loop's threads are spread.
    stagger: Duration,
}

/// What follows an attempt.
enum Attempt {
    Done(RequestOutcome),
    /// A watch that was served, and has been recorded.
    Recorded,
    /// It is repeated after this time.
    Repeat(Duration),
}

/// A request in progress. Dropped without an outcome it counts as unanswered.
struct OpenRequest<'a> {
    user: &'a LoadUser,
    intended: Time,
    recorded: AtomicBool,
}

impl LoadUser {
    /// The user with this number, from 0, of `spec`.
    pub(crate) fn new(
        scenario: &Scenario,
        spec: &ClientSpec,
        number: u32,
        work: &[f64],
        target: &Arc<LoadTarget>,
        recorder: &Arc<LoadRecorder>,
        timing: &Timing,
    ) -> Self {
        let name = spec.user_names().swap_remove(number as usize);
        let identity = target.identity(&name, &spec.groups);
        let in_flight = match spec.load {
            LoadSpec::Closed { threads, .. } => threads,
            LoadSpec::Open(_) => OPEN_LOOP_CONNECTIONS,
        };
        let in_flight = spec
            .connection
            .connections
            .map_or(in_flight, |connections| in_flight.max(connections));
        let slow = spec.requests.iter().any(|request| request.read_rate > 0);
        let requests = spec.requests.iter();
        let version = spec.connection.protocol;
        let requests = requests
            .map(|request| LoadRequest::new(request, version, number + 1, target, &identity));
        Self {
            number,
            work: work.to_vec(),
            requests: requests.collect(),
            pool: ConnectionPool::new(Arc::clone(target), spec.connection, in_flight, slow),
            recorder: Arc::clone(recorder),
            timing: timing.clone(),
            seed: scenario.seed ^ fnv(&name),
            stagger: if spec.starts.is_zero() {
                scenario.warm_up / 2
            } else {
                Duration::ZERO
            },
            spec: spec.clone(),
        }
    }

    /// Sends its load until the end.
    pub(crate) async fn run(self: Arc<Self>) {
        let begin = self.timing.start.plus(self.spec.starts);
        match self.spec.load {
            LoadSpec::Closed { threads, think } => {
                let mut all = JoinSet::new();
                for thread in 0..threads {
                    let from = begin.plus(self.stagger * thread / threads);
                    all.spawn(Arc::clone(&self).closed_loop(thread, from, think));
                }
                while all.join_next().await.is_some() {}
            }
            LoadSpec::Open(open) => {
                let schedule = Schedule::new(open, self.seed);
                self.open_loop(begin, schedule).await;
            }
        }
    }

    async fn closed_loop(self: Arc<Self>, thread: u32, begin: Time, think: Duration) {
        let mut random = Random::seeded(self.seed.wrapping_add(u64::from(thread) << 20));
        let mut next = begin;
        while self.wait_until(next).await {
            let succeeded = self.request(self.timing.clock.now(), &mut random).await;
            let pause = think.mul_f64(0.5 + random.unit());
            let pause = if succeeded {
                pause
            } else {
                pause.max(FAILURE_PAUSE)
            };
            next = self.timing.clock.now().plus(pause);
        }
    }

    async fn open_loop(self: Arc<Self>, begin: Time, schedule: Schedule) {
        let mut open = JoinSet::new();
        for (number, after) in (0_u64..).zip(schedule) {
            let intended = begin.plus(after);
            if !self.wait_until(intended).await {
                break;
            }
            while open.try_join_next().is_some() {}
            if open.len() >= OPEN_LOOP_IN_FLIGHT as usize {
                let request = OpenRequest::new(&self, intended);
                request.end(RequestOutcome::Failed(format!(
                    "{OPEN_LOOP_IN_FLIGHT} requests are in flight"
                )));
                continue;
            }
            let user = Arc::clone(&self);
            open.spawn(async move {
                let mut random = Random::seeded(user.seed.wrapping_add(number << 20));
                user.request(intended, &mut random).await;
            });
        }
        while open.join_next().await.is_some() {}
    }

    /// Waits for `moment`; false when the load is over by then.
    async fn wait_until(&self, moment: Time) -> bool {
        let stops = self.spec.stops.map(|stops| self.timing.start.plus(stops));
        if stops.is_some_and(|stops| moment >= stops) {
            return false;
        }
        let mut stop = self.timing.stop.clone();
        pauses::wait_until(&self.timing.clock, &mut stop, moment).await
    }

    /// Sends one request of the mix that was meant to be sent at `intended`, and repeats it after refusals. Returns
    /// whether there was a response other than an error.
    async fn request(&self, intended: Time, random: &mut Random) -> bool {
        let open = OpenRequest::new(self, intended);
        let index = self.draw(random);
        let request = self.requests[index].numbered(random.number());
        let mut repetitions = 0;
        let outcome = loop {
            match self.attempt(index, &request, &open, repetitions).await {
                Attempt::Done(outcome) => break outcome,
                Attempt::Recorded => return true,
                Attempt::Repeat(pause) => {
                    repetitions += 1;
                    if let Some(at) = open.measured_at() {
                        self.recorder.retried(at);
                    }
                    if !self.wait_until(self.timing.clock.now().plus(pause)).await {
                        break RequestOutcome::Refused;
                    }
                }
            }
        };
        let succeeded = !matches!(outcome, RequestOutcome::Failed(_));
        open.end(outcome);
        succeeded
    }

    async fn attempt(
        &self,
        index: usize,
        request: &Request<Full<Bytes>>,
        open: &OpenRequest<'_>,
        repetitions: u32,
    ) -> Attempt {
        let spec = &self.spec.requests[index];
        let failed = |error: String| Attempt::Done(RequestOutcome::Failed(error));
        let mut pooled = match self.pool.send(request).await {
            Ok(pooled) => pooled,
            Err(error) => return failed(error.to_string()),
        };
        let status = pooled.response.status();
        let retry_after = pauses::retry_after(pooled.response.headers());
        let retry_after = retry_after.map(|pause| pause.min(LONGEST_PAUSE));
        if spec.info.is_watch() && status == StatusCode::OK {
            // A watch is served when it begins.
            open.end(RequestOutcome::Ok {
                work: self.work[index],
            });
            self.hold(pooled.response, spec.hold).await;
            return Attempt::Recorded;
        }
        let keep = if status.is_success() { 0 } else { BEGINNING };
        let beginning = match read(&mut pooled.response, spec.read_rate, keep).await {
            Ok(beginning) => beginning,
            Err(error) => return failed(LoadClientError::Http(error).to_string()),
        };
        pooled.finish();
        match (status, self.spec.retry) {
            (StatusCode::TOO_MANY_REQUESTS, RetryBehavior::Never) => {
                Attempt::Done(RequestOutcome::Refused)
            }
            (StatusCode::TOO_MANY_REQUESTS, _) if repetitions >= REPETITIONS => {
                Attempt::Done(RequestOutcome::Refused)
            }
            (StatusCode::TOO_MANY_REQUESTS, RetryBehavior::Ignore) => {
                Attempt::Repeat(Duration::ZERO)
            }
            (StatusCode::TOO_MANY_REQUESTS, RetryBehavior::Honour) => {
                retry_after.map_or(Attempt::Done(RequestOutcome::Refused), Attempt::Repeat)
            }
            // What was to be deleted may have been deleted by another request.
            _ if status.is_success()
                || (status == StatusCode::NOT_FOUND && spec.method == Method::DELETE) =>
            {
                Attempt::Done(RequestOutcome::Ok {
                    work: self.work[index],
                })
            }
            _ => failed(refused(request, status, &beginning)),
        }
    }

    /// Reads a watch for `hold`, or until the server ends it or the load is over.
    async fn hold(&self, response: Response<Incoming>, hold: Duration) {
        let mut stop = self.timing.stop.clone();
        let mut body = response.into_body();
        let reading = async {
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    self.count_events(data);
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(hold) => {}
            () = reading => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Counts the events of a watch that end in `data`, each with a line feed.
    fn count_events(&self, data: &[u8]) {
        let now = self.timing.clock.now();
        if now >= self.timing.settled && now < self.timing.end {
            let lines = data.split(|byte| *byte == b'\n').count();
            self.recorder.events(lines as u64 - 1);
        }
    }

    /// Draws a request of the mix.
    fn draw(&self, random: &mut Random) -> usize {
        let weights: u64 = self
            .spec
            .requests
            .iter()
            .map(|request| u64::from(request.weight))
            .sum();
        let mut drawn = random.within(0..weights.max(1));
        for (index, request) in self.spec.requests.iter().enumerate() {
            let weight = u64::from(request.weight);
            if drawn < weight {
                return index;
            }
            drawn -= weight;
        }
        0
    }
}

impl<'a> OpenRequest<'a> {
    fn new(user: &'a LoadUser, intended: Time) -> Self {
        Self {
            user,
            intended,
            recorded: AtomicBool::new(false),
        }
    }

    /// When it was meant to be sent, after the beginning of the measured time; `None` if it is not measured.
    fn measured_at(&self) -> Option<Duration> {
        let timing = &self.user.timing;
        let measured = self.intended >= timing.settled && self.intended < timing.end;
        measured.then(|| self.intended.since(timing.settled))
    }

    /// Records the outcome of a request of the measured time. A request of the warm-up counts, too, if it was open for all of
    /// the measured time without success: it may be the only one of a client that gets no response.
    fn record(&self, outcome: RequestOutcome) {
        let timing = &self.user.timing;
        let now = timing.clock.now();
        let latency = now.since(self.intended);
        let succeeded = matches!(outcome, RequestOutcome::Ok { .. });
        let is_open_throughout = self.intended < timing.settled && now >= timing.end;
        let throughout = (is_open_throughout && !succeeded).then_some(Duration::ZERO);
        if let Some(at) = self.measured_at().or(throughout) {
            self.user
                .recorder
                .record(self.user.number, at, latency, outcome);
        }
    }

    fn end(&self, outcome: RequestOutcome) {
        self.recorded.store(true, Ordering::Relaxed);
        self.record(outcome);
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        if !self.recorded.load(Ordering::Relaxed) {
            self.record(RequestOutcome::Unanswered);
        }
    }
}

/// Reads a response to its end, at most at `rate` bytes a second unless that is 0. Returns its first `keep` bytes.
async fn read(
    response: &mut Response<Incoming>,
    rate: u32,
    keep: usize,
) -> Result<Vec<u8>, hyper::Error> {
    let mut beginning = Vec::new();
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let rest = keep.saturating_sub(beginning.len());
        beginning.extend_from_slice(&data[..data.len().min(rest)]);
        if rate > 0 {
            let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
            tokio::time::sleep(Duration::from_secs(1).mul_f64(f64::from(bytes) / f64::from(rate)))
                .await;
        }
    }
    Ok(beginning)
}

/// What was refused, and why, if the server says so as Kubernetes does.
fn refused(request: &Request<Full<Bytes>>, status: StatusCode, body: &[u8]) -> String {
    let (method, path) = (request.method(), request.uri().path());
    let said: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = said.as_ref().and_then(|said| said["message"].as_str());
    match message {
        Some(message) => format!("{method} {path}: response {status}: {message}"),
        None => format!("{method} {path}: response {status}"),
    }
}

/// The seed for a name (FNV-1a): users differ, and runs repeat.
fn fnv(name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        figures::ClientFigures,
        scenario::parse,
        verdict::{Evidence, ExpectationOutcome, Judgement, judge},
    };

    /// The time from one intended request to the next, and that which the server takes for a response.
    const PERIOD: Duration = Duration::from_secs(100);
    const REQUESTS: u32 = 10;

    /// An open loop with one connection.
    const SCENARIO: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Late
duration: 1h
clients:
- name: late
  load: {open: {rate: 0.01, arrivals: constant}}
  connection: {connections: 1}
  retryAfter: ignore
  requests: [{path: /api/v1/namespaces/a/pods/b}]
expect: [all.errors == 0]
";

    /// The figures of an open loop whose requests are all due when it begins. The server answers each request with so many
    /// `refusals` before it succeeds. Only the server moves the clock, so that nothing depends on the machine's speed.
    async fn late_open_loop(refusals: u32) -> ClientFigures {
        let scenario = parse("s.yaml", "s", SCENARIO.as_bytes()).usable().unwrap();
        let clock = Clock::manual(Time::ZERO.plus(PERIOD * REQUESTS));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Arc::new(LoadTarget::resolve(&url, None, false).await.unwrap());
        let recorder = Arc::new(LoadRecorder::new("late", 1, scenario.duration));
        let (stopping, stop) = watch::channel(false);
        let timing = Timing {
            clock: clock.clone(),
            start: Time::ZERO,
            settled: Time::ZERO,
            end: Time::ZERO.plus(scenario.duration),
            stop,
        };
        let client = &scenario.clients[0];
        let user = LoadUser::new(&scenario, client, 0, &[1.0], &target, &recorder, &timing);
        let load = tokio::spawn(Arc::new(user).run());
        answer(listener, clock, refusals).await;
        stopping.send_replace(true);
        load.await.unwrap();
        recorder.figures()
    }

    /// Answers all requests on one connection, one after the other. The clock moves before each response.
    async fn answer(listener: TcpListener, clock: Clock, refusals: u32) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        for number in 0..REQUESTS * (refusals + 1) {
            while !received.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut received).await.unwrap() > 0);
            }
            received.clear();
            clock.advance(PERIOD);
            // Requests that are repeated queue for the connection behind those that are not.
            let status = if number < REQUESTS * refusals {
                "429 Too Many Requests"
            } else {
                "200 OK"
            };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    }

    /// Asserts that every latency is between `least` and `least + 1` periods. Histograms have three digits.
    fn assert_latencies(figures: &ClientFigures, least: u32) {
        assert_eq!((figures.ok, figures.errors), (REQUESTS.into(), 0));
        let seconds = [least, least + 1].map(|periods| (PERIOD * periods).as_secs_f64());
        let latency = figures.latency;
        assert!(
            latency.p50 >= seconds[0] * 0.999 && latency.max <= seconds[1] * 1.001,
            "{latency:?}"
        );
    }

    /// A load generator that counts from the time at which it really sends leaves out the wait for itself and for its
    /// connections, and so most of what a slow server does to its users (coordinated omission).
    #[tokio::test]
    async fn latency_in_an_open_loop_counts_from_the_intended_time() {
        // Request n was meant to be sent within period n, and has its response at the end of period 10 + n.
        assert_latencies(&late_open_loop(0).await, 10);
    }

    #[tokio::test]
    async fn latency_counts_from_the_intended_time_after_refusals_too() {
        assert_latencies(&late_open_loop(2).await, 30);
    }

    /// A thread whose server answers two requests in the warm-up, and nothing from then on.
    const SILENT: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Silent
duration: 1h
clients:
- name: silent
  load: {closed: {threads: 1}}
  requests: [{path: /api/v1/namespaces/a/pods/b}]
expect: [all.errors == 0, all.p99 <= 1h]
";

    #[tokio::test]
    async fn a_client_that_hangs_from_the_warm_up_on_fails_the_run() {
        let scenario = parse("s.yaml", "s", SILENT.as_bytes()).usable().unwrap();
        let clock = Clock::manual(Time::ZERO);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Arc::new(LoadTarget::resolve(&url, None, false).await.unwrap());
        let recorder = Arc::new(LoadRecorder::new("silent", 1, scenario.duration));
        let (_stopping, stop) = watch::channel(false);
        let settled = Time::ZERO.plus(PERIOD * 5);
        let timing = Timing {
            clock: clock.clone(),
            start: Time::ZERO,
            settled,
            end: settled.plus(scenario.duration),
            stop,
        };
        let client = &scenario.clients[0];
        let user = LoadUser::new(&scenario, client, 0, &[1.0], &target, &recorder, &timing);
        let mut load = JoinSet::new();
        load.spawn(Arc::new(user).run());
        let (mut stream, _) = listener.accept().await.unwrap();
        for answered in [true, true, false] {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut received).await.unwrap() > 0);
            }
            if answered {
                clock.advance(PERIOD);
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(response).await.unwrap();
            }
        }
        clock.advance(PERIOD * 5 + scenario.duration);
        load.shutdown().await;
        let figures = recorder.figures();
        assert_eq!((figures.requests, figures.ok), (1, 0));
        assert_eq!((figures.errors, figures.unanswered), (1, 1));
        assert_eq!(figures.latency.p99.to_bits(), f64::INFINITY.to_bits());
        let evidence = Evidence {
            clients: vec![figures],
            ..Evidence::default()
        };
        let judged = judge(&scenario.expect, &evidence);
        let fails = |judgement: &Judgement| judgement.outcome == ExpectationOutcome::Fails;
        assert!(judged.iter().all(fails), "{judged:?}");
    }

    #[test]
    fn an_error_names_the_request_and_what_the_server_says() {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = "https://h/api/v1/pods/a?dryRun=All".parse().unwrap();
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let said = refused(
            &request,
            status,
            br#"{"kind":"Status","message":"name is missing"}"#,
        );
        let expected = "PUT /api/v1/pods/a: response 422 Unprocessable Entity";
        assert_eq!(said, format!("{expected}: name is missing"));
        assert_eq!(refused(&request, status, b"no"), expected);
    }
}
