//! When a watch is initialised, as far as a proxy can tell.
//!
//! A watch takes a seat only until the server has put its initial state together. The server does
//! not say when; what can be seen is, for a watch that asked for initial events, the bookmark that
//! ends them; for one that goes on from a resource version, the head of the answer; for the others,
//! the first pause in the stream.
//!
//! A client can call almost any read a watch. So all that is told of time is reckoned from the head of
//! the answer: until that has come, the upstream works on it, and the ordinary time limit holds. And an
//! answer whose length is known from the start is no watch.
//!
//! Time is kept by a task of its own: a body that its client does not read is not polled, and the
//! seat must not depend on that.

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

use super::{abandoned::AbandonedRequest, gate::Gate, seat::Seat};
use fairgate_call::{BodyEnd, RemainingReply, Reply, ReplyGuard, RequestContext};
use fairgate_core::{
    apf::{Semantics, watchers::WatchKey},
    digest::RequestInfo,
    time::Time,
};

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";
/// A pause this long ends the initial events of a watch that marks no end.
const PAUSE: Duration = Duration::from_millis(100);
/// No watch takes longer to initialise once it is answered, unless as the original has it.
const MAX_INITIALISATION: Duration = Duration::from_secs(10);

/// What tells that a watch is initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The bookmark that ends the initial events.
    Bookmark,
    /// The head of the answer.
    Head,
    /// A pause.
    Pause,
}

impl Sign {
    /// The sign to wait for.
    pub(super) fn of(info: &RequestInfo) -> Self {
        let options = info.list.as_deref();
        let version = options.map_or("", |options| &options.resource_version);
        match options.and_then(|options| options.send_initial_events) {
            Some(true) => Self::Bookmark,
            _ if !version.is_empty() && version != "0" => Self::Head,
            _ => Self::Pause,
        }
    }
}

/// Holds the seat of a watch until it is initialised, and its entry among the watchers to its end.
pub(super) struct WatchGuard {
    initialising: Rc<Initialising>,
    sign: Sign,
    tail: Tail,
    timer: Option<AbortHandle>,
    /// Dropped with the guard.
    registration: Registration,
}

/// What the guard shares with the task that keeps its time.
struct Initialising {
    /// `None` once the watch is initialised.
    seat: RefCell<Option<Seat>>,
    last_data: Cell<Time>,
    context: Rc<RequestContext>,
}

/// A watch's entry among the watchers; dropping it takes it out.
struct Registration {
    gate: Rc<Gate>,
    key: Option<WatchKey>,
}

impl Registration {
    fn new(gate: &Rc<Gate>, info: &RequestInfo) -> Self {
        let key = gate.hub().with_watchers(|watchers| watchers.register(info));
        Self {
            gate: Rc::clone(gate),
            key,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.gate
                .hub()
                .with_watchers(|watchers| watchers.unregister(key));
        }
    }
}

impl WatchGuard {
    /// A guard of a watch that has its seat and is about to be sent.
    pub(super) fn new(seat: Seat, context: Rc<RequestContext>) -> Self {
        Self {
            sign: Sign::of(&seat.digest().info),
            tail: Tail::default(),
            timer: None,
            registration: Registration::new(seat.gate(), &seat.digest().info),
            initialising: Rc::new(Initialising {
                last_data: Cell::new(Time::ZERO),
                seat: RefCell::new(Some(seat)),
                context,
            }),
        }
    }

    /// The seat, and with that the watch is none.
    pub(super) fn into_seat(self) -> Option<Seat> {
        self.initialising.seat.borrow_mut().take()
    }

    /// Keeps the seat until the time limit: nothing will tell of the end.
    pub(super) fn keep(self) {
        if let Some(seat) = self.into_seat() {
            seat.keep();
        }
    }

    /// How much longer it may take until it is answered.
    pub(super) fn time_left(&self) -> Duration {
        let seat = self.initialising.seat.borrow();
        seat.as_ref().map_or(Duration::ZERO, Seat::time_left)
    }

    /// The client has left; `None` if the watch is to be cancelled.
    pub(super) fn abandon(&self) -> Option<AbandonedRequest> {
        self.initialising.seat.borrow().as_ref()?.abandon()
    }

    /// The watch has been accepted. From here on it has a bound of its own.
    pub(super) fn answered(&mut self) {
        let gate = Rc::clone(&self.registration.gate);
        let semantics = gate.policy().view.policy().settings().semantics;
        let limit = (semantics == Semantics::Improved).then(|| gate.now().plus(MAX_INITIALISATION));
        if let Some(seat) = &*self.initialising.seat.borrow() {
            seat.set_deadline(Time::NEVER);
        }
        match self.sign {
            Sign::Head => self.initialised(),
            Sign::Pause => {
                self.note_data();
                self.keep_time(Some(PAUSE), limit);
            }
            Sign::Bookmark => self.keep_time(None, limit),
        }
    }

    fn note_data(&self) {
        self.initialising
            .last_data
            .set(self.registration.gate.now());
    }

    /// Starts the task that ends the initialisation at a `pause`, or at the limit.
    fn keep_time(&mut self, pause: Option<Duration>, limit: Option<Time>) {
        if pause.is_none() && limit.is_none() {
            return;
        }
        let gate = Rc::clone(&self.registration.gate);
        let task = Rc::clone(&self.initialising).end_in_time(gate, pause, limit);
        self.timer = Some(tokio::task::spawn_local(task).abort_handle());
    }

    fn initialised(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        self.initialising.over();
    }

    fn is_initialised(&self) -> bool {
        self.initialising.seat.borrow().is_none()
    }

    /// Reads a watch that its client has left until it is initialised, which the upstream may go on
    /// with, and then ends it.
    async fn run_out(mut self, mut rest: RemainingReply, mut abandoned: AbandonedRequest) {
        let limit = tokio::time::sleep(self.time_left().max(MAX_INITIALISATION));
        let mut limit = std::pin::pin!(limit);
        let mut bytes = abandoned.bytes();
        while !self.is_initialised() {
            let data = tokio::select! {
                () = &mut limit => return,
                // Time may have come to its end without a piece.
                () = tokio::time::sleep(PAUSE) => continue,
                data = poll_fn(|cx| rest.poll_data(cx)) => data,
            };
            let Some(data) = data else {
                if self.initialising.context.client_body_failed.get() {
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

/// Whether an answer may be that to a watch.
pub(super) fn is_watch(reply: &Reply) -> bool {
    reply.status() == StatusCode::OK && reply.body().size_hint().exact().is_none()
}

impl Initialising {
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
        if self.initialising.seat.borrow().is_none() {
            return;
        }
        match self.sign {
            Sign::Bookmark if self.tail.saw(data) => self.initialised(),
            Sign::Pause => self.note_data(),
            Sign::Bookmark | Sign::Head => {}
        }
    }

    fn end(mut self: Box<Self>, _: BodyEnd) {
        self.initialised();
    }

    fn abandoned(self: Box<Self>, rest: RemainingReply) {
        match self.abandon() {
            Some(abandoned) if !self.is_initialised() => {
                tokio::task::spawn_local(self.run_out(rest, abandoned));
            }
            _ => drop(rest),
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.initialised();
    }
}

/// Looks for the annotation in a stream of pieces.
#[derive(Debug, Default)]
struct Tail {
    /// The last bytes of what came before, one fewer than the annotation has.
    before: Vec<u8>,
}

impl Tail {
    /// Whether the annotation was in what came so far, `data` included.
    fn saw(&mut self, data: &[u8]) -> bool {
        let keep = INITIAL_EVENTS_END.len() - 1;
        let mut joint = std::mem::take(&mut self.before);
        joint.extend_from_slice(&data[..data.len().min(keep)]);
        if contains(&joint) || contains(data) {
            return true;
        }
        if data.len() >= keep {
            joint.clear();
            joint.extend_from_slice(&data[data.len() - keep..]);
        } else {
            joint.drain(..joint.len().saturating_sub(keep));
        }
        self.before = joint;
        false
    }
}

fn contains(data: &[u8]) -> bool {
    memchr::memmem::find(data, INITIAL_EVENTS_END).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fairness::{Caps, Enforcement, Hub, HubSettings, admission::AdmissionOutcome};
    use fairgate_base::clock::Clock;
    use fairgate_call::{Call, ClientBody, Inbound, Peer};
    use fairgate_core::{
        apf::{ObjectSet, Policy, PolicySettings, work::EstimatorSettings},
        digest::{RequestDigest, User},
    };

    fn gate(semantics: Semantics, clock: &Clock) -> Rc<Gate> {
        let settings = PolicySettings {
            total_seats: 100,
            semantics,
            hash_key: [7; 16],
        };
        let compiled = Policy::compile(&ObjectSet::default(), &settings).unwrap();
        let settings = HubSettings {
            enforcement: Enforcement::Enforce,
            request_timeout: Duration::from_secs(60),
            max_queued: 10,
            estimator: EstimatorSettings::default(),
            borrowing_period: Duration::from_secs(1),
            long_running: Caps::NONE,
            watches: Caps::NONE,
            resets: fairgate_call::ResetLimits::PER_USER,
            spool: fairgate_call::SpoolLimits::NONE,
        };
        let hub = Hub::new(1, Arc::new(compiled.policy), settings, clock.now());
        Gate::new(hub, 0, clock.clone(), 1)
    }

    fn seats_in_use(gate: &Gate) -> u32 {
        let levels = gate.hub().dispatcher().report(gate.now());
        levels.iter().map(|level| level.summary.seats_in_use).sum()
    }

    /// A watch that was admitted.
    fn watch(gate: &Rc<Gate>, query: &str) -> WatchGuard {
        let target = format!("/api/v1/pods?watch=1{query}");
        let request = http::Request::get(&target).body(ClientBody::empty());
        let inbound = Inbound {
            request: request.unwrap(),
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
    fn a_watch_takes_ten_seconds_from_its_answer_to_initialise_at_most() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let answered = async || {
                let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
                // However long the answer was in coming: until then the upstream works on it.
                clock.advance(Duration::from_secs(50));
                gate.release_overdue();
                let_others_run().await;
                assert_eq!(seats_in_use(&gate), 1);
                guard.answered();
                guard
            };
            let just_before = answered().await;
            clock.advance(Duration::from_millis(9_999));
            gate.release_overdue();
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            drop(just_before);
            assert_eq!(seats_in_use(&gate), 0, "its end is the end of it");

            let _then = answered().await;
            clock.advance(MAX_INITIALISATION);
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    #[test]
    fn a_watch_that_is_not_answered_keeps_its_seat_until_the_time_limit_of_any_request() {
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
    fn as_the_original_has_it_a_watch_initialises_as_long_as_it_likes() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Compatible, &clock);
            let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
            guard.answered();
            clock.advance(Duration::from_secs(3600));
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            guard.data(&Bytes::from_static(INITIAL_EVENTS_END));
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    #[test]
    fn the_limit_holds_for_a_watch_that_never_pauses() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let mut guard = watch(&gate, "");
            guard.answered();
            clock.advance(MAX_INITIALISATION);
            guard.data(&Bytes::from_static(b"event"));
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 0);
        });
    }

    fn sign(query: &str) -> Sign {
        Sign::of(&RequestInfo::from_target("GET", &format!("/api/v1/pods?watch=1{query}")).unwrap())
    }

    #[test]
    fn the_sign_depends_on_what_the_watch_asked_for() {
        assert_eq!(sign(""), Sign::Pause);
        assert_eq!(sign("&resourceVersion=0"), Sign::Pause);
        assert_eq!(sign("&resourceVersion=77"), Sign::Head);
        assert_eq!(
            sign("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            Sign::Bookmark
        );
        assert_eq!(
            sign("&sendInitialEvents=true&resourceVersion=77"),
            Sign::Bookmark
        );
        assert_eq!(
            sign("&sendInitialEvents=false&resourceVersion=77"),
            Sign::Head
        );
    }

    #[test]
    fn the_annotation_is_found_however_it_is_cut() {
        let mut text = b"{\"type\":\"BOOKMARK\",\"x\":\"".to_vec();
        text.extend_from_slice(INITIAL_EVENTS_END);
        text.extend_from_slice(b"\":\"true\"}");
        for size in 1..text.len() {
            let mut tail = Tail::default();
            let seen = text.chunks(size).filter(|piece| tail.saw(piece)).count();
            assert!(seen >= 1, "in pieces of {size}");
        }
        let mut tail = Tail::default();
        assert!(!text.chunks(3).take(8).any(|piece| tail.saw(piece)));
    }
}
