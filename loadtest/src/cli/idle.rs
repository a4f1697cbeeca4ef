//! `idle`: what idle connections take.

use std::io::{self, Write as _};

use futures_util::future::try_join_all;

use super::{
    Failure,
    arguments::IdleArgs,
    compare::{named, with_process},
    interrupt::until_signal,
    running, runtime,
};
use crate::idle::{IdlePlan, IdleProxy, heading, measure};

pub(super) fn run(args: &IdleArgs) -> Result<bool, Failure> {
    let plan = IdlePlan {
        connections: args.connections,
        path: args.path.clone(),
        user: args.user.clone(),
        settle: args.settle,
    };
    let runtime = runtime()?;
    let measured = until_signal(&runtime, async {
        let mut proxies = Vec::new();
        for text in &args.targets {
            let (name, url) = named(text)?;
            let (url, process) = with_process(text, url)?;
            let missing = || Failure::usage(format!("{text:?} is not NAME=URL@PID"));
            proxies.push(IdleProxy {
                name: name.to_owned(),
                process: process.ok_or_else(missing)?,
                target: running(url, &args.access).await?,
            });
        }
        // All at once: the memory of one does not depend on the others.
        let measuring = proxies.iter().map(|proxy| measure(proxy, &plan));
        let measured = try_join_all(measuring).await;
        measured.map_err(|error| Failure {
            code: 3,
            message: error.to_string(),
        })
    })?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", heading(plan.connections))?;
    for cost in measured {
        writeln!(out, "{}", cost.written())?;
    }
    Ok(true)
}
