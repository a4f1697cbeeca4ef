//! The runtimes of the process: starts them, connects the listener to the cores, and shuts down in order.
//!
//! *Data* runtimes, one per core and single-threaded, run the request path and share only what a layer
//! shares deliberately. The *control* runtime does everything else: it accepts, listens
//! to signals, and may block. No disk I/O, compilation or rendering happens on a data core.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    num::NonZero,
    sync::Arc,
    thread::{self, JoinHandle},
};

use tokio::{
    runtime::{self, Runtime},
    task,
};
use tower::Service;

use fairgate_base::{
    account::BytesHeld, background, clock::Clock, descriptor_limit::raise_descriptor_limit, stack,
    tasks, turns,
};
use fairgate_call::{Inbound, Reply};
use fairgate_proxy::serve::{
    Acceptor, BindError, ClientConnections, Core, CoreHandle, CoreLoad, Defence, DrainController,
    DrainPhase, ServeSettings,
};

/// The threads of the process, and how clients are served.
#[derive(Clone, Debug)]
pub struct AppSettings {
    /// How clients are served.
    pub serve: ServeSettings,
    /// Data runtimes; one per core of the machine.
    pub cores: NonZero<usize>,
}

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            serve: ServeSettings::default(),
            cores: thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
        }
    }
}

/// The input for building a core's stack, on the core's own thread.
#[derive(Clone, Debug)]
pub struct CoreContext {
    /// The index of the core, from 0.
    pub index: usize,
    /// The clock of the gateway.
    pub clock: Clock,
    /// The control runtime, for work that must not run on a data core.
    pub control: runtime::Handle,
    /// The runtime of budgets, for evictions.
    pub budgets: runtime::Handle,
}

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or not an address of this host.
    #[error("listen.address: {0}")]
    Bind(BindError),
    /// The operating system refuses a thread or other resources of a runtime.
    #[error("cannot start the {runtime} runtime")]
    Runtime {
        /// `control`, `budgets`, `data` or `admin`.
        runtime: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Creates the control runtime.
///
/// # Errors
///
/// When the operating system refuses the resources.
pub fn control_runtime() -> Result<Runtime, StartError> {
    runtime::Builder::new_multi_thread()
        // Of the multi-threaded kind, so that it runs although no thread blocks on it.
        .worker_threads(1)
        .thread_stack_size(stack::STACK_BYTES)
        .thread_name("fairgate-control")
        .on_thread_start(|| {
            background::use_own_memory();
            turns::count_control_turns();
        })
        .enable_all()
        .build()
        .map_err(|source| StartError::Runtime {
            runtime: "control",
            source,
        })
}

/// Creates the runtime of budgets: of the disruption controller and of evictions. What these compute depends on objects that
/// tenants make, so it delays no reviews, health checks, metrics and hosted requests.
///
/// # Errors
///
/// When the operating system refuses the resources.
fn budgets_runtime() -> Result<Runtime, StartError> {
    runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_stack_size(stack::STACK_BYTES)
        .thread_name("fairgate-budgets")
        .on_thread_start(background::use_own_memory)
        .enable_all()
        .build()
        .map_err(|source| StartError::Runtime {
            runtime: "budgets",
            source,
        })
}

/// The runtimes that do everything but serve clients.
#[derive(Debug)]
pub struct Runtimes {
    control: Runtime,
    /// `None`: what it would do is done on `control`.
    budgets: Option<Runtime>,
}

impl Runtimes {
    /// The control runtime, and that of budgets if it is wanted.
    ///
    /// # Errors
    ///
    /// When the operating system refuses the resources.
    pub(crate) fn new(with_budgets: bool) -> Result<Self, StartError> {
        let control = control_runtime()?;
        let budgets = with_budgets.then(budgets_runtime).transpose()?;
        Ok(Self { control, budgets })
    }

    /// The control runtime, and its handle.
    pub(crate) fn control(&self) -> (&Runtime, &runtime::Handle) {
        (&self.control, self.control.handle())
    }

    fn budgets(&self) -> &runtime::Handle {
        self.budgets.as_ref().unwrap_or(&self.control).handle()
    }
}

impl From<Runtime> for Runtimes {
    fn from(control: Runtime) -> Self {
        let budgets = None;
        Self { control, budgets }
    }
}

/// A running gateway. Dropping it stops it immediately.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    settings: AppSettings,
    drain: DrainController,
    connections: Arc<ClientConnections>,
    defence: Arc<Defence>,
    loads: Vec<Arc<CoreLoad>>,
    threads: Vec<JoinHandle<()>>,
    control: Option<Runtime>,
    budgets: Option<Runtime>,
    control_handle: runtime::Handle,
    budgets_handle: runtime::Handle,
    /// Tasks that end by themselves when the gateway drains, and are waited for.
    ending: Vec<task::JoinHandle<()>>,
}

impl Gateway {
    /// Starts listening and serving. `build` creates the stack of each core, on that core's thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left running then.
    pub fn start<B, S>(
        settings: AppSettings,
        runtimes: impl Into<Runtimes>,
        build: B,
    ) -> Result<Self, StartError>
    where
        B: Fn(CoreContext) -> S + Send + Sync + 'static,
        S: Service<Inbound, Response = Reply, Error = Infallible> + Clone + 'static,
        S::Future: 'static,
    {
        let runtimes: Runtimes = runtimes.into();
        let budgets = runtimes.budgets().clone();
        let Runtimes {
            control,
            budgets: own,
        } = runtimes;
        let descriptors = raise_descriptor_limit();
        let listener = Acceptor::bind(settings.serve.listen).map_err(StartError::Bind)?;
        let address = listener.local_addr();
        let address = address
            .map_err(BindError::at(settings.serve.listen))
            .map_err(StartError::Bind)?;
        let mut gateway = Self {
            address,
            drain: DrainController::default(),
            connections: ClientConnections::new(
                settings.serve.connections,
                settings.serve.connections_per_address,
            ),
            defence: Defence::new(settings.serve.unfinished_head_bytes, Clock::system()),
            loads: Vec::new(),
            threads: Vec::new(),
            control: None,
            budgets: own,
            control_handle: control.handle().clone(),
            budgets_handle: budgets.clone(),
            ending: Vec::new(),
            settings,
        };
        let build = Arc::new(build);
        let clock = Clock::system();
        let mut cores = Vec::new();
        for index in 0..gateway.settings.cores.get() {
            let context = CoreContext {
                index,
                clock: clock.clone(),
                control: control.handle().clone(),
                budgets: budgets.clone(),
            };
            cores.push(gateway.start_core(context, build.clone())?);
        }
        gateway.loads = cores.iter().map(|core| core.load.clone()).collect();
        let connections = gateway.connections.clone();
        let acceptor = Acceptor::new(listener, cores, connections, descriptors);
        let phases = gateway.drain.subscribe();
        tasks::spawn(control.handle(), async move {
            if let Err(error) = acceptor.run(phases).await {
                tracing::error!(%error, "the listener failed; no more connections are accepted");
            }
        });
        gateway.control = Some(control);
        Ok(gateway)
    }

    fn start_core<B, S>(
        &mut self,
        context: CoreContext,
        build: Arc<B>,
    ) -> Result<CoreHandle, StartError>
    where
        B: Fn(CoreContext) -> S + Send + Sync + 'static,
        S: Service<Inbound, Response = Reply, Error = Infallible> + Clone + 'static,
        S::Future: 'static,
    {
        let (handle, core) = Core::new();
        let settings = self.settings.serve.clone();
        let defence = Arc::clone(&self.defence);
        let phases = self.drain.subscribe();
        let name = format!("fairgate-data-{}", self.threads.len());
        self.start_thread("data", name, move || async move {
            let clock = context.clock.clone();
            let stack = build(context);
            core.run(settings, defence, clock, phases, stack).await
        })?;
        Ok(handle)
    }

    /// Serves the connections of `listener` on a thread of its own, with limits of its own, until those of the
    /// gateway are closed. `build` creates the stack, on that thread.
    ///
    /// # Errors
    ///
    /// When the operating system refuses a thread.
    pub(crate) fn serve_more<B, S>(
        &mut self,
        listener: TcpListener,
        settings: ServeSettings,
        build: B,
    ) -> Result<Arc<ClientConnections>, StartError>
    where
        B: FnOnce(&Clock) -> S + Send + 'static,
        S: Service<Inbound, Response = Reply, Error = Infallible> + Clone + 'static,
        S::Future: 'static,
    {
        let (handle, core) = Core::new();
        let connections =
            ClientConnections::new(settings.connections, settings.connections_per_address);
        let counted = Arc::clone(&connections);
        let descriptors = raise_descriptor_limit();
        let acceptor = Acceptor::new(listener, vec![handle], connections, descriptors);
        let clock = Clock::system();
        let defence = Defence::new(settings.unfinished_head_bytes, clock.clone());
        let mut phases = self.drain.subscribe();
        self.start_thread("admin", "fairgate-admin".to_owned(), move || async move {
            let drain = DrainController::default();
            let own_phases = drain.subscribe();
            let accepting = acceptor.run(drain.subscribe());
            turns::spawn_local_boxed(async move {
                if let Err(error) = accepting.await {
                    tracing::error!(%error, "a listener failed; it accepts no more connections");
                }
            });
            turns::spawn_local_boxed(async move {
                let _ = phases.wait_for(|phase| *phase >= DrainPhase::Ended).await;
                drain.advance(DrainPhase::Over);
            });
            let stack = build(&clock);
            core.run(settings, defence, clock, own_phases, stack).await
        })?;
        Ok(counted)
    }

    /// Starts a thread with a runtime of its own, which is waited for when the gateway stops.
    fn start_thread<F>(
        &mut self,
        runtime: &'static str,
        name: String,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), StartError>
    where
        F: Future<Output = io::Result<()>>,
    {
        let failed = |source| StartError::Runtime { runtime, source };
        let (started, starts) = std::sync::mpsc::channel();
        let run = move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(runtime::LocalOptions::default());
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            if let Err(error) = runtime.block_on(serve()) {
                tracing::error!(%error, "a thread that serves clients stopped");
            }
        };
        let thread = stack::thread(name).spawn(run).map_err(failed)?;
        self.threads.push(thread);
        // Waited for, so that what the system refuses is an error of the start.
        match starts.recv() {
            Ok(started) => started.map_err(failed),
            Err(_) => Err(failed(io::Error::other(
                "the thread ended before it served",
            ))),
        }
    }

    /// The control runtime, which runs everything except requests.
    pub(crate) fn control(&self) -> runtime::Handle {
        self.control_handle.clone()
    }

    /// The runtime of the disruption controller and of evictions.
    pub(crate) fn budgets(&self) -> runtime::Handle {
        self.budgets_handle.clone()
    }

    /// Waits for this task before the cores stop, so that requests without clients still hold their seats. It ends by itself soon after
    /// all connections have ended.
    pub(crate) fn wait_for(&mut self, task: task::JoinHandle<()>) {
        self.ending.push(task);
    }

    /// Drains connections, waits for the tasks of [`Gateway::wait_for`], and then has the cores stop.
    async fn end(&mut self) {
        let tasks = self.ending.drain(..);
        let ended = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        self.drain
            .run(self.settings.serve.drain, &self.connections, ended)
            .await;
    }

    /// The address it listens on, with the actual port if the configured one is 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The drain: whether the gateway is ready, and how to stop it.
    pub fn drain(&self) -> &DrainController {
        &self.drain
    }

    /// Client connections open now.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Idle client connections that keep their socket, and no buffers.
    pub fn parked_connections(&self) -> usize {
        self.connections.parked()
    }

    /// Protection against misbehaving clients, with its counters.
    pub fn defence(&self) -> &Arc<Defence> {
        &self.defence
    }

    /// Returns a function that reads how many connections were closed for lack of file descriptors.
    pub(crate) fn rejected_connections(&self) -> impl Fn() -> u64 + use<> {
        let connections = self.connections.clone();
        move || connections.rejected()
    }

    /// Returns functions that read how many client connections are open, and how many requests are in
    /// progress.
    pub fn gauges(&self) -> (impl Fn() -> usize + use<>, impl Fn() -> usize + use<>) {
        let connections = self.connections.clone();
        let loads = self.loads.clone();
        (
            move || connections.open(),
            move || loads.iter().map(|load| load.streams()).sum(),
        )
    }

    /// Returns a function that reads the bytes of bodies that all data cores have read ahead, and the most that one of them ever had.
    pub fn read_ahead(&self) -> impl Fn() -> BytesHeld + Clone + use<> {
        let loads = self.loads.clone();
        move || {
            let all = loads.iter().map(|load| load.read_ahead());
            all.fold(BytesHeld::default(), |all, one| BytesHeld {
                now: all.now + one.now,
                most: all.most.max(one.most),
            })
        }
    }

    /// Serves until SIGTERM or SIGINT, then drains. A second signal stops it immediately.
    ///
    /// # Errors
    ///
    /// When signals cannot be listened to.
    pub(crate) fn run_until_signal(mut self) -> io::Result<()> {
        let Some(control) = self.control.take() else {
            return Ok(());
        };
        let ended = control.block_on(async {
            let mut signals = Signals::new()?;
            signals.next().await;
            tracing::info!("draining");
            tokio::select! {
                () = self.end() => {}
                () = signals.next() => tracing::warn!("second signal: exiting now"),
            }
            Ok(())
        });
        self.control = Some(control);
        ended
    }

    /// Drains connections and stops. Takes at most as long as the drain settings allow.
    pub fn shut_down(mut self) {
        if let Some(control) = self.control.take() {
            control.block_on(self.end());
            self.control = Some(control);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.drain.advance(DrainPhase::Over);
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
        if let Some(budgets) = self.budgets.take() {
            budgets.shutdown_background();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a data core panicked");
            }
        }
    }
}

/// The signals that stop the process.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
