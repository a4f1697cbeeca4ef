//! Starts that are delayed for a moment, so that seats do not become free in groups.

use super::*;
use crate::rules::{Full, Rules};

const SEATS: u32 = 8;
const CLIENTS: usize = 48;
const REQUESTS: usize = 40;

/// How many starts were held back.
fn held_back(gate: &Gate) -> u64 {
    let cells = gate.flow_control().core_cells().iter();
    cells.map(|cells| cells.held_back.get()).sum()
}

/// Sends one request after the other, and sometimes gives up while one waits. Stops after a number of requests, when
/// some were held back.
async fn busy(gate: Arc<Gate>, number: usize) {
    let mut client = connect(&gate, false).await;
    for turn in 0.. {
        if turn >= REQUESTS && held_back(&gate) > 0 {
            break;
        }
        if (number + turn) % 16 == 15 {
            let request = of(&client, "alice", Method::GET, PODS);
            let _ = tokio::time::timeout(ms(20), client.send(request)).await;
            client.abandon().await;
            client = connect(&gate, false).await;
        }
        let request = of(&client, "alice", Method::GET, PODS);
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body_text(response).await, "done");
    }
}

#[tokio::test]
async fn delayed_starts_stay_within_the_limit_and_lose_no_seat() {
    let server = Stubborn::start(Speaks::Http1, |_| ms(10));
    let rules = Rules::small(SEATS, Full::queue(200));
    let gate = Arc::new(Gate::governed(&server.upstream, &rules));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(busy(Arc::clone(&gate), number)))
        .collect();
    soon(async {
        for client in clients {
            client.await.unwrap();
        }
    })
    .await;
    assert!(
        server.work.most() <= SEATS as usize,
        "{}",
        server.work.most()
    );
    until(|| small(&gate) == (0, 0, 0)).await;
}
