//! Everything observable of a gateway: what scrapes, dumps and layers share.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    task::{JoinError, spawn_blocking},
    time::MissedTickBehavior,
};

use crate::{
    counting::{
        cell_metrics::{self, CellSources},
        flow_states::{self, LevelFlows},
        recorder::{RecorderCounts, RefusalCounts, RequestRecorder, TraceLayer},
        request_counts::{RequestRegistry, SWEEP_PERIOD},
        request_phases::{self, RequestPhases},
        sampler::{self, Sampler},
        server_metrics,
        user_counts::{self, UserRegistry},
        user_metrics,
        watch_counts::WatchCounts,
    },
    dumps::{Dump, DumpSources, ProvidedDumps},
    flow_metrics::{self, NamedFlow},
    memory_limit,
    metrics::{catalogue, exposition::Exposition, gateway_metrics::GatewayMetrics},
};
use fairgate_base::clock::Clock;
use fairgate_core::{apf::Semantics, time::Time};
use fairgate_proxy::fairness::{Enforcement, FlowControl};
use fairgate_upstream::servers::UpstreamServers;

/// How often [`GatewayMetrics::upkeep`] is called.
const UPKEEP: Duration = Duration::from_secs(5);

/// Everything observable of a gateway.
#[derive(Debug)]
pub struct Telemetry {
    flow_control: Arc<FlowControl>,
    clock: Clock,
    apiserver: Box<str>,
    metrics: Arc<GatewayMetrics>,
    requests: Arc<RequestRegistry>,
    refusals: Box<[Arc<RefusalCounts>]>,
    phases: Box<[Arc<RequestPhases>]>,
    /// Refusals by user.
    refused_users: Arc<UserRegistry>,
    /// Seat-microseconds by user.
    seat_users: Arc<UserRegistry>,
    /// Evictions that failed, by user.
    failed_evictions: Arc<UserRegistry>,
    sampler: Sampler,
    /// The maximum number of flows of each level, and of users, that have metrics of their own.
    top_flows: usize,
    provided: Arc<ProvidedDumps>,
    /// The servers behind the gateway, if there are several.
    servers: Arc<OnceLock<Arc<UpstreamServers>>>,
}

impl Telemetry {
    /// The telemetry of `flow_control`. `apiserver` is the value of the label of this name;
    /// of each level, and of its users, at most `top_flows` have metrics of their own by size, and as many by wait.
    pub fn new(
        flow_control: Arc<FlowControl>,
        clock: Clock,
        apiserver: &str,
        metrics: Arc<GatewayMetrics>,
        top_flows: usize,
    ) -> Arc<Self> {
        observe_flow_control(&metrics, &flow_control, &clock);
        if memory_limit::read().is_some() {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            metrics.observe_gauge(&catalogue::MEMORY_LIMIT, || {
                memory_limit::read().map_or(f64::NAN, |bytes| bytes as f64)
            });
        }
        let cores = flow_control.cores();
        Arc::new(Self {
            phases: (0..cores).map(|_| Arc::default()).collect(),
            refused_users: Arc::default(),
            seat_users: Arc::default(),
            failed_evictions: Arc::default(),
            requests: Arc::default(),
            refusals: (0..cores).map(|_| Arc::default()).collect(),
            sampler: Sampler::new(clock.now()),
            apiserver: apiserver.into(),
            metrics,
            flow_control,
            clock,
            top_flows,
            provided: Arc::default(),
            servers: Arc::default(),
        })
    }

    /// Shows several servers behind the gateway from now on. To be called once.
    pub fn set_servers(&self, servers: Arc<UpstreamServers>) {
        let _ = self.servers.set(servers);
    }

    /// The metrics that other modules record into.
    pub fn metrics(&self) -> &Arc<GatewayMetrics> {
        &self.metrics
    }

    /// The dumps that other crates make.
    pub fn provided_dumps(&self) -> &ProvidedDumps {
        &self.provided
    }

    #[cfg(test)]
    pub(super) fn flow_control(&self) -> &Arc<FlowControl> {
        &self.flow_control
    }

    #[cfg(test)]
    pub(super) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The outermost layer of core `core`. To be made once on each core.
    ///
    /// # Panics
    ///
    /// If flow control has no such core.
    pub fn trace_layer(&self, core: u16) -> TraceLayer {
        let counts = RecorderCounts {
            requests: Arc::clone(&self.requests),
            refusals: Arc::clone(&self.refusals[core as usize]),
            phases: Arc::clone(&self.phases[core as usize]),
            refused_users: Arc::clone(&self.refused_users),
            seat_users: Arc::clone(&self.seat_users),
            failed_evictions: Arc::clone(&self.failed_evictions),
        };
        TraceLayer::new(RequestRecorder::new(self.clock.clone(), counts))
    }

    /// Samples until it is dropped. To be spawned on the control runtime.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(sampler::PERIOD);
        // After the process was stopped for a while, a sample for each missed tick would say nothing.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut kept_up, mut swept) = (Time::ZERO, self.clock.now());
        let mut users_swept = swept;
        loop {
            ticks.tick().await;
            let now = self.clock.now();
            self.sampler.sample(&self.flow_control, now);
            if now.since(kept_up) >= UPKEEP {
                kept_up = now;
                self.metrics.upkeep();
            }
            if now.since(users_swept) >= user_counts::SWEEP_PERIOD {
                users_swept = now;
                self.refused_users.sweep();
                self.seat_users.sweep();
                self.failed_evictions.sweep();
            }
            if now.since(swept) >= SWEEP_PERIOD {
                swept = now;
                self.requests.sweep();
            }
        }
    }

    /// All metrics as text, made on the blocking pool. Waits at most a second for cores to describe their
    /// requests. To be called on the control runtime.
    ///
    /// # Errors
    ///
    /// If rendering panicked.
    pub async fn metrics_text(self: &Arc<Self>) -> Result<String, JoinError> {
        let telemetry = Arc::clone(self);
        let (levels, notable) = spawn_blocking(move || {
            let levels = flow_states::read(&telemetry.flow_control);
            let notable = flow_metrics::notable(&levels, telemetry.top_flows);
            (levels, notable)
        })
        .await?;
        let named = flow_metrics::name(&self.flow_control, notable, &self.sampler).await;
        let telemetry = Arc::clone(self);
        spawn_blocking(move || telemetry.render_metrics(&levels, &named)).await
    }

    /// All metrics as text. Takes time in proportion to the series: not for a data core.
    fn render_metrics(&self, levels: &[LevelFlows], flows: &[NamedFlow]) -> String {
        let now = self.clock.now();
        let sampled = self.sampler.sampled(now);
        let sources = CellSources {
            flow_control: &self.flow_control,
            requests: &self.requests,
            refusals: &self.refusals,
            sampled: &sampled,
            now,
        };
        let mut text = Exposition::with_label(catalogue::APISERVER, &self.apiserver);
        cell_metrics::write(&mut text, &sources);
        flow_metrics::write_levels(&mut text, levels, &self.sampler, now);
        flow_metrics::write_flows(&mut text, flows, now);
        request_phases::write(&mut text, &self.phases);
        let names = levels.iter().map(|level| &*level.level).collect();
        let (refused, most) = (&self.refused_users, self.top_flows);
        user_metrics::write_refusals(&mut text, refused, most, &names);
        user_metrics::write_seat_seconds(&mut text, &self.seat_users, most, &names);
        user_metrics::write_failed_evictions(&mut text, &self.failed_evictions, most);
        WatchCounts::read(&self.flow_control).write(&mut text, self.top_flows);
        if let Some(servers) = self.servers.get() {
            server_metrics::write(&mut text, servers);
        }
        self.metrics.write(&mut text, now);
        text.finish()
    }

    /// A dump. Takes time in proportion to the requests, and waits for other cores: not for a data
    /// core.
    pub(crate) async fn dump(&self, dump: Dump) -> String {
        let sources = DumpSources {
            flow_control: Arc::clone(&self.flow_control),
            clock: self.clock.clone(),
            refused_users: Arc::clone(&self.refused_users),
            seat_users: Arc::clone(&self.seat_users),
            provided: Arc::clone(&self.provided),
            servers: self.servers.get().cloned(),
        };
        dump.make(&sources).await
    }
}

/// Registers what the long heads of requests in progress take.
fn observe_long_heads(metrics: &GatewayMetrics, flow_control: &Arc<FlowControl>) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |bytes: usize| bytes as f64;
    let [now, most] = [(); 2].map(|()| Arc::clone(flow_control));
    metrics.observe_gauge(&catalogue::LONG_HEAD_BYTES, move || {
        number(now.long_heads.held().now)
    });
    metrics.observe_gauge(&catalogue::LONG_HEAD_BYTES_PEAK, move || {
        number(most.long_heads.held().most)
    });
}

/// Registers the metrics that flow control keeps.
fn observe_flow_control(metrics: &GatewayMetrics, flow_control: &Arc<FlowControl>, clock: &Clock) {
    let (started, clock) = (clock.now(), clock.clone());
    metrics.observe_gauge(&catalogue::UPTIME, move || {
        clock.now().since(started).as_secs_f64()
    });
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::QUEUED, move || of.queued().into());
    observe_long_heads(metrics, flow_control);
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::LONG_RUNNING, move || {
        of.long_running.running().into()
    });
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::WATCHES, move || of.watches.running().into());
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::WATCHES_LIMIT, move || of.watches.limit().into());
    let of = Arc::clone(flow_control);
    metrics.observe_counter(&catalogue::HELD_BACK, move || {
        let cores = of.core_cells().iter();
        cores.map(|cells| cells.held_back.get()).sum()
    });
    let of = Arc::clone(flow_control);
    metrics.observe_counter(&catalogue::PREMATURE_RESETS, move || of.premature.total());
    let of = Arc::clone(flow_control);
    metrics.observe_counter(&catalogue::PREMATURE_REFUSED, move || {
        of.premature.refused()
    });
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::WAIT_LIMIT, move || {
        of.wait_limit().as_secs_f64()
    });
    let of = Arc::clone(flow_control);
    metrics.observe_gauge(&catalogue::TOTAL_SEATS, move || {
        of.dispatcher()
            .view()
            .policy()
            .settings()
            .total_seats
            .into()
    });
    for (mode, label) in [
        (Enforcement::Enforce, "enforce"),
        (Enforcement::Observe, "observe"),
        (Enforcement::Off, "off"),
    ] {
        let of = Arc::clone(flow_control);
        let is = move || f64::from(u8::from(of.enforcement() == mode));
        metrics.observe_labelled_gauge(&catalogue::ENFORCEMENT, ("mode", label), is);
    }
    for (semantics, label) in [
        (Semantics::Compatible, "Compatible"),
        (Semantics::Improved, "Improved"),
    ] {
        let of = Arc::clone(flow_control);
        let is = move || {
            let view = of.dispatcher().view();
            f64::from(u8::from(view.policy().settings().semantics == semantics))
        };
        metrics.observe_labelled_gauge(&catalogue::SEMANTICS, ("semantics", label), is);
    }
}
