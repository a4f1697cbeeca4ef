//! All that can be seen of a gateway, in one place: what the scrape, the dumps and the layers share.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::MissedTickBehavior};

use super::{
    dumps::Dump,
    dumps_layer::DumpsLayer,
    metrics::{self, Sources},
    names as n,
    own::Own,
    recorder::{Recorder, Refusals, TraceLayer},
    requests::{Registry, SWEEP_PERIOD},
    sampler::{self, Sampler},
};
use fairgate_base::clock::Clock;
use fairgate_core::{apf::Semantics, time::Time};
use fairgate_proxy::fairness::{Enforcement, Hub};

/// How often the facade is kept up.
const UPKEEP: Duration = Duration::from_secs(5);

/// All that can be seen of a gateway.
#[derive(Debug)]
pub struct Sight {
    hub: Arc<Hub>,
    clock: Clock,
    apiserver: Box<str>,
    own: Arc<Own>,
    requests: Arc<Registry>,
    refusals: Box<[Arc<Refusals>]>,
    sampler: Sampler,
}

impl Sight {
    /// What can be seen of `hub`. `apiserver` is the value of the label of this name.
    pub fn new(hub: Arc<Hub>, clock: Clock, apiserver: &str, own: Arc<Own>) -> Arc<Self> {
        pull_from(&own, &hub, &clock);
        Arc::new(Self {
            requests: Arc::default(),
            refusals: (0..hub.cores()).map(|_| Arc::default()).collect(),
            sampler: Sampler::new(clock.now()),
            apiserver: apiserver.into(),
            own,
            hub,
            clock,
        })
    }

    /// The gateway's own metrics, to be told what happens.
    pub fn own(&self) -> &Arc<Own> {
        &self.own
    }

    /// What it sees.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// What is sampled; [`run`](Self::run) does it.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The outermost layer of core `core`. To be made once on each core.
    ///
    /// # Panics
    ///
    /// If the hub has no such core.
    pub fn trace_layer(&self, core: u16) -> TraceLayer {
        let refusals = Arc::clone(&self.refusals[core as usize]);
        TraceLayer::new(Recorder::new(
            self.clock.clone(),
            Arc::clone(&self.requests),
            refusals,
        ))
    }

    /// The layer that answers the dumps on the main port; `control` is where they are made.
    pub fn dumps_layer(self: &Arc<Self>, control: Handle) -> DumpsLayer {
        DumpsLayer::new(Arc::clone(self), control)
    }

    /// Samples, for ever. To be spawned on the control runtime.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(sampler::PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut kept_up, mut swept) = (Time::ZERO, self.clock.now());
        loop {
            ticks.tick().await;
            let now = self.clock.now();
            self.sampler.sample(&self.hub, now);
            if now.since(kept_up) >= UPKEEP {
                kept_up = now;
                self.own.upkeep();
            }
            if now.since(swept) >= SWEEP_PERIOD {
                swept = now;
                self.requests.sweep();
            }
        }
    }

    /// All metrics as text. Takes time in proportion to the series: not for a data core.
    pub fn metrics(&self) -> String {
        let now = self.clock.now();
        let sampled = self.sampler.sampled(now);
        let sources = Sources {
            hub: &self.hub,
            requests: &self.requests,
            refusals: &self.refusals,
            sampled: &sampled,
            now,
        };
        let mut text = metrics::render(&sources, &self.apiserver);
        text.push_str(&self.own.render(now));
        text
    }

    /// A dump. Takes time in proportion to the requests, and waits for other cores: not for a data
    /// core.
    pub async fn dump(&self, dump: Dump) -> String {
        dump.make(&self.hub, &self.clock).await
    }
}

/// Has the facade ask for what the hub knows.
fn pull_from(own: &Own, hub: &Arc<Hub>, clock: &Clock) {
    let (started, clock) = (clock.now(), clock.clone());
    own.pull(&n::UPTIME, move || clock.now().since(started).as_secs_f64());
    let of = Arc::clone(hub);
    own.pull(&n::QUEUED, move || of.queued().into());
    let of = Arc::clone(hub);
    own.pull(&n::LONG_RUNNING, move || of.long_running.running().into());
    let of = Arc::clone(hub);
    own.pull(&n::WATCHES, move || of.watches.running().into());
    let of = Arc::clone(hub);
    own.pull(&n::WATCHES_LIMIT, move || of.watches.most().into());
    let of = Arc::clone(hub);
    own.pull_counter(&n::HELD_BACK, move || {
        let cores = of.core_cells().iter();
        cores.map(|cells| cells.held_back.get()).sum()
    });
    let of = Arc::clone(hub);
    own.pull_counter(&n::PREMATURE_RESETS, move || of.premature.total());
    let of = Arc::clone(hub);
    own.pull_counter(&n::PREMATURE_REFUSED, move || of.premature.refused());
    let of = Arc::clone(hub);
    own.pull(&n::TOTAL_SEATS, move || {
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
        let of = Arc::clone(hub);
        let is = move || f64::from(u8::from(of.enforcement() == mode));
        own.pull_labelled(&n::ENFORCEMENT, Some(("mode", label)), is);
    }
    for (semantics, label) in [
        (Semantics::Compatible, "Compatible"),
        (Semantics::Improved, "Improved"),
    ] {
        let of = Arc::clone(hub);
        let is = move || {
            let view = of.dispatcher().view();
            f64::from(u8::from(view.policy().settings().semantics == semantics))
        };
        own.pull_labelled(&n::SEMANTICS, Some(("semantics", label)), is);
    }
}
