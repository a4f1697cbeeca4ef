//! What does flow control add to what the gateway costs a request?
//!
//! The whole gateway over real sockets on loopback: HTTP/1.1 clients in a closed loop, authentication,
//! fairness, a pooled HTTP/1.1 connection to an upstream that responds at once. Counted is the CPU time of
//! the data cores alone, in rounds with enforcement on and off in turn, in one process. The baseline is
//! enforcement off: the bare forward. With `--instructions`, the instructions of one request instead.

mod support;
#[path = "support/threads.rs"]
mod threads;

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    num::NonZero,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fairgate::app::{AppSettings, CoreContext, Gateway, runtimes::control_runtime};
use fairgate_call::{Call, HeaderLines, Refusal, ResetLimits, SpoolLimits};
use fairgate_core::{apf::work::EstimatorSettings, time::Time};
use fairgate_proxy::{
    auth::{
        AnonymousAccess, AuthSettings, Authenticator, ConfiguredNames,
        layer::{AuthLayer, AuthRules},
    },
    fairness::{
        BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
    },
    forward::{Forward, UpstreamSettings},
    stack::{AdmissionLayers, EvictionLayers, stack},
};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{client::conn::http1, server, service::service_fn};
use hyper_util::rt::TokioIo;
use support::{is_quick, policy};
use threads::{RequestCase, count_instructions};
use tokio::net::{TcpListener, TcpStream};
use tower::layer::util::Identity;

const CLIENTS: usize = 16;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

const OFF: RequestCase = RequestCase {
    name: "forward, enforcement off",
    requests: 4_000,
};
const ENFORCED: RequestCase = RequestCase {
    name: "forward, enforced",
    requests: 4_000,
};

fn flow_control_settings(enforcement: Enforcement) -> FlowControlSettings {
    FlowControlSettings {
        enforcement,
        request_timeout: REQUEST_TIMEOUT,
        max_queued: 10_000,
        estimator: EstimatorSettings::default(),
        borrowing_period: Duration::from_secs(1),
        long_running: Caps {
            per_user: 100,
            total: 1000,
        },
        watches: Caps::NONE,
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits::NONE,
        bodies: BodyLimits::NONE,
    }
}

/// An upstream that responds at once.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_| async {
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(
                    &[b'x'; 512],
                ))))
            });
            let serving =
                server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(serving);
        }
    });
    address
}

fn gateway(flow_control: &Arc<FlowControl>, upstream: SocketAddr) -> Gateway {
    let rules = Arc::new(ArcSwap::from_pointee(AuthRules {
        authentication: Authenticator::new(AuthSettings {
            anonymous: AnonymousAccess::Everywhere,
            ..AuthSettings::default()
        }),
        names: ConfiguredNames::new([]),
        impersonation: false,
        request_timeout: REQUEST_TIMEOUT,
    }));
    let mut settings = AppSettings {
        cores: NonZero::<usize>::MIN,
        ..AppSettings::default()
    };
    settings.serve.listen.set_port(0);
    let authority = upstream
        .to_string()
        .parse()
        .expect("an address is an authority");
    let upstream = Arc::new(UpstreamSettings::new(authority, None));
    let flow_control = Arc::clone(flow_control);
    let control = control_runtime().expect("a runtime can be made");
    let build = move |core: CoreContext| {
        let gate = Gate::new(Arc::clone(&flow_control), 0, core.clock.clone(), 1);
        fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
        let auth = AuthLayer::new(Arc::clone(&rules), core.clock.clone());
        let no_identity = |_: &Call, _: &mut dyn HeaderLines| Ok::<(), Refusal>(());
        let forward = Forward::new(Arc::clone(&upstream), Rc::new(no_identity), core.clock);
        let none = Identity::new();
        stack(
            &none,
            &auth,
            &FairnessLayer::new(gate),
            &none,
            &AdmissionLayers::none(),
            &EvictionLayers::none(),
            &none,
            forward,
        )
    };
    Gateway::start(settings, control, build).expect("loopback has ports")
}

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

/// A connection to the gateway.
struct Client(http1::SendRequest<Empty<Bytes>>);

impl Client {
    async fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("the gateway listens");
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .expect("it speaks HTTP");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn get(&mut self) {
        let mut request = http::Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = http::Uri::from_static("/api/v1/namespaces/default/pods/web-0");
        request
            .headers_mut()
            .insert("host", http::HeaderValue::from_static("gateway"));
        let answer = self.0.send_request(request).await.expect("it answers");
        assert_eq!(answer.status(), 200);
        answer
            .into_body()
            .collect()
            .await
            .expect("the body is whole");
    }
}

/// Sends requests for `time`; returns how many were answered.
async fn load(address: SocketAddr, time: Duration) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let end = support::now() + time;
    let client = |answered: Arc<AtomicU64>| async move {
        let mut client = Client::new(address).await;
        while support::now() < end {
            client.get().await;
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

/// Sends requests of a case, one after another.
fn count(case: &str, requests: u64) {
    let enforcement = if case == ENFORCED.name {
        Enforcement::Enforce
    } else {
        Enforcement::Off
    };
    let settings = flow_control_settings(enforcement);
    let flow_control = FlowControl::new(1, policy(0, 600), settings, Time::ZERO);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let gateway = gateway(&flow_control, upstream().await);
        let mut client = Client::new(gateway.address()).await;
        for _ in 0..requests {
            client.get().await;
        }
    });
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    if count_instructions(&[OFF, ENFORCED], count) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let flow_control = FlowControl::new(
        1,
        policy(0, 600),
        flow_control_settings(Enforcement::Off),
        Time::ZERO,
    );
    let upstream = runtime.block_on(upstream());
    let gateway = gateway(&flow_control, upstream);
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
