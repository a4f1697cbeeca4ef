//! How fast is the hosted API over real sockets: creates a second, lists a second, and the time
//! until a thousand watchers have an event?
//!
//! For each store a whole gateway, started from a configuration, with HTTP/2 clients in a closed loop.
//! The baseline is etcd itself: puts of the same bytes by as many writers. Clients, gateway and etcd share
//! the machine, so each figure is measured under their combined load.
//!
//! With `--instructions`, the instructions of one request to the local store instead.
//!
//! `FAIRGATE_WATCHERS` is another number of watchers than a thousand. `FAIRGATE_ETCD` names the program etcd; without it, and in builds without the feature `etcd`, only
//! the local store is measured.

mod client;
#[cfg(feature = "etcd")]
mod etcd;
mod home;
#[path = "../support/request_cost/mod.rs"]
mod request_cost;
#[path = "../support/mod.rs"]
mod support;

use std::{sync::Arc, time::Duration};

use client::Client;
use home::Home;
use request_cost::{COUNT_ROOM, RequestCase, count_requests};
use support::is_quick;
use tokio::task::JoinSet;

/// The number of clients that write concurrently.
const WRITERS: [usize; 3] = [1, 8, 64];

/// The number of clients that list concurrently.
const LISTERS: usize = 8;

/// The amounts of work to measure.
struct Size {
    /// Objects created in each round.
    creates: usize,
    /// Objects in a list.
    listed: usize,
    lists: usize,
    watchers: usize,
    /// Writes that all watchers receive, one after another.
    watched: usize,
}

impl Size {
    fn wanted() -> Self {
        if is_quick() {
            Self {
                creates: 16,
                listed: 20,
                lists: 8,
                watchers: 20,
                watched: 4,
            }
        } else {
            Self {
                creates: 640,
                listed: 1_000,
                lists: 200,
                watchers: wanted_watchers(),
                watched: 50,
            }
        }
    }
}

/// 1 000, or as many as `FAIRGATE_WATCHERS` says.
fn wanted_watchers() -> usize {
    let wanted = std::env::var("FAIRGATE_WATCHERS");
    wanted.map_or(1_000, |wanted| {
        wanted.parse().expect("a number of watchers")
    })
}

const fn case(name: &'static str, requests: u64) -> RequestCase {
    RequestCase {
        name,
        requests,
        count_room: COUNT_ROOM,
    }
}

const CASES: [RequestCase; 3] = [
    case("get", 2_000),
    case("list of 11", 500),
    case("create", 100),
];

/// Sends requests of a case, one after another.
fn count(case: &str, requests: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let home = Home::local();
    let gateway = home.start();
    runtime.block_on(async {
        let client = Client::new(gateway.address()).await;
        client.until_built_in_objects_are_there().await;
        for i in 0..requests {
            match case {
                "get" => client.get("exempt").await,
                "create" => client.create(&format!("bench-{i}")).await,
                _ => drop(client.list().await),
            }
        }
    });
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    if count_requests(&CASES, None, count).is_some() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let size = Size::wanted();
    println!(
        "{:<8} {:>8} {:>8} {:>8} {:>9} {:>12} {:>12} {:>9} {:>9}",
        "", "1", "8", "64", "lists/s", "watch p50 ms", "watch p99 ms", "p50 ms", "p99 ms"
    );
    println!(
        "{:<8} {:>26} {:>9} {:>25} {:>19}",
        "",
        "creates/s, by writers",
        format!("of {}", size.listed),
        format!("by {} watchers", size.watchers),
        "the write itself"
    );
    gateway(&runtime, "local", Home::local(), &size);
    #[cfg(feature = "etcd")]
    if std::env::var_os(etcd::PROGRAM).is_some() {
        let server = etcd::EtcdServer::start();
        runtime.block_on(server.client());
        gateway(&runtime, "etcd", Home::etcd(&server.endpoint()), &size);
        let rates =
            WRITERS.map(|writers| runtime.block_on(etcd::puts(&server, writers, size.creates)));
        println!("{:<8} {} puts by etcd itself", "put", in_columns(&rates));
        return;
    }
    println!(
        "etcd is not measured: that takes the feature `etcd`, and FAIRGATE_ETCD=/path/to/etcd"
    );
}

/// Measures a gateway and prints its line.
fn gateway(runtime: &tokio::runtime::Runtime, name: &str, home: Home, size: &Size) {
    let gateway = home.start();
    let address = gateway.address();
    runtime.block_on(async {
        let client = Client::new(address).await;
        client.until_built_in_objects_are_there().await;
        let mut rates = Vec::new();
        for writers in WRITERS {
            rates.push(creates(&client, writers, size.creates).await);
            client.delete_all().await;
        }
        fill(&client, size.listed).await;
        let lists = lists(&client, size).await;
        client.delete_all().await;
        let (mut delays, mut written) = fan_out(address, &client, size).await;
        println!(
            "{name:<8} {} {lists:>9.0} {:>12.2} {:>12.2} {:>9.2} {:>9.2}",
            in_columns(&rates),
            millis(&mut delays, 50),
            millis(&mut delays, 99),
            millis(&mut written, 50),
            millis(&mut written, 99),
        );
    });
    drop(gateway);
    drop(home);
}

fn in_columns(rates: &[f64]) -> String {
    let columns: Vec<_> = rates.iter().map(|rate| format!("{rate:>8.0}")).collect();
    columns.join(" ")
}

/// A percentile, in milliseconds.
fn millis(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    let at = (times.len() * percent / 100).min(times.len() - 1);
    times[at].as_secs_f64() * 1e3
}

/// Objects created per second.
async fn creates(client: &Client, writers: usize, count: usize) -> f64 {
    let start = now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let client = client.clone();
        tasks.spawn(async move {
            for i in (writer..count).step_by(writers) {
                client.create(&format!("bench-{writers}-{i}")).await;
            }
        });
    }
    tasks.join_all().await;
    per_second(count, start)
}

/// Creates the objects to be listed.
async fn fill(client: &Client, count: usize) {
    let built_in = client.count().await;
    creates(client, 64, count.saturating_sub(built_in)).await;
    assert_eq!(client.count().await, count.max(built_in), "all are there");
}

/// Lists per second, each of all objects.
async fn lists(client: &Client, size: &Size) -> f64 {
    let start = now();
    let mut tasks = JoinSet::new();
    for lister in 0..LISTERS {
        let (client, lists) = (client.clone(), size.lists);
        tasks.spawn(async move {
            for _ in (lister..lists).step_by(LISTERS) {
                client.list().await;
            }
        });
    }
    tasks.join_all().await;
    per_second(size.lists, start)
}

/// How long after a write was sent each watcher had its event, and how long the writes took.
async fn fan_out(
    address: std::net::SocketAddr,
    client: &Client,
    size: &Size,
) -> (Vec<Duration>, Vec<Duration>) {
    let from = client.version().await;
    // Each connection has room for this many streams.
    let connections = size.watchers.div_ceil(200);
    let mut watchers = JoinSet::new();
    let ready = Arc::new(tokio::sync::Barrier::new(size.watchers + 1));
    let arrived = Arc::new(tokio::sync::Semaphore::new(0));
    for connection in 0..connections {
        let client = Client::new(address).await;
        for _ in (connection..size.watchers).step_by(connections) {
            let (client, ready) = (client.clone(), Arc::clone(&ready));
            let arrived = Arc::clone(&arrived);
            let (from, watched) = (from.clone(), size.watched);
            watchers.spawn(async move {
                let mut watch = client.watch(&from).await;
                ready.wait().await;
                let mut times = Vec::with_capacity(watched);
                while times.len() < watched {
                    if let Some(number) = watch.next_written().await {
                        assert_eq!(number, times.len(), "each once, in order");
                        times.push(now());
                        arrived.add_permits(1);
                    }
                }
                times
            });
        }
    }
    ready.wait().await;
    let (mut sent, mut written) = (Vec::new(), Vec::new());
    for i in 0..size.watched {
        let start = now();
        client.create(&format!("watched-{i}")).await;
        sent.push(start);
        written.push(start.elapsed());
        // The next write starts when all watchers have this one.
        let everybody = u32::try_from(size.watchers).expect("a small number");
        let all = arrived.acquire_many(everybody).await;
        all.expect("it is never closed").forget();
    }
    let seen = watchers.join_all().await;
    let delays = seen.iter().flat_map(|times| times.iter().zip(&sent));
    (delays.map(|(seen, sent)| *seen - *sent).collect(), written)
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn per_second(count: usize, start: std::time::Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
