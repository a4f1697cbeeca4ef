//! The arguments of all commands.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};

use fairgate_gotext::parse_duration;

/// Load tests of API servers and of proxies in front of them.
///
/// A scenario says who sends which load, what kind of server stands behind the gateway, and what is expected.
#[derive(Debug, Parser)]
#[command(name = "fairgate-loadtest", version, after_help = EXAMPLES)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  Everything on this machine, with fairness and without; writes a page with plots:
    fairgate-loadtest local config/scenarios/elephant-and-mice.yaml
  The same scenario in virtual time:
    fairgate-loadtest run config/scenarios/elephant-and-mice.yaml --simulate
  Against a server that runs already:
    fairgate-loadtest run scenario.yaml --target https://127.0.0.1:8443 --ca ca.pem --tokens tokens.csv

Exit codes: 0 all expectations hold, 1 one fails, 2 wrong usage or a mistake in the scenario, 3 the target does not \
answer, or something cannot be started or written, 130 and 143 interrupted.";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Local(LocalArgs),
    Run(RunArgs),
    Compare(CompareArgs),
    Idle(IdleArgs),
    Check(CheckScenariosArgs),
    Upstream(UpstreamArgs),
    Tokens(TokensArgs),
    Objects(ObjectsArgs),
    #[command(hide = true)]
    Gateway(GatewayArgs),
}

/// Check scenarios: report all mistakes in them.
#[derive(Debug, clap::Args)]
pub(super) struct CheckScenariosArgs {
    /// Scenario files.
    #[arg(value_name = "SCENARIO", required = true)]
    pub(super) scenarios: Vec<PathBuf>,
}

/// Print the bearer tokens of a scenario's users, as fairgate's and kube-apiserver's token files have them.
#[derive(Debug, clap::Args)]
pub(super) struct TokensArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
}

/// Print the objects that an API server must have for a scenario, as one list for `kubectl apply`: namespaces, the objects
/// that paths name, and the permissions of the scenario's users.
#[derive(Debug, clap::Args)]
pub(super) struct ObjectsArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
    /// Print the flow schemas and priority levels of the scenario, too. They affect everybody who uses the server.
    #[arg(long)]
    pub(super) policy: bool,
    /// Print also as many objects for its lists and watches as `upstream.objects` says, of that size.
    #[arg(long)]
    pub(super) lists: bool,
}

/// Run a scenario on this machine, with fairness and without.
///
/// Starts the stand-in server and a gateway for each part of the run; needs nothing else.
#[derive(Debug, clap::Args)]
pub(super) struct LocalArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
    /// Another gateway program, started with `serve --config FILE`. The default is the one in this program.
    #[arg(long, value_name = "PROGRAM")]
    pub(super) gateway: Option<PathBuf>,
    /// Which of the two has to meet the expectations.
    #[arg(long, value_enum, default_value_t)]
    pub(super) judge: JudgedVariant,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Which measurement is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum JudgedVariant {
    /// With fairness.
    #[default]
    Fairness,
    /// Without: to see that the expectations can fail.
    Without,
}

/// Run a scenario against a server, or in virtual time.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
    /// The server: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL", conflicts_with = "simulate")]
    pub(super) target: Option<String>,
    /// Play it in virtual time instead. Names the keys that have no effect there.
    #[arg(long, conflicts_with_all = ["metrics", "process", "upstream_control", "ca", "tokens", "token", "client_certificate", "rounds"])]
    pub(super) simulate: bool,
    /// Where the gateway's /metrics are, for plots of queues and seats; often another port.
    #[arg(long, value_name = "URL")]
    pub(super) metrics: Option<String>,
    /// The server's process on this machine, whose CPU time and memory are measured.
    #[arg(long, value_name = "PID")]
    pub(super) process: Option<u32>,
    /// The control address that `fairgate-loadtest upstream` printed, for events of the scenario.
    #[arg(long, value_name = "URL")]
    pub(super) upstream_control: Option<String>,
    #[command(flatten)]
    pub(super) access: TargetArgs,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Compare servers: run a scenario against each in turns, within one run.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
    /// A server and its name in the report: NAME=URL, or NAME=URL@PID to measure the CPU time and memory of its process,
    /// too; at least two.
    #[arg(long = "target", value_name = "NAME=URL[@PID]", required = true)]
    pub(super) targets: Vec<String>,
    /// Where the /metrics of a target are, for plots of its queues and seats: NAME=URL with the name of the target; once for
    /// each target that has some.
    #[arg(long, value_name = "NAME=URL")]
    pub(super) metrics: Vec<String>,
    /// The bearer tokens for one target, as --tokens has them for all: NAME=FILE with the name of the target.
    #[arg(long, value_name = "NAME=FILE")]
    pub(super) target_tokens: Vec<String>,
    /// A target that gets requests without a credential: its name.
    #[arg(long, value_name = "NAME")]
    pub(super) target_anonymous: Vec<String>,
    /// In each round measure the first target beside each other one, one directly after the other, instead of all in turns.
    /// With a short --duration and many --rounds the ratios are least affected by a machine whose speed changes.
    #[arg(long)]
    pub(super) pairs: bool,
    #[command(flatten)]
    pub(super) access: TargetArgs,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Measure what idle connections take: the memory of a proxy with many of them, each of which has sent one request, and what it
/// returns once they are closed.
///
/// A process keeps memory for the next connections, so restart it before it is measured again.
#[derive(Debug, clap::Args)]
pub(super) struct IdleArgs {
    /// A proxy with its name and its process on this machine.
    #[arg(long = "target", value_name = "NAME=URL@PID", required = true)]
    pub(super) targets: Vec<String>,
    /// Connections to each, by HTTP/1.1.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) connections: u32,
    /// The target of the requests.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/api/v1/namespaces/default/configmaps/client"
    )]
    pub(super) path: String,
    /// The user who sends them.
    #[arg(long, value_name = "NAME", default_value = "client-1")]
    pub(super) user: String,
    /// How long to wait before each measurement. Allocators return memory after seconds.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(super) settle: Duration,
    #[command(flatten)]
    pub(super) access: TargetArgs,
}

/// How servers are reached.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("credential").args(["token", "client_certificate"]).multiple(true))]
pub(super) struct TargetArgs {
    /// The CA certificates that verify the server's certificate (PEM), for https.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Bearer tokens of the scenario's users, a line `token,user,…` for each. The default is what
    /// `fairgate-loadtest tokens` prints.
    #[arg(long, value_name = "FILE")]
    pub(super) tokens: Option<PathBuf>,
    /// One bearer token for all users: the server takes them for one and the same, unless they are impersonated.
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    pub(super) token: Option<PathBuf>,
    /// One client certificate for all users, with its chain (PEM), instead of bearer tokens: the server takes them for one
    /// and the same, unless they are impersonated. With --tokens or --token those are sent, too.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub(super) client_certificate: Option<PathBuf>,
    /// The private key of --client-certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub(super) client_key: Option<PathBuf>,
    /// Impersonate the scenario's users and their groups. The owner of --token or --client-certificate must be allowed to.
    #[arg(long, requires = "credential")]
    pub(super) impersonate: bool,
    /// Requests have no credential; `compare` decides it for each target.
    #[arg(skip)]
    pub(super) anonymous: bool,
    /// Send load to another machine.
    #[arg(long)]
    pub(super) allow_remote: bool,
}

/// How much is measured, and the bounds of the load.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MeasureArgs {
    /// How many times everything is measured; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Measure for this time only; other times of the scenario become shorter in proportion.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// The most threads that a scenario may have.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(super) max_threads: u32,
    /// The most requests a second that its open loops may send.
    #[arg(long, value_name = "RATE", default_value_t = 5_000.0)]
    pub(super) max_rate: f64,
    /// The longest that it may last, warm-up included.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(super) max_duration: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text.as_bytes()) {
        Ok(Duration::ZERO) | Err(_) => Err("write a time such as 500ms, 10s or 1m30s".to_owned()),
        Ok(time) => Ok(time),
    }
}

/// How results are written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: ReportFormat,
    /// A directory for report.html, report.json, report.txt and the plots as SVG. With the command `local` the
    /// default is loadtest-report/SCENARIO.
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Run the stand-in server of a scenario. Prints its addresses as one line of JSON.
#[derive(Debug, clap::Args)]
pub(super) struct UpstreamArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: PathBuf,
    /// Where it listens; with port 0 the system chooses a port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(super) listen: SocketAddr,
    /// Serve with TLS: a directory with certificate.pem and key.pem, which are made if there are none. Clients verify the
    /// server by the same certificate.pem.
    #[arg(long, value_name = "DIR")]
    pub(super) tls: Option<PathBuf>,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    pub(super) exit_with_input: bool,
}

/// The gateway in this program, for the command `local`.
#[derive(Debug, clap::Args)]
pub(super) struct GatewayArgs {
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    // A parent that is killed cannot end what it started, but its end of the pipe closes.
    /// End when standard input ends.
    #[arg(long)]
    pub(super) exit_with_input: bool,
}
