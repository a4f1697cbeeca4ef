//! What does a request cost the gateway, and what does flow control add to that?
//!
//! The whole gateway over real sockets on loopback, in front of an upstream that responds at once. By default the CPU time
//! of the data cores alone: HTTP/1.1 clients in a closed loop, in rounds with enforcement on and off in turn, in one process.
//! The baseline is enforcement off: the bare forward. With `--instructions`, what one request of each kind costs, by counting;
//! with `--check`, the same compared with `benches/request-cost.txt`.

mod cases;
mod client;
mod gateway;
#[path = "../support/request_cost/mod.rs"]
mod request_cost;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fairgate_proxy::fairness::Enforcement;
use http::StatusCode;

use client::{Client, POD, get};
use gateway::flow_control_settings;
use request_cost::count_requests;
use support::is_quick;
use upstream::Upstream;

const CLIENTS: usize = 16;

/// What requests cost in CI's build.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/request-cost.txt");

/// CPU time of the data cores so far, in nanoseconds.
fn data_cpu_nanos() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("this is Linux");
    let of = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        if !name.starts_with("fairgate-data") {
            return None;
        }
        // Nanoseconds on the CPU come first.
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of(task.ok()?)).sum()
}

/// Sends requests for `time`; returns how many were answered.
async fn load(address: SocketAddr, time: Duration) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let end = support::now() + time;
    let client = |answered: Arc<AtomicU64>| async move {
        let mut client = Client::new(address).await;
        while support::now() < end {
            client.exchange(get(POD), StatusCode::OK).await;
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(client(Arc::clone(&answered))))
        .collect();
    for client in clients {
        client.await.expect("no client fails");
    }
    answered.load(Ordering::Relaxed)
}

/// Prints the CPU time of a request with enforcement and without.
fn measure() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let flow_control = gateway::flow_control(Enforcement::Off);
    let upstream = runtime.block_on(Upstream::start(1));
    let gateway = gateway::start(&flow_control, "", upstream.address);
    let (rounds, time) = if is_quick() { (1, 100) } else { (9, 1_000) };
    let measure = |enforcement| {
        flow_control.configure(flow_control_settings(enforcement));
        let before = data_cpu_nanos();
        let answered = runtime.block_on(load(gateway.address(), Duration::from_millis(time)));
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let nanos = (data_cpu_nanos() - before) as f64 / answered.max(1) as f64;
        (nanos, answered)
    };
    measure(Enforcement::Off);
    let mut ratios = Vec::new();
    println!(
        "CPU of the data core per request, ns:\n{:>10} {:>10} {:>8}",
        "off", "enforce", "ratio"
    );
    for _ in 0..rounds {
        let (off, _) = measure(Enforcement::Off);
        let (on, answered) = measure(Enforcement::Enforce);
        ratios.push(on / off);
        println!(
            "{off:>10.0} {on:>10.0} {:>7.3}x   ({answered} requests)",
            on / off
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ratios.len() / 2]);
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let counted = count_requests(&cases::CASES, Some(Path::new(BASELINE)), cases::send);
    counted.unwrap_or_else(|| {
        measure();
        ExitCode::SUCCESS
    })
}
