//! Several API servers behind one gateway: who gets what, and what happens when one of them is gone, hangs, is slow or fails.

mod addresses;
mod failing;
mod hanging;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    client::{TestClient, body, piece, raw, soon, status},
    ports,
    process::{GatewayProcess, ProcessOptions, wait_until},
    tunnels::{echoes, upgrade},
    upstream::{Speaks, TestReply, TestUpstream, full, streamed, text},
};

/// Each token is its user's name.
const TOKENS: &str = "root,root,1,system:masters\nalice,alice,2\nbob,bob,3\n";

/// A gateway before these servers.
fn before(servers: &Value, more: &Value) -> GatewayProcess {
    before_with(servers, more, Vec::new())
}

/// The same, with these files in the directory of its configuration.
fn before_with(
    servers: &Value,
    more: &Value,
    files: Vec<(&'static str, String)>,
) -> GatewayProcess {
    let mut configuration = json!({
        "mode": "files", "dataCores": 2, "authentication": {"tokenFile": "tokens"},
        "upstream": {"servers": servers},
    });
    for (key, value) in more.as_object().unwrap() {
        match (&mut configuration[key], value) {
            (Value::Object(section), Value::Object(value)) => section.extend(value.clone()),
            (place, value) => *place = value.clone(),
        }
    }
    let options = ProcessOptions {
        tokens: TOKENS,
        files,
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn get(gateway: &GatewayProcess, token: &str, target: &str) -> String {
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    raw(gateway.address, request.as_bytes())
}

fn post(gateway: &GatewayProcess) -> String {
    let request = "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer root\r\n\
        Content-Length: 2\r\nConnection: close\r\n\r\n{}";
    raw(gateway.address, request.as_bytes())
}

/// The value of a metric of the server at `address`.
fn of_server(gateway: &GatewayProcess, metric: &str, address: SocketAddr) -> Option<u64> {
    let text = gateway.metrics();
    let name = format!("server=\"{address}\"");
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(metric) && line.contains(&name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Metrics, readiness and the dump name the server that cannot be reached, and why.
fn says_why_it_is_away(gateway: &GatewayProcess, address: SocketAddr) {
    assert!(
        gateway.metrics().contains(&format!(
            "reason=\"not-connected\",server=\"{address}\"}} 1"
        )),
        "a metric has the reason: {}",
        gateway.metrics()
    );
    let ready = gateway.admin_get("/readyz?verbose");
    assert_eq!(status(&ready), 200);
    let line = ready.lines().find(|line| line.starts_with("[!]servers: "));
    let says = format!("[!]servers: {address} cannot be reached, for ");
    assert!(line.is_some_and(|line| line.starts_with(&says)), "{ready}");
    assert!(
        !ready.contains("[!]upstream"),
        "another one can be reached: {ready}"
    );
    let dump = gateway.admin_get("/debug/api_priority_and_fairness/dump_servers");
    let row = dump
        .lines()
        .find(|line| line.starts_with(&address.to_string()))
        .unwrap();
    assert!(
        row.contains("Ejected") && row.contains("cannot be reached: http://"),
        "{row}"
    );
}

fn wait_for_seats(gateway: &GatewayProcess, seats: u64) {
    wait_until("all servers together have other seats", || {
        gateway.metric("fairgate_total_seats") == Some(seats)
    });
}

/// Requests for pods that a server has received.
fn pods(server: &TestUpstream) -> usize {
    let seen = server.seen();
    seen.iter()
        .filter(|request| request.target.contains("pods"))
        .count()
}

/// Probes that a server has received.
fn probes(server: &TestUpstream) -> usize {
    let seen = server.seen();
    seen.iter()
        .filter(|request| request.target == "/readyz")
        .count()
}

/// A server that counts what it executes, answers after a while, and never executes fewer.
struct Counting {
    server: TestUpstream,
    most: Arc<AtomicUsize>,
}

impl Counting {
    fn start() -> Self {
        let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let most_of_all = Arc::clone(&most);
        let server = TestUpstream::start(Speaks::Http1, move |request| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                if request.uri().path().contains("pods") {
                    let executing = now.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(executing, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                text("served")
            }
        });
        Self {
            server,
            most: most_of_all,
        }
    }
}

#[test]
fn no_server_executes_more_than_its_seats_and_all_are_used() {
    let servers = [Counting::start(), Counting::start(), Counting::start()];
    let seats = [3, 6, 9];
    let entries = servers.iter().zip(seats);
    let entries: Vec<_> = entries
        .map(|(counting, seats)| json!({"url": url(counting.server.address), "seats": seats}))
        .collect();
    for spread in ["connection", "request"] {
        let gateway = before(&json!(entries), &json!({"upstream": {"spread": spread}}));
        assert_eq!(gateway.metric("fairgate_total_seats"), Some(18));
        let failed = thread::scope(|scope| {
            let clients: Vec<_> = (0..30)
                .map(|client| {
                    let gateway = &gateway;
                    scope.spawn(move || {
                        let target = format!("/api/v1/namespaces/n{client}/pods/p");
                        let answers = (0..40).map(|_| status(&get(gateway, "alice", &target)));
                        answers.filter(|status| *status != 200).count()
                    })
                })
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(failed, 0);
        for (counting, seats) in servers.iter().zip(seats) {
            let most = counting.most.swap(0, Ordering::SeqCst);
            assert!((1..=seats).contains(&most), "{most} of {seats}");
        }
        let text = gateway.metrics();
        let waiting = text
            .lines()
            .find(|line| line.starts_with("fairgate_upstream_server_waiting_requests"));
        assert!(
            waiting.is_some_and(|line| line.ends_with(" 0")),
            "{waiting:?}"
        );
        for counting in &servers {
            let in_use = of_server(
                &gateway,
                "fairgate_upstream_server_seats_in_use",
                counting.server.address,
            );
            assert_eq!(in_use, Some(0));
        }
    }
}

#[test]
fn requests_of_a_connection_go_to_one_server_and_new_connections_to_the_other() {
    let servers = [
        TestUpstream::saying(Speaks::Http1, "one"),
        TestUpstream::saying(Speaks::Http1, "two"),
    ];
    let entries: Vec<_> = servers
        .iter()
        .map(|server| json!({"url": url(server.address)}))
        .collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = |spread: &str| {
        let gateway = before(
            &json!(entries),
            &json!({"upstream": {"spread": spread}, "dataCores": 1}),
        );
        runtime.block_on(async {
            let mut answers = Vec::new();
            for _ in 0..2 {
                let mut client = TestClient::http1(gateway.address).await;
                let mut of_one = Vec::new();
                for _ in 0..6 {
                    let request = client.request(http::Method::GET, "/api/v1/pods");
                    let request = request
                        .header("authorization", "Bearer root")
                        .body(full(""))
                        .unwrap();
                    let answer = soon(client.send(request)).await.unwrap();
                    of_one.push(String::from_utf8(body(answer).await.to_vec()).unwrap());
                }
                // The connection stays open while the next one is used.
                answers.push((client, of_one));
            }
            answers
                .into_iter()
                .map(|(_, of_one)| of_one)
                .collect::<Vec<_>>()
        })
    };
    let by_connection = answers("connection");
    for of_one in &by_connection {
        assert!(
            of_one.iter().all(|answer| *answer == of_one[0]),
            "{of_one:?}"
        );
    }
    assert_ne!(by_connection[0][0], by_connection[1][0]);
    let by_request = answers("request");
    for server in ["one", "two"] {
        let number = by_request[0]
            .iter()
            .filter(|answer| *answer == server)
            .count();
        assert_eq!(number, 3, "{by_request:?}");
    }
}

#[test]
fn a_server_that_goes_away_loses_no_request_and_gets_its_part_again_when_it_is_back() {
    let answering = |_| async { text("served") };
    let stays = TestUpstream::saying(Speaks::Http1, "served");
    let goes = TestUpstream::start(Speaks::Http1, answering);
    let address = goes.address;
    let entries = json!([
        {"url": url(stays.address), "seats": 100}, {"url": url(address), "seats": 50},
    ]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    for _ in 0..20 {
        assert_eq!(status(&get(&gateway, "root", "/api/v1/pods")), 200);
    }
    assert!(pods(&goes) > 0 && pods(&stays) > 0);
    drop(goes);
    for _ in 0..20 {
        assert_eq!(status(&get(&gateway, "root", "/api/v1/pods")), 200);
        assert_eq!(
            status(&post(&gateway)),
            200,
            "a connection that is refused has sent nothing"
        );
    }
    wait_for_seats(&gateway, 100);
    assert_eq!(
        of_server(&gateway, "fairgate_upstream_server_up", address),
        Some(0)
    );
    says_why_it_is_away(&gateway, address);
    gateway.wait_for_log("it cannot be reached", 1);

    let back = TestUpstream::start_at(address, Speaks::Http1, answering);
    gateway.wait_for_log("takes requests again", 1);
    wait_until("it has requests again", || {
        let _ = get(&gateway, "root", "/api/v1/pods");
        pods(&back) > 0
    });
    wait_for_seats(&gateway, 150);
    assert_eq!(
        of_server(
            &gateway,
            "fairgate_upstream_server_ejections_total",
            address
        ),
        Some(1)
    );
    assert_eq!(gateway.logged("it cannot be reached").len(), 1);
    assert!(!gateway.admin_get("/readyz?verbose").contains("[!]servers"));
    assert!(
        !gateway
            .metrics()
            .contains("fairgate_upstream_server_problem{"),
        "there is no problem left"
    );
}

#[test]
fn a_server_that_accepts_and_never_answers_gets_no_more_requests() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    thread::spawn(move || {
        let held: Vec<_> = silent.incoming().collect();
        drop(held);
    });
    let well = TestUpstream::saying(Speaks::Http1, "served");
    let entries =
        json!([{"url": url(address), "seats": 10}, {"url": url(well.address), "seats": 10}]);
    let gateway = before(&entries, &json!({}));
    gateway.wait_for_log("it does not answer", 1);
    wait_for_seats(&gateway, 10);
    for _ in 0..20 {
        assert_eq!(status(&get(&gateway, "root", "/api/v1/pods")), 200);
    }
    assert_eq!(pods(&well), 20);
}

#[test]
fn a_server_that_is_not_ready_gets_no_new_requests_and_what_runs_there_ends() {
    let is_ready = Arc::new(AtomicUsize::new(1));
    let asked = Arc::clone(&is_ready);
    let (let_go, holding) = tokio::sync::watch::channel(false);
    let leaving = TestUpstream::start(Speaks::Http1, move |request| {
        let (ready, mut holding) = (asked.load(Ordering::SeqCst) == 1, holding.clone());
        async move {
            if request.uri().path() == "/readyz" {
                let mut answer = text("not ready");
                *answer.status_mut() = if ready { 200 } else { 500 }.try_into().unwrap();
                return answer;
            }
            let _ = holding.wait_for(|gone| *gone).await;
            text("from the one that leaves")
        }
    });
    let other = TestUpstream::saying(Speaks::Http1, "from the other");
    let entries = json!([{"url": url(leaving.address), "seats": 10}, {"url": url(other.address), "seats": 10}]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    thread::scope(|scope| {
        let running: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| get(&gateway, "alice", "/api/v1/namespaces/a/pods/p")))
            .collect();
        wait_until("one runs at each", || pods(&leaving) == 1);
        is_ready.store(0, Ordering::SeqCst);
        gateway.wait_for_log("it says that it is not ready", 1);
        // Ten, and the one that still runs.
        wait_for_seats(&gateway, 11);
        for _ in 0..10 {
            assert!(get(&gateway, "root", "/api/v1/pods").ends_with("from the other"));
        }
        let_go.send(true).unwrap();
        let ends = running.into_iter().map(|running| running.join().unwrap());
        assert_eq!(
            ends.filter(|answer| answer.ends_with("from the one that leaves"))
                .count(),
            1
        );
    });
    wait_for_seats(&gateway, 10);
}

/// An answer that begins at once and never ends.
fn endless() -> TestReply {
    let (send, answer) = streamed();
    send.send(Ok("{}\n".into())).unwrap();
    tokio::spawn(async move { send.closed().await });
    http::Response::new(answer)
}

/// Answers a probe, and anything else as a watch.
fn ready_or_endless(request: &http::Request<hyper::body::Incoming>) -> TestReply {
    if request.uri().path() == "/readyz" {
        text("ok")
    } else {
        endless()
    }
}

/// Opens so many watches.
async fn watch(gateway: &GatewayProcess, number: usize) -> Vec<hyper::body::Incoming> {
    let mut client = TestClient::http2(gateway.address).await;
    let mut watches = Vec::new();
    for _ in 0..number {
        let request = client.request(http::Method::GET, "/api/v1/pods?watch=1");
        let request = request
            .header("authorization", "Bearer root")
            .body(full(""))
            .unwrap();
        let answer = soon(client.send(request)).await.unwrap();
        assert_eq!(answer.status(), 200);
        watches.push(answer.into_body());
    }
    watches
}

/// How many of these watches end within that time, each after one event, and cleanly.
async fn ended(watches: Vec<hyper::body::Incoming>, within: Duration) -> usize {
    let mut ended = tokio::task::JoinSet::new();
    for mut watch in watches {
        ended.spawn(async move {
            assert!(piece(&mut watch).await.unwrap().is_ok());
            match tokio::time::timeout(within, piece(&mut watch)).await {
                Ok(None) => 1,
                Ok(Some(more)) => panic!("{more:?}"),
                Err(_still_open) => 0,
            }
        });
    }
    soon_or_later(ended.join_all()).await.into_iter().sum()
}

#[test]
fn watches_move_to_a_server_that_has_none_and_each_ends_cleanly() {
    let answer =
        |request: http::Request<hyper::body::Incoming>| async move { ready_or_endless(&request) };
    let first = TestUpstream::start(Speaks::Http1, answer);
    let address = ports::unused();
    let entries =
        json!([{"url": url(first.address), "seats": 10}, {"url": url(address), "seats": 10}]);
    let gateway = before(&entries, &json!({}));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    gateway.wait_for_log("it cannot be reached", 1);
    let watches = runtime.block_on(watch(&gateway, 40));
    assert_eq!(
        of_server(
            &gateway,
            "fairgate_upstream_server_long_running_requests",
            first.address
        ),
        Some(40)
    );
    let second = TestUpstream::start_at(address, Speaks::Http1, answer);
    // For as long as the test takes.
    let ended = runtime.block_on(ended(watches, Duration::from_secs(20)));
    assert!((1..=20).contains(&ended), "{ended} watches ended");
    let moved = of_server(
        &gateway,
        "fairgate_upstream_server_moved_watches_total",
        first.address,
    );
    assert_eq!(moved, Some(ended as u64));
    drop(second);
}

#[test]
fn watches_in_tunnels_leave_the_seats_of_their_server_to_others() {
    let server = TestUpstream::start(Speaks::Http1, |request| async move {
        if request.uri().path() == "/readyz" {
            return text("ok");
        }
        echoes(request).await
    });
    let entries = json!([{"url": url(server.address), "seats": 600}]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for semantics in ["Improved", "Compatible"] {
        let gateway = before(&entries, &json!({"flowControl": {"semantics": semantics}}));
        let metric = |name| of_server(&gateway, name, server.address);
        let open = runtime.block_on(async {
            let mut open = Vec::new();
            for _ in 0..3 {
                let mut client = TestClient::http1(gateway.address).await;
                let mut request = upgrade(&client, "/api/v1/pods?watch=1&resourceVersion=5");
                let token = http::HeaderValue::from_static("Bearer alice");
                request.headers_mut().insert("authorization", token);
                let answer = soon(client.send(request)).await.unwrap();
                assert_eq!(answer.status(), 101);
                open.push((client, answer));
            }
            open
        });
        let running = metric("fairgate_upstream_server_long_running_requests");
        let seats = metric("fairgate_upstream_server_seats_in_use");
        assert_eq!((running, seats), (Some(3), Some(0)), "{semantics}");
        drop(open);
    }
}

async fn soon_or_later<F: Future>(happens: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), happens)
        .await
        .unwrap()
}

#[test]
fn the_addresses_of_a_name_are_servers_of_their_own() {
    let server = TestUpstream::saying(Speaks::Http1, "served");
    let port = server.address.port();
    let entries =
        json!([{"url": format!("http://localhost:{port}"), "resolve": true, "seats": 40}]);
    let gateway = before(&entries, &json!({}));
    assert_eq!(status(&get(&gateway, "root", "/api/v1/pods")), 200);
    assert_eq!(
        of_server(&gateway, "fairgate_upstream_server_seats", server.address),
        Some(40)
    );
    let request = server
        .seen()
        .into_iter()
        .find(|request| request.target == "/api/v1/pods")
        .unwrap();
    assert_eq!(
        request.headers["host"],
        format!("localhost:{port}").as_str()
    );
}
