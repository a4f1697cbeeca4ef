//! Load over real sockets: one slice of a scenario against one target.

mod client;
pub(crate) mod gateway_metrics;
pub(crate) mod progress;
pub(crate) mod recorder;
mod request;
mod schedule;

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    events::EventRunner,
    figures::ClientFigures,
    process::{ProcessCost, ProcessMemory, ProcessUse, ProcessorTimes},
    scenario::{LoadSpec, Scenario},
    simulate::ClientBaseline,
    transport::target::LoadTarget,
};
use client::{LoadUser, Timing};
use fairgate_base::clock::Clock;
use gateway_metrics::LevelSample;
use progress::ProgressLine;
use recorder::{IntervalFigures, LoadRecorder};

/// After the end of a slice, its last responses are waited for until so long a time has passed without one. Requests
/// without a response by then count as unanswered.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for the last responses, however many still come, as a multiple of [`PATIENCE`].
const LONGEST_WAIT: u32 = 6;
/// From the start of a slice to its first request.
const LEAD: Duration = Duration::from_millis(20);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct SlicePlan {
    pub(crate) scenario: Arc<Scenario>,
    /// The only client that sends; `None`: all clients send.
    pub(crate) only: Option<String>,
    pub(crate) target: Arc<LoadTarget>,
    /// The addresses of the metrics of the gateway, and of one that replaces it.
    pub(crate) metrics: Vec<Arc<LoadTarget>>,
    /// The process whose cost is measured.
    pub(crate) process: Option<u32>,
    /// The baseline of each client, in the order of the scenario.
    pub(crate) baselines: Vec<ClientBaseline>,
}

/// The results of one slice.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceResult {
    pub(crate) clients: Vec<ClientFigures>,
    pub(crate) series: Vec<ClientSeries>,
    pub(crate) levels: Vec<LevelSample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<ProcessCost>,
    /// The part of the measured time in which each processor was idle.
    pub(crate) idle: Vec<f64>,
}

/// The results of one client over time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientSeries {
    pub(crate) name: String,
    pub(crate) intervals: Vec<IntervalFigures>,
}

/// The bounds of a load, so that nobody harms a machine by mistake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadBounds {
    /// Threads and watches of closed loops together.
    pub(crate) threads: u32,
    /// Requests a second of open loops together.
    pub(crate) rate: f64,
    /// The longest time of one slice, warm-up included.
    pub(crate) duration: Duration,
}

impl LoadBounds {
    /// Returns a message for each bound that a scenario exceeds, which says how to allow it.
    pub(crate) fn check(&self, scenario: &Scenario) -> Vec<String> {
        let threads = scenario
            .clients
            .iter()
            .filter_map(crate::scenario::ClientSpec::threads);
        let threads: u32 = threads.fold(0, u32::saturating_add);
        let rates = scenario.clients.iter().map(|client| match client.load {
            LoadSpec::Closed { .. } => 0.0,
            LoadSpec::Open(open) => {
                let steady = open.ramp.map_or(open.rate, |(to, _)| to.max(open.rate));
                let bursts = open
                    .burst
                    .map_or(0.0, |(size, every)| f64::from(size) / every.as_secs_f64());
                (steady + bursts) * f64::from(client.users)
            }
        });
        let rate: f64 = rates.sum();
        let mut wrong = Vec::new();
        if threads > self.threads {
            wrong.push(format!(
                "it sends {threads} requests at a time; allow that with --max-threads {threads}"
            ));
        }
        if rate > self.rate {
            wrong.push(format!(
                "it sends {rate:.0} requests a second; allow that with --max-rate {rate:.0}"
            ));
        }
        if scenario.whole() > self.duration {
            let seconds = scenario.whole().as_secs();
            wrong.push(format!("it lasts {seconds} s; allow that with --max-duration {seconds}s, or shorten it with --duration"));
        }
        wrong
    }
}

/// Runs one slice. Must be called on a multi-threaded runtime, or on a runtime of its own.
pub(crate) async fn run(
    plan: &SlicePlan,
    events: &mut EventRunner,
    progress: &mut ProgressLine,
) -> SliceResult {
    let scenario = &plan.scenario;
    let (stopping, stop) = watch::channel(false);
    let clock = Clock::system();
    let start = clock.now().plus(LEAD);
    let settled = start.plus(scenario.warm_up);
    let timing = Timing {
        start,
        settled,
        end: settled.plus(scenario.duration),
        stop,
        clock,
    };
    let (mut users, recorders) = start_users(plan, &timing);
    let metrics = gateway_metrics::follow(plan.metrics.clone(), timing.clone());
    let metrics = tokio::spawn(metrics);
    let before = tokio::spawn(use_at_beginning(plan.process, timing.clone()));
    let playing = events.play(scenario, &timing.clock, timing.settled);
    tokio::select! {
        () = show(&timing, &recorders, progress) => {}
        () = playing => {}
    }
    let after = plan.process.map(ProcessUse::read);
    let times_after = ProcessorTimes::read();
    let memory = plan.process.map(ProcessMemory::read);
    stopping.send_replace(true);
    let requests = || {
        recorders
            .iter()
            .map(|(recorder, _)| recorder.requests())
            .sum()
    };
    wait_for_last(&mut users, requests).await;
    // Those that are left are aborted, and count as unanswered.
    users.shutdown().await;
    let (before, times_before) = before.await.unwrap_or_default();
    let process = after.zip(before).zip(memory);
    SliceResult {
        process: process.map(|((after, before), memory)| {
            let cpu = after.cpu_since(before);
            ProcessCost {
                cpu_seconds: cpu.as_secs_f64(),
                busy: cpu.div_duration_f64(scenario.duration),
                memory,
            }
        }),
        idle: times_after.idle_since(&times_before),
        ..collect(&recorders, metrics.await.unwrap_or_default())
    }
}

/// Starts the users, each of which sends its load until the end; with the recorder of each client, and its ideal share.
fn start_users(plan: &SlicePlan, timing: &Timing) -> (JoinSet<()>, Vec<(Arc<LoadRecorder>, f64)>) {
    let scenario = &plan.scenario;
    let mut users = JoinSet::new();
    let mut recorders = Vec::new();
    for (client, baseline) in scenario.clients.iter().zip(&plan.baselines) {
        if plan.only.as_ref().is_some_and(|only| *only != client.name) {
            continue;
        }
        let recorder = Arc::new(LoadRecorder::new(
            &client.name,
            client.users,
            scenario.duration,
        ));
        for number in 0..client.users {
            let user = LoadUser::new(
                scenario,
                client,
                number,
                &baseline.work,
                &plan.target,
                &recorder,
                timing,
            );
            users.spawn(Arc::new(user).run());
        }
        recorders.push((recorder, baseline.ideal_share));
    }
    (users, recorders)
}

/// Waits until all `users` have ended. Returns earlier if in a whole [`PATIENCE`] none of their requests has, `requests`
/// being the number of those that have, and at the latest after [`LONGEST_WAIT`].
async fn wait_for_last(users: &mut JoinSet<()>, requests: impl Fn() -> u64) {
    let mut ended_before = requests();
    for _ in 0..LONGEST_WAIT {
        let all_ended = async { while users.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, all_ended).await.is_ok() {
            return;
        }
        let ended = requests();
        if ended == ended_before {
            return;
        }
        ended_before = ended;
    }
}

fn collect(recorders: &[(Arc<LoadRecorder>, f64)], levels: Vec<LevelSample>) -> SliceResult {
    let clients = recorders
        .iter()
        .map(|(recorder, ideal_share)| ClientFigures {
            ideal_share: *ideal_share,
            ..recorder.figures()
        });
    let series = recorders.iter().map(|(recorder, _)| ClientSeries {
        name: recorder.name().to_owned(),
        intervals: recorder.intervals(),
    });
    SliceResult {
        clients: clients.collect(),
        series: series.collect(),
        levels,
        process: None,
        idle: Vec::new(),
    }
}

/// What a process, and the processors, have used when the measured time begins.
async fn use_at_beginning(
    process: Option<u32>,
    timing: Timing,
) -> (Option<ProcessUse>, ProcessorTimes) {
    tokio::time::sleep_until(timing.clock.instant(timing.settled)).await;
    (process.map(ProcessUse::read), ProcessorTimes::read())
}

/// Shows the progress until the end of the measured time.
async fn show(
    timing: &Timing,
    recorders: &[(Arc<LoadRecorder>, f64)],
    progress: &mut ProgressLine,
) {
    let whole = timing.end.since(timing.start);
    let mut next = timing.start;
    while next < timing.end {
        next = next.plus(ProgressLine::PERIOD).min(timing.end);
        tokio::time::sleep_until(timing.clock.instant(next)).await;
        let elapsed = next.since(timing.start);
        let measured = next.since(timing.settled);
        progress.show(
            elapsed,
            whole,
            measured,
            recorders.iter().map(|(recorder, _)| &**recorder),
        );
    }
    progress.clear();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Waits for `users`, of which one after the other ends every `pause`; returns how many have ended, and after what
    /// time.
    async fn waited(users: u32, pause: Duration) -> (u64, Duration) {
        let ended = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for number in 1..=users {
            let ended = Arc::clone(&ended);
            tasks.spawn(async move {
                tokio::time::sleep(pause * number).await;
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let start = tokio::time::sleep(Duration::ZERO).deadline();
        wait_for_last(&mut tasks, || ended.load(Ordering::Relaxed)).await;
        let end = tokio::time::sleep(Duration::ZERO).deadline();
        (ended.load(Ordering::Relaxed), end - start)
    }

    #[tokio::test(start_paused = true)]
    async fn last_responses_are_waited_for_as_long_as_some_come() {
        assert_eq!(waited(0, PATIENCE).await, (0, Duration::ZERO));
        // A slow machine: a response each second, longer than the patience in all.
        let second = Duration::from_secs(1);
        assert_eq!(waited(12, second).await, (12, 12 * second));
        // A server that responds to nobody.
        assert_eq!(waited(3, PATIENCE * 2).await, (0, PATIENCE));
        // One that would go on for ever.
        let (ended, after) = waited(1000, second).await;
        assert_eq!(after, PATIENCE * LONGEST_WAIT);
        assert!((29..=30).contains(&ended), "{ended}");
    }
}
