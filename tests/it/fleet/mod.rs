//! Three gateways that share one limit, over real sockets. A stand-in for an API server counts what executes, goes on with requests
//! whose gateway is gone, and is the judge. It also has the gateways' leases, unless they use an etcd.

#[cfg(feature = "etcd")]
mod etcd;
mod replacing;
mod stand_in;
mod stopping;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate::{app, config::Config, observe::GatewayMetrics};
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::stand_in::{Door, Executing, Server};
use crate::{
    client::{HANG, TestClient, body_text, soon},
    upstream::full,
};

/// L.
const LIMIT: usize = 12;
/// f.
const FLOOR: usize = 1;
/// How long a request takes at the server.
const SERVICE: Duration = Duration::from_millis(40);
const WORK: &str = "/api/v1/namespaces/default/pods/work";

/// A gateway, its ways to the servers, and its files.
struct Member {
    running: Option<app::Running>,
    doors: Vec<Door>,
    directory: PathBuf,
}

impl Member {
    async fn start(servers: &[Arc<Server>], name: &str) -> Self {
        let mut doors = Vec::new();
        for server in servers {
            doors.push(server.door().await);
        }
        let directory = directory(name);
        let (upstream, total_seats) = upstream(servers, &doors);
        let config = json!({
            "apiVersion": "fairgate.dev/v1alpha1",
            "kind": "Configuration",
            "dataCores": 1,
            "listen": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": upstream,
            "authentication": {"tokenFile": "tokens.csv", "tokenReview": {"enabled": false}},
            "timeouts": {"request": "30s"},
            "flowControl": {
                "totalSeats": total_seats, "bootstrap": "mandatory",
                "policies": {"directory": "policies"},
            },
            "fleet": doors[0].fleet(name),
            "drain": {"delay": "0s", "grace": "5s"},
        });
        let reading = Config::parse("test.yaml", &directory, config.to_string().as_bytes());
        let (config, _) = reading.usable().unwrap();
        // A runtime cannot be started inside another.
        let started = std::thread::spawn(|| app::start(config, None, GatewayMetrics::new()));
        Self {
            running: Some(started.join().unwrap().unwrap()),
            doors,
            directory,
        }
    }

    fn running(&self) -> &app::Running {
        self.running.as_ref().unwrap()
    }

    /// The dump of the fleet.
    async fn fleet(&self) -> Value {
        let path = "/debug/api_priority_and_fairness/dump_fleet";
        let mut operator = TestClient::http1(self.running().admin_address()).await;
        serde_json::from_str(&body_text(operator.get(path).await).await).unwrap()
    }

    async fn seats(&self) -> usize {
        let seats = self.fleet().await["seats"].as_u64();
        usize::try_from(seats.unwrap()).unwrap()
    }

    /// `count` clients that send one request after the other, until they are aborted.
    fn clients(&self, user: &'static str, count: usize) -> Vec<JoinHandle<()>> {
        let address = self.running().address();
        let client = || tokio::spawn(send_requests(address, user));
        (0..count).map(|_| client()).collect()
    }

    /// From now on, it reads and writes no record of the fleet.
    fn close(&self) {
        self.doors.iter().for_each(Door::close);
    }

    fn open(&self) {
        self.doors.iter().for_each(Door::open);
    }

    /// The process ends without a word: nothing that it writes is stored any more.
    fn kill(&mut self) {
        self.close();
        let running = self.running.take();
        std::thread::spawn(|| drop(running)).join().unwrap();
    }
}

/// Sends one request after the other, as long as the connection lasts.
async fn send_requests(gateway: SocketAddr, user: &'static str) {
    send_to(gateway, user, || WORK.to_owned()).await;
}

/// Sends one request after the other, each to a path that `next` gives, as long as the connection lasts.
async fn send_to(gateway: SocketAddr, user: &'static str, mut next: impl FnMut() -> String) {
    let mut client = TestClient::http1(gateway).await;
    loop {
        let request = client
            .request(http::Method::GET, &next())
            .header(AUTHORIZATION, format!("Bearer {user}-token"));
        let Ok(response) = client.send(request.body(full("")).unwrap()).await else {
            return;
        };
        assert_eq!(response.status(), 200, "no request is refused");
        body_text(response).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let running = self.running.take();
        std::thread::spawn(|| drop(running)).join().unwrap();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The upstream of a gateway's configuration, and its `totalSeats`: not set beside the seats of servers.
fn upstream(servers: &[Arc<Server>], doors: &[Door]) -> (Value, Value) {
    let url = |door: &Door| format!("http://{}", door.upstream.address);
    if let [door] = doors {
        return (json!({"url": url(door)}), json!(LIMIT));
    }
    let listed = servers.iter().zip(doors);
    let listed = listed.map(|(server, door)| json!({"url": url(door), "seats": server.seats}));
    let servers = Value::Array(listed.collect());
    (json!({"servers": servers}), Value::Null)
}

/// A directory with tokens, and with a policy of one level for all users.
fn directory(name: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("fairgate-fleet-{}-{name}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(directory.join("policies")).unwrap();
    let users = ["alice", "bob", "mallory"];
    let mut tokens = users
        .map(|user| format!("{user}-token,{user},,devs\n"))
        .concat();
    tokens += "eve-token,eve,,by-namespace\n";
    std::fs::write(directory.join("tokens.csv"), tokens).unwrap();
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let everything = json!({
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
    });
    let schema = |name: &str, group: &str, method: &str| {
        json!({
            "apiVersion": api, "kind": "FlowSchema", "metadata": {"name": name},
            "spec": {
                "priorityLevelConfiguration": {"name": "work"},
                "matchingPrecedence": 1000, "distinguisherMethod": {"type": method},
                "rules": [{
                    "subjects": [{"kind": "Group", "group": {"name": group}}],
                    "resourceRules": [everything],
                }],
            },
        })
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "work"},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 1000,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 64, "handSize": 6, "queueLengthLimit": 50}},
            }},
        },
        schema("work", "devs", "ByUser"),
        schema("namespaces", "by-namespace", "ByNamespace"),
    ]});
    std::fs::write(directory.join("policies/all.json"), objects.to_string()).unwrap();
    directory
}

/// Waits until the gateways have seats of which `holds` is true.
async fn until_seats(members: &[Member], holds: impl Fn(&[usize]) -> bool) {
    let mut last = Vec::new();
    let waiting = async {
        loop {
            last.clear();
            for member in members {
                last.push(member.seats().await);
            }
            if holds(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(HANG, waiting).await;
    assert!(waited.is_ok(), "the gateways still have {last:?} seats");
}

/// Waits until a metric of a gateway has a value.
async fn until_metric(member: &Member, metric: &str, value: u64) {
    let line = format!("{metric} {value}");
    soon(async {
        loop {
            let mut operator = TestClient::http1(member.running().admin_address()).await;
            let text = body_text(operator.get("/metrics").await).await;
            if text.lines().any(|found| found == line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Whether all seats are granted, and all gateways have as many: but for one that rounding gives to each of two levels.
fn is_even(seats: &[usize]) -> bool {
    seats.iter().sum::<usize>() == LIMIT && are_close(seats)
}

fn are_close(seats: &[usize]) -> bool {
    let (most, least) = (seats.iter().max().unwrap(), seats.iter().min().unwrap());
    most - least <= 2
}

async fn three(server: &Arc<Server>) -> Vec<Member> {
    three_before(std::slice::from_ref(server)).await
}

async fn three_before(servers: &[Arc<Server>]) -> Vec<Member> {
    let mut members = Vec::new();
    for name in ["gw-a", "gw-b", "gw-c"] {
        members.push(Member::start(servers, name).await);
    }
    members
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_share_one_limit_and_a_lost_one_gives_its_seats_back() {
    shares_one_limit_through_a_loss(Arc::default()).await;
}

async fn shares_one_limit_through_a_loss(server: Arc<Server>) {
    let mut members = three(&server).await;
    // Two users at one gateway, one at another: all three are asked to share equally, wherever they are.
    let mut clients = members[0].clients("alice", 2 * LIMIT);
    clients.extend(members[0].clients("bob", 2 * LIMIT));
    clients.extend(members[1].clients("mallory", 2 * LIMIT));
    let divided = [LIMIT * 2 / 3 - FLOOR, LIMIT / 3, FLOOR];
    until_seats(&members, |seats| seats == divided).await;

    // Demand moves, and seats follow.
    clients.drain(..).for_each(|client| client.abort());
    let clients: Vec<_> = members
        .iter()
        .flat_map(|member| member.clients("alice", 2 * LIMIT))
        .collect();
    until_seats(&members, is_even).await;

    // One of those that do not coordinate is killed.
    let mut coordinates = Vec::new();
    for member in &members {
        coordinates.push(member.fleet().await["coordinator"] == true);
    }
    assert_eq!(coordinates.iter().filter(|is| **is).count(), 1);
    let dead = coordinates.iter().position(|is| !is).unwrap();
    members[dead].kill();
    let mut dead = members.remove(dead);
    until_seats(&members, |seats| {
        seats.iter().sum::<usize>() == LIMIT - FLOOR
    })
    .await;
    let before: usize = server.served_by_user().values().sum();
    soon(async {
        while server.served_by_user().values().sum::<usize>() < before + 10 * LIMIT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    dead.running.take();
    clients.iter().for_each(JoinHandle::abort);
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
    assert!(most > LIMIT - 3, "the seats were in use: {most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_keeps_its_floor_and_one_that_stops_gives_back_all() {
    keeps_a_floor_when_cut_off(Arc::default()).await;
}

async fn keeps_a_floor_when_cut_off(server: Arc<Server>) {
    let mut members = three(&server).await;
    let clients: Vec<_> = members
        .iter()
        .flat_map(|member| member.clients("alice", 2 * LIMIT))
        .collect();
    until_seats(&members, is_even).await;
    members[2].close();
    let others = LIMIT - FLOOR;
    let is_divided = |seats: &[usize]| seats[0] + seats[1] == others && seats[2] == FLOOR;
    until_seats(&members, is_divided).await;
    assert_eq!(members[2].fleet().await["state"], "isolated");
    members[2].open();
    until_seats(&members, is_even).await;

    // Its way to the server stays open.
    let mut stopped = members.remove(2);
    let running = stopped.running.take().unwrap();
    std::thread::spawn(|| running.shut_down()).join().unwrap();
    // Its name is free, and the floor is kept for whoever has it next.
    until_seats(&members, |seats| seats.iter().sum::<usize>() == others).await;
    clients.iter().for_each(JoinHandle::abort);
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}

/// Waits until all gateways hash flows with the same key.
async fn until_one_hash_key(members: &[Member]) {
    let key = |member: &Member| {
        let view = member.running().flow_control().dispatcher().view();
        view.policy().settings().hash_key
    };
    soon(async {
        while key(&members[0]) != key(&members[1]) || key(&members[1]) != key(&members[2]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_flow_hashes_is_the_same_at_all_gateways() {
    let server = Arc::<Server>::default();
    let members = three(&server).await;
    until_seats(&members, |seats| seats.iter().sum::<usize>() == LIMIT).await;
    until_one_hash_key(&members).await;
    let objects = server.objects.objects();
    let secrets = objects.keys().filter(|path| path.contains("/secrets/"));
    assert_eq!(secrets.count(), 1);
    let leases = objects.keys().filter(|path| path.contains("/leases/"));
    assert_eq!(leases.count(), 5, "a coordinator, a ledger, three reports");
    assert!(!format!("{objects:?}").contains("alice"));
}

/// Waits until the first user gets so many percent of the requests that the server executes, three times in a row over fifty for each
/// seat. The other one gets the rest.
async fn until_percent_is_of(
    server: &Server,
    users: [&str; 2],
    expected: std::ops::RangeInclusive<usize>,
) {
    let count = |user: &str| server.served_by_user().get(user).copied().unwrap_or(0);
    let total = || users.iter().map(|user| count(user)).sum::<usize>();
    let mut seen = Vec::new();
    let settles = async {
        loop {
            let (first, all) = (count(users[0]), total());
            while total() < all + 50 * LIMIT {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let percent = 100 * (count(users[0]) - first) / (total() - all);
            seen.push(percent);
            let last = seen.iter().rev().take(3);
            if last.filter(|percent| expected.contains(percent)).count() == 3 {
                return;
            }
        }
    };
    let settled = tokio::time::timeout(HANG, settles).await;
    assert!(settled.is_ok(), "{} gets {seen:?} %", users[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_three_gateways_gets_no_more_than_one_of_a_single_gateway() {
    gives_one_share_to_a_user_of_all_gateways(Arc::default()).await;
}

async fn gives_one_share_to_a_user_of_all_gateways(server: Arc<Server>) {
    let members = three(&server).await;
    let mut clients: Vec<_> = members
        .iter()
        .flat_map(|member| member.clients("alice", 2 * LIMIT))
        .collect();
    clients.extend(members[0].clients("bob", 2 * LIMIT));
    // By shares of each gateway alone, bob would have a third.
    until_percent_is_of(&server, ["bob", "alice"], 44..=56).await;
    clients.iter().for_each(JoinHandle::abort);
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}

/// A new namespace for each request, and so a new flow. Before tenants were counted over the fleet, bob had half of his part.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_ever_new_namespaces_at_three_gateways_weighs_as_at_one() {
    let server = Arc::<Server>::default();
    let members = three(&server).await;
    let names = Arc::<AtomicUsize>::default();
    let mut clients = members[0].clients("bob", 2 * LIMIT);
    for member in &members {
        let address = member.running().address();
        clients.extend((0..2 * LIMIT).map(|_| {
            let names = Arc::clone(&names);
            let next = move || {
                let name = names.fetch_add(1, Ordering::Relaxed);
                format!("/api/v1/namespaces/n{name}/pods/work")
            };
            tokio::spawn(send_to(address, "eve", next))
        }));
    }
    // Four flows of weight 1 together, beside one: a fifth is bob's.
    until_percent_is_of(&server, ["bob", "eve"], 17..=23).await;
    clients.iter().for_each(JoinHandle::abort);
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}

/// Servers of one cluster with so many seats, and what executes at all of them.
fn servers_with<const N: usize>(seats: [usize; N]) -> ([Arc<Server>; N], Arc<Executing>) {
    let (objects, together) = (Arc::default(), Arc::<Executing>::default());
    let server = |seats| {
        Arc::new(Server {
            seats,
            objects: Arc::clone(&objects),
            together: Arc::clone(&together),
            ..Server::default()
        })
    };
    (seats.map(server), together)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_reach_a_server_leaves_its_seats_to_the_others() {
    leaves_the_seats_of_a_server(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_does_not_reach_a_server_divides_its_seats_all_the_same() {
    leaves_the_seats_of_a_server(0).await;
}

/// The index of the gateway that coordinates, once one does.
async fn coordinator(members: &[Member]) -> usize {
    soon(async {
        loop {
            for (index, member) in members.iter().enumerate() {
                if member.fleet().await["coordinator"] == true {
                    return index;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_reaches_no_server_divides_what_the_others_reach() {
    let (servers, _) = servers_with([6, 6, 6]);
    let members = three_before(&servers).await;
    let coordinator = coordinator(&members).await;
    for (index, member) in members.iter().enumerate() {
        for (server, door) in member.doors.iter().enumerate() {
            // Nobody reaches the last server, and the coordinator none.
            let is_unready = server == 2 || index == coordinator;
            door.is_unready.store(is_unready, Ordering::SeqCst);
        }
    }
    // All ask for all seats.
    let clients = members.iter().map(|member| member.clients("alice", 24));
    let clients: Vec<_> = clients.collect();
    until_seats(&members, |seats| {
        seats.iter().sum::<usize>() == 12 && seats[coordinator] == FLOOR
    })
    .await;
    clients.iter().flatten().for_each(JoinHandle::abort);
}

/// The gateway that is so many after the coordinator does not reach a server.
async fn leaves_the_seats_of_a_server(after_coordinator: usize) {
    let (servers, _) = servers_with([6, 12]);
    let mut members = three_before(&servers).await;
    let cut_off = (coordinator(&members).await + after_coordinator) % members.len();
    members[cut_off].doors.pop();
    let mut clients = Vec::new();
    for (index, member) in members.iter().enumerate() {
        if index != cut_off {
            clients.extend(member.clients("alice", 4));
        }
    }
    until_metric(&members[cut_off], "fairgate_total_seats", 6).await;
    // It asks for all seats, as the others ask for few.
    clients.extend(members[cut_off].clients("bob", 36));
    until_seats(&members, |seats| {
        seats.iter().sum::<usize>() == 18 && seats[cut_off] == 6
    })
    .await;
    clients.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_share_the_seats_of_each_of_three_servers() {
    let (servers, together) = servers_with([3, 6, 9]);
    let limit: usize = servers.iter().map(|server| server.seats).sum();
    let members = three_before(&servers).await;
    let mut clients = members[0].clients("alice", 2 * limit);
    clients.extend(members[1].clients("bob", 2 * limit));
    until_seats(&members, |seats| {
        seats.iter().sum::<usize>() == limit && seats[2] == FLOOR
    })
    .await;
    clients.extend(members[2].clients("mallory", 2 * limit));
    until_seats(&members, |seats| {
        seats.iter().sum::<usize>() == limit && are_close(seats)
    })
    .await;
    let served = || -> usize {
        let all = servers.iter().map(|server| server.served_by_user());
        all.flat_map(BTreeMap::into_values).sum()
    };
    let before = served();
    soon(async {
        while served() < before + 20 * limit {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    clients.iter().for_each(JoinHandle::abort);
    let most = together.most();
    assert!(most <= limit, "{most} requests executed at a time");
    assert!(most > limit - 3, "the seats were in use: {most}");
    for server in &servers {
        // What a gateway may use of a server is rounded up.
        let (seats, most) = (server.seats, server.executing.most());
        assert!(
            most < seats + members.len(),
            "{most} executed at a server of {seats}"
        );
    }
}
