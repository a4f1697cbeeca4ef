//! `compare`: several servers in turns, within one run.

use super::{Failure, arguments::CompareArgs, finish, judged, read_for, resolve, runtime};
use crate::{
    measure::{Contender, ContenderPlace, measure},
    progress::ProgressLine,
};

pub(super) fn run(args: &CompareArgs) -> Result<bool, Failure> {
    let scenario = read_for(&args.scenario, &args.measure)?;
    let runtime = runtime()?;
    let rounds = args.measure.rounds;
    let measurements = runtime.block_on(async {
        let mut contenders: Vec<Contender> = Vec::new();
        for text in &args.targets {
            let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, url) =
                named.ok_or_else(|| Failure::usage(format!("{text:?} is not NAME=URL")))?;
            if contenders.iter().any(|contender| contender.name == name) {
                return Err(Failure::usage(format!(
                    "two targets are called {name:?}; give each a name of its own"
                )));
            }
            let target = resolve(url, &args.access).await?;
            target.check().await?;
            let place = ContenderPlace::Running {
                target,
                metrics: None,
                control: None,
            };
            contenders.push(Contender {
                name: name.to_owned(),
                place,
            });
        }
        if contenders.len() < 2 {
            return Err(Failure::usage(
                "compare needs at least two targets; for one, use the command run",
            ));
        }
        Ok(measure(
            &scenario,
            &contenders,
            rounds,
            |index| index == 0,
            &mut ProgressLine::new(),
        )
        .await?)
    })?;
    // The expectations judge the first; `without` is the second, which a comparison is usually made with.
    let report = judged(&scenario, &measurements, 0, Some(1), rounds);
    finish(&report, &args.output)
}
