//! Compares proxies: by how much does an elephant slow down a mouse?
//!
//! `tests/peers/run` builds it, starts the proxies and plays it. By hand:
//!
//! ```sh
//! mouse_beside_elephant --upstream 127.0.0.1:9001 --target haproxy=127.0.0.1:9002@PID --target ...
//! ```
//!
//! Every round plays each target for a short slice with the mouse alone and for one with both,
//! so that other load on the machine affects all targets equally. It prints medians over the rounds.
//! `--ports N` prints free ports and ends.

mod clients;
mod figures;
mod upstream;

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clients::Target;
use figures::{Slice, Table};
use upstream::Upstream;

struct Options {
    upstream: SocketAddr,
    targets: Vec<Target>,
    rounds: u32,
    slice: Duration,
    /// How long both play before anything is counted.
    warm_up: Duration,
    service: Duration,
    connections: u32,
    /// Over how long the elephant's connections begin.
    stagger: Duration,
    rate: f64,
    gaps: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mouse_beside_elephant: {error}");
            return ExitCode::from(2);
        }
    };
    match play(&options) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mouse_beside_elephant: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        upstream: (Ipv4Addr::LOCALHOST, 0).into(),
        targets: Vec::new(),
        rounds: 10,
        slice: Duration::from_secs(4),
        warm_up: Duration::from_millis(1500),
        service: Duration::from_millis(10),
        connections: 256,
        stagger: Duration::ZERO,
        rate: 20.0,
        gaps: false,
    };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or(format!("{argument}: a value is missing"))
        };
        match argument.as_str() {
            "--ports" => {
                print_ports(number(&value()?)?).map_err(|error| error.to_string())?;
                return Ok(None);
            }
            "--upstream" => options.upstream = number(&value()?)?,
            "--target" => options.targets.push(target(&value()?)?),
            "--rounds" => options.rounds = number(&value()?)?,
            "--slice-ms" => options.slice = Duration::from_millis(number(&value()?)?),
            "--warm-up-ms" => options.warm_up = Duration::from_millis(number(&value()?)?),
            "--service-ms" => options.service = Duration::from_millis(number(&value()?)?),
            "--connections" => options.connections = number(&value()?)?,
            "--stagger-ms" => options.stagger = Duration::from_millis(number(&value()?)?),
            "--rate" => options.rate = number(&value()?)?,
            "--gaps" => options.gaps = true,
            other => return Err(format!("{other}: unknown; see the head of main.rs")),
        }
    }
    Ok(Some(options))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text:?}: not a number or an address"))
}

/// `NAME=ADDRESS`, or `NAME=ADDRESS@PID`.
fn target(text: &str) -> Result<Target, String> {
    let (name, rest) = text
        .split_once('=')
        .ok_or(format!("{text:?}: not NAME=ADDRESS"))?;
    let (address, process) = match rest.split_once('@') {
        Some((address, process)) => (address, Some(number(process)?)),
        None => (rest, None),
    };
    Ok(Target {
        name: name.to_owned(),
        address: number(address)?,
        process,
    })
}

/// Ports that are free now. All are held until the last is known, so that they differ.
fn print_ports(count: usize) -> io::Result<()> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<_>>()?;
    for listener in &held {
        println!("{}", listener.local_addr()?.port());
    }
    Ok(())
}

fn play(options: &Options) -> io::Result<Table> {
    let upstream = Upstream::start(options.upstream, options.service)?;
    for target in &options.targets {
        wait_for(target)?;
    }
    let mut table = Table::new(&options.targets, options.gaps);
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..options.rounds {
        for turn in 0..options.targets.len() {
            // Each round begins with another target.
            let index = (turn + round as usize) % options.targets.len();
            let target = &options.targets[index];
            let alone = slice(options, target, &upstream, 0, &mut seed)?;
            let beside = slice(options, target, &upstream, options.connections, &mut seed)?;
            table.add(index, alone, beside);
        }
        eprintln!("round {} of {}", round + 1, options.rounds);
    }
    Ok(table)
}

/// Plays one slice: the mouse, beside an elephant of so many connections.
fn slice(
    options: &Options,
    target: &Target,
    upstream: &Upstream,
    connections: u32,
    seed: &mut u64,
) -> io::Result<Slice> {
    let from = now() + options.warm_up + options.stagger;
    let until = from + options.slice;
    thread::scope(|scope| {
        let elephant =
            scope.spawn(|| clients::elephant(target, connections, options.stagger, from, until));
        thread::sleep(from.saturating_duration_since(now()));
        upstream.look();
        let cpu = cpu_of(target);
        let mouse = scope.spawn(|| clients::mouse(target, options.rate, until, seed));
        thread::sleep(until.saturating_duration_since(now()));
        let seen = upstream.look();
        let cpu = cpu_of(target).saturating_sub(cpu);
        let elephant = elephant
            .join()
            .map_err(|_| io::Error::other("the elephant panicked"))?;
        let mouse = mouse
            .join()
            .map_err(|_| io::Error::other("the mouse panicked"))?;
        Ok(Slice {
            mouse: mouse?,
            elephant: elephant?,
            time: options.slice,
            cpu,
            seen,
        })
    })
}

/// Waits until the target accepts, for ten seconds at most.
fn wait_for(target: &Target) -> io::Result<()> {
    let until = now() + Duration::from_secs(10);
    loop {
        match std::net::TcpStream::connect(target.address) {
            Ok(_) => return Ok(()),
            Err(error) if now() >= until => {
                return Err(io::Error::other(format!("{}: {error}", target.name)));
            }
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// CPU time that the target's threads have used.
fn cpu_of(target: &Target) -> Duration {
    let Some(process) = target.process else {
        return Duration::ZERO;
    };
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Duration::ZERO;
    };
    let nanos = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a measurement takes the time itself"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
