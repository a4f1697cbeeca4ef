//! How much the controller computes at a time.
//!
//! A label of a pod that is looked up in a selector is the unit of work. Everything that grows with the selectors of a
//! namespace, or with the number of its pods and budgets, is counted in it, and done in slices: between them the caller
//! does other things.

/// So many look-ups are begun in one slice. It takes about half a millisecond.
pub(super) const SLICE: u64 = 4096;

/// What a slice may still do.
#[derive(Debug, Default)]
pub(super) struct Slice {
    done: u64,
    allowed: u64,
}

/// The work that the controller has done since it was made, in look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectorWork {
    /// All of it.
    pub look_ups: u64,
    /// The most in one slice: at most those of a slice, and of one pod with one budget.
    pub longest_slice: u64,
}

impl Slice {
    /// Allows half of a slice more.
    pub(super) fn allow_half(&mut self) {
        self.allowed = self.done.max(self.allowed) + SLICE / 2;
    }

    /// Counts look-ups that are done.
    pub(super) fn spend(&mut self, look_ups: u64) {
        self.done += look_ups;
    }

    /// Whether no more may be begun.
    pub(super) fn is_spent(&self) -> bool {
        self.done >= self.allowed
    }
}

impl SelectorWork {
    pub(super) fn add(&mut self, slice: &Slice) {
        self.look_ups += slice.done;
        self.longest_slice = self.longest_slice.max(slice.done);
    }
}
