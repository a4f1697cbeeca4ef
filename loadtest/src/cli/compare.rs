//! `compare`: several servers in turns, within one run.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Failure,
    arguments::{CompareArgs, TargetArgs},
    finish,
    interrupt::until_signal,
    judged, prepare, read_for, resolve, running, runtime,
};
use crate::{
    load::progress::ProgressLine,
    measure::{Contender, ContenderPlace, MeasurePlan, measure},
    report::TargetRatios,
    transport::target::LoadTarget,
};

pub(super) fn run(args: &CompareArgs) -> Result<bool, Failure> {
    let scenario = read_for(&args.scenario, &args.measure)?;
    prepare(&args.output)?;
    let runtime = runtime()?;
    let rounds = args.measure.rounds;
    let measurements = until_signal(&runtime, async {
        Ok::<_, Failure>(
            measure(
                &scenario,
                &contenders(args).await?,
                MeasurePlan {
                    rounds,
                    pairs: args.pairs,
                },
                |index| index == 0,
                &mut ProgressLine::new(),
            )
            .await?,
        )
    })?;
    // The expectations judge the first target; `without` is the second, the usual one to compare it with.
    let names = [0, 1].map(|index| format!("by {}", measurements[index].name));
    let names = [names[0].as_str(), names[1].as_str()];
    let mut report = judged(&scenario, &measurements, 0, Some(1), rounds, names);
    // The second target is another server, not this one without fairness.
    report.holds_without_fairness = None;
    report.ratios = TargetRatios::of(&measurements);
    finish(&report, &args.output)
}

/// The targets, in their order, each with its metrics.
async fn contenders(args: &CompareArgs) -> Result<Vec<Contender>, Failure> {
    if args.targets.len() < 2 {
        return Err(Failure::usage(
            "compare needs at least two targets; for one, use the command run",
        ));
    }
    let mut metrics = metrics(args).await?;
    let mut contenders: Vec<Contender> = Vec::new();
    for text in &args.targets {
        let (name, url) = named(text)?;
        let (url, process) = with_process(text, url)?;
        if contenders.iter().any(|contender| contender.name == name) {
            return Err(Failure::usage(format!(
                "two targets are called {name:?}; give each a name of its own"
            )));
        }
        let target = running(url, &access(args, name)?).await?;
        let place = ContenderPlace::Running {
            target,
            metrics: metrics.remove(name),
            control: None,
            process,
        };
        contenders.push(Contender {
            name: name.to_owned(),
            place,
        });
    }
    let tokens = args.target_tokens.iter().map(|text| named(text));
    let mut tokens = tokens.collect::<Result<Vec<_>, _>>()?.into_iter();
    let referred = [
        ("--metrics", metrics.keys().next().map(String::as_str)),
        (
            "--target-tokens",
            tokens.find_map(|(name, _)| is_missing(name, &contenders)),
        ),
        (
            "--target-anonymous",
            args.target_anonymous
                .iter()
                .find_map(|name| is_missing(name, &contenders)),
        ),
    ];
    for (option, name) in referred {
        let Some(name) = name else { continue };
        let names: Vec<&str> = contenders.iter().map(|target| &*target.name).collect();
        return Err(Failure::usage(format!(
            "{option} names {name:?}, which is no target; the targets are {}",
            names.join(", ")
        )));
    }
    Ok(contenders)
}

/// The name, if no target has it.
fn is_missing<'n>(name: &'n str, contenders: &[Contender]) -> Option<&'n str> {
    let known = contenders.iter().any(|contender| contender.name == name);
    (!known).then_some(name)
}

/// How the target of this name is reached.
fn access(args: &CompareArgs, target: &str) -> Result<TargetArgs, Failure> {
    let mut access = args.access.clone();
    for text in &args.target_tokens {
        let (name, file) = named(text)?;
        if name == target {
            access.tokens = Some(file.into());
        }
    }
    access.anonymous = args.target_anonymous.iter().any(|name| name == target);
    Ok(access)
}

/// Where the metrics of targets are, by the names of the targets.
async fn metrics(args: &CompareArgs) -> Result<BTreeMap<String, Arc<LoadTarget>>, Failure> {
    let mut metrics = BTreeMap::new();
    for text in &args.metrics {
        let (name, url) = named(text)?;
        let target = resolve(url, &args.access).await?;
        target.check().await?;
        if metrics.insert(name.to_owned(), target).is_some() {
            return Err(Failure::usage(format!(
                "--metrics names {name:?} twice; write one address for each target"
            )));
        }
    }
    Ok(metrics)
}

/// The URL and the process in `URL` or `URL@PID`, a part of `text`.
pub(super) fn with_process<'u>(
    text: &str,
    url: &'u str,
) -> Result<(&'u str, Option<u32>), Failure> {
    let Some((url, id)) = url.rsplit_once('@') else {
        return Ok((url, None));
    };
    let wrong = |_| Failure::usage(format!("{id:?} in {text:?} is not a process ID"));
    Ok((url, Some(id.parse().map_err(wrong)?)))
}

/// The name and the URL in `NAME=URL`.
pub(super) fn named(text: &str) -> Result<(&str, &str), Failure> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    named.ok_or_else(|| Failure::usage(format!("{text:?} is not NAME=URL")))
}
