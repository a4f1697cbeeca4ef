//! When a watch is initialised, as far as a proxy can tell.
//!
//! A watch takes a seat only until the server has put its initial state together. The server does
//! not say when; what can be seen is, for a watch that asked for initial events, the bookmark that
//! ends them; for one that goes on from a resource version, the head of the answer; for the others,
//! the first pause in the stream.
//!
//! Time is kept by a task of its own: a body that its client does not read is not polled, and the
//! seat must not depend on that.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::{gate::Gate, seat::Seat};
use crate::{
    apf::{Semantics, Time, watchers::WatchKey},
    call::{BodyEnd, ReplyGuard, Trace},
    digest::RequestInfo,
};

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";
/// A pause this long ends the initial events of a watch that marks no end.
const PAUSE: Duration = Duration::from_millis(100);
/// No watch takes longer to initialise, unless as the original has it.
pub(super) const MAX_INITIALISATION: Duration = Duration::from_secs(10);

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
    limit: Option<Time>,
    timer: Option<AbortHandle>,
    /// Dropped with the guard.
    registration: Registration,
}

/// What the guard shares with the task that keeps its time.
struct Initialising {
    /// `None` once the watch is initialised.
    seat: RefCell<Option<Seat>>,
    last_data: Cell<Time>,
    trace: Rc<Trace>,
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
    pub(super) fn new(seat: Seat, trace: Rc<Trace>) -> Self {
        let gate = Rc::clone(seat.gate());
        let semantics = gate.policy().view.policy().settings().semantics;
        let limit =
            (semantics == Semantics::Improved).then(|| seat.since().plus(MAX_INITIALISATION));
        let mut guard = Self {
            sign: Sign::of(&seat.digest().info),
            tail: Tail::default(),
            limit,
            timer: None,
            registration: Registration::new(&gate, &seat.digest().info),
            initialising: Rc::new(Initialising {
                seat: RefCell::new(Some(seat)),
                last_data: Cell::new(gate.now()),
                trace,
            }),
        };
        guard.keep_time(None);
        guard
    }

    /// The answer has begun. `accepted` tells whether it is a watch at all.
    pub(super) fn answered(&mut self, accepted: bool) {
        match self.sign {
            Sign::Head if accepted => self.initialised(),
            Sign::Pause => {
                self.note_data();
                self.keep_time(Some(PAUSE));
            }
            Sign::Bookmark | Sign::Head => {}
        }
    }

    fn note_data(&self) {
        self.initialising
            .last_data
            .set(self.registration.gate.now());
    }

    /// Starts the task that ends the initialisation at a `pause`, or at the limit.
    fn keep_time(&mut self, pause: Option<Duration>) {
        self.stop_time();
        if pause.is_none() && self.limit.is_none() {
            return;
        }
        let gate = Rc::clone(&self.registration.gate);
        let task = Rc::clone(&self.initialising).end_in_time(gate, pause, self.limit);
        self.timer = Some(tokio::task::spawn_local(task).abort_handle());
    }

    fn stop_time(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
    }

    fn initialised(&mut self) {
        self.stop_time();
        self.initialising.over();
    }
}

impl Initialising {
    fn over(&self) {
        let seat = self.seat.borrow_mut().take();
        if let Some(seat) = seat {
            self.trace.watch_init.set(Some(seat.elapsed()));
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
    use crate::{
        apf::{ObjectSet, Policy, PolicySettings, work::EstimatorSettings},
        call::{Call, ClientBody, Inbound, Peer},
        clock::Clock,
        digest::{RequestDigest, User},
        fairness::{Caps, Enforcement, Hub, HubSettings, gate::Verdict},
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
            resets: crate::fairness::ResetLimits::default(),
        };
        let hub = Hub::new(1, Arc::new(compiled.policy), settings, clock.now());
        Gate::new(hub, 0, clock.clone(), 1)
    }

    fn seats_in_use(gate: &Gate) -> u32 {
        let levels = gate.hub().dispatcher().report(gate.now());
        levels.iter().map(|level| level.glance.seats_in_use).sum()
    }

    /// A watch that was admitted.
    fn watch(gate: &Rc<Gate>, query: &str) -> WatchGuard {
        let target = format!("/api/v1/pods?watch=1{query}");
        let request = http::Request::get(&target).body(ClientBody::empty());
        let inbound = Inbound {
            request: request.unwrap(),
            peer: Rc::new(Peer::plain(([127, 0, 0, 1], 1).into())),
            received: gate.now(),
            trace: Rc::default(),
        };
        let digest = RequestDigest {
            info: inbound.info().unwrap(),
            user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
        };
        let call = Call::new(inbound, Arc::new(digest), Duration::from_secs(60)).unwrap();
        let Verdict::Execute(seat) = gate.admit(&call) else {
            panic!("there are seats");
        };
        WatchGuard::new(seat, call.trace)
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
    fn a_watch_takes_ten_seconds_to_initialise_at_most() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Improved, &clock);
            let just_before = watch(&gate, WITH_INITIAL_EVENTS);
            clock.advance(Duration::from_millis(9_999));
            let_others_run().await;
            assert_eq!(seats_in_use(&gate), 1);
            drop(just_before);
            assert_eq!(seats_in_use(&gate), 0, "its end is the end of it");
            // Whether it was answered by then or not.
            for answered in [false, true] {
                let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
                clock.advance(MAX_INITIALISATION);
                if answered {
                    guard.answered(true);
                }
                let_others_run().await;
                assert_eq!(seats_in_use(&gate), 0);
            }
        });
    }

    #[test]
    fn as_the_original_has_it_a_watch_initialises_as_long_as_it_likes() {
        on_a_core(async || {
            let clock = Clock::manual(Time::ZERO);
            let gate = gate(Semantics::Compatible, &clock);
            let mut guard = watch(&gate, WITH_INITIAL_EVENTS);
            guard.answered(true);
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
            clock.advance(MAX_INITIALISATION);
            guard.answered(true);
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
