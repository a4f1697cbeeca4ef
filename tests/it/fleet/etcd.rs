//! The same fleet with its records in an etcd of three members, of which one may be away.
//!
//! `FAIRGATE_ETCD` names the program etcd; the tests start it, and fail without it.

use fairgate_base::clock::Clock;
use fairgate_testkit::etcd::EtcdServer;

use super::*;

/// An etcd of three members that answer, and the server of a fleet that uses it.
async fn on_etcd() -> (Vec<EtcdServer>, Arc<Server>) {
    let members = EtcdServer::cluster(3);
    for member in &members {
        member.client().await;
    }
    let address = |member: &EtcdServer| SocketAddr::from(([127, 0, 0, 1], member.ports.0));
    let server = Server {
        etcd: members.iter().map(address).collect(),
        ..Server::default()
    };
    (members, Arc::new(server))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_share_one_limit_and_a_lost_one_gives_its_seats_back() {
    let (_etcd, server) = on_etcd().await;
    shares_one_limit_through_a_loss(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_keeps_its_floor_and_one_that_stops_gives_back_all() {
    let (_etcd, server) = on_etcd().await;
    keeps_a_floor_when_cut_off(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_three_gateways_gets_no_more_than_one_of_a_single_gateway() {
    let (_etcd, server) = on_etcd().await;
    gives_one_share_to_a_user_of_all_gateways(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_names_a_user_and_all_gateways_have_one_hash_key() {
    let (etcd, server) = on_etcd().await;
    let members = three(&server).await;
    let clients = members[1].clients("alice", 2 * LIMIT);
    until_seats(&members, |seats| seats == [FLOOR, LIMIT - 2 * FLOOR, FLOOR]).await;
    until_one_hash_key(&members).await;
    clients.iter().for_each(JoinHandle::abort);
    let mut client = etcd[0].client().await;
    for record in [
        "coordinator",
        "hash-key",
        "ledger",
        "reports/gw-a",
        "reports/gw-b",
        "reports/gw-c",
    ] {
        let name = format!("/fairgate-fleets/fairgate/{record}");
        let found = client.get(name, None).await.unwrap();
        let value = String::from_utf8_lossy(found.kvs()[0].value());
        assert!(!value.contains("alice"), "{record}: {value}");
    }
}

/// Demand moves from one gateway to the next while a member of etcd is away, in one way after the other.
#[tokio::test(flavor = "multi_thread")]
async fn seats_follow_demand_while_a_member_of_etcd_is_away() {
    let (mut etcd, server) = on_etcd().await;
    let members = three(&server).await;
    let clock = Clock::system();
    let mut clients = Vec::new();
    let mut moved = Vec::new();
    for round in 0..6 {
        let leads = Box::pin(leader(&etcd)).await;
        let away = match round {
            0 => None,
            1 | 2 => Some(leads),
            _ => Some((leads + 1) % etcd.len()),
        };
        let is_frozen = round % 2 == 0;
        match away {
            Some(member) if is_frozen => etcd[member].freeze(),
            Some(member) => etcd[member].stop(),
            None => {}
        }
        clients
            .drain(..)
            .for_each(|client: JoinHandle<()>| client.abort());
        let busy = round % members.len();
        let began = clock.now();
        clients = members[busy].clients("alice", 2 * LIMIT);
        until_seats(&members, |seats| {
            seats[busy] == LIMIT - 2 * FLOOR && seats.iter().sum::<usize>() == LIMIT
        })
        .await;
        moved.push((round, away.is_some(), clock.now().since(began)));
        // A gateway that has its floor alone may still be without a grant.
        soon(async {
            for member in &members {
                while member.fleet().await["state"] != "granted" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        })
        .await;
        match away {
            Some(member) if is_frozen => etcd[member].thaw(),
            Some(member) => etcd[member].restart(),
            None => {}
        }
        for member in &etcd {
            member.client().await;
        }
    }
    clients.iter().for_each(JoinHandle::abort);
    println!("FLEET ON ETCD demand moved (round, member away, after): {moved:?}");
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}

/// The index of the member that leads.
async fn leader(etcd: &[EtcdServer]) -> usize {
    let found = async {
        loop {
            for (index, member) in etcd.iter().enumerate() {
                if member.is_leader().await {
                    return index;
                }
            }
        }
    };
    soon(Box::pin(found)).await
}
