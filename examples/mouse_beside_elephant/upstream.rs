//! A stand-in for the server behind the proxies: HTTP/1.1, a constant service time, no limit.
//!
//! A sleeping thread times the ends of requests, because tokio's timers fire at whole milliseconds: ends
//! that a server spreads would come in groups here, and requests that wait for the next one would wait longer.
//!
//! It notes how many requests execute, integrated over time, and the gaps between ends, which show a
//! proxy's turn-around and whether its seats come free one by one or in groups.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::now;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A running upstream. It ends with the process.
pub(crate) struct Upstream {
    load: Arc<Mutex<Load>>,
}

/// The statistics between two calls of `look`.
#[derive(Default)]
pub(crate) struct Seen {
    /// Requests executing, on average.
    pub(crate) mean: f64,
    /// The most that executed at once.
    pub(crate) most: u32,
    /// Times between one request's end and the next one's end, ascending.
    pub(crate) gaps: Vec<Duration>,
}

struct Load {
    executing: u32,
    most: u32,
    since: Instant,
    changed: Instant,
    ended: Option<Instant>,
    seat_time: Duration,
    gaps: Vec<Duration>,
}

impl Load {
    fn new(executing: u32, now: Instant) -> Self {
        Self {
            executing,
            most: executing,
            since: now,
            changed: now,
            ended: None,
            seat_time: Duration::ZERO,
            gaps: Vec::new(),
        }
    }

    fn change(&mut self, now: Instant, executing: u32) {
        self.seat_time += now.saturating_duration_since(self.changed) * self.executing;
        self.changed = now;
        self.executing = executing;
        self.most = self.most.max(executing);
    }

    fn start(&mut self, now: Instant) {
        self.change(now, self.executing + 1);
    }

    fn end(&mut self, now: Instant) {
        self.change(now, self.executing.saturating_sub(1));
        if let Some(before) = self.ended.replace(now) {
            self.gaps.push(now.saturating_duration_since(before));
        }
    }
}

impl Upstream {
    /// Listens at `address` and serves every request in `service`, on threads of its own.
    ///
    /// # Errors
    ///
    /// When the address is taken.
    pub(crate) fn start(address: SocketAddr, service: Duration) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let load = Arc::new(Mutex::new(Load::new(0, now())));
        let upstream = Self { load: load.clone() };
        let (timer, requests) = mpsc::channel();
        let counted = load.clone();
        thread::spawn(move || run_timer(&requests, &load));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    tokio::spawn(serve(stream, timer.clone(), service, counted.clone()));
                }
                #[expect(unreachable_code, reason = "it gives the block its type")]
                io::Result::Ok(())
            })
        });
        Ok(upstream)
    }

    /// The statistics since the last call.
    pub(crate) fn look(&self) -> Seen {
        let now = now();
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let executing = load.executing;
        load.change(now, executing);
        let before = std::mem::replace(&mut *load, Load::new(executing, now));
        let mut gaps = before.gaps;
        gaps.sort_unstable();
        let time = now.saturating_duration_since(before.since);
        Seen {
            mean: before.seat_time.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE),
            most: before.most,
            gaps,
        }
    }
}

/// Ends requests when their time has come. All take as long, so they end in order of arrival.
fn run_timer(requests: &mpsc::Receiver<Executing>, load: &Mutex<Load>) {
    let lock = || load.lock().unwrap_or_else(PoisonError::into_inner);
    while let Ok(executing) = requests.recv() {
        thread::sleep(executing.until.saturating_duration_since(now()));
        lock().end(now());
        // Sending fails if the client has disconnected.
        let _ = executing.done.send(());
    }
}

/// A request that executes.
struct Executing {
    until: Instant,
    done: oneshot::Sender<()>,
}

async fn serve(
    mut stream: TcpStream,
    timer: mpsc::Sender<Executing>,
    service: Duration,
    load: Arc<Mutex<Load>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::with_capacity(4096);
    loop {
        let end = loop {
            if let Some(at) = head.windows(4).position(|bytes| bytes == END_OF_HEAD) {
                break at + END_OF_HEAD.len();
            }
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        };
        let asks_for_metrics = head.starts_with(b"GET /metrics");
        head.drain(..end);
        if asks_for_metrics {
            // Sent by the gateway itself, to read the numbers of objects: not a client's request.
            stream.write_all(ANSWER).await?;
            continue;
        }
        let (done, ended) = oneshot::channel();
        let arrived = now();
        load.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .start(arrived);
        let executing = Executing {
            until: arrived + service,
            done,
        };
        if timer.send(executing).is_err() || ended.await.is_err() {
            return Ok(());
        }
        stream.write_all(ANSWER).await?;
    }
}
