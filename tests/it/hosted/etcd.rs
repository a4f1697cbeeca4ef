//! What holds on the local store, on etcd.
//!
//! `FAIRGATE_ETCD` names the program etcd; the tests start it, and fail without it.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::{Home, Server, conformance, watching};

/// An etcd of one member, whose data are in the home of the test.
struct Etcd {
    program: Child,
    port: u16,
}

impl Etcd {
    fn start(home: &Home) -> Self {
        let program = std::env::var_os("FAIRGATE_ETCD").expect("FAIRGATE_ETCD must name etcd");
        let (port, peers) = (free_port(), free_port());
        let url = |port| format!("http://127.0.0.1:{port}");
        let program = Command::new(program)
            .arg("--data-dir")
            .arg(home.path().join("etcd"))
            .args(["--listen-client-urls", &url(port)])
            .args(["--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peers)])
            .args(["--initial-advertise-peer-urls", &url(peers)])
            .args(["--initial-cluster", &format!("default={}", url(peers))])
            .args(["--log-level", "error"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { program, port }
    }

    /// A gateway with its objects here.
    async fn gateway(&self, home: &Home) -> Server {
        let store = format!(
            "store: {{type: etcd, etcd: {{endpoints: ['http://127.0.0.1:{}']}}}}\n",
            self.port
        );
        let server = Server::start(home.config_with(&store)).await;
        server.settled().await;
        server
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn the_api_operations_of_both_kinds_are_supported() {
    let home = Home::new();
    let etcd = Etcd::start(&home);
    let server = etcd.gateway(&home).await;
    conformance::supports_api_operations(&server).await;
    conformance::classifies_by_new_objects(&server).await;
}

#[tokio::test]
async fn every_watch_sees_every_change_once_and_in_order() {
    let home = Home::new();
    let etcd = Etcd::start(&home);
    let server = etcd.gateway(&home).await;
    watching::all_watches_see_all_changes(&server).await;
}
