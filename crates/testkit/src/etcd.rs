//! A real etcd for tests and benches: the program that `FAIRGATE_ETCD` names, with its own directory and
//! ports, alone or as a cluster of several members. It never outlives the process that started it.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use etcd_client::Client;
use tokio::net::TcpStream;

use crate::ports;

/// The variable that names the program.
pub const PROGRAM: &str = "FAIRGATE_ETCD";

/// A member of an etcd, usually its only one. Dropping it stops it and removes its data.
pub struct EtcdServer {
    shell: Child,
    /// The data directory of the server.
    pub directory: PathBuf,
    /// The ports for clients and for peers, which a restart uses again.
    pub ports: (u16, u16),
    /// Further arguments.
    arguments: Vec<String>,
}

impl EtcdServer {
    /// Starts etcd on free ports. Returns before it is ready; [`client`](Self::client) waits for that.
    pub fn start() -> Self {
        Self::with(Vec::new())
    }

    /// The same, with further arguments. With a certificate it serves TLS.
    pub fn with(arguments: Vec<String>) -> Self {
        Self::on(unused_ports(), arguments)
    }

    /// Starts the members of one cluster.
    pub fn cluster(members: usize) -> Vec<Self> {
        let ports: Vec<_> = (0..members).map(|_| unused_ports()).collect();
        let all: Vec<_> = ports
            .iter()
            .map(|(_, peers)| format!("m{peers}=http://127.0.0.1:{peers}"))
            .collect();
        let all = all.join(",");
        let start = |ports: (u16, u16)| {
            let name = format!("m{}", ports.1);
            let arguments = ["--name", &name, "--initial-cluster", &all];
            Self::on(ports, arguments.map(str::to_owned).into())
        };
        ports.into_iter().map(start).collect()
    }

    fn on(ports: (u16, u16), arguments: Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-etcd-{}-{next}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        let _ = fs::remove_file(log_of(&directory));
        Self {
            shell: run(&directory, ports, &arguments),
            directory,
            ports,
            arguments,
        }
    }

    /// Kills the program, and keeps its data.
    pub fn stop(&mut self) {
        if self.shell.stdin.is_some() {
            self.tell("stay");
            drop(self.shell.stdin.take());
        }
        self.shell.wait().expect("the shell ends");
    }

    /// Stops the program from running, until [`thaw`](Self::thaw): its connections stay open, and nobody answers.
    pub fn freeze(&mut self) {
        self.tell("freeze");
    }

    /// Lets a frozen program run again.
    pub fn thaw(&mut self) {
        self.tell("thaw");
    }

    fn tell(&mut self, word: &str) {
        let shell = self.shell.stdin.as_mut().expect("the program runs");
        writeln!(shell, "{word}").expect("the shell reads its input");
    }

    /// Starts it again with the same ports and data.
    pub fn restart(&mut self) {
        self.shell = run(&self.directory, self.ports, &self.arguments);
    }

    /// The URL for clients, without TLS.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    /// Waits until it accepts connections. Whoever connects after that waits until it serves, also by TLS.
    pub async fn listens(&self) {
        for _ in 0..300 {
            if TcpStream::connect(("127.0.0.1", self.ports.0))
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("etcd does not listen");
    }

    /// A client, once the server responds.
    pub async fn client(&self) -> Client {
        let client = Client::connect([self.endpoint()], None).await;
        let mut client = client.expect("etcd has an address");
        for _ in 0..300 {
            if client.get("/", None).await.is_ok() {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("etcd does not respond");
    }

    /// Whether it leads its cluster.
    pub async fn is_leader(&self) -> bool {
        let status = self.client().await.status().await;
        let status = status.expect("etcd responds");
        let member = status.header().map(etcd_client::ResponseHeader::member_id);
        member == Some(status.leader())
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let log = log_of(&self.directory);
        if std::thread::panicking() {
            let printed = fs::read_to_string(&log).unwrap_or_default();
            eprintln!("etcd on the ports {:?} printed:\n{printed}", self.ports);
        }
        let _ = fs::remove_dir_all(&self.directory);
        let _ = fs::remove_file(log);
    }
}

/// Its ports for clients and for peers.
fn unused_ports() -> (u16, u16) {
    (ports::unused().port(), ports::unused().port())
}

/// Where the server with that data directory prints its errors. A failed test shows them.
fn log_of(directory: &Path) -> PathBuf {
    directory.with_extension("log")
}

/// The argument that makes a cluster of one, unless the cluster is given.
fn cluster_of_one(peers: &str, arguments: &[String]) -> Vec<String> {
    if arguments.iter().any(|given| given == "--initial-cluster") {
        return Vec::new();
    }
    vec!["--initial-cluster".to_owned(), format!("default={peers}")]
}

fn run(directory: &Path, ports: (u16, u16), arguments: &[String]) -> Child {
    let program = std::env::var(PROGRAM).expect("FAIRGATE_ETCD must name the program etcd");
    // A shell that stops etcd when its input ends, which is also when the test process ends, and then cleans up.
    let script = r#"dir=$1; shift; "$@" & etcd=$!
        while read -r word; do
            case $word in freeze) kill -STOP $etcd ;; thaw) kill -CONT $etcd ;; *) break ;; esac
        done
        kill -9 $etcd; wait $etcd 2>/dev/null
        [ "$word" = stay ] || rm -rf "$dir" "$dir.log""#;
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_of(directory));
    let is_secure = arguments
        .iter()
        .any(|argument| argument.starts_with("--cert-file"));
    let scheme = if is_secure { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{}", ports.0);
    let peers = format!("http://127.0.0.1:{}", ports.1);
    Command::new("sh")
        .args(["-c", script, "sh"])
        .args([directory, Path::new(&program)])
        .arg("--data-dir")
        .arg(directory)
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--log-level", "error"])
        .args(arguments)
        .args(cluster_of_one(&peers, arguments))
        .stdin(Stdio::piped())
        .stderr(log.expect("the directory for temporary files can be written"))
        .spawn()
        .expect("FAIRGATE_ETCD names a program")
}
