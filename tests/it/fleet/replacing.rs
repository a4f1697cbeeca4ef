//! Gateways that are replaced one after the other, as in an upgrade.

use http::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::*;

/// Sends numbered requests, each to one gateway after the other until one answers 200, as a load balancer does with gateways that refuse or
/// close a connection.
async fn send_numbered(gateways: Arc<Mutex<Vec<SocketAddr>>>, of: usize, ends: Arc<AtomicBool>) {
    let mut number = 0;
    while !ends.load(Ordering::SeqCst) {
        let path = format!("{WORK}?of={of}&number={number}");
        number += 1;
        let mut turn = of;
        while !is_served(&gateways, turn, &path).await {
            turn += 1;
        }
    }
}

/// Whether the gateway whose turn it is answers with 200.
async fn is_served(gateways: &Mutex<Vec<SocketAddr>>, turn: usize, path: &str) -> bool {
    let address = {
        let gateways = gateways.lock().unwrap();
        gateways[turn % gateways.len()]
    };
    let Ok(stream) = TcpStream::connect(address).await else {
        return false;
    };
    let Ok((mut sender, connection)) = http1::handshake(TokioIo::new(stream)).await else {
        return false;
    };
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(AUTHORIZATION, "Bearer alice-token");
    let request = request.header("host", "gateway").body(full("")).unwrap();
    let answer = sender.send_request(request).await;
    let is_ok = matches!(&answer, Ok(response) if response.status() == 200);
    drop((answer, sender));
    connection.abort();
    is_ok
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_replaced_one_after_the_other_lose_no_request() {
    let server = Arc::<Server>::default();
    let mut members = three(&server).await;
    until_seats(&members, is_even).await;
    let addresses = members.iter().map(|member| member.running().address());
    let addresses = Arc::new(Mutex::new(addresses.collect::<Vec<_>>()));
    let ends = Arc::<AtomicBool>::default();
    let clients: Vec<_> = (0..2 * LIMIT)
        .map(|of| {
            let (addresses, ends) = (Arc::clone(&addresses), Arc::clone(&ends));
            tokio::spawn(send_numbered(addresses, of, ends))
        })
        .collect();
    let served = || server.served_by_user().values().sum::<usize>();
    for (index, name) in ["gw-a", "gw-b", "gw-c"].into_iter().enumerate() {
        let before = served();
        let running = members[index].running.take().unwrap();
        tokio::task::spawn_blocking(|| running.shut_down())
            .await
            .unwrap();
        members[index] = Member::start(std::slice::from_ref(&server), name).await;
        addresses.lock().unwrap()[index] = members[index].running().address();
        until_seats(&members, is_even).await;
        soon(async {
            while served() < before + 5 * LIMIT {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    ends.store(true, Ordering::SeqCst);
    for client in clients {
        soon(client).await.unwrap();
    }
    let ran = server.ran.lock().unwrap();
    assert!(ran.len() > 15 * LIMIT, "{} requests ran", ran.len());
    // A request that had run and was not answered would have been sent again.
    let twice: Vec<_> = ran.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}
