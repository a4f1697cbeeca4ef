//! Worlds: the demand of flows on one priority level, and what each gets.
//!
//! A [`World`] describes one level and the flows that use it. It is data: it can be written as JSON and read
//! back, and nothing in it depends on virtual time. [`run()`] plays it in virtual time under either semantics,
//! `ideal` computes what a perfectly fair, infinitely divisible server would give, and `measure` compares the
//! two. [`run_fluid`] plays it with such a server. [`kinds`] draws worlds by seed, [`table`] compares the semantics over many of them; [`arrival_kinds`] and
//! [`arrival_table`] do so where arrivals change.
//!
//! [`known_attacks`] are worlds in which a rule went wrong once, [`judge`] says whether anybody is worse off than with the
//! original, and [`search`] looks for attacks.
//!
//! [`suggested`] are worlds of the suggested FlowSchemas, in which tenants have many flows.
//!
//! [`run_lending`] plays several at once, whose levels lend each other seats.
//!
//! Not here: real sockets.

pub mod arrival_kinds;
pub mod arrival_table;
mod calls;
mod draws;
mod fluid;
pub(crate) mod ideal;
pub mod judge;
pub mod kinds;
pub mod known_attacks;
pub mod lenders;
pub(crate) mod measure;
pub mod run;
pub mod search;
pub mod suggested;
pub mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use fluid::{FluidFlow, run_fluid};
pub use ideal::TENANT_WEIGHT;
pub use measure::{FlowReport, WorldReport};
pub use run::{run, run_fifo, run_lending, run_preferring};

use fairgate_core::apf::{queueset::DEFAULT_TENANT_WEIGHT, units::Seats};

/// One level and the flows that use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct World {
    /// The name of the world, which says what it is about.
    pub name: String,
    /// The seed of its random numbers: service times, arrivals, widths, and which flows share queues.
    pub seed: u64,
    /// The concurrency limit and the queues of the level.
    pub level: LevelShape,
    /// The flows that use the level.
    pub flows: Vec<FlowSpec>,
    /// Seconds that are not measured.
    pub warm_up_seconds: f64,
    /// Seconds that are measured, after those.
    pub seconds: f64,
}

/// The level of a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LevelShape {
    /// The concurrency limit, in seats.
    pub seats: Seats,
    /// The number of queues.
    pub queues: u32,
    /// Queues dealt to each flow.
    pub hand_size: u32,
    /// Requests that a queue holds.
    pub queue_length_limit: u32,
    /// A limit that moves: from each of these seconds on, the limit is that many seats; in ascending order. Before the
    /// first of them it is `seats`. Not for [`run_lending`], where the policy sets the limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(f64, Seats)>,
    /// What the flows of one tenant weigh together at most, where a flow weighs 1; at least 1. Not for [`run_lending`] either.
    #[serde(default = "usual_tenant_weight", skip_serializing_if = "is_usual")]
    pub tenant_weight: u32,
}

/// One client: by default one flow of the core, but its requests may come under many names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowSpec {
    /// The name of the flow in reports.
    pub name: String,
    /// When the requests of the flow arrive.
    pub arrivals: Arrivals,
    /// How long they execute.
    pub service: Service,
    /// Least and greatest number of seats they execute with; drawn evenly for each request.
    pub width: (Seats, Seats),
    /// The final seats, after the response; 0 for none.
    #[serde(default)]
    pub final_seats: Seats,
    /// Seconds for which they are held.
    #[serde(default)]
    pub additional_latency_seconds: f64,
    /// When its first request comes, in seconds from the beginning.
    #[serde(default)]
    pub starts_seconds: f64,
    /// Under how many names its requests come; each name is a flow of the core.
    #[serde(default, skip_serializing_if = "FlowNames::is_one")]
    pub names: FlowNames,
    /// The name, or the stem of the names, that all flows with the same text here share: a namespace that several users
    /// work in. By default nobody shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_name: Option<String>,
    /// Who sends the requests.
    #[serde(default, skip_serializing_if = "Tenant::is_own")]
    pub tenant: Tenant,
    /// Seconds after which a thread of a closed loop cancels a request that still waits; it then thinks and calls again. By
    /// default it waits for ever. An open loop has a deadline instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_seconds: Option<f64>,
    /// When requests are sent at all; by default always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
}

/// Under which names the requests of a client come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FlowNames {
    /// All under the same.
    #[default]
    One,
    /// Each under one of so many, at least one, drawn evenly.
    Of(u32),
    /// Each under a new one.
    Each,
}

/// Who sends the requests of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tenant {
    /// A tenant with the name of the client.
    #[default]
    Own,
    /// The tenant of this name, which may have other clients, too.
    Named(String),
    /// A tenant for each name under which requests come.
    EachName,
}

/// A client that sends requests for `on_seconds`, none for `off_seconds`, and so on. A request that is due while it sends
/// none is sent when it next does: all threads of a closed loop then call at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bursts {
    /// Seconds of each burst; above 0.
    pub on_seconds: f64,
    /// Seconds between bursts; above 0.
    pub off_seconds: f64,
    /// Seconds from the beginning of the world to that of the first whole burst.
    #[serde(default)]
    pub phase_seconds: f64,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Arrivals {
    /// Each thread sends its next request a think time after the response to the last one.
    #[serde(rename_all = "camelCase")]
    Closed {
        /// Threads.
        threads: u32,
        /// Mean think time in seconds; drawn evenly from half to one and a half times that.
        think_seconds: f64,
    },
    /// Requests arrive by a Poisson process, independently of the results of earlier ones, and time
    /// out.
    #[serde(rename_all = "camelCase")]
    Open {
        /// Mean requests in a second; of a client with bursts, in a second of a burst.
        rate: f64,
        /// Seconds after which a waiting request times out.
        deadline_seconds: f64,
    },
    /// As `Open`, but the gaps between requests are drawn independently: not every few dozen of them last equally long in
    /// sum. Near the capacity of the level, queues are as long as those of many independent users.
    #[serde(rename_all = "camelCase")]
    Poisson {
        /// Mean requests in a second; of a client with bursts, in a second of a burst.
        rate: f64,
        /// Seconds after which a waiting request times out.
        deadline_seconds: f64,
    },
}

/// The distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    /// The mean service time, in seconds.
    pub mean_seconds: f64,
    /// The distribution of service times about the mean.
    pub shape: ServiceDistribution,
}

/// The distribution of service times about their mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceDistribution {
    /// All take the mean.
    Constant,
    /// Exponential, cut off at ten times the mean.
    Exponential,
    /// Nine in ten take half the mean, one in ten five and a half times the mean.
    Bimodal,
    /// Some take long, all others take the time for which the mean is as stated. See [`Service::two_mode`].
    #[serde(rename_all = "camelCase")]
    TwoMode {
        /// The part of the requests that take long, from 0 to less than 1.
        long_part: f64,
        /// How long these take, in seconds; at most the mean divided by `long_part`.
        long_seconds: f64,
    },
    /// Pareto. Times above the cut take as long as the cut; the mean is that after cutting.
    #[serde(rename_all = "camelCase")]
    Pareto {
        /// The exponent of the tail, above 1: the smaller, the heavier.
        alpha: f64,
        /// The longest time, in means; above 1.
        cut: f64,
    },
}

impl FlowNames {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_one(&self) -> bool {
        *self == Self::One
    }
}

impl Tenant {
    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

impl Service {
    /// All take `seconds`.
    pub const fn constant(seconds: f64) -> Self {
        Self {
            mean_seconds: seconds,
            shape: ServiceDistribution::Constant,
        }
    }

    /// Exponential of this mean, in seconds.
    pub const fn exponential(seconds: f64) -> Self {
        Self {
            mean_seconds: seconds,
            shape: ServiceDistribution::Exponential,
        }
    }

    /// A part `long_part` takes `long_seconds`, all others take `short_seconds`.
    pub fn two_mode(short_seconds: f64, long_part: f64, long_seconds: f64) -> Self {
        Self {
            mean_seconds: (1.0 - long_part) * short_seconds + long_part * long_seconds,
            shape: ServiceDistribution::TwoMode {
                long_part,
                long_seconds,
            },
        }
    }
}

impl FlowSpec {
    /// A client with one name, requests of one seat and none of the other options.
    pub fn new(name: impl Into<String>, arrivals: Arrivals, service: Service) -> Self {
        Self {
            name: name.into(),
            arrivals,
            service,
            width: (1, 1),
            final_seats: 0,
            additional_latency_seconds: 0.0,
            starts_seconds: 0.0,
            names: FlowNames::One,
            shared_name: None,
            tenant: Tenant::Own,
            patience_seconds: None,
            bursts: None,
        }
    }

    /// As [`FlowSpec::new`], a closed loop of threads with this mean think time in seconds.
    pub fn closed(
        name: impl Into<String>,
        threads: u32,
        service: Service,
        think_seconds: f64,
    ) -> Self {
        let arrivals = Arrivals::Closed {
            threads,
            think_seconds,
        };
        Self::new(name, arrivals, service)
    }

    /// Mean seats of its requests, at most `limit` each.
    pub(super) fn mean_width(&self, limit: Seats) -> f64 {
        let (least, most) = self.width;
        let widths = (least..=most).map(|width| f64::from(width.min(limit)));
        widths.sum::<f64>() / f64::from(most - least + 1)
    }

    /// Mean seat-seconds of a request in a level of `limit` seats, final seats included.
    pub(super) fn mean_work(&self, limit: Seats) -> f64 {
        self.mean_width(limit) * self.service.mean_seconds
            + f64::from(self.final_seats) * self.additional_latency_seconds
    }

    /// The seats that it would use without a limit, on average over bursts and the time between them.
    pub(super) fn demand(&self, limit: Seats) -> f64 {
        let peak = self.peak_demand(limit);
        let Some(bursts) = self.bursts else {
            return peak;
        };
        let period = bursts.on_seconds + bursts.off_seconds;
        match self.arrivals {
            Arrivals::Open { .. } | Arrivals::Poisson { .. } => peak * bursts.on_seconds / period,
            Arrivals::Closed {
                threads,
                think_seconds,
            } => {
                let cycle = self.service.mean_seconds + think_seconds;
                // The last call of a burst ends after it.
                let calls = (bursts.on_seconds / cycle).ceil();
                let rate = f64::from(threads) * calls / period.max(calls * cycle);
                rate * self.mean_work(limit)
            }
        }
    }

    /// The seats that it would use without a limit in the middle of a long burst.
    pub(super) fn peak_demand(&self, limit: Seats) -> f64 {
        match self.arrivals {
            Arrivals::Open { rate, .. } | Arrivals::Poisson { rate, .. } => {
                rate * self.mean_work(limit)
            }
            Arrivals::Closed {
                threads,
                think_seconds,
            } => {
                // A thread gets its response before the final seats are free.
                let cycle = self.service.mean_seconds + think_seconds;
                f64::from(threads) * self.mean_work(limit) / cycle
            }
        }
    }
}

impl LevelShape {
    /// The limit on average over the time from `from` to `to`, in seconds.
    pub(super) fn mean_limit(&self, from: f64, to: f64) -> f64 {
        if self.limits.is_empty() {
            return f64::from(self.seats);
        }
        let starts = std::iter::once((0.0, self.seats)).chain(self.limits.iter().copied());
        let ends = self.limits.iter().map(|(at, _)| *at).chain([to]);
        let seat_seconds = starts.zip(ends).map(|((start, seats), end)| {
            f64::from(seats) * (end.min(to) - start.max(from)).max(0.0)
        });
        seat_seconds.sum::<f64>() / (to - from)
    }
}

fn usual_tenant_weight() -> u32 {
    DEFAULT_TENANT_WEIGHT
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_usual(tenant_weight: &u32) -> bool {
    *tenant_weight == DEFAULT_TENANT_WEIGHT
}

/// A duration of `seconds`, which are not negative.
fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn real(count: usize) -> f64 {
    count as f64
}
