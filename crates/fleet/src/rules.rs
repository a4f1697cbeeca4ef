//! The rules that tests break one at a time, to show that the search finds what each of them is for.
//!
//! Outside tests no rule is broken: nothing else can make a [`ProtocolRules`] that differs from the default.

/// Which rule is broken, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProtocolRules {
    broken: Option<Mutant>,
}

/// The protocol with one rule broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests break rules"))]
pub(crate) enum Mutant {
    /// Reserved is what the last report says; grants that it does not know of are not counted.
    NoAcknowledgement,
    /// Only the last grant is counted, not every one since the epoch that the gateway reported.
    OnlyLastGrant,
    /// Reserved does not count what the gateway says it holds.
    NoHeldSeats,
    /// The grant of a gateway is what its report says is held by limit, not what executes beyond it.
    HeldIsTheLimit,
    /// Seats are taken back after T + D, without regard to clock rates.
    ReclaimAtLease,
    /// Seats are taken back after T·(1+2ρ) + D: short of what is needed by terms of ρ² and by ρ·D.
    ReclaimByFirstOrder,
    /// Strict, but without waiting for D.
    ReclaimWithoutDrain,
    /// The absence of news on the watch is proof of silence; no read confirms it.
    SilenceWithoutRead,
    /// A run whose report was overwritten by its successor counts as silent since its last report that was seen.
    OverwrittenIsSilent,
    /// A new coordinator takes gateways that it has no report from in memory for silent at once.
    ClocksNotRestarted,
    /// The ledger is written without a look at the election key and without regard to the ledger's fence.
    NoFence,
    /// The ledger is written without comparing its revision.
    NoCompare,
    /// The floors of gateways that are not members are not reserved.
    FloorNotReserved,
    /// A gateway that was restarted leaves nothing behind.
    ForgetPredecessor,
    /// An earlier run that no ledger listed is forgotten if yet earlier ones are on their way out.
    ForgetUnlistedRun,
    /// A gateway that leaves gives back its floor, which its next run may use.
    LeavingFreesFloor,
    /// A gateway uses its floor from its start on, although its predecessor's requests may execute.
    FloorAtOnce,
    /// A report that succeeds revives a grant that has expired.
    LapseIsForgotten,
    /// After a lapse, the first report that is known to be stored need not be the one that is acknowledged.
    AnyAcknowledgement,
    /// The lease counts from the answer to a report, not from sending it.
    LeaseFromAnswer,
    /// The lease does not end.
    LeaseWithoutEnd,
    /// A gateway applies any ledger that arrives, also an older one.
    EpochsMayFall,
    /// A gateway is granted what it says it holds, also when more is reserved than there is.
    HeldIsFree,
    /// Increases are written together with the decreases that they are made of.
    IncreaseAtOnce,
}

#[cfg(test)]
impl Mutant {
    /// All, with a seed from which on the search soon finds each.
    pub(crate) const ALL: &[(Self, u64)] = &[
        (Self::NoAcknowledgement, 2),
        (Self::OnlyLastGrant, 100),
        (Self::NoHeldSeats, 1),
        (Self::HeldIsTheLimit, 1),
        (Self::ReclaimAtLease, 51),
        (Self::ReclaimByFirstOrder, 7_632),
        (Self::ReclaimWithoutDrain, 67),
        (Self::SilenceWithoutRead, 3_087),
        (Self::OverwrittenIsSilent, 1_536),
        (Self::ClocksNotRestarted, 1_256),
        (Self::NoFence, 1),
        (Self::NoCompare, 1),
        (Self::FloorNotReserved, 41),
        (Self::ForgetPredecessor, 16),
        (Self::ForgetUnlistedRun, 2_380),
        (Self::LeavingFreesFloor, 36_233),
        (Self::FloorAtOnce, 3),
        (Self::LapseIsForgotten, 4),
        (Self::AnyAcknowledgement, 2_903),
        (Self::LeaseFromAnswer, 1),
        (Self::LeaseWithoutEnd, 1),
        (Self::EpochsMayFall, 1),
        (Self::HeldIsFree, 1_400),
        (Self::IncreaseAtOnce, 1),
    ];
}

impl ProtocolRules {
    /// The rules with one broken.
    #[cfg(test)]
    pub(crate) fn breaking(broken: Option<Mutant>) -> Self {
        Self { broken }
    }

    /// Whether some rule is broken.
    pub(crate) fn is_any_broken(self) -> bool {
        self.broken.is_some()
    }

    /// Whether this rule is broken.
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }
}
