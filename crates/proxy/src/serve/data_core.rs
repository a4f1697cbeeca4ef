//! A data core: the handle through which the acceptor hands it connections, and the loop that serves them.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::Arc,
};

use tokio::sync::{mpsc, watch};
use tower::Service;

use super::{
    client_connections::CountedConnection,
    connection,
    core_load::CoreLoad,
    drain::{CorePhase, DrainPhase},
    hangup_watcher::HangupWatcher,
    serve_context::{RequestIds, ServeContext},
    settings::ServeSettings,
    wire::defence::Defence,
};
use fairgate_base::clock::Clock;
use fairgate_call::{Inbound, ReadAheadBudget, Reply, StreamWindows};

type Accepted = (TcpStream, SocketAddr, CountedConnection);

/// Hands connections to a core.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    /// The load of the core.
    pub load: Arc<CoreLoad>,
    connections: mpsc::UnboundedSender<Accepted>,
}

impl CoreHandle {
    /// Hands the core a connection. It is closed if the core has ended.
    pub(super) fn serve(&self, stream: TcpStream, from: SocketAddr, counted: CountedConnection) {
        let _ = self.connections.send((stream, from, counted));
    }
}

/// A core that has not started yet: it can be sent to the thread that will run it.
pub struct Core {
    load: Arc<CoreLoad>,
    connections: mpsc::UnboundedReceiver<Accepted>,
}

impl Core {
    /// A core, and the handle for the acceptor.
    pub fn new() -> (CoreHandle, Self) {
        let (sender, connections) = mpsc::unbounded_channel();
        let load = Arc::new(CoreLoad::default());
        let handle = CoreHandle {
            load: load.clone(),
            connections: sender,
        };
        (handle, Self { load, connections })
    }

    /// Serves on the calling thread, which runs a local runtime, until [`DrainPhase::Over`]. Connections
    /// then still open end with the runtime.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub async fn run<S>(
        mut self,
        settings: ServeSettings,
        defence: Arc<Defence>,
        clock: Clock,
        phases: watch::Receiver<DrainPhase>,
        stack: S,
    ) -> io::Result<()>
    where
        S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + Clone + 'static,
        S::Future: 'static,
    {
        let read_ahead = Arc::clone(&self.load.read_ahead);
        let context = Rc::new(ServeContext {
            defence,
            clock,
            load: self.load,
            budget: ReadAheadBudget::metered(
                settings.read_ahead_bytes,
                settings.read_ahead_small_bytes,
                settings.read_ahead_large_bytes,
                read_ahead,
            ),
            windows: StreamWindows::new(
                Arc::clone(&settings.stream_windows),
                connection::STREAM_WINDOW as usize,
            ),
            watcher: HangupWatcher::start()?,
            phase: CorePhase::new(phases),
            watches: Rc::default(),
            ids: RequestIds::default(),
            settings,
        });
        let mut phases = context.phase.subscribe();
        fairgate_base::turns::spawn_local_boxed(follow_drain(context.clone()));
        while let Some((stream, from, counted)) = self.connections.recv().await {
            let stack = stack.clone();
            fairgate_base::turns::spawn_local_boxed(connection::serve(
                context.clone(),
                stream,
                from,
                counted,
                stack,
            ));
        }
        let _ = phases.wait_for(|now| *now >= DrainPhase::Over).await;
        Ok(())
    }
}

/// Wakes the core's connections when the phase of the drain changes.
async fn follow_drain(context: Rc<ServeContext>) {
    let mut phases = context.phase.subscribe();
    while phases.changed().await.is_ok() {
        context.watcher.wake_all();
    }
}
