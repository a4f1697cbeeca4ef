//! What is counted of users: who is refused, whose evictions fail, and who takes how many seat-seconds.
//!
//! A gateway may have a million users, and nobody reads as many series. So only the heaviest users are kept, by lossy
//! counting: users are added until there are [`MAX_KEYS`](registry::MAX_KEYS), and once a second, when the table is more than
//! three quarters full, the lightest are dropped until it is half full. What weighs is what was counted lately, with a time
//! constant of [`MEMORY`](registry::MEMORY): a user that floods takes a free row within seconds, and keeps it while it floods,
//! however many others send one request each. Their counts are lost, so a count is never too high; it starts at 0 again if the user
//! returns.
//!
//! Each core counts in rows of its own ([`UserTable`]), found by one lookup with a hash that no client can predict. It takes a
//! lock and allocates only for a key that is new to it, which happens at most [`MAX_KEYS`](registry::MAX_KEYS) times a second.
//! The [`UserRegistry`] knows the rows of all cores, for scrapes and dumps.
//!
//! Names of users are shortened to [`MAX_NAME`] bytes.
//!
//! Source of the method: G. Manku, R. Motwani, "Approximate Frequency Counts over Data Streams", VLDB 2002.

mod registry;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use registry::{SWEEP_PERIOD, UserCount, UserRegistry};
pub(crate) use table::UserTable;

/// Bytes of a user's name that are kept.
pub(crate) const MAX_NAME: usize = 128;

/// What a count is of: the values of the labels of these names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserLabels {
    /// The priority level; empty for a request that was refused before it had one.
    pub(crate) level: Box<str>,
    /// The user's name, shortened and without control characters.
    pub(crate) user: Box<str>,
    /// Of refusals and failed evictions: why. `None` of seat-seconds.
    pub(crate) refusal: Option<UserRefusal>,
}

/// Why requests were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserRefusal {
    /// The value of `X-Fairgate-Reason`.
    pub(crate) reason: &'static str,
    /// The HTTP status; 0 for a decision that is not enforced.
    pub(crate) code: u16,
}

impl UserRefusal {
    /// Whether the request was refused, and not only counted because flow control would have refused it.
    pub(crate) const fn is_enforced(self) -> bool {
        self.code > 0
    }

    /// Whether admission refused the request, and not flow control.
    pub(crate) fn is_of_admission(self) -> bool {
        self.reason.starts_with("admission-")
    }
}

/// One request, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserRequest<'a> {
    /// The user's name.
    pub(crate) user: &'a str,
    /// The priority level; empty if it is not known.
    pub(crate) level: &'a str,
    /// Why it was refused, if refusals are counted.
    pub(crate) refusal: Option<UserRefusal>,
}
