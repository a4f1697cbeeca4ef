//! Measures a scenario against one or several targets, in turns.
//!
//! In each round every target has its turn, and each round begins with another target, so that a machine that becomes
//! slower or faster meanwhile affects all of them equally. Or the first one is measured in pairs with each other one.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use crate::{
    events::EventRunner,
    figures::{self, ClientFigures},
    load::{self, SlicePlan, SliceResult, progress::ProgressLine},
    local::{LocalPlan, LocalSetup},
    scenario::{Scenario, expectation::ComparisonBase, policy_objects},
    simulate::{self, ClientBaseline},
    transport::target::LoadTarget,
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
    /// Which slice of the first contender, and which of this one were measured together; empty for the first.
    pub(crate) pairs: Vec<(usize, usize)>,
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
    /// Without results yet.
    pub(crate) fn new(name: &str, alone: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            slices: Vec::new(),
            pairs: Vec::new(),
            alone: alone
                .iter()
                .map(|name| (name.clone(), Vec::new()))
                .collect(),
            peak: None,
            failures: BTreeSet::new(),
            remarks: BTreeSet::new(),
        }
    }

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

/// How contenders take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeasurePlan {
    pub(crate) rounds: u32,
    /// In each round the first contender is measured beside each other one, directly before or after it. So a machine that
    /// becomes slower or faster within a round changes the ratios of the two as little as possible.
    pub(crate) pairs: bool,
}

impl MeasurePlan {
    /// Groups of contenders, by their indices, that are measured one after the other in a round. Each round begins with
    /// another contender, and a pair with the other one.
    fn groups(self, round: usize, contenders: usize) -> Vec<Vec<usize>> {
        if !self.pairs {
            let turns = (0..contenders).map(|turn| (turn + round) % contenders);
            return vec![turns.collect()];
        }
        let others = contenders.saturating_sub(1).max(1);
        let others = (0..others).map(|turn| 1 + (turn + round) % others);
        let pairs = others.map(|other| match (other + round) % 2 {
            0 => vec![other, 0],
            _ => vec![0, other],
        });
        pairs.collect()
    }
}

/// Measures `scenario` against all contenders. With `alone_for`, the clients that expectations compare with themselves alone
/// are measured alone at these contenders.
///
/// # Errors
///
/// When a contender cannot be started.
pub(crate) async fn measure(
    scenario: &Arc<Scenario>,
    contenders: &[Contender],
    plan: MeasurePlan,
    alone_for: impl Fn(usize) -> bool,
    progress: &mut ProgressLine,
) -> anyhow::Result<Vec<Measurement>> {
    let compiled = policy_objects::compile(scenario, scenario.lasting_policy());
    let compiled =
        compiled.map_err(|findings| anyhow::anyhow!("the policy is invalid: {findings:?}"))?;
    // What requests cost, and the ideal, are computed once, so that all contenders are measured by the same.
    let baselines = simulate::baselines(scenario, &Arc::new(compiled));
    let alone = alone_clients(scenario);
    let mut measurements: Vec<Measurement> = contenders
        .iter()
        .map(|contender| Measurement::new(&contender.name, &alone))
        .collect();
    for round in 0..plan.rounds as usize {
        let part = format!("round {} of {}", round + 1, plan.rounds);
        for group in plan.groups(round, contenders.len()) {
            for index in group.iter().copied() {
                let (contender, measurement) = (&contenders[index], &mut measurements[index]);
                progress.heading(format!("{}, {part}:", contender.name));
                let slice =
                    slice(scenario, contender, None, &baselines, measurement, progress).await?;
                measurement.slices.push(slice);
            }
            note_pairs(&mut measurements, &group);
        }
        for index in (0..contenders.len()).filter(|index| alone_for(*index)) {
            let (contender, measurement) = (&contenders[index], &mut measurements[index]);
            for (at, client) in alone.iter().enumerate() {
                progress.heading(format!("{}, {client} alone, {part}:", contender.name));
                let only = Some(client.clone());
                let slice =
                    slice(scenario, contender, only, &baselines, measurement, progress).await?;
                measurement.alone[at].1.push(slice);
            }
        }
    }
    Ok(measurements)
}

/// Notes which slices of a group belong together: the last one of the first contender, and the last ones of others.
fn note_pairs(measurements: &mut [Measurement], group: &[usize]) {
    let Some(first) = measurements[0].slices.len().checked_sub(1) else {
        return;
    };
    for index in group.iter().copied().filter(|index| *index > 0) {
        let measurement = &mut measurements[index];
        measurement
            .pairs
            .push((first, measurement.slices.len() - 1));
    }
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
                controls: control.iter().cloned().collect(),
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
            // Anew for each slice: warm connections and full queues of one would change the figures of the next.
            let mut setup = LocalSetup::start(&local).await?;
            let plan = plan(&setup.target, setup.metrics.clone(), setup.gateway_id());
            let result = load::run(&plan, &mut setup.events, progress).await;
            measurement
                .failures
                .append(&mut setup.events.failures.drain(..).collect());
            if let (Ok(peak), true) = (setup.peak().await, only.is_none()) {
                measurement.peak = measurement.peak.max(Some(peak));
            }
            Ok(result)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_turns_each_round_begins_with_another_contender() {
        let plan = MeasurePlan {
            rounds: 2,
            pairs: false,
        };
        assert_eq!(plan.groups(0, 3), [[0, 1, 2]]);
        assert_eq!(plan.groups(1, 3), [[1, 2, 0]]);
    }

    #[test]
    fn in_pairs_the_first_contender_comes_before_each_other_one_as_often_as_after_it() {
        let plan = MeasurePlan {
            rounds: 2,
            pairs: true,
        };
        assert_eq!(plan.groups(0, 4), [[0, 1], [2, 0], [0, 3]]);
        assert_eq!(plan.groups(1, 4), [[0, 2], [3, 0], [1, 0]]);
    }

    #[test]
    fn slices_of_a_group_belong_together() {
        let mut measurements = [0, 1, 2].map(|_| Measurement::new("a", &[]));
        let slice = || SliceResult {
            clients: Vec::new(),
            series: Vec::new(),
            levels: Vec::new(),
            process: None,
            idle: Vec::new(),
        };
        for group in [[0, 1], [2, 0], [1, 0]] {
            for index in group {
                measurements[index].slices.push(slice());
            }
            note_pairs(&mut measurements, &group);
        }
        let pairs = measurements.map(|measurement| measurement.pairs);
        assert_eq!(pairs, [vec![], vec![(0, 0), (2, 1)], vec![(1, 0)]]);
    }
}
