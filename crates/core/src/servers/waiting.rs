//! A request that waits until a server has room.
//!
//! The one that waits longest claims the server with the most room, so that narrower requests that arrive later do not take that room
//! piece by piece. The end of any request wakes the first ones, which look again.

use std::{
    sync::Arc as StdArc,
    task::{Context, Poll},
};

use super::{
    load::{Choice, HasLoad, Preference, ServerDemand, choose_with_claim},
    places::Places,
};

/// One request that waits. Dropping it gives up its place.
#[derive(Debug)]
pub struct WaitingForServer<S: HasLoad> {
    places: StdArc<Places>,
    place: Option<u64>,
    claimed: Option<StdArc<S>>,
    /// The servers as it last saw them.
    servers: Vec<StdArc<S>>,
}

impl<S: HasLoad> WaitingForServer<S> {
    /// A request that begins to wait when it is first polled.
    pub fn new(places: StdArc<Places>) -> Self {
        Self {
            places,
            place: None,
            claimed: None,
            servers: Vec::new(),
        }
    }

    /// Charges the first server that has room. Ready with [`Choice::None`] if there is no server to wait for.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        servers: &[StdArc<S>],
        demand: ServerDemand,
        preference: Preference<'_>,
    ) -> Poll<Choice<S>> {
        let (place, is_first) = self.places.enter(self.place, cx.waker());
        self.place = Some(place);
        self.servers = servers.to_vec();
        for server in servers {
            // From now on the end of a request wakes this one; what ended before is seen below.
            server.load().set_waiting(true);
        }
        if let Some(closed) = self
            .claimed
            .take_if(|claimed| claimed.load().capacity() == 0)
        {
            closed.load().give_up_claim();
        }
        let claim = self.claimed.as_ref();
        let claim =
            claim.and_then(|claimed| servers.iter().position(|s| StdArc::ptr_eq(s, claimed)));
        match choose_with_claim(servers, demand, preference, claim) {
            Choice::Full => {
                if is_first && claim.is_none() && self.claim_one(servers, preference.excluded) {
                    // There may be room behind the claim already.
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
            done => {
                self.leave();
                Poll::Ready(done)
            }
        }
    }

    /// Claims the server with the most room. Whether it now has a claim.
    fn claim_one(&mut self, servers: &[StdArc<S>], excluded: &[usize]) -> bool {
        if let Some(gone) = self.claimed.take() {
            gone.load().give_up_claim();
        }
        let usable = servers
            .iter()
            .enumerate()
            .filter(|(index, server)| !excluded.contains(index) && server.load().capacity() > 0);
        let best = usable.max_by_key(|(_, server)| {
            let load = server.load();
            i64::from(load.capacity()) - i64::from(load.charged())
        });
        self.claimed = best
            .map(|(_, server)| StdArc::clone(server))
            .filter(|server| server.load().claim());
        self.claimed.is_some()
    }

    fn leave(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        self.places.leave(place, || {
            for server in &self.servers {
                server.load().set_waiting(false);
            }
        });
        match self.claimed.take() {
            Some(claimed) => claimed.load().give_up_claim(), // wakes the others
            None => self.places.wake(),
        }
    }
}

impl<S: HasLoad> Drop for WaitingForServer<S> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::task::{Wake, Waker};

    use super::*;
    use crate::{
        servers::load::{ServerCharge, ServerLoad, choose},
        sync::{AtomicBool, Ordering},
    };

    #[derive(Debug)]
    struct Server(ServerLoad);

    impl HasLoad for Server {
        fn load(&self) -> &ServerLoad {
            &self.0
        }
    }

    /// Whether a task was woken and has not been polled since.
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: StdArc<Self>) {
            self.0.swap(true, Ordering::AcqRel);
        }
    }

    /// The task of one request, polled as often as it is woken.
    struct Task {
        waiting: WaitingForServer<Server>,
        server: StdArc<Server>,
        flag: StdArc<Flag>,
    }

    impl Task {
        fn new(places: &StdArc<Places>, server: &StdArc<Server>) -> Self {
            Self {
                waiting: WaitingForServer::new(StdArc::clone(places)),
                server: StdArc::clone(server),
                flag: StdArc::new(Flag(AtomicBool::new(true))),
            }
        }

        /// Its server, once it has room there. Whether it is woken is all that decides whether it looks.
        fn run(&mut self) -> Option<Choice<Server>> {
            let waker = Waker::from(StdArc::clone(&self.flag));
            let mut cx = Context::from_waker(&waker);
            while self.flag.0.swap(false, Ordering::AcqRel) {
                let servers = std::slice::from_ref(&self.server);
                let preference = Preference::default();
                if let Poll::Ready(choice) = self.waiting.poll(&mut cx, servers, ONE, preference) {
                    return Some(choice);
                }
            }
            None
        }
    }

    const ONE: ServerDemand = ServerDemand {
        width: 1,
        is_limited: true,
        is_long_running: false,
    };

    fn charge(server: &StdArc<Server>) -> Option<ServerCharge<Server>> {
        match choose(std::slice::from_ref(server), ONE, Preference::default()) {
            Choice::Charged(charge) => Some(charge),
            Choice::Full | Choice::None => None,
        }
    }

    /// A request begins to wait while another ends: it gets the room.
    #[test]
    fn loom_the_end_of_a_request_is_not_missed_by_one_that_begins_to_wait() {
        loom::model(|| {
            let places = StdArc::<Places>::default();
            let server = StdArc::new(Server(ServerLoad::new(1, StdArc::clone(&places))));
            let held = charge(&server).unwrap();
            let end = loom::thread::spawn(move || drop(held));
            let mut task = Task::new(&places, &server);
            let early = task.run();
            end.join().unwrap();
            assert!(early.or_else(|| task.run()).is_some(), "nobody woke it");
        });
    }

    /// Two begin to wait, and one of them leaves, while a request ends: the other gets the room.
    #[test]
    fn loom_who_leaves_does_not_stop_others_from_being_woken() {
        loom::model(|| {
            let places = StdArc::<Places>::default();
            let server = StdArc::new(Server(ServerLoad::new(1, StdArc::clone(&places))));
            let held = charge(&server).unwrap();
            let mut leaver = Task::new(&places, &server);
            let leaver = loom::thread::spawn(move || {
                let placed = leaver.run();
                drop((placed, leaver));
            });
            let mut task = Task::new(&places, &server);
            let early = task.run();
            drop(held);
            leaver.join().unwrap();
            assert!(early.or_else(|| task.run()).is_some(), "nobody woke it");
        });
    }
}
