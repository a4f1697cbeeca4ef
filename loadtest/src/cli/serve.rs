//! The commands that serve: the stand-in server, and the gateway of `local`.

use std::{
    io::{self, Read as _, Write as _},
    thread,
};

use anyhow::Context as _;

use super::{
    Failure,
    arguments::{GatewayArgs, UpstreamArgs},
    read, runtime,
};
use crate::{certificate, upstream};
use fairgate::config::Config;

pub(super) fn upstream(args: &UpstreamArgs) -> Result<bool, Failure> {
    let (scenario, _) = read(&args.scenario)?;
    if args.exit_with_input {
        exit_with_input();
    }
    let tls = match &args.tls {
        Some(directory) => Some(certificate::server_config(directory)?),
        None => None,
    };
    let serving = upstream::serve(&scenario, args.listen, tls, |addresses| {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &addresses)?;
        writeln!(out)?;
        out.flush()
    });
    let served = runtime()?
        .block_on(serving)
        .with_context(|| format!("cannot listen at {}", args.listen));
    served?;
    Ok(true)
}

pub(super) fn gateway(args: &GatewayArgs) -> Result<bool, Failure> {
    if args.exit_with_input {
        exit_with_input();
    }
    let (config, warnings) = Config::read(Some(&args.config))
        .usable()
        .map_err(anyhow::Error::from)?;
    for warning in warnings {
        writeln!(io::stderr(), "{warning}")?;
    }
    fairgate::app::serve(config, Some(args.config.clone()), |_| {
        Ok::<(), anyhow::Error>(())
    })?;
    Ok(true)
}

/// Ends this process when its standard input ends, as it does when the process that started it is killed.
fn exit_with_input() {
    thread::spawn(|| {
        let mut input = [0; 64];
        while io::stdin().read(&mut input).is_ok_and(|read| read > 0) {}
        std::process::exit(0);
    });
}
