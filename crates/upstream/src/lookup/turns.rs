//! Whose lookup is next, and how many may wait.
//!
//! A lookup is on the account of whoever caused it: of a user, or before that is known, of the address of the peer. Accounts take turns,
//! and within an account its *lines* do, such as the connections of an address. So many lookups of one delay those of another by
//! about one. An account may have as many lookups as are left for all. *Strangers*, accounts without any success, may have only three
//! quarters of those that run at a time, however many accounts they have.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use fairgate_core::{
    sync::{Mutex, lock},
    turn_queue::TurnQueue,
};
use tokio::sync::oneshot;

/// Of an account with many lookups that wait, so many of each line may still be added, while a quarter is left for others.
const OF_A_LINE: usize = 2;

/// On whose account a lookup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupPayer {
    pub(crate) account: Arc<str>,
    pub(crate) line: Arc<str>,
}

impl LookupPayer {
    /// An account of one line.
    pub(crate) fn of(account: &str) -> Self {
        Self {
            account: account.into(),
            line: "".into(),
        }
    }

    /// The account of a peer's address: of IPv6, the first half, since a host has the other. Its line is the connection.
    pub(crate) fn peer(remote: SocketAddr) -> Self {
        let address = match remote.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        };
        Self {
            account: address.to_string().into(),
            line: remote.port().to_string().into(),
        }
    }
}

/// Gives turns to lookups. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LookupTurns(Arc<Mutex<TurnState>>);

#[derive(Debug)]
struct TurnState {
    max_running: usize,
    max_pending: usize,
    running: usize,
    running_strangers: usize,
    /// Lookups that run or wait: all, and those of each account and line.
    pending: usize,
    of_account: HashMap<Arc<str>, usize>,
    of_line: HashMap<(Arc<str>, Arc<str>), usize>,
    /// An entry for each that waits, which says whether its account is a stranger.
    accounts: TurnQueue<(Arc<str>, bool)>,
    waiting: HashMap<Arc<str>, TurnQueue<oneshot::Sender<LookupTurn>>>,
}

/// A lookup that runs or waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingTurn {
    turns: LookupTurns,
    payer: LookupPayer,
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
            running: 0,
            running_strangers: 0,
            pending: 0,
            of_account: HashMap::new(),
            of_line: HashMap::new(),
            accounts: TurnQueue::default(),
            waiting: HashMap::new(),
        })))
    }

    /// Counts one more lookup of a payer; `None` if it has too many.
    pub(crate) fn begin(&self, payer: LookupPayer) -> Option<PendingTurn> {
        let mut state = lock(&self.0);
        let left = state.max_pending.saturating_sub(state.pending);
        let of_account = state.of_account.get(&payer.account).copied();
        let line = (Arc::clone(&payer.account), Arc::clone(&payer.line));
        let of_line = state.of_line.get(&line).copied().unwrap_or(0);
        let is_fair = of_account.unwrap_or(0) < left;
        let has_few = of_line < OF_A_LINE && left > state.max_pending / 4;
        if !is_fair && !has_few {
            return None;
        }
        state.pending += 1;
        *state
            .of_account
            .entry(Arc::clone(&payer.account))
            .or_default() += 1;
        *state.of_line.entry(line).or_default() += 1;
        drop(state);
        Some(PendingTurn {
            turns: self.clone(),
            payer,
        })
    }

    /// The number of lookups that run or wait.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        lock(&self.0).pending
    }
}

impl TurnState {
    /// Takes who is next, if one more may run.
    fn next(&mut self) -> Option<(oneshot::Sender<LookupTurn>, bool)> {
        if self.running >= self.max_running {
            return None;
        }
        let strangers_may = self.running_strangers < self.for_strangers();
        let next = self
            .accounts
            .pop_if(|(_, is_stranger)| !is_stranger || strangers_may);
        let (account, is_stranger) = next?;
        let lines = self.waiting.get_mut(&account)?;
        let sender = lines.pop()?;
        if lines.is_empty() {
            self.waiting.remove(&account);
        }
        self.running += 1;
        self.running_strangers += usize::from(is_stranger);
        Some((sender, is_stranger))
    }

    fn for_strangers(&self) -> usize {
        (self.max_running - self.max_running / 4).max(1)
    }
}

impl PendingTurn {
    /// Waits for a turn.
    pub(crate) async fn turn(&self, is_stranger: bool) -> Option<LookupTurn> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = lock(&self.turns.0);
            let LookupPayer { account, line } = &self.payer;
            let entry = (Arc::clone(account), is_stranger);
            state.accounts.push(account, 1, entry);
            let lines = state.waiting.entry(Arc::clone(account)).or_default();
            lines.push(line, 1, sender);
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
        let mut state = lock(&turns.0);
        state.running -= 1;
        state.running_strangers -= usize::from(self.is_stranger);
        drop(state);
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
        state.pending -= 1;
        let LookupPayer { account, line } = &self.payer;
        if let Some(count) = state.of_account.get_mut(account) {
            *count -= 1;
            if *count == 0 {
                state.of_account.remove(account);
            }
        }
        let line = (Arc::clone(account), Arc::clone(line));
        if let Some(count) = state.of_line.get_mut(&line) {
            *count -= 1;
            if *count == 0 {
                state.of_line.remove(&line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn peer(address: &str) -> LookupPayer {
        LookupPayer::peer(address.parse().unwrap())
    }

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
            let Some(pending) = self.turns.begin(peer(from)) else {
                return false;
            };
            let waiting = Box::pin(async move {
                let turn = pending.turn(is_stranger).await?;
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

    #[test]
    fn a_good_token_is_reviewed_at_once_or_next_however_many_bad_ones_wait() {
        for (from, is_stranger, most) in [
            ("10.0.0.2:1", false, 0),
            ("10.0.0.2:1", true, 1),
            // The address of the flood: as many as it has connections.
            ("10.0.0.1:99", true, 6),
        ] {
            let mut flights = Flights::new();
            let mut accepted = 0;
            for number in 0..2000 {
                let from = format!("10.0.0.1:{}", number % 6);
                accepted += usize::from(flights.begin("bad", &from, true));
            }
            assert_eq!(accepted, 512, "as many as are left for all");
            assert_eq!(flights.started.len(), 24, "strangers have three quarters");
            let started = flights.started.len();
            assert!(flights.begin("good", from, is_stranger), "{from}");
            let before = if flights.started.len() > started {
                0
            } else {
                flights.started_before("good")
            };
            assert!(before <= most, "{from}: {before}");
        }
    }

    #[test]
    fn many_addresses_without_success_leave_a_quarter_to_others() {
        let mut flights = Flights::new();
        let mut accepted = 0;
        for number in 0..2000 {
            let from = format!("10.{}.{}.1:1", number / 250, number % 250);
            accepted += usize::from(flights.begin("bad", &from, true));
        }
        assert!(accepted <= 1024);
        assert_eq!(flights.started.len(), 24);
        while flights.turns.pending() >= 1020 {
            flights.end_one();
        }
        assert!(flights.begin("good", "192.0.2.1:1", false));
        assert_eq!(flights.started.last(), Some(&"good"));
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
        assert_eq!(
            (state.running, state.running_strangers, state.pending),
            (0, 0, 0)
        );
        assert!(state.of_account.is_empty() && state.of_line.is_empty());
        assert!(state.waiting.is_empty() && state.accounts.is_empty());
    }

    #[test]
    fn a_host_has_one_account_however_many_addresses_of_its_network_it_uses() {
        let payer = |address: &str| peer(address).account;
        assert_eq!(payer("[2001:db8::1]:1"), payer("[2001:db8::ffff:1]:2"));
        assert_ne!(payer("[2001:db8::1]:1"), payer("[2001:db8:0:1::1]:1"));
        assert_eq!(payer("[::ffff:10.0.0.1]:1"), payer("10.0.0.1:2"));
    }
}
