//! Policies that are changed through the API while requests run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_core::apf::{ObjectSet, Policy, dispatcher::LevelReport, objects::Bootstrap};
use http::{Method, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use super::{Home, LEVELS, SCHEMAS, Server, api::Api, level, ms, name, schema, until};
use crate::random::{self, Below as _, Random};
use crate::{
    client::{TestClient, body_text, soon},
    upstream::streamed,
};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const LIMIT: &str = "apiserver_flowcontrol_nominal_limit_seats";

/// Clients that each send one request after the other until [`end`](Self::end).
struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<BTreeMap<u16, u32>>,
}

impl Load {
    /// Starts two clients for each of the users.
    async fn of(server: &Server, users: &[&str]) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let mut clients = JoinSet::new();
        for number in 0..2 * users.len() {
            let api = server.as_user(users[number % users.len()]).await;
            clients.spawn(send_requests(api, number, Arc::clone(&stop)));
        }
        Self { stop, clients }
    }

    /// Stops the clients. Returns how many responses of each status there were.
    async fn end(mut self) -> BTreeMap<u16, u32> {
        self.stop.store(true, Ordering::Relaxed);
        let mut responses = BTreeMap::new();
        while let Some(client) = self.clients.join_next().await {
            for (status, count) in client.unwrap() {
                *responses.entry(status).or_default() += count;
            }
        }
        responses
    }
}

async fn send_requests(api: Api, number: usize, stop: Arc<AtomicBool>) -> BTreeMap<u16, u32> {
    let mut responses = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        // Every request gets a response: without one this panics.
        let response = if number.is_multiple_of(2) {
            api.get("/apis").await
        } else {
            api.post(REVIEWS, &json!({})).await
        };
        *responses.entry(response.status.as_u16()).or_default() += 1;
        // Leaves the CPU to other tasks.
        tokio::time::sleep(ms(1)).await;
    }
    responses
}

/// The levels of the dispatcher.
fn levels(server: &Server) -> Vec<LevelReport> {
    server
        .0
        .flow_control()
        .dispatcher()
        .report(Clock::system().now())
}

fn report(server: &Server, name: &str) -> Option<LevelReport> {
    let mut levels = levels(server).into_iter();
    levels.find(|level| &*level.spec.name == name)
}

/// A level with queues, that neither lends nor borrows.
fn queuing_level(name: &str, shares: u32, queues: u32, hand: u32) -> Value {
    let mut object = level(name, shares);
    object["spec"]["limited"] = json!({
        "nominalConcurrencyShares": shares,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {
            "queues": queues, "handSize": hand, "queueLengthLimit": 50,
        }},
    });
    object
}

#[tokio::test]
async fn changed_shares_move_seats_while_requests_run() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for (user, shares) in [("alice", 10), ("noxu", 10)] {
        api.post(LEVELS, &queuing_level(user, shares, 4, 2))
            .await
            .object();
        api.post(SCHEMAS, &schema(user, user, 50, user))
            .await
            .object();
    }
    let limit = async |user: &str| {
        let label = format!("priority_level=\"{user}\"");
        server.metric(LIMIT, &label).await.unwrap_or(0.0)
    };
    until(async || limit("alice").await > 0.0 && limit("noxu").await > 0.0).await;
    let load = Load::of(&server, &["alice", "noxu"]).await;
    for (alice, noxu) in [(200, 5), (5, 200), (50, 50)] {
        for (user, shares) in [("alice", alice), ("noxu", noxu)] {
            let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
            api.merge(&format!("{LEVELS}/{user}"), &patch)
                .await
                .object();
        }
        until(async || {
            let (found, other) = (limit("alice").await, limit("noxu").await);
            // The seats of each level are rounded up separately.
            (found / f64::from(alice) - other / f64::from(noxu)).abs() < 0.4
        })
        .await;
    }
    let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
    let dump = api.get(dump).await.text();
    for user in ["alice", "noxu"] {
        let row = dump
            .lines()
            .find(|row| row.starts_with(&format!("{user},")));
        assert!(row.is_some(), "{dump}");
    }
    let responses = load.end().await;
    assert!(
        responses.keys().all(|status| [200, 201].contains(status)),
        "{responses:?}"
    );
    let dispatched = report(&server, "alice").unwrap().summary;
    assert_eq!(dispatched.seats_in_use + dispatched.waiting, 0);
}

/// A request of `noxu` whose body waits for [`finish`](Self::finish).
struct Slow {
    body: tokio::sync::mpsc::UnboundedSender<std::io::Result<Bytes>>,
    response: JoinHandle<Response<Incoming>>,
}

impl Slow {
    fn send(client: &mut TestClient) -> Self {
        let (body, stream) = streamed();
        // A short body would be awaited before the request asks for a seat.
        body.send(Ok(vec![b' '; 20 << 10].into())).unwrap();
        let request = client
            .request(Method::POST, REVIEWS)
            .header("authorization", "Bearer noxu");
        let response = client.start(request.body(stream).unwrap());
        Self {
            body,
            response: tokio::spawn(async move { response.await.unwrap() }),
        }
    }

    async fn finish(self) -> Response<Incoming> {
        self.body.send(Ok(Bytes::from_static(b"{}"))).unwrap();
        drop(self.body);
        soon(self.response).await.unwrap()
    }
}

/// The UID of the level that serves a request.
async fn level_uid(api: &Api) -> String {
    let response = api.get("/version").await;
    assert_eq!(response.status, 200);
    response
        .header("x-kubernetes-pf-prioritylevel-uid")
        .to_owned()
}

#[tokio::test]
async fn a_deleted_level_drains_without_a_dropped_request() {
    const WAITING: u32 = 5;
    let home = Home::new();
    let server = Server::start(home.config_with("limits: {minSendRate: 0}\n")).await;
    server.settled().await;
    let api = server.root().await;
    let made = api
        .post(LEVELS, &queuing_level("leaving", 1, 1, 1))
        .await
        .object();
    api.post(SCHEMAS, &schema("leaving", "leaving", 50, "noxu"))
        .await
        .object();
    until(async || report(&server, "leaving").is_some()).await;
    let noxu = server.as_user("noxu").await;
    until(async || made["metadata"]["uid"] == level_uid(&noxu).await).await;
    let seats = report(&server, "leaving").unwrap().limits.nominal;
    let mut client = TestClient::http2(server.0.address()).await;
    let slow: Vec<Slow> = (0..seats + WAITING)
        .map(|_| Slow::send(&mut client))
        .collect();
    until(async || {
        let summary = report(&server, "leaving").unwrap().summary;
        (summary.executing, summary.waiting) == (seats, WAITING)
    })
    .await;

    api.delete(&format!("{LEVELS}/leaving")).await.object();

    api.get(&format!("{LEVELS}/leaving"))
        .await
        .refused(404, "NotFound");
    until(async || report(&server, "leaving").unwrap().quiescing).await;
    let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
    let dump = api.get(dump).await.text();
    assert!(dump.contains("leaving"), "{dump}");
    // New requests go to another level and do not wait behind those of this one. A request on a core that has not
    // received the new policy yet waits in the old level: others are sent, until one has a response.
    let other_level = async {
        let mut requests = JoinSet::new();
        loop {
            let api = server.as_user("noxu").await;
            requests.spawn(async move { level_uid(&api).await });
            let next = tokio::time::timeout(ms(200), requests.join_next());
            if let Ok(Some(uid)) = next.await
                && made["metadata"]["uid"] != uid.unwrap()
            {
                break;
            }
        }
    };
    soon(other_level).await;
    until(async || {
        let summary = report(&server, "leaving").unwrap().summary;
        (summary.executing, summary.waiting) == (seats, WAITING)
    })
    .await;

    // Their bodies share a connection, so the last that was sent may be the first that has a seat.
    let finished: Vec<_> = slow
        .into_iter()
        .map(|request| tokio::spawn(request.finish()))
        .collect();
    for response in finished {
        let response = soon(response).await.unwrap();
        assert_eq!(response.status(), 201);
        assert!(body_text(response).await.contains("\"noxu\""));
    }
    until(async || report(&server, "leaving").is_none()).await;
}

#[tokio::test]
async fn an_invalid_object_is_refused_with_its_cause_and_changes_nothing() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let good = queuing_level("good", 5, 8, 4);
    api.post(LEVELS, &good).await.object();
    until(async || report(&server, "good").is_some()).await;
    server.settled().await;
    let revision = server.store().revision().await.unwrap();
    let policy = || Arc::clone(server.0.flow_control().dispatcher().view().policy());
    let before = policy();

    let hand = "spec.limited.limitResponse.queuing.handSize";
    let bad = queuing_level("bad", 5, 4, 8);
    let response = api.post(LEVELS, &bad).await;
    let message = response.refused(422, "Invalid");
    let details = &response.json()["details"];
    assert_eq!(details["causes"][0]["field"], hand, "{message}");
    assert_eq!(details["causes"][0]["reason"], "FieldValueInvalid");
    assert_eq!(details["name"], "bad");

    let target = format!("{LEVELS}/good");
    let patch = json!({"spec": {"limited": {"limitResponse": {"queuing": {"handSize": 9}}}}});
    let response = api.merge(&target, &patch).await;
    response.refused(422, "Invalid");
    assert_eq!(response.json()["details"]["causes"][0]["field"], hand);
    let mut worse = good.clone();
    worse["spec"]["type"] = json!("Exempt");
    api.put(&target, &worse).await.refused(422, "Invalid");
    let invalid = schema("bad", "", 99_999, "x");
    let response = api.post(SCHEMAS, &invalid).await;
    response.refused(422, "Invalid");
    let causes = response.json()["details"]["causes"]
        .as_array()
        .unwrap()
        .len();
    assert!(causes >= 2, "{response:?}");

    assert_eq!(server.store().revision().await.unwrap(), revision);
    assert!(Arc::ptr_eq(&policy(), &before));
    let refused = server.metric("fairgate_policy_loads_total", "failed").await;
    assert_eq!(refused, Some(0.0));
}

/// Makes a random change, and checks that the response has one of the statuses that are allowed for it.
async fn change(api: &Api, random: &mut Random) {
    let number = random.below(8);
    let of_levels = random.below(2) == 0;
    let (path, name) = if of_levels {
        (LEVELS, format!("l-{number}"))
    } else {
        (SCHEMAS, format!("s-{number}"))
    };
    let object = if of_levels {
        // One in eight is invalid.
        let (queues, wrong) = (1 + random.below(8), random.below(8) == 0);
        let hand = if wrong {
            queues + 1
        } else {
            1 + random.below(queues)
        };
        match random.below(3) {
            0 => level(&name, random.below(50)),
            _ => queuing_level(&name, random.below(50), queues, hand),
        }
    } else {
        let level = format!("l-{}", random.below(8));
        let user = random.pick(&["alice", "noxu", "x"]);
        schema(&name, &level, 2 + random.below(100), user)
    };
    let target = format!("{path}/{name}");
    let (response, allowed) = match random.below(5) {
        0 | 1 => (api.post(path, &object).await, [201, 409]),
        2 | 3 => (api.put(&target, &object).await, [200, 404]),
        _ => (api.delete(&target).await, [200, 404]),
    };
    let status = response.status.as_u16();
    assert!(allowed.contains(&status) || status == 422, "{response:?}");
}

/// The stored objects of a kind, each with its API version and kind.
async fn stored(api: &Api, path: &str, kind: &str) -> Vec<Value> {
    let list = api.get(path).await.object();
    let mut items = list["items"].as_array().unwrap().clone();
    for item in &mut items {
        item["apiVersion"] = json!("flowcontrol.apiserver.k8s.io/v1");
        item["kind"] = json!(kind);
    }
    items
}

/// Whether the policy in force is exactly that of the stored objects.
async fn in_force(server: &Server, api: &Api) -> bool {
    let stored_levels = stored(api, LEVELS, "PriorityLevelConfiguration").await;
    let stored_schemas = stored(api, SCHEMAS, "FlowSchema").await;
    let view = server.0.flow_control().dispatcher().view();
    let policy = view.policy();
    let found: BTreeSet<&str> = policy.levels().iter().map(|level| &*level.name).collect();
    let known: BTreeSet<&str> = stored_levels.iter().map(name).collect();
    let names: BTreeSet<&str> = policy
        .schemas()
        .iter()
        .map(|schema| &*schema.name)
        .collect();
    let expected = stored_schemas.iter().filter(|schema| {
        let level = &schema["spec"]["priorityLevelConfiguration"]["name"];
        known.contains(level.as_str().unwrap())
    });
    let expected: BTreeSet<&str> = expected.map(name).collect();
    if found != known || names != expected {
        return false;
    }
    let objects = stored_levels.iter().chain(&stored_schemas).cloned();
    let objects = ObjectSet::read(objects.map(|object| ("the store", object)));
    let objects = objects.with_bootstrap(Bootstrap::Mandatory);
    let compiled = Policy::compile(&objects, policy.settings()).unwrap().policy;
    compiled.levels() == policy.levels() && compiled.schemas() == policy.schemas()
}

#[tokio::test]
async fn a_thousand_changes_under_load_lose_no_request_and_all_take_effect() {
    let mut random = random::seeded();
    let home = Home::new();
    let server = home.start().await;
    let load = Load::of(&server, &["alice", "noxu"]).await;
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        let (api, mut random) = (server.root().await, Random::seeded(random.number()));
        writers.spawn(async move {
            for _ in 0..250 {
                change(&api, &mut random).await;
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let mut responses = load.end().await;
    // Not before: a connection on which nothing is asked for long is closed.
    let api = server.root().await;
    let served = [200, 201].map(|status| responses.remove(&status).unwrap_or(0));
    assert!(served.iter().all(|count| *count > 50), "{served:?}");
    // A level without seats refuses requests.
    responses.remove(&429);
    assert!(responses.is_empty(), "{responses:?}");

    until(async || in_force(&server, &api).await).await;
    // A single change takes effect, too, although no other change follows it.
    api.post(LEVELS, &level("last", 1)).await.object();
    until(async || in_force(&server, &api).await).await;
    let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": 40}}});
    api.merge(&format!("{LEVELS}/last"), &patch).await.object();
    until(async || in_force(&server, &api).await).await;
    // Removed levels have drained, and no request waits.
    until(async || {
        levels(&server)
            .iter()
            .all(|level| !level.quiescing && level.summary.waiting == 0)
    })
    .await;
}
