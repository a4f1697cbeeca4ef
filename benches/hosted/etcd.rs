//! The etcd that is measured, and what it does by itself.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use etcd_client::Client;
use tokio::task::JoinSet;

use super::{client::body, now, per_second};

/// An etcd of one member, with a directory that goes with it.
pub(crate) struct Server {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl Server {
    /// Starts the program that `FAIRGATE_ETCD` names, if it names one.
    pub(crate) fn start() -> Option<Self> {
        let program = std::env::var_os("FAIRGATE_ETCD")?;
        let directory =
            std::env::temp_dir().join(format!("fairgate-bench-etcd-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let (port, peers) = (free_port(), free_port());
        let url = |port| format!("http://127.0.0.1:{port}");
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(&directory)
            .args(["--listen-client-urls", &url(port)])
            .args(["--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peers)])
            .args(["--initial-advertise-peer-urls", &url(peers)])
            .args(["--initial-cluster", &format!("default={}", url(peers))])
            .args(["--log-level", "error"])
            .stderr(Stdio::null())
            .spawn()
            .expect("FAIRGATE_ETCD names a program");
        Some(Self {
            child,
            directory,
            port,
        })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Puts a second, by so many writers over one connection.
    pub(crate) async fn puts(&self, writers: usize, count: usize) -> f64 {
        let client = Client::connect([self.endpoint()], None)
            .await
            .expect("etcd has an address");
        while client.clone().get("/", None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let start = now();
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let mut client = client.clone();
            tasks.spawn(async move {
                for i in (writer..count).step_by(writers) {
                    let name = format!("bench-{writers}-{i}");
                    let value = body(&name).to_string();
                    let put = client.put(format!("/put/{name}"), value, None).await;
                    put.expect("etcd takes it");
                }
            });
        }
        tasks.join_all().await;
        per_second(count, start)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    listener.local_addr().expect("it is bound").port()
}
