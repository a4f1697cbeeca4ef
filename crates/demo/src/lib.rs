//! The demonstration: shows the effect of fairness, without other software. It is what `fairgate demo` runs.
//!
//! Two real gateways run side by side over loopback sockets, each in front of a stand-in API server
//! (`upstream`). Both have ten seats and get the same load (`load`): an elephant and four mice. One uses
//! shuffle sharding by user; the other has one queue for all. Or, as `comparison` says, each side has several
//! gateways: one side shares ten seats for each of them as a fleet, the other has divided them evenly. While they run, `live`
//! shows seats, queues and latencies; at the end `report` shows the results.
//!
//! Clients start one after the other during a warm-up. Requests that start after it and before the stop are
//! counted.
//!
//! Not here: how a gateway is composed. The caller starts each of them as [`GatewayPlan`] says.

mod client;
mod comparison;
mod figures;
mod flow;
mod gateway;
mod live;
mod load;
mod report;
mod stall;
mod upstream;

use std::{
    io::{self, Write},
    time::Duration,
};

use tokio::{
    runtime::{self, Runtime},
    sync::watch,
    task::JoinSet,
};

pub use comparison::{DemoComparison, SEATS_OF_GATEWAY};
pub use gateway::{
    DemoGateway, DemoUser, FleetPlace, GatewayLoad, GatewayPlan, SeatSource, StartFailure,
};
pub use live::ProgressDisplay;
pub use load::{ELEPHANT_CONNECTIONS, users};
pub use report::{DemoReport, FlowFigures, SideFigures};

use fairgate_base::{clock::Clock, descriptor_limit::raise_descriptor_limit, tasks};
use fairgate_core::{sync::Arc, time::Time};
use flow::DemoFlow;
use live::{LiveView, SideProgress};
use load::LoadSettings;
use stall::StallWatch;
use upstream::{ServerModel, StandInServer};

/// The priority level of all requests in the policies.
pub const LEVEL: &str = "demo";
/// The policy with fairness.
pub const FAIR: &str = include_str!("fair.yaml");
/// The policy without fairness.
pub const FIFO: &str = include_str!("fifo.yaml");

/// The warm-up in which clients start, and the time for the last responses; at most a quarter of the run.
const SETTLING: Duration = Duration::from_secs(1);
/// Open files needed: both ends of every connection, for all gateways, and a reserve.
const DESCRIPTORS: u64 = 1600;
/// How long to wait for the last responses; requests without one by then count as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the demonstration cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No socket, or no runtime.
    #[error("cannot start the {what} of the demonstration")]
    Io {
        /// What cannot be started, such as `clients`.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A gateway cannot start.
    #[error(transparent)]
    Start(StartFailure),
    /// Too few file descriptors: both ends of every connection are in this process.
    #[error(
        "the demonstration needs {DESCRIPTORS} open files, and the limit is {limit}; raise it with \
         `ulimit -n {DESCRIPTORS}`"
    )]
    Descriptors {
        /// The limit of the process.
        limit: u64,
    },
    /// The embedded settings of the clients cannot be used.
    #[error("the built-in settings are invalid: {0}")]
    Embedded(String),
    /// No request was served.
    #[error("no request was served {side}; last error: {failure}")]
    NothingServed {
        /// The gateway: with or without fairness.
        side: &'static str,
        /// The last error of a client.
        failure: String,
    },
    /// The progress cannot be shown.
    #[error("cannot write")]
    Write(#[source] io::Error),
}

/// Starts a gateway.
pub type StartGateway<'a> = dyn Fn(GatewayPlan) -> Result<Box<dyn DemoGateway>, StartFailure> + 'a;

/// Runs for about `length`, or until `interrupt` completes, showing progress on `out`; returns the results. `start` starts each
/// gateway. Must not be called on a runtime.
///
/// # Errors
///
/// [`DemoError`], when it cannot run or cannot write.
pub fn run(
    start: &StartGateway<'_>,
    comparison: DemoComparison,
    length: Duration,
    display: ProgressDisplay,
    interrupt: impl Future<Output = ()>,
    out: &mut dyn Write,
) -> Result<DemoReport, DemoError> {
    if let Some(limit) = raise_descriptor_limit().filter(|limit| *limit < DESCRIPTORS) {
        return Err(DemoError::Descriptors { limit });
    }
    let runtime = runtime()?;
    let sides = sides(start, comparison, &runtime)?;
    let mut live = LiveView::new(comparison, display, length);
    let run = Run::new(comparison, length);
    let report = runtime.block_on(run.drive(&sides, interrupt, &mut live, out));
    drop(sides);
    runtime.shutdown_background();
    report
}

/// Starts both sides.
fn sides(
    start: &StartGateway<'_>,
    comparison: DemoComparison,
    runtime: &Runtime,
) -> Result<[Side; 2], DemoError> {
    let [with, without] = comparison.sides();
    let (server, gateways) = (comparison.server(), comparison.gateways());
    let own = vec![SeatSource::Own(SEATS_OF_GATEWAY); gateways as usize];
    let place = |number| {
        SeatSource::Fleet(FleetPlace {
            number,
            gateways,
            seats: server.workers,
        })
    };
    let (shared, second) = match comparison {
        DemoComparison::Fairness => (own.clone(), FIFO),
        DemoComparison::Fleet { .. } => ((0..gateways).map(place).collect(), FAIR),
    };
    Ok([
        Side::start(start, with, FAIR, server, &shared, runtime)?,
        Side::start(start, without, second, server, &own, runtime)?,
    ])
}

/// The runtime of the clients and the stand-ins; the gateways have their own.
fn runtime() -> Result<Runtime, DemoError> {
    runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("fairgate-demo")
        .enable_all()
        .build()
        .map_err(|source| DemoError::Io {
            what: "clients",
            source,
        })
}

/// Gateways, the server behind them, and their users.
#[derive(Debug)]
struct Side {
    name: &'static str,
    gateways: Vec<Box<dyn DemoGateway>>,
    upstream: StandInServer,
    flows: Vec<Arc<DemoFlow>>,
}

impl Side {
    fn start(
        start: &StartGateway<'_>,
        name: &'static str,
        policy: &'static str,
        server: ServerModel,
        seats: &[SeatSource],
        runtime: &Runtime,
    ) -> Result<Self, DemoError> {
        let upstream = runtime.block_on(StandInServer::start(server));
        let upstream = upstream.map_err(|source| DemoError::Io {
            what: "stand-in API server",
            source,
        })?;
        let flows = load::flows();
        let plan = |seats: &SeatSource| GatewayPlan {
            policy,
            users: users(),
            upstream: upstream.address(),
            seats: seats.clone(),
        };
        let gateways: Result<_, _> = seats.iter().map(|seats| start(plan(seats))).collect();
        Ok(Self {
            name,
            gateways: gateways.map_err(DemoError::Start)?,
            upstream,
            flows,
        })
    }

    fn picture(&self) -> SideProgress {
        let mut load = GatewayLoad::default();
        for gateway in &self.gateways {
            load.add(gateway.load());
        }
        SideProgress::of(load, &self.flows)
    }

    fn report(
        &self,
        comparison: DemoComparison,
        measured: Duration,
    ) -> Result<SideFigures, DemoError> {
        let most = self.upstream.most_at_once();
        let report = SideFigures::of(&self.flows, most, measured, comparison);
        let served = report.flows.iter().any(|flow| flow.ok > 0);
        let failure = report.flows.iter().find_map(|flow| flow.failure.as_ref());
        match failure {
            Some(failure) if !served => Err(DemoError::NothingServed {
                side: self.name,
                failure: failure.clone(),
            }),
            _ => Ok(report),
        }
    }
}

/// The schedule of a run.
struct Run {
    comparison: DemoComparison,
    clock: Clock,
    start: Time,
    settled: Time,
    stop: Time,
    stopping: watch::Sender<bool>,
}

impl Run {
    fn new(comparison: DemoComparison, length: Duration) -> Self {
        let clock = Clock::system();
        let start = clock.now();
        // Emptying the queues takes as long as filling them.
        let settling = (length / 4).min(SETTLING);
        Self {
            comparison,
            start,
            settled: start.plus(settling),
            stop: start.plus(length.saturating_sub(settling)),
            stopping: watch::Sender::new(false),
            clock,
        }
    }

    async fn drive(
        &self,
        sides: &[Side; 2],
        interrupt: impl Future<Output = ()>,
        live: &mut LiveView,
        out: &mut dyn Write,
    ) -> Result<DemoReport, DemoError> {
        let stalls = StallWatch::start(self.clock.clone());
        let mut clients = JoinSet::new();
        for side in sides {
            let mut started = load::start(&self.course(side), &side.flows)
                .map_err(|error| DemoError::Embedded(error.to_string()))?;
            clients.spawn(tasks::boxed(async move {
                while started.join_next().await.is_some() {}
            }));
        }
        let interrupted = tokio::select! {
            shown = self.show(sides, live, out) => shown.map(|()| false),
            () = interrupt => Ok(true),
        };
        let stopped = self.clock.now();
        self.stopping.send_replace(true);
        let all_ended = async { while clients.join_next().await.is_some() {} };
        // Requests without a response by then are aborted, and reported as failed.
        let _ = tokio::time::timeout(PATIENCE, all_ended).await;
        clients.shutdown().await;
        let interrupted = interrupted.map_err(DemoError::Write)?;
        let measured = stopped.since(self.settled);
        let [with, without] = sides;
        Ok(DemoReport {
            comparison: self.comparison,
            with: with.report(self.comparison, measured)?,
            without: without.report(self.comparison, measured)?,
            interrupted,
            measured,
            stalled: stalls.longest(),
        })
    }

    fn course(&self, side: &Side) -> LoadSettings {
        LoadSettings {
            gateways: side
                .gateways
                .iter()
                .map(|gateway| gateway.address())
                .collect(),
            mouse_connections: self.comparison.mouse_connections(),
            start: self.start,
            settled: self.settled,
            stop: self.stopping.subscribe(),
            clock: self.clock.clone(),
        }
    }

    /// Shows the progress until it is time to stop.
    async fn show(
        &self,
        sides: &[Side; 2],
        live: &mut LiveView,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut next = self.start;
        while next < self.stop {
            next = next.plus(live.period()).min(self.stop);
            tokio::time::sleep_until(self.clock.instant(next)).await;
            let elapsed = next.since(self.start);
            let pictures = [sides[0].picture(), sides[1].picture()];
            live.show(elapsed, &pictures, out)?;
        }
        Ok(())
    }
}
