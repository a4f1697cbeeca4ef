//! Which members of etcd are used: pure, without a clock and without I/O.
//!
//! Every member is probed again and again with a read that needs a leader and a majority. Time is counted in ticks, a
//! quarter of a second each. A member is *away*
//!
//! - at once if its connection fails;
//! - if it has not answered a probe for [`SILENT_TICKS`], while another member has answered one that was sent later: then
//!   neither the gateway nor the whole etcd is what is slow;
//! - if it has not answered for [`DEAD_TICKS`], whatever the others do.
//!
//! It is back as soon as it answers. So while nobody answers, as during an election, nobody is left for a few seconds, and
//! calls wait. A member that is frozen, or cut off from the gateway or from the other members, is left within a second.
//!
//! Not here: sending probes (`probes`), and calls (`attempts`).

/// How many ticks a member may be silent while others answer.
const SILENT_TICKS: u32 = 2;
/// How many ticks a member may be silent in any case.
const DEAD_TICKS: u32 = 20;
/// After so many ticks, the connection to a member that is away is given up for a new one. What was sent while the network
/// was down is repeated ever more rarely, so an old connection may recover late.
const RECONNECT_TICKS: u32 = 8;
/// After a member has answered so many times that there is a new leader, a call that it has not answered is given up. If its
/// write took place, the member knew that when it answered a probe that was sent later, and has responded to the call.
const ANSWERS_IN_TERM: u32 = 3;

/// The state of all members, in the order of the configured endpoints.
#[derive(Debug)]
pub(super) struct Members {
    list: Vec<Member>,
    /// The number of the last probe. Probes of all members are numbered in the order in which they are sent.
    last_probe: u64,
    /// The highest term of a leader that a member has named.
    term: u64,
}

#[derive(Clone, Debug, Default)]
struct Member {
    /// Why it is away.
    away: Option<String>,
    probe: Option<Probe>,
    /// The number of the last probe that it has answered.
    answered: u64,
    /// How many probes it has answered in the term of the present leader.
    answers_in_term: u32,
    /// How many connections were given up.
    given_up: u64,
}

/// A probe without an answer.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    ticks: u32,
}

/// Identifies a connection to a member, and the leader at the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) member: usize,
    given_up: u64,
    term: u64,
}

/// What a tick leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// Wait for the answer.
    Wait,
    /// Connect anew.
    Reconnect,
}

impl Members {
    /// So many members, all of which are used until probes say otherwise.
    pub(super) fn new(count: usize) -> Self {
        Self {
            list: vec![Member::default(); count],
            last_probe: 0,
            term: 0,
        }
    }

    /// A probe is sent. One that was not answered stays the one that counts.
    pub(super) fn sent(&mut self, member: usize) {
        let member = &mut self.list[member];
        if member.probe.is_none() {
            self.last_probe += 1;
            member.probe = Some(Probe {
                number: self.last_probe,
                ticks: 0,
            });
        }
    }

    /// A member has answered, and named the term of its leader. Returns whether it was away.
    pub(super) fn answered(&mut self, member: usize, term: u64) -> bool {
        if term > self.term {
            self.term = term;
            for member in &mut self.list {
                member.answers_in_term = 0;
            }
        }
        let is_present = term == self.term;
        let member = &mut self.list[member];
        if is_present {
            member.answers_in_term = member.answers_in_term.saturating_add(1);
        }
        if let Some(probe) = member.probe.take() {
            member.answered = probe.number;
        }
        member.away.take().is_some()
    }

    /// The connection to a member has failed. Returns whether that is new.
    pub(super) fn failed(&mut self, member: usize, why: &str) -> bool {
        let member = &mut self.list[member];
        member.probe = None;
        let is_new = member.away.is_none();
        member.away = Some(why.to_owned());
        is_new
    }

    /// A tick has passed. Also returns whether a member is away from now on.
    pub(super) fn tick(&mut self, member: usize) -> (Tick, bool) {
        let newest = self.newest_answer();
        let member = &mut self.list[member];
        let Some(probe) = &mut member.probe else {
            return (Tick::Wait, false);
        };
        probe.ticks += 1;
        let probe = *probe;
        let limit = match member.away {
            None => DEAD_TICKS,
            Some(_) => RECONNECT_TICKS,
        };
        let is_dead = probe.ticks >= limit;
        let is_silent = probe.ticks >= SILENT_TICKS && newest > probe.number;
        let is_new = member.away.is_none() && (is_dead || is_silent);
        if is_new {
            member.away = Some("it does not answer".to_owned());
        }
        if !is_dead {
            return (Tick::Wait, is_new);
        }
        member.probe = None;
        member.given_up += 1;
        (Tick::Reconnect, is_new)
    }

    fn newest_answer(&self) -> u64 {
        let answered = self.list.iter().map(|member| member.answered);
        answered.max().unwrap_or(0)
    }

    /// The member for the next attempt of a call: one that is not away and was not tried, if there is one, in turn.
    pub(super) fn choose(&self, turn: usize, tried: &[usize]) -> Used {
        let count = self.list.len();
        let in_turn = (0..count).map(|step| (turn % count + step) % count);
        let rank = |&member: &usize| (self.is_away(member), tried.contains(&member));
        let member = in_turn.min_by_key(rank).unwrap_or(0);
        Used {
            member,
            given_up: self.list[member].given_up,
            term: self.term,
        }
    }

    /// Whether a call is to be given up that has no answer: its connection was, another member is there to be asked, or
    /// etcd has had a new leader for a while. What was passed on to the old one may be lost.
    pub(super) fn is_lost(&self, used: Used) -> bool {
        let answers = self.list[used.member].answers_in_term;
        self.is_gone(used) || used.term < self.term && answers >= ANSWERS_IN_TERM
    }

    /// Whether a watch is to be given up: as for calls, but it does not mind a new leader.
    pub(super) fn is_gone(&self, used: Used) -> bool {
        used.given_up != self.list[used.member].given_up
            || self.is_away(used.member) && !self.are_all_away()
    }

    fn is_away(&self, member: usize) -> bool {
        self.list[member].away.is_some()
    }

    pub(super) fn are_all_away(&self) -> bool {
        self.list.iter().all(|member| member.away.is_some())
    }

    /// The members that are away, and why.
    pub(super) fn away(&self) -> impl Iterator<Item = (usize, &str)> {
        let members = self.list.iter().enumerate();
        members.filter_map(|(index, member)| Some((index, member.away.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three members, which have each answered a probe.
    fn healthy() -> Members {
        let mut members = Members::new(3);
        round(&mut members, &[0, 1, 2]);
        members
    }

    /// One tick of every member: probes are sent, and those of some members are answered.
    fn round(members: &mut Members, answering: &[usize]) {
        for member in 0..3 {
            members.sent(member);
        }
        for &member in answering {
            members.answered(member, 7);
        }
        for member in 0..3 {
            members.tick(member);
        }
    }

    fn away(members: &Members) -> Vec<usize> {
        members.away().map(|(member, _)| member).collect()
    }

    #[test]
    fn a_member_that_is_silent_while_others_answer_is_left_after_half_a_second() {
        let mut members = healthy();
        let used = members.choose(2, &[]);
        assert_eq!(used.member, 2);
        round(&mut members, &[0, 1]);
        assert!(away(&members).is_empty() && !members.is_lost(used));
        round(&mut members, &[0, 1]);
        assert_eq!(away(&members), [2]);
        assert!(members.is_lost(used) && members.is_gone(used));
        assert_ne!(members.choose(2, &[]).member, 2);
        // It answers again.
        assert!(members.answered(2, 7));
        assert!(away(&members).is_empty());
        assert_eq!(members.choose(2, &[]).member, 2);
    }

    #[test]
    fn while_nobody_answers_nobody_is_left_for_five_seconds() {
        let mut members = healthy();
        let used = members.choose(0, &[]);
        for _ in 1..DEAD_TICKS {
            round(&mut members, &[]);
            assert!(away(&members).is_empty() && !members.is_lost(used));
        }
        round(&mut members, &[]);
        assert!(members.are_all_away());
        // The connection is given up, though there is nobody else.
        assert!(members.is_lost(used));
        let again = members.choose(0, &[]);
        assert!(!members.is_lost(again));
        members.answered(1, 7);
        assert!(members.is_lost(again), "another member is back");
    }

    #[test]
    fn an_answer_to_an_earlier_probe_does_not_show_that_a_member_is_silent() {
        let mut members = Members::new(2);
        members.sent(0);
        members.sent(1);
        members.answered(0, 7);
        for _ in 0..SILENT_TICKS {
            assert_eq!(members.tick(1), (Tick::Wait, false));
        }
        members.sent(0);
        members.answered(0, 7);
        assert_eq!(members.tick(1), (Tick::Wait, true));
    }

    #[test]
    fn a_connection_that_fails_is_left_at_once_and_reported_once() {
        let mut members = healthy();
        assert!(members.failed(1, "refused"));
        assert!(!members.failed(1, "refused"));
        assert_eq!(members.choose(1, &[]).member, 2);
        assert_eq!(
            members.choose(1, &[0, 2]).member,
            2,
            "rather twice than one that is away"
        );
        members.failed(0, "refused");
        members.failed(2, "refused");
        assert_eq!(members.choose(1, &[1, 2]).member, 0);
    }

    #[test]
    fn a_member_that_stays_silent_gets_a_new_connection_every_two_seconds() {
        let mut members = healthy();
        for _ in 0..2 * RECONNECT_TICKS {
            round(&mut members, &[0, 1]);
        }
        assert_eq!(members.list[2].given_up, 2);
    }

    #[test]
    fn a_new_leader_makes_calls_start_again_and_watches_not() {
        let mut members = healthy();
        let used = members.choose(0, &[]);
        members.answered(1, 8);
        for _ in 0..ANSWERS_IN_TERM {
            assert!(!members.is_lost(used), "its response may be on its way");
            members.answered(0, 8);
        }
        assert!(members.is_lost(used) && !members.is_gone(used));
        assert!(!members.is_lost(members.choose(0, &[])));
        // A member that still follows the old leader.
        members.answered(0, 7);
        assert!(!members.is_lost(members.choose(0, &[])));
    }
}
