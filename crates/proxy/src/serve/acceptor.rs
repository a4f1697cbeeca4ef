//! Accepts connections and hands them to the cores.
//!
//! One listener without port sharing: a second process cannot bind by mistake and take half of the
//! clients, and no connection waits in the queue of a core that is about to end. A connection goes to
//! the core with the fewest streams and stays there.
//!
//! Descriptors are for more than clients: operators' probes, the upstream, files. A process gets the
//! lowest number that is free, so a client whose number is among the last few is closed at once, and
//! these few stay free for the others.
//!
//! Where that is not enough, `accept` fails at once and again and again while the client stays queued.
//! One descriptor is kept in reserve to accept and close such a connection, and then there is a pause.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, watch},
};

use super::{
    core::{CoreHandle, Load},
    drain::Phase,
};
use fairgate_base::{clock::Clock, local::watch_readable, log_limit::LogLimit};

/// Connections the kernel keeps for us until they are accepted.
const BACKLOG: i32 = 4096;

/// Pause after the descriptors ran out.
const PAUSE: Duration = Duration::from_millis(50);

/// Descriptors that clients leave to everything else, unless there are few of them in all.
const KEPT_FREE: u64 = 128;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: is another process, or another fairgate, there already?")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}

/// Counts the client connections of the process.
#[derive(Debug)]
pub struct Connections {
    open: AtomicUsize,
    turned_away: AtomicU64,
    limit: usize,
    ended: Notify,
}

impl Connections {
    /// Counts up to `limit` connections.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            turned_away: AtomicU64::new(0),
            limit: limit.max(1),
            ended: Notify::new(),
        })
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections closed at once because descriptors were short.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Completes when no connection is open.
    pub async fn all_ended(&self) {
        self.below(1).await;
    }

    async fn below(&self, limit: usize) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.open() < limit {
                return;
            }
            ended.await;
        }
    }
}

/// A connection that counts as open, in the process and on its core.
#[derive(Debug)]
pub struct Counted {
    connections: Arc<Connections>,
    load: Arc<Load>,
}

impl Counted {
    fn new(connections: Arc<Connections>, load: Arc<Load>) -> Self {
        connections.open.fetch_add(1, Ordering::Relaxed);
        load.connections.fetch_add(1, Ordering::Relaxed);
        Self { connections, load }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        self.connections.ended.notify_waiters();
    }
}

/// The listener and those it hands connections to.
pub struct Acceptor {
    listener: TcpListener,
    cores: Vec<CoreHandle>,
    connections: Arc<Connections>,
    /// The first descriptor that clients may not have.
    first_kept: u64,
    /// Closed to have one descriptor when there is none left.
    reserve: Option<File>,
}

impl Acceptor {
    /// Takes `address`.
    ///
    /// # Errors
    ///
    /// [`BindError`] when another process has it, or this one may not.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            rustix::net::listen(&listener, BACKLOG)?;
            Ok(listener)
        });
        bound.map_err(|source| BindError { address, source })
    }

    /// Will hand the connections of `listener` to `cores`, of which there is at least one. The process
    /// may have so many `descriptors`; `None` is any number.
    pub fn new(
        listener: TcpListener,
        cores: Vec<CoreHandle>,
        connections: Arc<Connections>,
        descriptors: Option<u64>,
    ) -> Self {
        let descriptors = descriptors.unwrap_or(u64::MAX);
        Self {
            listener,
            cores,
            connections,
            first_kept: descriptors - KEPT_FREE.min(descriptors / 4),
            reserve: reserve(),
        }
    }

    /// Accepts until `phase` says to stop, then takes what the kernel still has and closes.
    ///
    /// # Errors
    ///
    /// When the runtime cannot watch the listener.
    pub async fn run(self, mut phase: watch::Receiver<Phase>) -> io::Result<()> {
        let Self {
            listener,
            cores,
            connections,
            first_kept,
            reserve,
        } = self;
        let listener = watch_readable(listener)?;
        let mut hand = Hand {
            cores,
            connections,
            first_kept,
            reserve,
            short: LogLimit::new(1),
            clock: Clock::system(),
        };
        loop {
            let stop = phase.wait_for(|now| *now >= Phase::Stopping);
            tokio::select! {
                biased;
                _ = stop => break,
                accepted = hand.accept_some(&listener) => accepted?,
            }
        }
        while let Ok((stream, from)) = listener.get_ref().accept() {
            hand.over(stream, from);
        }
        Ok(())
    }
}

struct Hand {
    cores: Vec<CoreHandle>,
    connections: Arc<Connections>,
    first_kept: u64,
    reserve: Option<File>,
    /// How often the log tells that descriptors are short.
    short: LogLimit,
    clock: Clock,
}

impl Hand {
    /// Waits for connections and accepts them until there is none left.
    async fn accept_some(&mut self, listener: &AsyncFd<TcpListener>) -> io::Result<()> {
        self.connections.below(self.connections.limit).await;
        let mut ready = listener.readable().await?;
        while self.connections.open() < self.connections.limit {
            match listener.get_ref().accept() {
                Ok((stream, from)) => self.over(stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) if is_exhausted(&error) => {
                    self.turned_away();
                    self.turn_one_away(listener.get_ref());
                    tokio::time::sleep(PAUSE).await;
                }
                // The client left before it was accepted, or the network is at fault.
                Err(error) => tracing::debug!(%error, "a connection could not be accepted"),
            }
        }
        Ok(())
    }

    /// Hands a connection to the core with the least to do.
    fn over(&mut self, stream: TcpStream, from: SocketAddr) {
        let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
        if descriptor >= self.first_kept {
            self.turned_away();
            return;
        }
        if let Err(error) = stream.set_nonblocking(true) {
            tracing::debug!(%error, "a connection could not be set up");
            return;
        }
        let Some(core) = self.cores.iter().min_by_key(|core| core.load.total()) else {
            return;
        };
        let counted = Counted::new(self.connections.clone(), core.load.clone());
        core.serve(stream, from, counted);
    }

    fn turned_away(&self) {
        self.connections.turned_away.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.short.admit(self.clock.now()) {
            tracing::warn!(
                left_out,
                "a client was turned away; raise the descriptor limit"
            );
        }
    }

    fn turn_one_away(&mut self, listener: &TcpListener) {
        self.reserve = None;
        drop(listener.accept());
        self.reserve = reserve();
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}
