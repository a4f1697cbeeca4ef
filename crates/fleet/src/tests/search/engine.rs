//! The engine of the search: keys with revisions, compare-and-swap, an election key. It processes one operation at a time.

use std::rc::Rc;

use fairgate_core::time::Time;

use crate::{
    coordinator::{Proposal, WriteAttempt},
    gateway::Receipt,
    identity::{Fence, KeyRevision},
    records::{Report, SeatLedger},
    rules::{Mutant, ProtocolRules},
};

/// The stored keys.
pub(super) struct Engine {
    pub(super) rules: ProtocolRules,
    /// Whether the write of a ledger can be made to depend on the election key too, as in etcd.
    pub(super) has_transactions: bool,
    pub(super) is_up: bool,
    revision: u64,
    pub(super) reports: Vec<Option<(Rc<Report>, KeyRevision)>>,
    pub(super) ledger: (Rc<SeatLedger>, KeyRevision),
    pub(super) elected: Option<((usize, u64), Fence)>,
}

/// What a process asks of the engine.
#[derive(Clone)]
pub(super) enum Operation {
    PutReport {
        report: Rc<Report>,
        expected: KeyRevision,
        receipt: Receipt,
    },
    /// With the limit that the coordinator knew.
    PutLedger(Rc<Proposal>, u32),
    /// With the local time of sending.
    ReadReports(Time),
    ReadLedger,
    /// By this run.
    Campaign(u64),
}

/// What the engine answers.
#[derive(Clone)]
pub(super) enum Answer {
    ReportStored(Receipt, KeyRevision),
    ReportRefused(KeyRevision),
    LedgerStored(WriteAttempt, KeyRevision),
    LedgerRefused(WriteAttempt),
    Reports(Time, Vec<(Rc<Report>, KeyRevision)>),
    LedgerRead(Rc<SeatLedger>, KeyRevision),
    Elected(Fence),
}

impl Engine {
    pub(super) fn new(nodes: usize, has_transactions: bool, rules: ProtocolRules) -> Self {
        Self {
            rules,
            has_transactions,
            is_up: true,
            revision: 0,
            reports: vec![None; nodes],
            ledger: (Rc::default(), KeyRevision(0)),
            elected: None,
        }
    }

    fn next(&mut self) -> KeyRevision {
        self.revision += 1;
        KeyRevision(self.revision)
    }

    pub(super) fn process(&mut self, node: usize, operation: Operation) -> Option<Answer> {
        Some(match operation {
            Operation::PutReport {
                report,
                expected,
                receipt,
            } => {
                let current = self.reports[node].as_ref();
                let current = current.map_or(KeyRevision(0), |(_, revision)| *revision);
                if current != expected {
                    return Some(Answer::ReportRefused(current));
                }
                let revision = self.next();
                self.reports[node] = Some((report, revision));
                Answer::ReportStored(receipt, revision)
            }
            Operation::PutLedger(proposal, _) => self.put_ledger(&proposal),
            Operation::ReadReports(sent) => {
                Answer::Reports(sent, self.reports.iter().flatten().cloned().collect())
            }
            Operation::ReadLedger => Answer::LedgerRead(Rc::clone(&self.ledger.0), self.ledger.1),
            Operation::Campaign(life) => match self.elected {
                Some((holder, fence)) if holder == (node, life) => Answer::Elected(fence),
                Some(_) => return None,
                None => {
                    let fence = Fence(self.next().0);
                    self.elected = Some(((node, life), fence));
                    Answer::Elected(fence)
                }
            },
        })
    }

    fn put_ledger(&mut self, proposal: &Proposal) -> Answer {
        let fence = self.elected.map(|(_, fence)| fence);
        let is_elected = fence == Some(proposal.ledger.fence);
        let needs_election = self.has_transactions && !self.rules.has(Mutant::NoFence);
        let is_expected = proposal.expected == self.ledger.1 || self.rules.has(Mutant::NoCompare);
        if !is_expected || (needs_election && !is_elected) {
            return Answer::LedgerRefused(proposal.attempt);
        }
        let revision = self.next();
        self.ledger = (Rc::new(proposal.ledger.clone()), revision);
        Answer::LedgerStored(proposal.attempt, revision)
    }
}
