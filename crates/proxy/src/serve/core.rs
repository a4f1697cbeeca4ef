//! One data core: what its connections share.

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tower::Service;
use uuid::Builder;

use super::{
    acceptor::Counted, connection, defence::Defence, drain::Phase, hangup::Watcher,
    settings::ServeSettings,
};
use fairgate_base::clock::Clock;
use fairgate_call::{Inbound, ReadAheadBudget, Reply};
use fairgate_core::random::Random;

/// How much a core has to do. Written by its own core, read by the acceptor.
#[derive(Debug, Default)]
pub struct Load {
    pub(super) connections: AtomicUsize,
    streams: AtomicUsize,
}

impl Load {
    /// Connections and requests in hand.
    pub fn total(&self) -> usize {
        self.connections.load(Ordering::Relaxed) + self.streams.load(Ordering::Relaxed)
    }

    /// Requests in hand.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

type Accepted = (TcpStream, SocketAddr, Counted);

/// The acceptor's end of a core.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    /// How much it has to do.
    pub load: Arc<Load>,
    connections: mpsc::UnboundedSender<Accepted>,
}

impl CoreHandle {
    /// Gives the core a connection. A core that has ended closes it.
    pub(super) fn serve(&self, stream: TcpStream, from: SocketAddr, counted: Counted) {
        let _ = self.connections.send((stream, from, counted));
    }
}

/// A core that has yet to start: it can be sent to the thread that will run it.
pub struct Core {
    load: Arc<Load>,
    connections: mpsc::UnboundedReceiver<Accepted>,
}

/// What the connections of a core share.
pub(super) struct Shared {
    pub(super) settings: ServeSettings,
    pub(super) defence: Arc<Defence>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) clock: Clock,
    pub(super) load: Arc<Load>,
    pub(super) budget: Rc<ReadAheadBudget>,
    pub(super) watcher: Rc<Watcher>,
    pub(super) phase: Cell<Phase>,
    pub(super) phases: watch::Receiver<Phase>,
    /// Which watch of this core it is, for spreading their ends.
    pub(super) turn: Rc<Cell<u32>>,
    ids: Ids,
}

impl Shared {
    /// A random UUID for a request.
    pub(super) fn new_id(&self) -> u128 {
        self.ids.next()
    }
}

impl Core {
    /// A core and the acceptor's end of it.
    pub fn new() -> (CoreHandle, Self) {
        let (sender, connections) = mpsc::unbounded_channel();
        let load = Arc::new(Load::default());
        let handle = CoreHandle {
            load: load.clone(),
            connections: sender,
        };
        (handle, Self { load, connections })
    }

    /// Serves on the calling thread, which runs a local runtime, until [`Phase::Over`]. Connections
    /// then still open end with the runtime.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub async fn run<S>(
        mut self,
        settings: ServeSettings,
        defence: Arc<Defence>,
        clock: Clock,
        phases: watch::Receiver<Phase>,
        stack: S,
    ) -> io::Result<()>
    where
        S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + Clone + 'static,
        S::Future: 'static,
    {
        let phase = *phases.borrow();
        let shared = Rc::new(Shared {
            tls: settings.tls.clone().map(TlsAcceptor::from),
            defence,
            clock,
            load: self.load,
            budget: ReadAheadBudget::new(
                settings.read_ahead_bytes,
                settings.read_ahead_small_bytes,
                settings.read_ahead_large_bytes,
            ),
            watcher: Watcher::start()?,
            phase: Cell::new(phase),
            phases,
            turn: Rc::default(),
            ids: Ids::default(),
            settings,
        });
        let mut phases = shared.phases.clone();
        tokio::task::spawn_local(follow(shared.clone()));
        while let Some((stream, from, counted)) = self.connections.recv().await {
            let stack = stack.clone();
            tokio::task::spawn_local(connection::serve(
                shared.clone(),
                stream,
                from,
                counted,
                stack,
            ));
        }
        let _ = phases.wait_for(|now| *now >= Phase::Over).await;
        Ok(())
    }
}

/// Tells the core's connections of every phase.
async fn follow(shared: Rc<Shared>) {
    let mut phases = shared.phases.clone();
    loop {
        shared.phase.set(*phases.borrow_and_update());
        shared.watcher.wake_all();
        if phases.changed().await.is_err() {
            return;
        }
    }
}

/// Makes random UUIDs. Not secret: they name requests in logs.
struct Ids(RefCell<Random>);

impl Default for Ids {
    fn default() -> Self {
        let seed = RandomState::new().build_hasher().finish();
        Self(RefCell::new(Random::seeded(seed)))
    }
}

impl Ids {
    fn next(&self) -> u128 {
        let mut random = self.0.borrow_mut();
        let id = u128::from(random.number()) << 64 | u128::from(random.number());
        Builder::from_random_bytes(id.to_be_bytes())
            .into_uuid()
            .as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_random_uuids() {
        let ids = Ids::default();
        let (a, b) = (ids.next(), ids.next());
        assert_ne!(a, b);
        assert_eq!(a >> 76 & 0xf, 4, "version");
        assert_eq!(a >> 62 & 0x3, 2, "variant");
    }
}
