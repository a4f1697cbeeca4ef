//! Accepts connections and hands them to the cores.
//!
//! There is one listener, without port sharing (`SO_REUSEPORT`): a second process cannot bind to the port by
//! mistake and take half of the clients, and no connection is stuck in the queue of a core that shuts down. A
//! connection goes to the core with the fewest connections and requests, and stays there.
//!
//! The process needs file descriptors for more than clients: for probes, the upstream, files. The kernel assigns
//! the lowest free number, so a client connection whose number is among the last few below the limit is closed, and
//! these few remain free for everything else.
//!
//! If descriptors run out anyway, `accept` fails repeatedly while the client stays in the kernel's
//! queue. One descriptor is kept in reserve to accept and close such a connection; then there is a pause.
//!
//! When all connections are taken, clients wait in the kernel's queue. So that one client cannot take all of them, there can
//! be a limit for each address; what exceeds it is accepted and closed, and so leaves the queue to others.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::Arc,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::{io::unix::AsyncFd, sync::watch};

use super::{
    client_connections::{Accepting, ClientConnections, CountedConnection},
    data_core::CoreHandle,
    drain::DrainPhase,
};
use fairgate_base::{clock::Clock, local::watch_readable, log_limit::LogLimit};

/// Length of the kernel's queue of connections that are not accepted yet.
const BACKLOG: i32 = 4096;

/// Pause after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Descriptors that are reserved for everything but clients; at most a quarter of the limit.
const RESERVED: u64 = 128;

/// The error of an address on which the gateway cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; {}", remedy(error.kind(), address.port()))]
pub struct BindError {
    /// The address on which the gateway should listen.
    pub address: SocketAddr,
    /// The error of the system.
    pub error: io::Error,
}

impl BindError {
    /// For use with `map_err`: the error of the system, about an address.
    pub fn at(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { address, error }
    }
}

/// What to do about an address on which the gateway cannot listen.
fn remedy(kind: io::ErrorKind, port: u16) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            "stop the other process, which may be another fairgate, or use another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "use an address of this machine; 0.0.0.0 or [::] stands for all of them"
        }
        io::ErrorKind::PermissionDenied if port < 1024 => {
            "use a port from 1024 on, or give the process the capability CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::PermissionDenied => {
            "the system does not let this process listen there: see its security policies"
        }
        _ => "see whether this machine has the address",
    }
}

/// The listener, and the cores it hands connections to.
pub struct Acceptor {
    listener: TcpListener,
    cores: Vec<CoreHandle>,
    connections: Arc<ClientConnections>,
    /// The drain waits until the connections in the kernel's queue were accepted.
    accepting: Accepting,
    /// Client connections whose descriptor has this number or a higher one are closed.
    first_reserved: u64,
    /// Closed to get one free descriptor when there is none left.
    reserve: Option<File>,
}

impl Acceptor {
    /// Listens on `address`.
    ///
    /// # Errors
    ///
    /// [`BindError`] if another process listens there, or this one lacks the permission.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            rustix::net::listen(&listener, BACKLOG)?;
            Ok(listener)
        });
        bound.map_err(BindError::at(address))
    }

    /// Hands the connections of `listener` to `cores`, of which there must be at least one. `descriptors` is
    /// the process's limit of open descriptors; `None` is unlimited.
    pub fn new(
        listener: TcpListener,
        cores: Vec<CoreHandle>,
        connections: Arc<ClientConnections>,
        descriptors: Option<u64>,
    ) -> Self {
        let descriptors = descriptors.unwrap_or(u64::MAX);
        Self {
            listener,
            cores,
            accepting: connections.accepting(),
            connections,
            first_reserved: descriptors - RESERVED.min(descriptors / 4),
            reserve: reserve(),
        }
    }

    /// Accepts until the drain begins to stop, then accepts the connections that are still in the kernel's queue, and
    /// closes the listener.
    ///
    /// # Errors
    ///
    /// When the runtime cannot watch the listener.
    pub async fn run(self, mut phase: watch::Receiver<DrainPhase>) -> io::Result<()> {
        let Self {
            listener,
            cores,
            connections,
            accepting,
            first_reserved,
            reserve,
        } = self;
        let listener = watch_readable(listener)?;
        let mut distributor = Distributor {
            cores,
            connections,
            first_reserved,
            reserve,
            log_limit: LogLimit::new(1),
            address_log_limit: LogLimit::new(1),
            clock: Clock::system(),
        };
        loop {
            let stop = phase.wait_for(|now| *now >= DrainPhase::Stopping);
            tokio::select! {
                biased;
                _ = stop => break,
                accepted = distributor.accept_some(&listener) => accepted?,
            }
        }
        while let Ok((stream, from)) = listener.get_ref().accept() {
            distributor.hand_over(stream, from);
        }
        drop(listener);
        drop(accepting);
        Ok(())
    }
}

/// Whether a connection waits to be accepted.
fn has_queued(listener: &TcpListener) -> io::Result<bool> {
    let mut asked = [PollFd::new(listener, PollFlags::IN)];
    Ok(rustix::event::poll(&mut asked, Some(&Timespec::default()))? > 0)
}

/// Accepts connections and hands each to a core.
struct Distributor {
    cores: Vec<CoreHandle>,
    connections: Arc<ClientConnections>,
    first_reserved: u64,
    reserve: Option<File>,
    /// Limits how often a shortage of descriptors is logged.
    log_limit: LogLimit,
    /// The same for addresses with too many connections.
    address_log_limit: LogLimit,
    clock: Clock,
}

impl Distributor {
    /// Waits for connections and accepts all that are queued, up to the limit.
    async fn accept_some(&mut self, listener: &AsyncFd<TcpListener>) -> io::Result<()> {
        let mut ready = listener.readable().await?;
        if self.connections.open() >= self.connections.limit {
            // It says so, too, if the last connection was accepted before anything told that there is no other.
            if !has_queued(listener.get_ref())? {
                ready.clear_ready();
                return Ok(());
            }
            self.connections.make_room();
        }
        self.connections.below(self.connections.limit).await;
        while self.connections.open() < self.connections.limit {
            match listener.get_ref().accept() {
                Ok((stream, from)) => self.hand_over(stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) if is_exhausted(&error) => {
                    self.record_rejected();
                    self.reject_one(listener.get_ref());
                    tokio::time::sleep(PAUSE).await;
                }
                // The client disconnected before it was accepted, or the network failed.
                Err(error) => tracing::debug!(%error, "a connection could not be accepted"),
            }
        }
        Ok(())
    }

    /// Hands a connection to the core with the least load.
    fn hand_over(&mut self, stream: TcpStream, from: SocketAddr) {
        let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
        if descriptor >= self.first_reserved {
            self.record_rejected();
            return;
        }
        if let Err(error) = stream.set_nonblocking(true) {
            tracing::debug!(%error, "a connection could not be set up");
            return;
        }
        let Some(core) = self.cores.iter().min_by_key(|core| core.load.total()) else {
            return;
        };
        let (connections, load) = (self.connections.clone(), core.load.clone());
        match CountedConnection::new(connections, load, from.ip()) {
            Some(counted) => core.serve(stream, from, counted),
            None => self.log_too_many_of(from),
        }
    }

    /// Logs a connection that was closed because its client has too many.
    fn log_too_many_of(&self, from: SocketAddr) {
        if let Some(left_out) = self.address_log_limit.next_line(self.clock.now()) {
            tracing::warn!(
                left_out,
                client = %from.ip(),
                "a client connection was closed because this address has too many"
            );
        }
    }

    /// Counts and logs a connection that was closed because of the descriptor limit.
    fn record_rejected(&self) {
        self.connections.count_rejected();
        if let Some(left_out) = self.log_limit.next_line(self.clock.now()) {
            tracing::warn!(
                left_out,
                "a client connection was closed because the process is short of file descriptors; raise the descriptor limit"
            );
        }
    }

    /// Accepts and closes one connection, with the reserved descriptor.
    fn reject_one(&mut self, listener: &TcpListener) {
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
