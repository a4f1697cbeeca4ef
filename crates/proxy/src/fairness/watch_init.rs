//! Detects when a watch is initialized, from what a proxy sees.
//!
//! A watch holds a seat only until the server has sent its initial events. The server does not say when that is. What
//! can be observed is, for a watch that requested initial events, the bookmark that ends them; for a watch that
//! continues from a resource version, the head of the response; for other watches, the first pause in the stream.
//!
//! A client can make almost any read look like a watch. So time counts from the head of the response: before that the
//! upstream is working on the request, and the ordinary time limit applies. And a response with a known length is not
//! a watch.
//!
//! A watch over a WebSocket is a tunnel, of which only the beginning is observed. So its initialization ends as that of a
//! watch whose client reads nothing; and with both semantics it is limited, because nobody sees its bookmark.
//!
//! A separate task keeps the time, because a body is not polled if its client does not read it, and the seat must
//! not depend on that.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use tokio::task::AbortHandle;

use super::{
    abandoned::AbandonedRequest, annotation_search::AnnotationSearch, gate::Gate, seat::Seat,
    shadow::ShadowedExecution,
};
use fairgate_call::{BodyEnd, RemainingReply, Reply, ReplyGuard, RequestContext};
use fairgate_core::{
    apf::{Semantics, watchers::WatchKey},
    digest::RequestInfo,
    time::Time,
};

/// A pause of this length ends the initial events of a watch without a bookmark.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest initialization of a watch after its response began; unlimited with [`Semantics::Compatible`], as in
/// kube-apiserver, unless the watch is a tunnel.
const MAX_INITIALIZATION: Duration = Duration::from_secs(10);

/// What shows that a watch is initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InitSign {
    /// The bookmark that ends the initial events.
    Bookmark,
    /// The head of the response.
    Head,
    /// A pause in the stream.
    Pause,
}

impl InitSign {
    /// What to wait for.
    pub(super) fn of(info: &RequestInfo) -> Self {
        let options = info.list.as_deref();
        let version = options.map_or("", |options| &options.resource_version);
        match options.and_then(|options| options.send_initial_events) {
            Some(true) => Self::Bookmark,
            // As without a version, a watch from version 0 begins with the objects that exist.
            _ if !version.is_empty() && version != "0" => Self::Head,
            _ => Self::Pause,
        }
    }
}

/// Holds the seat of a watch until it is initialized, and its registration as a watcher to its end.
pub(super) struct WatchGuard {
    initializing: Rc<Initializing>,
    sign: InitSign,
    tail: AnnotationSearch,
    timer: Option<AbortHandle>,
    /// Dropped with the guard.
    registration: Registration,
    gate: Rc<Gate>,
}

/// What the guard shares with the task that keeps time.
struct Initializing {
    /// `None` once the watch is initialized.
    seat: RefCell<Option<Seat>>,
    last_data: Cell<Time>,
    context: Rc<RequestContext>,
}

/// A watch among the watchers that writes wake; dropping it ends that.
#[derive(Debug)]
pub(super) struct Watcher {
    gate: Rc<Gate>,
    key: Option<WatchKey>,
}

impl Watcher {
    pub(super) fn new(gate: &Rc<Gate>, info: &RequestInfo) -> Self {
        let key = gate
            .flow_control()
            .with_watchers(|watchers| watchers.register(info));
        Self {
            gate: Rc::clone(gate),
            key,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.gate
                .flow_control()
                .with_watchers(|watchers| watchers.unregister(key));
        }
    }
}

/// Whether a watch that executes is a watcher.
enum Registration {
    /// It is.
    Own { _watcher: Watcher },
    /// Its shadow is, from when that starts; it learns how long the watch lasts, which executes since then.
    Shadow(Rc<ShadowedExecution>, Time),
    /// With enforcement it would have been refused.
    Nothing,
}

impl WatchGuard {
    /// A guard of a watch that has its seat and will be sent next.
    pub(super) fn new(seat: Seat, context: Rc<RequestContext>) -> Self {
        let gate = Rc::clone(seat.gate());
        let registration = match seat.shadowed() {
            Some(execution) => Registration::Shadow(Rc::clone(execution), gate.now()),
            None if seat.is_refused() => Registration::Nothing,
            None => Registration::Own {
                _watcher: Watcher::new(&gate, &seat.digest().info),
            },
        };
        Self {
            sign: InitSign::of(&seat.digest().info),
            tail: AnnotationSearch::default(),
            timer: None,
            registration,
            gate,
            initializing: Rc::new(Initializing {
                last_data: Cell::new(Time::ZERO),
                seat: RefCell::new(Some(seat)),
                context,
            }),
        }
    }

    /// Takes the seat, because the request turned out not to be a watch.
    pub(super) fn into_seat(self) -> Option<Seat> {
        self.initializing.seat.borrow_mut().take()
    }

    /// Keeps the seat until the time limit, because nothing will show the end.
    pub(super) fn keep(self) {
        if let Some(seat) = self.into_seat() {
            seat.keep();
        }
    }

    /// How much longer the watch may take until its response begins.
    pub(super) fn time_left(&self) -> Duration {
        let seat = self.initializing.seat.borrow();
        seat.as_ref().map_or(Duration::ZERO, Seat::time_left)
    }

    /// To be called when the client disconnected before the response began.
    pub(super) fn client_gone(&self) {
        if let Some(seat) = &*self.initializing.seat.borrow() {
            seat.client_gone();
        }
    }

    /// To be called when the client disconnected; `None` if the watch is to be cancelled.
    pub(super) fn abandon(&self) -> Option<AbandonedRequest> {
        self.initializing.seat.borrow().as_ref()?.abandon()
    }

    /// The response has begun. From here on the watch has its own time limit.
    pub(super) fn answered(&mut self, transport: WatchTransport) {
        let semantics = self.gate.policy().view.policy().settings().semantics;
        let is_limited = transport == WatchTransport::Tunnel || semantics == Semantics::Improved;
        let limit = is_limited.then(|| self.gate.now().plus(MAX_INITIALIZATION));
        if let Some(seat) = &*self.initializing.seat.borrow() {
            // From the head on, this guard decides how long the seat is held, not the time limit of ordinary
            // requests.
            seat.set_deadline(Time::NEVER);
        }
        match self.sign {
            InitSign::Head => self.initialized(),
            InitSign::Pause => {
                self.note_data();
                self.start_timer(Some(PAUSE), limit);
            }
            InitSign::Bookmark => self.start_timer(None, limit),
        }
    }

    fn note_data(&self) {
        self.initializing.last_data.set(self.gate.now());
    }

    /// Starts the task that ends the initialization after a `pause`, or at the limit.
    fn start_timer(&mut self, pause: Option<Duration>, limit: Option<Time>) {
        if pause.is_none() && limit.is_none() {
            return;
        }
        let gate = Rc::clone(&self.gate);
        let task = Rc::clone(&self.initializing).end_in_time(gate, pause, limit);
        self.timer = Some(fairgate_base::turns::spawn_local_boxed(task).abort_handle());
    }

    fn initialized(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        self.initializing.over();
    }

    fn is_initialized(&self) -> bool {
        self.initializing.seat.borrow().is_none()
    }

    /// Reads a watch whose client disconnected until it is initialized, because the upstream may continue with that,
    /// and then ends it.
    async fn read_until_initialized(
        mut self,
        mut rest: RemainingReply,
        mut abandoned: AbandonedRequest,
    ) {
        let limit = tokio::time::sleep(self.time_left().max(MAX_INITIALIZATION));
        let mut limit = std::pin::pin!(limit);
        let mut bytes = abandoned.bytes();
        while !self.is_initialized() {
            let data = tokio::select! {
                () = &mut limit => return,
                // The initialization may have ended without more data.
                () = tokio::time::sleep(PAUSE) => continue,
                data = poll_fn(|cx| rest.poll_data(cx)) => data,
            };
            let Some(data) = data else {
                if self.initializing.context.client_body_failed.get() {
                    return self.keep();
                }
                break;
            };
            self.data(&data);
            match bytes.checked_sub(data.len() as u64) {
                Some(left) => bytes = left,
                None => return self.keep(),
            }
        }
        abandoned.ended();
    }
}

/// How the events of a watch reach its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchTransport {
    /// In the body of the reply.
    Body,
    /// Through a tunnel, as WebSocket messages.
    Tunnel,
}

impl WatchTransport {
    /// How `reply` brings them; `None` if it cannot belong to a watch.
    pub(super) fn of(reply: &Reply) -> Option<Self> {
        match reply.status() {
            StatusCode::OK if reply.body().size_hint().exact().is_none() => Some(Self::Body),
            StatusCode::SWITCHING_PROTOCOLS => Some(Self::Tunnel),
            _ => None,
        }
    }
}

impl Initializing {
    fn over(&self) {
        let seat = self.seat.borrow_mut().take();
        if let Some(seat) = seat {
            self.context.trace.watch_init.set(Some(seat.elapsed()));
        }
    }

    async fn end_in_time(
        self: Rc<Self>,
        gate: Rc<Gate>,
        pause: Option<Duration>,
        limit: Option<Time>,
    ) {
        loop {
            let paused = pause.map(|pause| self.last_data.get().plus(pause));
            let Some(due) = paused.into_iter().chain(limit).min() else {
                return;
            };
            if gate.now() >= due {
                return self.over();
            }
            tokio::time::sleep_until(gate.clock().instant(due)).await;
        }
    }
}

impl ReplyGuard for WatchGuard {
    fn data(&mut self, data: &Bytes) {
        if self.initializing.seat.borrow().is_none() {
            return;
        }
        match self.sign {
            InitSign::Bookmark if self.tail.saw(data) => self.initialized(),
            InitSign::Pause => self.note_data(),
            InitSign::Bookmark | InitSign::Head => {}
        }
    }

    fn end(mut self: Box<Self>, _: BodyEnd) {
        self.initialized();
    }

    fn abandoned(self: Box<Self>, rest: RemainingReply) {
        match self.abandon() {
            Some(abandoned) if !self.is_initialized() => {
                fairgate_base::turns::spawn_local_boxed(
                    self.read_until_initialized(rest, abandoned),
                );
            }
            _ => drop(rest),
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.initialized();
        if let Registration::Shadow(execution, since) = &self.registration {
            execution.watch_ended(self.gate.now().since(*since));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fairness::{
        FlowControl, admission::AdmissionOutcome, annotation_search::INITIAL_EVENTS_END,
        flow_control,
    };
    use fairgate_base::clock::Clock;
    use fairgate_call::{Call, ClientBody, Inbound, Peer};
    use fairgate_core::{
        apf::{ObjectSet, Policy, PolicySettings},
        digest::{RequestDigest, User},
    };

    fn gate(semantics: Semantics, clock: &Clock) -> Rc<Gate> {
        let settings = PolicySettings {
            total_seats: 100,
            semantics,
            hash_key: [7; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let compiled = Policy::compile(&ObjectSet::default(), &settings).unwrap();
        let policy = Arc::new(compiled.policy);
        let flow_control =
            FlowControl::new(1, policy, flow_control::tests::settings(), clock.now());
        Gate::new(flow_control, 0, clock.clone(), 1)
    }

    fn seats_in_use(gate: &Gate) -> u32 {
        let levels = gate.flow_control().dispatcher().report(gate.now());
        levels.iter().map(|level| level.summary.seats_in_use).sum()
    }

    /// A watch that was admitted.
    fn watch(gate: &Rc<Gate>, query: &str) -> WatchGuard {
        let target = format!("/api/v1/pods?watch=1{query}");
        let request = http::Request::get(&target).body(ClientBody::empty());
        let inbound = Inbound {
            request: Box::new(request.unwrap()),
            peer: Rc::new(Peer::plain(([127, 0, 0, 1], 1).into())),
            received: gate.now(),
            context: Rc::default(),
        };
        let digest = RequestDigest {
            info: inbound.info().unwrap(),
            user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
        };
        let call = Call::new(inbound, Arc::new(digest), Duration::from_secs(60)).unwrap();
        let AdmissionOutcome::Execute(seat) = gate.admit(&call) else {
            panic!("there are seats");
        };
        WatchGuard::new(seat, call.context)
    }

    fn on_a_core(test: impl AsyncFnOnce()) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
            .block_on(test());
    }

    async fn let_others_run() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    const WITH_INITIAL_EVENTS: &str = "&sendInitialEvents=true&resourceVersion=7";

    #[test]
    fn a_watch_initializes_for_at_most_ten_seconds_after_its_response_began() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let answered = async || {
                let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
                // However long the response takes: until it begins, the upstream works on the request.
                clock.advance(Duration::from_secs(50));
                gate.release_overdue();
                let_others_run().await;
                assert_eq!(seats_in_use(&gate), 1);
                guard.answered(WatchTransport::Body);
                guard
            };
            let just_before = answered().await;
            clock.advance(Duration::from_millis(9_999));
            gate.release_overdue();
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            drop(just_before);
            assert_eq!(
                seats_in_use(&gate),
                0,
                "the end of a watch returns its seat"
            );

            let _then = answered().await;
            clock.advance(MAX_INITIALIZATION);
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    #[test]
    fn a_watch_without_a_response_keeps_its_seat_until_the_ordinary_time_limit() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let _unanswered = watch(&gate, "");
            clock.advance(Duration::from_secs(60));
            gate.release_overdue();
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            clock.advance(Duration::from_secs(1));
            gate.release_overdue();
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    #[test]
    fn with_compatible_semantics_initialization_is_unlimited() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Compatible, &clock);
            let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
            guard.answered(WatchTransport::Body);
            clock.advance(Duration::from_secs(3600));
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            guard.data(&Bytes::from_static(INITIAL_EVENTS_END));
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    #[test]
    fn the_initialization_of_a_watch_in_a_tunnel_ends_at_its_head_a_pause_or_the_limit() {
        on_a_core(async || {
            for semantics in [Semantics::Improved, Semantics::Compatible] {
                let clock = Clock::manual(Time::ZERO);
                let gate = gate(semantics, &clock);
                let held_after = async |query, time| {
                    let mut guard = watch(&gate, query);
                    guard.answered(WatchTransport::Tunnel);
                    clock.advance(time);
                    let_others_run().await;
                    seats_in_use(&gate)
                };
                assert_eq!(held_after("&resourceVersion=7", Duration::ZERO).await, 0);
                for (query, end) in [("", PAUSE), (WITH_INITIAL_EVENTS, MAX_INITIALIZATION)] {
                    let just_before = end.saturating_sub(Duration::from_nanos(1));
                    let held = held_after(query, just_before).await;
                    assert_eq!(held, 1, "{semantics:?} {query}");
                    assert_eq!(held_after(query, end).await, 0, "{semantics:?} {query}");
                }
            }
        });
    }

    #[test]
    fn a_watch_without_a_bookmark_keeps_its_seat_until_the_first_pause_between_events() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let just_under = PAUSE.saturating_sub(Duration::from_nanos(1));
            let after = async |last_pause| {
                let mut guard = watch(&gate, "");
                guard.answered(WatchTransport::Body);
                for _ in 0..5 {
                    clock.advance(just_under);
                    guard.data(&Bytes::from_static(b"event"));
                }
                clock.advance(last_pause);
                let_others_run().await;
                let seats = seats_in_use(&gate);
                drop(guard);
                seats
            };
            assert_eq!(after(just_under).await, 1);
            assert_eq!(after(PAUSE).await, 0);
        });
    }

    #[test]
    fn the_limit_holds_for_a_watch_that_never_pauses() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let mut guard = watch(&gate, "");
            guard.answered(WatchTransport::Body);
            clock.advance(MAX_INITIALIZATION);
            guard.data(&Bytes::from_static(b"event"));
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    fn sign(query: &str) -> InitSign {
        InitSign::of(
            &RequestInfo::from_target("GET", &format!("/api/v1/pods?watch=1{query}")).unwrap(),
        )
    }

    #[test]
    fn the_sign_of_initialization_depends_on_the_watch_request() {
        assert_eq!(sign(""), InitSign::Pause);
        assert_eq!(sign("&resourceVersion=0"), InitSign::Pause);
        assert_eq!(sign("&resourceVersion=77"), InitSign::Head);
        assert_eq!(
            sign("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            InitSign::Bookmark
        );
        assert_eq!(
            sign("&sendInitialEvents=true&resourceVersion=77"),
            InitSign::Bookmark
        );
        assert_eq!(
            sign("&sendInitialEvents=false&resourceVersion=77"),
            InitSign::Head
        );
    }
}
