//! Measures a scenario against one or several targets, in turns.
//!
//! In each round every target has its turn, and each round begins with another target, so that a machine that becomes
//! slower or faster meanwhile affects all of them equally.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use crate::{
    events::EventRunner,
    figures::{self, ClientFigures},
    load::{self, SlicePlan, SliceResult, progress::ProgressLine},
    local::{LocalPlan, LocalSetup},
    scenario::{Scenario, expectation::ComparisonBase, policy_objects},
    simulate::{self, ClientBaseline},
    transport::target::LoadTarget,
    upstream::UpstreamStats,
};

/// A server or gateway that is measured, with its name in the report.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) place: ContenderPlace,
}

/// Where a contender is.
#[derive(Clone, Debug)]
pub(crate) enum ContenderPlace {
    /// It runs already.
    Running {
        target: Arc<LoadTarget>,
        metrics: Option<Arc<LoadTarget>>,
        /// The control address of its stand-in server.
        control: Option<Arc<LoadTarget>>,
        /// The process whose cost is measured.
        process: Option<u32>,
    },
    /// It is started for each slice.
    Local {
        file: PathBuf,
        gateway: Option<PathBuf>,
        fairness: bool,
    },
}

/// The results of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) name: String,
    /// All clients together, a slice for each round.
    pub(crate) slices: Vec<SliceResult>,
    /// Each client that expectations refer to, alone.
    pub(crate) alone: Vec<(String, Vec<SliceResult>)>,
    /// The most requests at the server at once.
    pub(crate) peak: Option<usize>,
    /// What could not be done.
    pub(crate) failures: BTreeSet<String>,
    /// What the reader should know about the figures.
    pub(crate) remarks: BTreeSet<String>,
}

impl Measurement {
    /// The medians over the rounds.
    pub(crate) fn medians(&self) -> Vec<ClientFigures> {
        medians(&self.slices)
    }
}

/// The medians over slices.
pub(crate) fn medians(slices: &[SliceResult]) -> Vec<ClientFigures> {
    let slices: Vec<Vec<ClientFigures>> =
        slices.iter().map(|slice| slice.clients.clone()).collect();
    figures::medians(&slices)
}

/// Measures `scenario` against all contenders, `rounds` times. With `alone_for`, the clients that expectations compare
/// with themselves alone are measured alone at these contenders.
///
/// # Errors
///
/// When a contender cannot be started.
pub(crate) async fn measure(
    scenario: &Arc<Scenario>,
    contenders: &[Contender],
    rounds: u32,
    alone_for: impl Fn(usize) -> bool,
    progress: &mut ProgressLine,
) -> anyhow::Result<Vec<Measurement>> {
    let compiled = policy_objects::compile(scenario, &scenario.policy);
    let compiled =
        compiled.map_err(|findings| anyhow::anyhow!("the policy is invalid: {findings:?}"))?;
    let baselines = simulate::baselines(scenario, &Arc::new(compiled));
    let alone = alone_clients(scenario);
    let mut measurements: Vec<Measurement> = contenders
        .iter()
        .map(|contender| Measurement {
            name: contender.name.clone(),
            slices: Vec::new(),
            alone: alone
                .iter()
                .map(|name| (name.clone(), Vec::new()))
                .collect(),
            peak: None,
            failures: BTreeSet::new(),
            remarks: BTreeSet::new(),
        })
        .collect();
    for round in 0..rounds as usize {
        for turn in 0..contenders.len() {
            let index = (turn + round) % contenders.len();
            let (contender, measurement) = (&contenders[index], &mut measurements[index]);
            progress.heading(format!(
                "{}, round {} of {rounds}:",
                contender.name,
                round + 1
            ));
            let slice = slice(scenario, contender, None, &baselines, measurement, progress).await?;
            measurement.slices.push(slice);
            if !alone_for(index) {
                continue;
            }
            for (at, client) in alone.iter().enumerate() {
                progress.heading(format!(
                    "{}, {client} alone, round {} of {rounds}:",
                    contender.name,
                    round + 1
                ));
                let only = Some(client.clone());
                let slice =
                    self::slice(scenario, contender, only, &baselines, measurement, progress)
                        .await?;
                measurement.alone[at].1.push(slice);
            }
        }
    }
    Ok(measurements)
}

/// The clients that expectations compare with themselves alone.
fn alone_clients(scenario: &Scenario) -> Vec<String> {
    let referring = scenario
        .expect
        .iter()
        .filter(|expectation| expectation.refers_to(ComparisonBase::Alone));
    let names: BTreeSet<String> = referring
        .filter_map(|expectation| expectation.who.clone())
        .collect();
    names.into_iter().collect()
}

async fn slice(
    scenario: &Arc<Scenario>,
    contender: &Contender,
    only: Option<String>,
    baselines: &[ClientBaseline],
    measurement: &mut Measurement,
    progress: &mut ProgressLine,
) -> anyhow::Result<SliceResult> {
    let plan = |target: &Arc<LoadTarget>, metrics: Vec<Arc<LoadTarget>>, process| SlicePlan {
        scenario: Arc::clone(scenario),
        only: only.clone(),
        target: Arc::clone(target),
        metrics,
        process,
        baselines: baselines.to_vec(),
    };
    match &contender.place {
        ContenderPlace::Running {
            target,
            metrics,
            control,
            process,
        } => {
            let mut events = EventRunner {
                control: control.clone(),
                ..EventRunner::default()
            };
            let result = load::run(
                &plan(target, metrics.iter().cloned().collect(), *process),
                &mut events,
                progress,
            )
            .await;
            measurement.failures.extend(events.failures);
            if let (Some(metrics), true) = (metrics, result.levels.is_empty()) {
                measurement.remarks.insert(format!(
                    "{}: no priority level could be read from {}/metrics, so there are no plots of queues and seats",
                    contender.name, metrics.url
                ));
            }
            Ok(result)
        }
        ContenderPlace::Local {
            file,
            gateway,
            fairness,
        } => {
            let local = LocalPlan {
                file: file.clone(),
                scenario: Arc::clone(scenario),
                gateway: gateway.clone(),
                fairness: *fairness,
            };
            let mut setup = LocalSetup::start(&local).await?;
            let plan = plan(&setup.target, setup.metrics.clone(), setup.gateway_id());
            let result = load::run(&plan, &mut setup.events, progress).await;
            measurement
                .failures
                .append(&mut setup.events.failures.drain(..).collect());
            if let (Ok(UpstreamStats { peak, .. }), true) = (setup.stats().await, only.is_none()) {
                measurement.peak = measurement.peak.max(Some(peak));
            }
            Ok(result)
        }
    }
}
