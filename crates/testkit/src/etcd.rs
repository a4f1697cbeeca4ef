//! A real etcd for tests and benches: the program that `FAIRGATE_ETCD` names, with its own directory and
//! ports. It never outlives the process that started it.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use etcd_client::Client;

/// The variable that names the program.
pub const PROGRAM: &str = "FAIRGATE_ETCD";

/// An etcd with one member. Dropping it stops it and removes its data.
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
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-etcd-{}-{next}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        let ports = (free_port(), free_port());
        Self {
            shell: run(&directory, ports, &arguments),
            directory,
            ports,
            arguments,
        }
    }

    /// Stops the program, and keeps its data.
    pub fn stop(&mut self) {
        if let Some(mut shell) = self.shell.stdin.take() {
            shell
                .write_all(b"stay\n")
                .expect("the shell reads its input");
        }
        self.shell.wait().expect("the shell ends");
    }

    /// Starts it again with the same ports and data.
    pub fn restart(&mut self) {
        self.shell = run(&self.directory, self.ports, &self.arguments);
    }

    /// The URL for clients, without TLS.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
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
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    listener.local_addr().expect("it is bound").port()
}

fn run(directory: &Path, ports: (u16, u16), arguments: &[String]) -> Child {
    let program = std::env::var(PROGRAM).expect("FAIRGATE_ETCD must name the program etcd");
    // A shell that stops etcd when its input ends, which is also when the test process ends, and then cleans up.
    let script = r#"dir=$1; shift; "$@" & etcd=$!; read -r word; kill -9 $etcd; wait $etcd 2>/dev/null
        [ "$word" = stay ] || rm -rf "$dir""#;
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
        .args(["--initial-cluster", &format!("default={peers}")])
        .args(["--log-level", "error"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("FAIRGATE_ETCD names a program")
}
