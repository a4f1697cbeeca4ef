//! The listener, and the limits on connections.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use fairgate::app::{AppSettings, CoreContext, Gateway, StartError, runtimes::control_runtime};
use fairgate_base::clock::Clock;
use fairgate_proxy::stack::{AdmissionLayers, EvictionLayers, stack};

use tower::layer::util::Identity;

use crate::{
    client::{HANG, TestClient, body, raw, soon, status},
    failures::until,
    gate::{Gate, TestAuth, fairness, flow_control},
    upstream::{Speaks, TestUpstream, full},
};

#[test]
fn a_second_gateway_cannot_take_the_same_address() {
    let upstream = TestUpstream::saying(Speaks::Http1, "");
    let gate = Gate::before(&upstream);
    let mut settings = AppSettings::default();
    settings.serve.listen = gate.address();
    let flow_control = flow_control(settings.cores.get());
    let leaf = move |core: CoreContext| {
        stack(
            &Identity::new(),
            &TestAuth,
            &fairness(&flow_control, &core),
            &Identity::new(),
            &AdmissionLayers::none(),
            &EvictionLayers::none(),
            &Identity::new(),
            Nowhere,
        )
    };
    let error = Gateway::start(settings, control_runtime().unwrap(), leaf).unwrap_err();
    assert!(matches!(error, StartError::Bind(_)), "{error}");
    assert!(error.to_string().contains(&gate.address().to_string()));
}

#[derive(Clone)]
struct Nowhere;

impl tower::Service<fairgate_call::Call> for Nowhere {
    type Response = fairgate_call::Reply;
    type Error = fairgate_call::Refusal;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: fairgate_call::Call) -> Self::Future {
        std::future::ready(Err(fairgate_call::Refusal::UpstreamUnreachable))
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_others_to_end() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| settings.serve.connections = 2);
    let address = gate.address();
    let mut first = TestClient::http1(address).await;
    let mut second = TestClient::http1(address).await;
    body(first.get("/a").await).await;
    body(second.get("/a").await).await;
    let third = tokio::task::spawn_blocking(move || {
        raw(
            address,
            b"GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
    });
    body(second.get("/b").await).await;
    assert_eq!(gate.gateway.connections(), 2);
    assert!(upstream.seen().iter().all(|seen| seen.target != "/3"));
    first.abandon().await;
    assert_eq!(status(&soon(third).await.unwrap()), 200);
}

#[tokio::test]
async fn a_client_that_sends_its_head_too_slowly_is_disconnected() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.head_timeout = Duration::from_millis(100);
    });
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.is_empty());
    until(|| gate.gateway.connections() == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        // Long enough for both clients to send their requests, however loaded the machine is.
        settings.serve.idle_timeout = Duration::from_secs(5);
    });
    let mut clients = TestClient::both(gate.address()).await;
    for client in &mut clients {
        body(client.get("/a").await).await;
    }
    for client in clients {
        soon(client.closed()).await;
    }
    until(|| gate.gateway.connections() == 0).await;
}

/// The idle timeout counts from the end of the last request, not from the beginning of the connection or of that request.
#[tokio::test]
async fn a_connection_is_not_idle_while_a_request_is_in_progress() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        http::Response::new(full("served"))
    });
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.idle_timeout = Duration::from_millis(800);
    });
    let clock = Clock::system();
    for is_http2 in [false, true] {
        let begun = clock.now();
        let mut client = if is_http2 {
            TestClient::http2(gate.address()).await
        } else {
            TestClient::http1(gate.address()).await
        };
        assert_eq!(body(client.get("/a").await).await, "served");
        soon(client.closed()).await;
        // Twice the timeout would be too little if the request did not count.
        let took = clock.now().since(begun);
        assert!(took >= Duration::from_millis(2_800), "{took:?}");
    }
}

/// The last part of a response may wait in the gateway for a client that has not read yet, after its request has ended.
#[tokio::test]
async fn a_connection_is_not_idle_while_its_client_has_not_read_the_response() {
    let upstream = TestUpstream::start(Speaks::Http1, |request| async move {
        let kibibytes: usize = request.uri().path()[1..].parse().unwrap();
        http::Response::new(full(vec![b'x'; kibibytes << 10]))
    });
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.idle_timeout = Duration::from_millis(300);
        settings.serve.handshake_timeout = Duration::from_millis(300);
    });
    // How much the kernel takes is not known: for one of these lengths it takes all but a part.
    let clients: Vec<_> = (4..40)
        .map(|step| {
            let mut stream = TcpStream::connect(gate.address()).unwrap();
            let length = step * 256;
            write!(stream, "GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            (stream, length << 10)
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (mut stream, length) in clients {
        stream.set_read_timeout(Some(HANG)).unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).map(|_| all)
        });
        let all = read.await.unwrap().unwrap();
        let head = all.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        assert_eq!(all.len() - head - 4, length);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    use crate::upstream::streamed;
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let (send, answer) = streamed();
        tokio::spawn(async move {
            while send.send(Ok(vec![0; 256 << 10].into())).is_ok() {
                tokio::task::yield_now().await;
                if send.is_closed() {
                    break;
                }
            }
        });
        http::Response::new(answer)
    });
    // The response has no end, so its seat is free when the time limit has passed. Until then the heads of the
    // other responses arrive, however loaded the machine is.
    let rules = crate::rules::Rules::new().set(|set| {
        set.request_timeout = Duration::from_secs(4);
    });
    let gate = Gate::governed_with(&upstream, &rules, |settings, _| {
        settings.serve.stall_timeout = Duration::from_millis(200);
    });
    // HTTP/1: the client does not read its socket, so the gateway's writes stall.
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    until(|| !upstream.seen().is_empty()).await;
    until(|| gate.limit.free() == 1000).await;
    // HTTP/2: the connection is read, one stream's window stays shut, and another stream goes on.
    let mut client = TestClient::http2(gate.address()).await;
    let unread = client.get("/a").await;
    until(|| gate.limit.free() == 1000).await;
    let other = client.get("/b").await;
    assert_eq!(other.status(), 200);
    drop((unread, other));
}

/// Runs in a separate process, started by the test below.
#[test]
#[ignore = "lowers the descriptor limit of its process"]
fn out_of_descriptors_child() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::os::fd::AsRawFd as _;

    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let ask = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&raw(gate.address(), ask)), 200);
    let before = cpu_seconds();
    let mut clients: Vec<TcpStream> = (0..40).map(|_| unconnected()).collect();
    // Leaves descriptors for about ten of the gateway's sockets. The number of the next descriptor shows how
    // many are open.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let limit = Some(u64::try_from(next).unwrap() + 10);
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    for client in &clients {
        rustix::net::connect(client, &gate.address()).unwrap();
    }
    // The gateway closes connections that it cannot accept, one by one, instead of leaving them waiting.
    for client in &mut clients[20..] {
        client.set_read_timeout(Some(HANG)).unwrap();
        let read = client.read(&mut [0; 1]);
        let left_waiting = read
            .as_ref()
            .is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!left_waiting, "{read:?}");
    }
    drop(clients);
    while gate.gateway.connections() > 0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(
        status(&raw(gate.address(), ask)),
        200,
        "the gateway still serves"
    );
    let used = cpu_seconds() - before;
    assert!(used < 0.5, "the acceptor does not spin: {used} s");
}

fn unconnected() -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, socket};
    TcpStream::from(socket(AddressFamily::INET, SocketType::STREAM, None).unwrap())
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|t| t.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

#[test]
fn out_of_descriptors_the_gateway_closes_new_connections_and_still_serves() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "listening::out_of_descriptors_child",
            "--exact",
            "--ignored",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}
