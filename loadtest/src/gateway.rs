//! The gateway as a process: its configuration, its start, and its restart under load.

use std::{
    fmt::Write as _,
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    certificate::{self, CERTIFICATE_FILE, KEY_FILE},
    scenario::{Scenario, policy_objects},
    transport::target::token_of,
};
use fairgate_base::clock::Clock;
use fairgate_core::{apf::Semantics, apf::objects::Bootstrap};

pub(crate) const POLICY_DIRECTORY: &str = "policies";
/// The configurations of a gateway and of its replacement, which has another admin port: a gateway keeps its admin
/// port until it has drained.
const CONFIGURATION_FILES: [&str; 2] = ["fairgate.yaml", "fairgate-next.yaml"];
/// The file with the policy objects in the gateway's policy directory.
const POLICY_FILE: &str = "policy.json";
const TOKEN_FILE: &str = "tokens.csv";
const LOG_FILE: &str = "gateway.log";

/// How long a process may take to start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of checks whether a gateway listens.
const POLL: Duration = Duration::from_millis(10);

/// A gateway. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct GatewayProcess {
    program: Option<PathBuf>,
    directory: PathBuf,
    listen: SocketAddr,
    /// The number of gateways that were started before.
    restarts: usize,
    running: Child,
    /// Gateways that drain.
    draining: Vec<Child>,
}

impl GatewayProcess {
    /// Starts a gateway with the configuration in `directory`, and waits until it listens at `listen`.
    ///
    /// # Errors
    ///
    /// When it ends, or does not listen in time; with what it logged.
    pub(crate) async fn start(
        program: Option<&Path>,
        directory: &Path,
        listen: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut running = spawn(program, directory, CONFIGURATION_FILES[0])?;
        wait_for(&mut running, directory, listen).await?;
        Ok(Self {
            program: program.map(Path::to_owned),
            directory: directory.to_owned(),
            listen,
            restarts: 0,
            running,
            draining: Vec::new(),
        })
    }

    /// The process that serves now.
    pub(crate) fn id(&self) -> Option<u32> {
        self.running.id()
    }

    /// Tells the gateway to stop, and starts another one at the same address once it accepts no more connections.
    ///
    /// # Errors
    ///
    /// When the replacement does not start.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        let pid = self
            .running
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        kill_process(pid.context("the gateway has ended")?, Signal::TERM)?;
        let clock = Clock::system();
        let until = clock.now().plus(START_TIMEOUT);
        while TcpStream::connect(self.listen).await.is_ok() {
            anyhow::ensure!(clock.now() < until, "the gateway still accepts connections");
            tokio::time::sleep(POLL).await;
        }
        self.restarts += 1;
        let file = CONFIGURATION_FILES[self.restarts % CONFIGURATION_FILES.len()];
        let mut next = spawn(self.program.as_deref(), &self.directory, file)?;
        wait_for(&mut next, &self.directory, self.listen).await?;
        self.draining
            .push(std::mem::replace(&mut self.running, next));
        Ok(())
    }
}

fn spawn(program: Option<&Path>, directory: &Path, file: &str) -> anyhow::Result<Child> {
    // The one in this program ends when its input ends, also if this process is killed.
    let (program, serve, input) = match program {
        Some(program) => (program.to_owned(), &["serve"][..], Stdio::null()),
        None => (
            std::env::current_exe()?,
            &["gateway", "--exit-with-input"][..],
            Stdio::piped(),
        ),
    };
    let mut command = Command::new(&program);
    command.args(serve);
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join(LOG_FILE))?;
    command.arg("--config").arg(directory.join(file));
    command
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true);
    let started = command.spawn();
    started.with_context(|| format!("cannot start the gateway {}", program.display()))
}

/// Waits until `child` listens.
async fn wait_for(child: &mut Child, directory: &Path, listen: SocketAddr) -> anyhow::Result<()> {
    let clock = Clock::system();
    let until = clock.now().plus(START_TIMEOUT);
    let logged = || std::fs::read_to_string(directory.join(LOG_FILE)).unwrap_or_default();
    while clock.now() < until {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("the gateway ended ({status}) and logged:\n{}", logged());
        }
        if TcpStream::connect(listen).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    anyhow::bail!(
        "the gateway does not listen at {listen}; it logged:\n{}",
        logged()
    )
}

/// Writes the configuration of a gateway in front of `upstreams`, its policy, and the credentials of all users.
pub(crate) fn write_files(
    scenario: &Scenario,
    fairness: bool,
    directory: &Path,
    upstreams: &[SocketAddr],
    listen: SocketAddr,
    admin: [SocketAddr; 2],
) -> anyhow::Result<()> {
    let policies = directory.join(POLICY_DIRECTORY);
    std::fs::create_dir(&policies)?;
    write_policy(&policies, &scenario.policy)?;
    std::fs::write(directory.join(TOKEN_FILE), tokens(scenario))?;
    if scenario.gateway.tls {
        certificate::write(directory)?;
    }
    for (file, admin) in CONFIGURATION_FILES.into_iter().zip(admin) {
        let configuration = configuration(scenario, fairness, upstreams, listen, admin);
        std::fs::write(directory.join(file), configuration)?;
    }
    Ok(())
}

/// Writes policy objects where the gateway reads them.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn write_policy(directory: &Path, objects: &[Value]) -> anyhow::Result<()> {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
    // Complete or not at all: the gateway may read at any time.
    let written = directory.join(".policy");
    std::fs::write(&written, serde_json::to_vec_pretty(&list)?)?;
    Ok(std::fs::rename(written, directory.join(POLICY_FILE))?)
}

/// The credentials of all users, as the gateway reads them.
pub(crate) fn tokens(scenario: &Scenario) -> String {
    let mut lines = String::new();
    for client in &scenario.clients {
        // Without groups the column is left out: an empty one would be read as a group.
        let groups = match client.groups.join(",") {
            none if none.is_empty() => none,
            groups => format!(",\"{groups}\""),
        };
        for user in client.user_names() {
            let _ = writeln!(lines, "{},{user},{user}{groups}", token_of(&user));
        }
    }
    lines
}

fn configuration(
    scenario: &Scenario,
    fairness: bool,
    upstreams: &[SocketAddr],
    listen: SocketAddr,
    admin: SocketAddr,
) -> String {
    let gateway = &scenario.gateway;
    let tls = if gateway.tls {
        format!("  tls:\n    certFile: {CERTIFICATE_FILE}\n    keyFile: {KEY_FILE}\n")
    } else {
        String::new()
    };
    let upstream = match upstreams {
        [one] => format!("url: http://{one}"),
        several => {
            let urls = several.iter();
            let urls: Vec<_> = urls
                .map(|server| format!("{{url: \"http://{server}\"}}"))
                .collect();
            format!("servers: [{}]", urls.join(", "))
        }
    };
    let mut hash_key = String::new();
    for byte in policy_objects::HASH_KEY {
        let _ = write!(hash_key, "{byte:02x}");
    }
    let enforcement = if fairness { "enforce" } else { "off" };
    let semantics = match gateway.semantics {
        Semantics::Improved => "Improved",
        Semantics::Compatible => "Compatible",
    };
    let bootstrap = match gateway.bootstrap {
        Bootstrap::Mandatory => "mandatory",
        Bootstrap::Suggested => "suggested",
    };
    let (seats, milliseconds) = (gateway.total_seats, gateway.request_timeout.as_millis());
    format!(
        "apiVersion: fairgate.dev/v1alpha1
kind: Configuration
listen:
  address: {listen}
{tls}upstream:
  {upstream}
  protocol: http2
authentication:
  tokenFile: {TOKEN_FILE}
  tokenReview:
    enabled: false
flowControl:
  enforcement: {enforcement}
  semantics: {semantics}
  totalSeats: {seats}
  hashKey: \"{hash_key}\"
  bootstrap: {bootstrap}
  policies:
    directory: {POLICY_DIRECTORY}
timeouts:
  request: {milliseconds}ms
admin:
  address: {admin}
log:
  level: warn
drain:
  delay: 0s
  grace: 10s
"
    )
}
