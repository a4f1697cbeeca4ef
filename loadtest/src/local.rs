//! Everything on this machine: a stand-in server and a gateway, each a process of its own, made for one slice.
//!
//! They are processes and not threads so that the load generator, the gateway and the server share nothing but the
//! machine, and so that a drain ends a real process.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::Context as _;
use http::Method;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    certificate::CERTIFICATE_FILE,
    events::{self, EventRunner},
    gateway::{self, GatewayProcess, START_TIMEOUT},
    scenario::Scenario,
    transport::target::LoadTarget,
    upstream::{UpstreamAddresses, UpstreamStats},
};

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct LocalPlan {
    /// The scenario's file, which the server reads.
    pub(crate) file: PathBuf,
    pub(crate) scenario: Arc<Scenario>,
    /// Another program to be started with `serve --config FILE` instead of the gateway in this program.
    pub(crate) gateway: Option<PathBuf>,
    /// Whether the gateway enforces the policy.
    pub(crate) fairness: bool,
}

/// Running servers with a gateway. Dropping it ends both and removes their files.
#[derive(Debug)]
pub(crate) struct LocalSetup {
    pub(crate) target: Arc<LoadTarget>,
    /// The metrics of the gateway, and of the one that takes its place after a restart.
    pub(crate) metrics: Vec<Arc<LoadTarget>>,
    pub(crate) events: EventRunner,
    _upstreams: Vec<Child>,
    _directory: ScratchDirectory,
}

impl LocalSetup {
    /// Starts the servers, then the gateway, and waits until all listen.
    ///
    /// # Errors
    ///
    /// When one of them does not start; the error has its output.
    pub(crate) async fn start(plan: &LocalPlan) -> anyhow::Result<Self> {
        let directory =
            ScratchDirectory::create().context("cannot create a directory for temporary files")?;
        let (mut upstreams, mut servers, mut controls) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.scenario.upstream.servers {
            let (upstream, addresses) = start_upstream(&plan.file).await?;
            let control = format!("http://{}", addresses.control);
            controls.push(Arc::new(LoadTarget::resolve(&control, None, false).await?));
            upstreams.push(upstream);
            servers.push(addresses.address);
        }
        let [listen, admin, next_admin] = free_ports()?;
        gateway::write_files(
            &plan.scenario,
            plan.fairness,
            &directory.0,
            &servers,
            listen,
            [admin, next_admin],
        )?;
        let gateway = GatewayProcess::start(plan.gateway.as_deref(), &directory.0, listen).await?;
        let certificate = directory.0.join(CERTIFICATE_FILE);
        let secure = plan.scenario.gateway.tls;
        let (scheme, ca) = if secure {
            ("https", Some(certificate))
        } else {
            ("http", None)
        };
        let target =
            LoadTarget::resolve(&format!("{scheme}://{listen}"), ca.as_deref(), false).await?;
        let mut metrics = Vec::new();
        for admin in [admin, next_admin] {
            let target = LoadTarget::resolve(&format!("http://{admin}"), None, false).await?;
            metrics.push(Arc::new(target));
        }
        Ok(Self {
            target: Arc::new(target),
            metrics,
            events: EventRunner {
                controls,
                gateway: Some(gateway),
                policies: Some(directory.0.join(gateway::POLICY_DIRECTORY)),
                failures: Vec::new(),
            },
            _upstreams: upstreams,
            _directory: directory,
        })
    }

    /// The gateway's process.
    pub(crate) fn gateway_id(&self) -> Option<u32> {
        self.events.gateway.as_ref().and_then(GatewayProcess::id)
    }

    /// The most requests in progress at the servers, each at its own time.
    ///
    /// # Errors
    ///
    /// When one does not respond.
    pub(crate) async fn peak(&self) -> anyhow::Result<usize> {
        let mut sum = 0;
        for control in &self.events.controls {
            let body = events::request(control, Method::GET, "/stats").await?;
            let stats: UpstreamStats = serde_json::from_slice(&body)?;
            sum += stats.peak;
        }
        Ok(sum)
    }
}

/// Starts a stand-in server; returns its addresses.
async fn start_upstream(scenario: &Path) -> anyhow::Result<(Child, UpstreamAddresses)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("upstream")
        .arg(scenario)
        .args(["--listen", "127.0.0.1:0", "--exit-with-input"]);
    // It ends when its input ends, also if this process is killed.
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .context("cannot start the stand-in server")?;
    let output = child
        .stdout
        .take()
        .context("the stand-in server has no output")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
    let line = line.context("the stand-in server takes too long to start")??;
    let line = line.context("the stand-in server ended before it listened")?;
    let addresses = serde_json::from_str(&line)
        .with_context(|| format!("the stand-in server said {line:?}"))?;
    Ok((child, addresses))
}

/// Addresses with ports that are free now. All are held until all are known, so that they differ.
fn free_ports() -> std::io::Result<[SocketAddr; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (a, b, c) = (bind()?, bind()?, bind()?);
    Ok([a.local_addr()?, b.local_addr()?, c.local_addr()?])
}

/// A directory for the files of one gateway, removed with this value.
#[derive(Debug)]
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn create() -> std::io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-loadtest-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Files that cannot be removed are left to the system's cleaning of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
