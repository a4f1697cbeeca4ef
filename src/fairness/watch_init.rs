//! When a watch is initialised, as far as a proxy can tell.
//!
//! A watch takes a seat only until the server has put its initial state together. The server does
//! not say when; what can be seen is, for a watch that asked for initial events, the bookmark that
//! ends them; for one that goes on from a resource version, the head of the answer; for the others,
//! the first pause in the stream.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Sleep;

use super::{gate::Gate, seat::Seat};
use crate::{
    apf::{Semantics, watchers::WatchKey},
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
    initialising: Option<Initialising>,
    trace: Rc<Trace>,
    _registration: Registration,
}

struct Initialising {
    seat: Seat,
    sign: Sign,
    tail: Tail,
    pause: Pin<Box<Sleep>>,
    limit: Option<Pin<Box<Sleep>>>,
}

/// A watch's entry among the watchers; dropping it takes it out.
pub(super) struct Registration {
    gate: Rc<Gate>,
    key: Option<WatchKey>,
}

impl Registration {
    pub(super) fn new(gate: &Rc<Gate>, info: &RequestInfo) -> Self {
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
    /// A guard of a watch whose answer has just begun. `accepted` tells whether it is one at all.
    pub(super) fn new(
        seat: Seat,
        registration: Registration,
        trace: Rc<Trace>,
        accepted: bool,
    ) -> Self {
        let sign = Sign::of(&seat.digest().info);
        let bounded =
            seat.gate().policy().view.policy().settings().semantics == Semantics::Improved;
        let left = MAX_INITIALISATION.saturating_sub(seat.elapsed());
        let mut guard = Self {
            initialising: Some(Initialising {
                seat,
                sign,
                tail: Tail::default(),
                pause: Box::pin(tokio::time::sleep(PAUSE)),
                limit: bounded.then(|| Box::pin(tokio::time::sleep(left))),
            }),
            trace,
            _registration: registration,
        };
        if accepted && sign == Sign::Head {
            guard.initialised();
        }
        guard
    }

    fn initialised(&mut self) {
        if let Some(initialising) = self.initialising.take() {
            self.trace.watch_init.set(Some(initialising.seat.elapsed()));
        }
    }
}

impl ReplyGuard for WatchGuard {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(initialising) = &mut self.initialising else {
            return Poll::Pending;
        };
        let paused =
            initialising.sign == Sign::Pause && initialising.pause.as_mut().poll(cx).is_ready();
        let limit = initialising.limit.as_mut();
        if paused || limit.is_some_and(|limit| limit.as_mut().poll(cx).is_ready()) {
            self.initialised();
        }
        // A guard that is ready would end the body.
        Poll::Pending
    }

    fn data(&mut self, data: &Bytes) {
        let Some(initialising) = &mut self.initialising else {
            return;
        };
        match initialising.sign {
            Sign::Bookmark if initialising.tail.saw(data) => self.initialised(),
            Sign::Pause => {
                initialising.pause = Box::pin(tokio::time::sleep(PAUSE));
            }
            Sign::Bookmark | Sign::Head => {}
        }
    }

    fn end(mut self: Box<Self>, _: BodyEnd) {
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
    use super::*;

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
