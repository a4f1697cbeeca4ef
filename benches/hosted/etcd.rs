//! The baseline: etcd without the gateway.

use tokio::task::JoinSet;

pub(crate) use fairgate_testkit::etcd::{EtcdServer, PROGRAM};

use super::{client::body, now, per_second};

/// Puts per second, by a number of concurrent writers over one connection.
pub(crate) async fn puts(etcd: &EtcdServer, writers: usize, count: usize) -> f64 {
    let client = etcd.client().await;
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
