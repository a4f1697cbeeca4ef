//! The clients: an elephant of many connections in a closed loop, and a mouse in an open loop.
//!
//! The mouse is a thread with a blocking socket, so that neither a runtime's timers nor the
//! elephant's work on the same runtime count as its latency. Its latency runs from the time at which
//! the request was to be sent, whether or not the previous response had come by then.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

use crate::now;

/// Enough for 20 requests a second that take 200 ms each.
const MOUSE_CONNECTIONS: usize = 4;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A proxy to measure.
#[derive(Clone)]
pub(crate) struct Target {
    /// Its name in the table.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The process whose CPU time is reported.
    pub(crate) process: Option<u32>,
}

/// A request of the user with this bearer token.
fn request(token: &str) -> Vec<u8> {
    format!(
        "GET /api/v1/namespaces/default/pods/one HTTP/1.1\r\nHost: proxy\r\n\
         Authorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"
    )
    .into_bytes()
}

/// Plays the mouse: `rate` requests a second until `until`, over a few connections, so that a slow
/// response delays no other. Returns the latencies.
///
/// # Errors
///
/// When a response is not a 200, or does not come.
pub(crate) fn mouse(
    target: &Target,
    rate: f64,
    until: Instant,
    seed: &mut u64,
) -> io::Result<Vec<Duration>> {
    let mut seeds = [0; MOUSE_CONNECTIONS];
    for own in &mut seeds {
        random(seed);
        *own = *seed;
    }
    let rate = rate / f64::from(u32::try_from(MOUSE_CONNECTIONS).unwrap_or(1));
    thread::scope(|scope| {
        let connections = seeds.map(|own| scope.spawn(move || open_loop(target, rate, until, own)));
        let mut latencies = Vec::new();
        for connection in connections {
            let own = connection.join();
            latencies.extend(own.map_err(|_| io::Error::other("the mouse panicked"))??);
        }
        Ok(latencies)
    })
}

fn open_loop(
    target: &Target,
    rate: f64,
    until: Instant,
    mut seed: u64,
) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(target.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = request("mouse");
    let mut latencies = Vec::new();
    let mut due = now();
    loop {
        // Half to one and a half times the mean interval, so that arrivals do not fall into step with the service time.
        due += Duration::from_secs_f64((0.5 + random(&mut seed)) / rate);
        if due >= until {
            return Ok(latencies);
        }
        thread::sleep(due.saturating_duration_since(now()));
        stream.write_all(&request)?;
        let mut answer = Vec::with_capacity(1024);
        let mut buffer = [0; 4096];
        while length(&answer)?.is_none_or(|length| answer.len() < length) {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&buffer[..read]);
        }
        latencies.push(now().saturating_duration_since(due));
    }
}

/// Plays the elephant on the calling thread until `until`; returns how many responses came after `from`.
///
/// # Errors
///
/// When a response is not a 200, or does not come.
pub(crate) fn elephant(
    target: &Target,
    connections: u32,
    stagger: Duration,
    from: Instant,
    until: Instant,
) -> io::Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut all = JoinSet::new();
        for index in 0..connections {
            let later = stagger * index / connections.max(1);
            all.spawn(closed_loop(target.address, later, from, until));
        }
        let mut count = 0;
        while let Some(done) = all.join_next().await {
            count += done.map_err(io::Error::other)??;
        }
        Ok(count)
    })
}

async fn closed_loop(
    address: SocketAddr,
    later: Duration,
    from: Instant,
    until: Instant,
) -> io::Result<u64> {
    tokio::time::sleep(later).await;
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = request("elephant");
    let mut answer = Vec::with_capacity(4096);
    let mut count = 0;
    while now() < until {
        stream.write_all(&request).await?;
        answer.clear();
        while length(&answer)?.is_none_or(|length| answer.len() < length) {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let at = now();
        count += u64::from(at >= from && at < until);
    }
    Ok(count)
}

/// The length of the response that `read` begins with, once its head is complete.
fn length(read: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = read.windows(4).position(|bytes| bytes == END_OF_HEAD) else {
        return Ok(None);
    };
    let head = &read[..head + END_OF_HEAD.len()];
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        let line = text.lines().next().unwrap_or_default().to_owned();
        return Err(io::Error::other(format!("the response was {line:?}")));
    }
    let (_, rest) = text
        .split_once("content-length:")
        .ok_or_else(|| io::Error::other("a response without a length"))?;
    let length = rest.lines().next().unwrap_or_default().trim();
    let length: usize = length.parse().map_err(io::Error::other)?;
    Ok(Some(head.len() + length))
}

/// A number from 0 to 1 (xorshift).
fn random(seed: &mut u64) -> f64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    #[expect(clippy::cast_precision_loss, reason = "it has 53 bits")]
    let value = (*seed >> 11) as f64;
    value / f64::from(1 << 26) / f64::from(1 << 27)
}
