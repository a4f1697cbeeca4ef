//! Names of which each address is a server, as their addresses change.

use fairgate_base::clock::Clock;
use fairgate_proxy::forward::UpstreamSettings;
use fairgate_upstream::{
    endpoint::Endpoint,
    server_monitor::set_addresses,
    servers::{ConfiguredServer, Spread, UpstreamServers},
};

use super::*;
use crate::{failures::until, gate::Gate};

#[tokio::test]
async fn a_request_that_waits_for_room_is_sent_to_a_server_that_is_found_meanwhile() {
    let first = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let second = TestUpstream::saying(Speaks::Http1, "served");
    let endpoint = Endpoint::new(http::uri::Authority::from_static("name:80"), None);
    let name = ConfiguredServer {
        endpoint: endpoint.clone(),
        seats: Some(1),
        is_resolved: true,
    };
    let servers = UpstreamServers::new(vec![name], 1, Spread::Request, Clock::system());
    set_addresses(&servers, 0, &[first.address]);
    let mut to = UpstreamSettings::new(endpoint.authority().clone(), None);
    to.servers = Some(Arc::clone(&servers));
    let gate = Gate::towards(to, |_, _| {});

    let request = || async {
        let mut client = TestClient::http1(gate.address()).await;
        client.get("/api/v1/pods").await.status()
    };
    let _held = tokio::spawn(client_request(gate.address()));
    until(|| first.seen().len() == 1).await;
    let waits = async {
        until(|| servers.places().len() == 1).await;
        set_addresses(&servers, 0, &[second.address]);
    };
    let (status, ()) = tokio::join!(soon(request()), waits);
    assert_eq!(status, 200);
    assert_eq!(second.seen().len(), 1);
}

/// A request whose response never comes.
async fn client_request(gateway: SocketAddr) {
    TestClient::http1(gateway).await.get("/api/v1/pods").await;
}
