//! Whose lookup is next, and how many may wait.
//!
//! A lookup is on the account of whoever caused it: of a user, or before that is known, of the address of the peer. Networks take turns,
//! within each its addresses do, and within an address its *lines*, its connections; whoever comes for the first time is soon next
//! (`turn_tree`). Accounts without any success, *strangers*, never delay others:
//!
//! - A free place is for the others, unless these run in three quarters of the places and strangers wait. Strangers run in three
//!   quarters of the places at most, however many they are. So both always have a quarter.
//! - Of the lookups that run or wait, strangers may have three quarters. Of what is left, a network may have at most as many as are still free
//!   others, and an address as many as it leaves to its network: with n networks that take all they can, each has at most 1/(n + 1);
//!   an address alone, a third. Where there is no room for a line that has few, whoever has most gives up one that waits.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fairgate_core::sync::{Mutex, lock};
use tokio::sync::oneshot;

use super::{payer::LookupPayer, turn_tree::TurnTree};

/// A line with fewer lookups has room where others have more.
const OF_A_LINE: usize = 2;

/// Gives turns to lookups. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LookupTurns(Arc<Mutex<TurnState>>);

#[derive(Debug)]
struct TurnState {
    max_running: usize,
    max_pending: usize,
    /// The most that ever ran or waited.
    most_pending: usize,
    hashes: RandomState,
    strangers: LookupClass,
    others: LookupClass,
    /// Lookups of each network, account and line that run or wait, by the hash of their paths.
    of_path: HashMap<u64, usize>,
}

/// The lookups of strangers, or of the others.
#[derive(Debug, Default)]
struct LookupClass {
    running: usize,
    /// Those that run or wait.
    pending: usize,
    waiting: TurnTree<WaitingLookup>,
}

#[derive(Debug)]
struct WaitingLookup {
    /// Dropped unused if it is given up.
    sender: oneshot::Sender<LookupTurn>,
    is_given_up: Arc<AtomicBool>,
    payer: LookupPayer,
}

/// Whether one more lookup may wait.
#[derive(Debug)]
enum LookupRoom {
    Free,
    /// No, but others may have more, and the line has few: of those whose first names are the payer's, so many of them.
    FullAbove(usize),
    None,
}

/// A lookup that runs or waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingTurn {
    turns: LookupTurns,
    payer: LookupPayer,
    is_stranger: bool,
    /// Whether it is no longer counted. Changed only under the lock of the turns.
    is_given_up: Arc<AtomicBool>,
}

/// The right to run a lookup, until this is dropped.
#[derive(Debug)]
pub(crate) struct LookupTurn {
    turns: Option<LookupTurns>,
    is_stranger: bool,
}

impl LookupTurns {
    /// At most so many run at a time, and at most so many run or wait.
    pub(crate) fn new(max_running: usize, max_pending: usize) -> Self {
        Self(Arc::new(Mutex::new(TurnState {
            max_running: max_running.max(1),
            max_pending,
            most_pending: 0,
            hashes: RandomState::new(),
            strangers: LookupClass::default(),
            others: LookupClass::default(),
            of_path: HashMap::new(),
        })))
    }

    /// Counts one more lookup of a payer; `None` if it has too many.
    pub(crate) fn begin(&self, payer: LookupPayer, is_stranger: bool) -> Option<PendingTurn> {
        let mut state = lock(&self.0);
        let given_up = match state.room(&payer, is_stranger) {
            LookupRoom::Free => None,
            LookupRoom::FullAbove(depth) => {
                let waiting = &mut state.class(is_stranger).waiting;
                Some(waiting.give_up_for(payer.path(), depth)?)
            }
            LookupRoom::None => return None,
        };
        if let Some(given_up) = &given_up {
            given_up.is_given_up.store(true, Ordering::Relaxed);
            state.uncount(&given_up.payer, is_stranger);
        }
        state.class(is_stranger).pending += 1;
        state.most_pending = state.most_pending.max(state.pending());
        for path in state.prefixes(&payer) {
            *state.of_path.entry(path).or_default() += 1;
        }
        drop(state);
        drop(given_up); // wakes a task
        Some(PendingTurn {
            turns: self.clone(),
            payer,
            is_stranger,
            is_given_up: Arc::default(),
        })
    }

    /// The number of lookups that run or wait.
    pub(crate) fn pending(&self) -> usize {
        lock(&self.0).pending()
    }

    /// The most that ever ran or waited at a time.
    pub(crate) fn most_pending(&self) -> usize {
        lock(&self.0).most_pending
    }
}

impl TurnState {
    fn class(&mut self, is_stranger: bool) -> &mut LookupClass {
        if is_stranger {
            &mut self.strangers
        } else {
            &mut self.others
        }
    }

    fn pending(&self) -> usize {
        self.strangers.pending + self.others.pending
    }

    /// The hashes of a payer's path and of those above it, the shortest first.
    fn prefixes(&self, payer: &LookupPayer) -> Vec<u64> {
        let path = payer.path();
        let lengths = 1..=path.len();
        lengths
            .map(|length| self.hashes.hash_one(&path[..length]))
            .collect()
    }

    fn room(&self, payer: &LookupPayer, is_stranger: bool) -> LookupRoom {
        let all = self.max_pending.saturating_sub(self.pending());
        let left = if is_stranger {
            let of_strangers = three_quarters(self.max_pending);
            all.min(of_strangers.saturating_sub(self.strangers.pending))
        } else {
            all
        };
        let counts = self.prefixes(payer).into_iter().map(|path| {
            let count = self.of_path.get(&path);
            count.copied().unwrap_or(0)
        });
        let counts: Vec<_> = counts.collect();
        let Some((of_line, of_account)) = counts.split_last() else {
            return LookupRoom::None;
        };
        // What is left for each, if each above it leaves as much to others as it has.
        let (mut left, is_scarce) = (left, left <= self.max_pending / 4);
        for (depth, count) in of_account.iter().enumerate() {
            if left == 0 || *count >= left {
                let full = if left == 0 { depth } else { depth + 1 };
                return match *of_line < OF_A_LINE {
                    true if is_scarce => LookupRoom::FullAbove(full),
                    true => LookupRoom::Free,
                    false => LookupRoom::None,
                };
            }
            left -= count;
        }
        LookupRoom::Free
    }

    /// One lookup less of a payer runs or waits.
    fn uncount(&mut self, payer: &LookupPayer, is_stranger: bool) {
        self.class(is_stranger).pending -= 1;
        for path in self.prefixes(payer) {
            if let Some(count) = self.of_path.get_mut(&path) {
                *count -= 1;
                if *count == 0 {
                    self.of_path.remove(&path);
                }
            }
        }
    }

    /// Takes who is next, if one more may run.
    fn next(&mut self) -> Option<(oneshot::Sender<LookupTurn>, bool)> {
        if self.strangers.running + self.others.running >= self.max_running {
            return None;
        }
        let part = three_quarters(self.max_running);
        let strangers_may = self.strangers.running < part && !self.strangers.waiting.is_empty();
        let others_may = self.others.running < part || !strangers_may;
        if others_may && let Some(waiting) = self.others.waiting.pop() {
            self.others.running += 1;
            return Some((waiting.sender, false));
        }
        let waiting = strangers_may.then(|| self.strangers.waiting.pop());
        let waiting = waiting.flatten()?;
        self.strangers.running += 1;
        Some((waiting.sender, true))
    }
}

/// Three quarters of a number, at least 1.
fn three_quarters(all: usize) -> usize {
    (all - all / 4).max(1)
}

impl PendingTurn {
    /// Waits for a turn. `None` if another payer gets the place.
    pub(crate) async fn turn(&self) -> Option<LookupTurn> {
        let (sender, receiver) = oneshot::channel();
        let one = WaitingLookup {
            sender,
            is_given_up: Arc::clone(&self.is_given_up),
            payer: self.payer.clone(),
        };
        {
            let mut state = lock(&self.turns.0);
            let waiting = &mut state.class(self.is_stranger).waiting;
            waiting.push(self.payer.path(), one);
        }
        self.turns.give();
        receiver.await.ok()
    }
}

impl LookupTurns {
    /// Gives the turns that are free.
    fn give(&self) {
        loop {
            let mut state = lock(&self.0);
            let Some((sender, is_stranger)) = state.next() else {
                return;
            };
            drop(state);
            let turn = LookupTurn {
                turns: Some(self.clone()),
                is_stranger,
            };
            if let Err(mut unused) = sender.send(turn) {
                // Nobody waits there any more.
                unused.give_back();
            }
        }
    }
}

impl LookupTurn {
    fn give_back(&mut self) -> Option<LookupTurns> {
        let turns = self.turns.take()?;
        lock(&turns.0).class(self.is_stranger).running -= 1;
        Some(turns)
    }
}

impl Drop for LookupTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.give_back() {
            turns.give();
        }
    }
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.0);
        if self.is_given_up.load(Ordering::Relaxed) {
            return;
        }
        // What does not wait any more may not be given up either: it would be taken from the count twice.
        let waiting = &mut state.class(self.is_stranger).waiting;
        let is_it = |one: &WaitingLookup| Arc::ptr_eq(&one.is_given_up, &self.is_given_up);
        let left = waiting.remove(self.payer.path(), is_it);
        state.uncount(&self.payer, self.is_stranger);
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    type Running = (LookupTurn, PendingTurn);

    /// A lookup, and who began it.
    struct Flight {
        name: &'static str,
        waiting: Pin<Box<dyn Future<Output = Option<Running>>>>,
        turn: Option<Running>,
    }

    /// Lookups that end in the order in which they began, and who began one.
    struct Flights {
        turns: LookupTurns,
        all: Vec<Flight>,
        started: Vec<&'static str>,
    }

    impl Flights {
        fn new() -> Self {
            Self {
                turns: LookupTurns::new(32, 1024),
                all: Vec::new(),
                started: Vec::new(),
            }
        }

        fn begin(&mut self, name: &'static str, from: &str, is_stranger: bool) -> bool {
            let payer = LookupPayer::peer(from.parse().unwrap());
            let Some(pending) = self.turns.begin(payer, is_stranger) else {
                return false;
            };
            let waiting = Box::pin(async move {
                let turn = pending.turn().await?;
                Some((turn, pending))
            });
            self.all.push(Flight {
                name,
                waiting,
                turn: None,
            });
            self.poll();
            true
        }

        fn poll(&mut self) {
            let mut context = Context::from_waker(Waker::noop());
            for flight in &mut self.all {
                if flight.turn.is_none()
                    && let Poll::Ready(turn) = flight.waiting.as_mut().poll(&mut context)
                {
                    flight.turn = turn;
                    self.started.push(flight.name);
                }
            }
        }

        /// The lookup that runs longest ends.
        fn end_one(&mut self) {
            let at = self.all.iter().position(|flight| flight.turn.is_some());
            let ended = self.all.remove(at.unwrap());
            drop(ended);
            self.poll();
        }

        /// How many lookups start until one of this name does, not counting it.
        fn started_before(&mut self, name: &str) -> usize {
            let from = self.started.len();
            loop {
                if let Some(at) = self.started[from.min(self.started.len())..]
                    .iter()
                    .position(|other| *other == name)
                {
                    return at;
                }
                self.end_one();
            }
        }
    }

    /// Bad tokens from so many addresses, each of which has six connections and had turns.
    fn flood(addresses: usize) -> Flights {
        let mut flights = Flights::new();
        let mut number = 0;
        loop {
            let (address, port) = (number % addresses, number / addresses % 6);
            let from = format!("10.{}.{}.1:{port}", address / 250, address % 250);
            if !flights.begin("bad", &from, true) {
                break;
            }
            number += 1;
        }
        for number in 0..12 * addresses {
            flights.end_one();
            let (address, port) = (number % addresses, number / addresses % 6);
            let from = format!("10.{}.{}.1:{port}", address / 250, address % 250);
            flights.begin("bad", &from, true);
        }
        flights
    }

    #[test]
    fn a_good_token_is_reviewed_at_once_or_next_however_many_addresses_flood() {
        for (addresses, from, is_stranger, most) in [
            (1, "10.0.0.2:1", false, 0),
            (1, "10.0.0.2:1", true, 1),
            (1, "10.0.0.1:99", true, 1),
            (20, "192.0.2.1:1", false, 0),
            (20, "192.0.2.1:1", true, 1),
            (300, "192.0.2.1:1", false, 0),
            (300, "192.0.2.1:1", true, 1),
            // Of a network that floods: the others have had as many turns as it has.
            (20, "10.0.7.99:1", true, 2 * 20),
            // A new connection of an address that floods.
            (20, "10.0.7.1:99", true, 2 * 20),
        ] {
            let mut flights = flood(addresses);
            let started = flights.started.len();
            assert!(flights.begin("good", from, is_stranger), "{from}");
            let before = if flights.started.len() > started {
                0
            } else {
                flights.started_before("good")
            };
            assert!(before <= most, "{from} beside {addresses}: {before}");
        }
    }

    #[test]
    fn strangers_leave_a_quarter_to_others_and_others_to_strangers() {
        let mut flights = Flights::new();
        let mut accepted = 0;
        for number in 0..2000 {
            let from = format!("10.{}.{}.1:1", number / 250, number % 250);
            accepted += usize::from(flights.begin("bad", &from, true));
        }
        assert_eq!((accepted, flights.started.len()), (768, 24));
        for number in 0..200 {
            flights.begin("good", "192.0.2.1:1", false);
            assert_eq!(flights.started.len(), 24 + 8.min(number + 1));
        }
        // What runs ends, and the others get all places but the quarter of the strangers, who wait all the time.
        for _ in 0..100 {
            flights.end_one();
        }
        let running = |name| {
            let running = flights.all.iter().filter(|flight| flight.turn.is_some());
            running.filter(|flight| flight.name == name).count()
        };
        assert_eq!((running("good"), running("bad")), (24, 8));
    }

    #[test]
    fn one_address_or_network_leaves_room_for_others() {
        let mut flights = Flights::new();
        let mut count = |from: &dyn Fn(usize) -> String| {
            let accepted = (0..2000).filter(|number| flights.begin("bad", &from(*number), true));
            accepted.count()
        };
        let of_address = count(&|number| format!("10.0.0.1:{}", number % 6));
        let of_network = count(&|number| format!("10.0.0.{}:1", 2 + number % 20));
        let of_another = count(&|_| "10.0.1.1:1".to_owned());
        assert_eq!(of_address, 256, "a third of what strangers may have");
        assert!(
            of_network > 20 && of_address + of_network <= 384,
            "{of_network}"
        );
        assert!(of_another > 100, "{of_another}");
    }

    #[test]
    fn everything_is_given_back() {
        let mut flights = Flights::new();
        for number in 0..600 {
            let from = format!("[2001:db8::{number}]:{}", number % 9);
            flights.begin("a", &from, number % 2 == 0);
        }
        // Half of them leave while they wait.
        let mut number = 0;
        flights.all.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        flights.poll();
        while !flights.all.is_empty() {
            flights.end_one();
        }
        let state = lock(&flights.turns.0);
        for class in [&state.strangers, &state.others] {
            assert_eq!((class.running, class.pending), (0, 0));
            assert!(class.waiting.is_empty());
        }
        assert!(state.of_path.is_empty());
    }

    /// A lookup of which the test knows whether it waits.
    struct OneLookup {
        future: Pin<Box<dyn Future<Output = Option<Running>>>>,
        running: Option<Running>,
    }

    fn begin(turns: &LookupTurns, from: &str, is_stranger: bool) -> Option<OneLookup> {
        let payer = LookupPayer::peer(from.parse().unwrap());
        let pending = turns.begin(payer, is_stranger)?;
        let future = Box::pin(async move {
            let turn = pending.turn().await?;
            Some((turn, pending))
        });
        let running = None;
        Some(OneLookup { future, running })
    }

    /// Polls all that wait, and drops those that were given up.
    fn poll_all(lookups: &mut Vec<OneLookup>) {
        let mut context = Context::from_waker(Waker::noop());
        lookups.retain_mut(|one| {
            if one.running.is_some() {
                return true;
            }
            match one.future.as_mut().poll(&mut context) {
                Poll::Ready(None) => false,
                Poll::Ready(running) => {
                    one.running = running;
                    true
                }
                Poll::Pending => true,
            }
        });
    }

    #[test]
    fn who_has_left_is_not_given_up_once_more_for_others() {
        let turns = LookupTurns::new(1, 8);
        let mut lookups = Vec::new();
        for _ in 0..4 {
            lookups.extend(begin(&turns, "10.0.0.1:1", false));
            poll_all(&mut lookups);
        }
        lookups.truncate(1);
        assert_eq!(turns.pending(), 1, "three have left");
        for address in 2..9 {
            lookups.extend(begin(&turns, &format!("10.0.{address}.1:1"), false));
            poll_all(&mut lookups);
        }
        assert_eq!((lookups.len(), turns.pending()), (8, 8));
        assert!(
            begin(&turns, "10.0.9.1:1", false).is_none(),
            "nobody has more than one"
        );
        drop(lookups);
        assert_eq!(turns.pending(), 0);
        assert!(begin(&turns, "10.0.9.1:1", false).is_some());
    }

    proptest::proptest! {
        /// Whatever begins, leaves, ends and is given up in whatever order: what is counted is what is there.
        #[test]
        fn what_is_pending_is_what_is_there(
            steps in proptest::collection::vec((0..10_u8, 0..6_u8, 0..3_u8, proptest::bool::ANY), 1..200)
        ) {
            let turns = LookupTurns::new(2, 12);
            let mut lookups = Vec::new();
            for (step, address, line, is_stranger) in steps {
                match step {
                    0..6 => {
                        let from = format!("10.{}.0.{}:{}", address / 3, address % 3, 1 + line);
                        lookups.extend(begin(&turns, &from, is_stranger));
                    }
                    _ if lookups.is_empty() => {}
                    _ => drop(lookups.swap_remove(usize::from(address) % lookups.len())),
                }
                poll_all(&mut lookups);
                proptest::prop_assert_eq!(turns.pending(), lookups.len());
                proptest::prop_assert!(lookups.len() <= 12);
            }
            drop(lookups);
            let state = lock(&turns.0);
            proptest::prop_assert_eq!(state.pending(), 0);
            proptest::prop_assert!(state.of_path.is_empty());
            proptest::prop_assert!(state.others.waiting.is_empty() && state.strangers.waiting.is_empty());
        }
    }
}
