//! Worlds: the demand of flows on one priority level, and what each gets.
//!
//! A [`World`] describes one level and the flows that use it. It is data: it can be written as JSON and read
//! back, and nothing in it depends on virtual time. [`run()`] plays it in virtual time under either semantics,
//! `ideal` computes what a perfectly fair, infinitely divisible server would give, and `measure` compares the
//! two. [`kinds`] draws worlds by seed, [`table`] compares the semantics over many of them.
//!
//! [`run_lending`] plays several at once, whose levels lend each other seats.
//!
//! Not here: real sockets.

pub(crate) mod ideal;
pub mod kinds;
pub(crate) mod measure;
pub mod run;
pub mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use measure::{FlowReport, WorldReport};
pub use run::{run, run_fifo, run_lending};

use fairgate_core::apf::units::Seats;

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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
}

/// One flow.
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
        /// Mean requests in a second.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceDistribution {
    /// All take the mean.
    Constant,
    /// Exponential, cut off at ten times the mean.
    Exponential,
    /// Nine in ten take half the mean, one in ten five and a half times the mean.
    Bimodal,
}

impl FlowSpec {
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

    /// The seats that it would use without a limit.
    pub(super) fn demand(&self, limit: Seats) -> f64 {
        match self.arrivals {
            Arrivals::Open { rate, .. } => rate * self.mean_work(limit),
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

/// A duration of `seconds`, which are not negative.
fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn real(count: usize) -> f64 {
    count as f64
}
