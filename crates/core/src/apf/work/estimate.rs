//! Work estimation: how many seats a request takes, before it runs.
//!
//! A list costs by the bytes that the server reads for it: one seat per 100 kB. A write costs by
//! the watchers that it wakes: the server works for them after the response, so their seats linger.
//! Everything else takes one seat. All of it is computed from the request and from counts that the
//! caller passes in; [`EstimatorSettings::input`] says which, so that only those are looked up.
//!
//! Not here: where the counts come from (`counts`, `watchers`).

use std::time::Duration;

use super::{WidthCap, Work};
use crate::{
    apf::{spec::Semantics, units::Seats},
    digest::{ListOptions, RequestInfo, Verb},
};

/// The widest a list or watch may be at any level.
const MAX_LIST_SEATS: Seats = 100;
/// The most final seats a write may have at any level.
const MAX_WRITE_SEATS: Seats = 10;
/// The bytes that one seat reads.
const BYTES_PER_SEAT: u64 = 100_000;
/// More than this is not charged for a read from the watch cache.
const MAX_BYTES_FROM_CACHE: u64 = 1_000_000;
/// The size of an object of unknown size: about the largest there can be.
const UNKNOWN_OBJECT_BYTES: u64 = 1_500_000;
/// The number of objects where none is known but there should be one.
const UNKNOWN_COUNT: u64 = 1_000_000_000;
/// How many watchers one seat serves.
const WATCHERS_PER_SEAT: u32 = 10;
/// How long a seat takes to serve its watchers.
const EVENT_TIME: Duration = Duration::from_millis(5);

/// The counts of the objects that a request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStats {
    /// Objects of the resource are not counted: the request takes one seat.
    Untracked,
    /// The number of objects, and their size.
    Known {
        /// Number of objects.
        count: u64,
        /// The mean size of an object in bytes; 0 when unknown.
        average_bytes: u64,
    },
    /// The last count is too old: the most is assumed.
    Stale,
    /// The objects could not be counted: the most is assumed.
    Unknown,
}

/// What an estimate depends on, besides the request and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateInput {
    /// On nothing.
    Nothing,
    /// On [`ObjectStats`] of the request's scope.
    Objects,
    /// On the number of watchers that the request wakes.
    Watchers,
}

/// How work is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatorSettings {
    /// In [`Semantics::Improved`], `deletecollection` costs what a list costs; in
    /// [`Semantics::Compatible`] one seat.
    pub semantics: Semantics,
    /// Whether the server serves a list without resource version from its watch cache, which it
    /// does from Kubernetes 1.31 on if its etcd reports its progress to watches (3.4.31, 3.5.13 and later).
    pub consistent_read_from_cache: bool,
}

impl Default for EstimatorSettings {
    /// Improved, in front of a server of Kubernetes 1.31 or later.
    fn default() -> Self {
        Self {
            semantics: Semantics::default(),
            consistent_read_from_cache: true,
        }
    }
}

/// What the server does for a request, as far as its cost depends on it.
enum CostKind {
    /// Little.
    Plain,
    /// Reads a collection.
    Read,
    /// Writes an object, which wakes watchers.
    Write,
}

impl EstimatorSettings {
    /// What the caller has to know for [`Self::estimate`].
    pub fn input(self, info: &RequestInfo) -> EstimateInput {
        match self.kind(info) {
            CostKind::Plain => EstimateInput::Nothing,
            CostKind::Read if options(info).is_some_and(|options| !options.numbers_decode) => {
                EstimateInput::Nothing
            }
            CostKind::Read => EstimateInput::Objects,
            CostKind::Write => EstimateInput::Watchers,
        }
    }

    /// The work of a request. Of `objects` and `watchers`, only what [`Self::input`] names is used.
    ///
    /// Constant cost; no allocation.
    pub fn estimate(
        self,
        info: &RequestInfo,
        objects: ObjectStats,
        watchers: u32,
        cap: WidthCap,
    ) -> Work {
        match self.kind(info) {
            CostKind::Plain => Work::ONE,
            CostKind::Read => {
                Work::seats(self.read_seats(info, objects, cap.within(MAX_LIST_SEATS)))
            }
            CostKind::Write => write(watchers, cap.within(MAX_WRITE_SEATS)),
        }
    }

    fn kind(self, info: &RequestInfo) -> CostKind {
        match info.verb {
            Verb::List => CostKind::Read,
            Verb::DeleteCollection if self.semantics == Semantics::Improved => CostKind::Read,
            Verb::Watch if starts_with_a_list(info) => CostKind::Read,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete if !is_token(info) => {
                CostKind::Write
            }
            _ => CostKind::Plain,
        }
    }

    fn read_seats(self, info: &RequestInfo, objects: ObjectStats, max: Seats) -> Seats {
        let default = ListOptions::default();
        let options = options(info).unwrap_or(&default);
        if !options.numbers_decode {
            return max;
        }
        let (count, average_bytes) = match objects {
            ObjectStats::Untracked => return 1,
            // If there are no objects, their size is 0, too.
            ObjectStats::Known {
                count,
                average_bytes: 0,
            } if count > 0 => (count, UNKNOWN_OBJECT_BYTES),
            ObjectStats::Known {
                count,
                average_bytes,
            } => (count, average_bytes),
            ObjectStats::Stale | ObjectStats::Unknown => (UNKNOWN_COUNT, UNKNOWN_OBJECT_BYTES),
        };
        let from_cache = self.is_from_cache(info, options);
        let objects = objects_read(info, options, count, from_cache);
        let bytes = objects.saturating_mul(average_bytes);
        let charged = if from_cache {
            bytes.min(MAX_BYTES_FROM_CACHE)
        } else {
            bytes
        };
        let seats = charged.div_ceil(BYTES_PER_SEAT).min(u64::from(max));
        Seats::try_from(seats).unwrap_or(max).max(1)
    }

    /// Whether the server reads from its watch cache rather than from its storage.
    fn is_from_cache(self, info: &RequestInfo, options: &ListOptions) -> bool {
        let version = &*options.resource_version;
        let is_any_version = version.is_empty() || version == "0";
        match &*options.resource_version_match {
            _ if info.verb == Verb::Watch => true,
            "" if options.has_continue => false,
            "" if options.limit > 0 && !is_any_version => false,
            "" if version.is_empty() => self.consistent_read_from_cache,
            "" | "NotOlderThan" => true,
            _ => false,
        }
    }
}

fn options(info: &RequestInfo) -> Option<&ListOptions> {
    info.list.as_deref()
}

/// Whether a watch begins with the objects that exist; also if its options do not decode.
fn starts_with_a_list(info: &RequestInfo) -> bool {
    options(info).is_none_or(|options| {
        !options.numbers_decode
            || options.send_initial_events == Some(true)
            || matches!(&*options.resource_version, "" | "0")
    })
}

/// A request for a token of a service account is not a write, because tokens cannot be watched.
fn is_token(info: &RequestInfo) -> bool {
    info.resource() == b"serviceaccounts" && info.subresource() == b"token"
}

/// How many of `count` objects the server reads.
fn objects_read(info: &RequestInfo, options: &ListOptions, count: u64, from_cache: bool) -> u64 {
    let limited = match u64::try_from(options.limit) {
        Ok(limit) if limit > 0 => limit.min(count),
        _ => count,
    };
    if !info.name().is_empty() {
        1
    } else if !from_cache && options.has_selector() {
        limited.max(count / 2)
    } else {
        limited
    }
}

/// The work of a write that wakes `watchers`: narrowing its final seats keeps their area.
fn write(watchers: u32, max: Seats) -> Work {
    if watchers < WATCHERS_PER_SEAT {
        return Work::ONE;
    }
    let unbounded = watchers.div_ceil(WATCHERS_PER_SEAT);
    let final_seats = unbounded.min(max);
    Work {
        initial_seats: 1,
        final_seats,
        additional_latency: EVENT_TIME * unbounded / final_seats,
    }
}

#[cfg(test)]
mod tests;
