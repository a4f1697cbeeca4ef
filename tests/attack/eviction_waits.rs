//! Evictions that wait for their budgets: users who take as many places as they get, and do not leave. Those of others have to find
//! places, and to be granted once their budget allows it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    Attack,
    admin::{LIVEZ, Probes, probe},
    budgets::{budget, path, post},
    gateway::{ATTACKER, VICTIM, attacker},
    others::Client,
    own_work::{self, JSON},
    pods::EACH,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms, until},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "eviction-waits",
        point: "27.2.6",
        about: "one user evicts 1 100 pods whose budgets allow nothing, and waits",
        play: || play(1, 1_000),
    },
    Attack {
        name: "eviction-waits-users",
        point: "27.2.6",
        about: "20 users evict these pods, for whom there are 200 places",
        play: || play(20, 200),
    },
];

/// Namespaces of the attackers' pods.
const NAMESPACES: usize = 220;
/// Requests on one connection.
const STREAMS: usize = 50;
/// The namespace of the victim's pods.
const OWN: &str = "v";
/// Evictions that were granted after a wait.
const GRANTED_WAITS: &str = "fairgate_eviction_wait_duration_seconds_count{outcome=\"granted\"";
/// Evictions that wait.
const WAITING: &str = "fairgate_evictions_waiting";
/// Resident memory that this may take.
const MEMORY: u64 = 128 << 20;

/// What was found.
struct Found {
    others: Others,
    /// Evictions of attackers that were refused at once, or later.
    refused: usize,
    /// Responses with any other code.
    unclear: usize,
}

/// What others noticed.
struct Others {
    /// The places of attackers before the victim came.
    places: f64,
    probes: [Probes; 2],
    /// Evictions of the victim that were granted, and why not all.
    granted: usize,
    failure: Option<String>,
}

/// What the attackers' evictions got.
#[derive(Default)]
struct Ends {
    refused: AtomicUsize,
    unclear: AtomicUsize,
}

fn namespace(number: usize) -> String {
    format!("t{number}")
}

/// The attack of so many users, for whose evictions there are so many places.
fn play(users: usize, places: usize) -> Outcome {
    let config = json!({
        "eviction": {
            "mode": "authoritative", "controller": "on",
            "wait": {
                "limit": "1h", "groups": ["system:authenticated"], "perBudget": places, "total": places,
            },
        },
    });
    let namespaces = (0..NAMESPACES).map(namespace).chain([OWN.to_owned()]);
    let scene = own_work::scene_with_pods(&config, users, |pods| {
        pods.add(namespaces.clone());
        // Nobody waits for a budget that could never allow anything, however healthy its pods are.
        pods.have_one_unready();
    });
    for namespace in namespaces {
        let all = budget("all", &json!({"matchLabels": {"app": "v1"}}), EACH);
        let code = post(scene.gateway.address, &path(&namespace), &all);
        assert_eq!(code, 201, "a budget is not created");
    }
    let played = scene.play(async |scene| attack(scene, users).await);
    // One user has as many as are still free.
    checked(played, if users == 1 { places / 2 } else { places })
}

/// Has the attackers take their places, and the victim come then.
async fn attack(scene: &Scene, users: usize) -> Found {
    let goal = scene.goal(ms(4000));
    let ends = Arc::new(Ends::default());
    let mut attackers = JoinSet::new();
    let pods: Vec<(String, usize)> = (0..NAMESPACES)
        .flat_map(|number| (0..EACH).map(move |pod| (namespace(number), pod)))
        .collect();
    for (number, pods) in pods.chunks(STREAMS).enumerate() {
        let user = match users {
            1 => ATTACKER.to_owned(),
            _ => attacker(number % users),
        };
        let client = Client::connect(scene.gateway.address, true).await.unwrap();
        for (namespace, pod) in pods {
            let mut client = client.share().unwrap();
            let (user, ends) = (user.clone(), Arc::clone(&ends));
            let (path, body) = eviction(namespace, *pod);
            attackers.spawn(async move {
                let sent = client.send_body(Method::POST, &path, Some(&user), (JSON, body.into()));
                let ended = match sent.await.map(|response| response.status().as_u16()) {
                    Ok(429) => &ends.refused,
                    _ => &ends.unclear,
                };
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    let others = goal.lasts_for(others(scene, &ends, pods.len())).await;
    goal.reach().await;
    attackers.abort_all();
    Found {
        others,
        refused: ends.refused.load(Ordering::Relaxed),
        unclear: ends.unclear.load(Ordering::Relaxed),
    }
}

/// Waits until the attackers' evictions all wait or are refused. Then the gateway is probed, and the victim evicts its pods.
async fn others(scene: &Scene, ends: &Ends, sent: usize) -> Others {
    let own = Arc::<AtomicUsize>::default();
    let settled = |count: usize| {
        let ended =
            [&ends.refused, &ends.unclear, &*own].map(|ended| ended.load(Ordering::Relaxed));
        waiting(scene) + real(ended.into_iter().sum()) >= real(count)
    };
    until(LIVENESS, || settled(sent)).await;
    let places = waiting(scene);
    let admin = scene.gateway.admin;
    let probes = [probe(admin, LIVEZ).await, probe(admin, "/metrics").await];
    let client = Client::connect(scene.gateway.address, true).await.unwrap();
    let mut evictions = own_evictions(&client, &own);
    until(LIVENESS, || settled(sent + EACH)).await;
    let mut failure = allow(client).await.err();
    let mut granted = 0;
    while let Some(ended) = evictions.join_next().await {
        match ended.unwrap() {
            Ok(()) => granted += 1,
            Err(error) => failure = Some(error),
        }
    }
    Others {
        places,
        probes,
        granted,
        failure,
    }
}

/// How many evictions wait.
fn waiting(scene: &Scene) -> f64 {
    scene.gateway.metrics().value(WAITING)
}

fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// The victim evicts its pods. `ended` counts those that have their response.
fn own_evictions(client: &Client, ended: &Arc<AtomicUsize>) -> JoinSet<Result<(), String>> {
    let mut evictions = JoinSet::new();
    for pod in 0..EACH {
        let mut client = client.share().unwrap();
        let (path, body) = eviction(OWN, pod);
        let ended = Arc::clone(ended);
        evictions.spawn(async move {
            let body = (JSON, body.into());
            let sent = client.send_body(Method::POST, &path, Some(VICTIM), body);
            let response = tokio::time::timeout(LIVENESS, sent).await;
            ended.fetch_add(1, Ordering::Relaxed);
            match response
                .map_err(|_| "no response in time".to_owned())??
                .status()
                .as_u16()
            {
                201 => Ok(()),
                code => Err(format!("{path}: {code}")),
            }
        });
    }
    evictions
}

/// The victim's budget allows all evictions from now on.
async fn allow(mut client: Client) -> Result<(), String> {
    let patch = json!({"spec": {"minAvailable": 0}}).to_string();
    let body = ("application/merge-patch+json", patch.into());
    let path = format!("{}/all", path(OWN));
    let patched = client
        .send_body(Method::PATCH, &path, Some(VICTIM), body)
        .await?;
    match patched.status().as_u16() {
        200 => Ok(()),
        code => Err(format!("{path}: {code}")),
    }
}

fn checked(mut played: Played<Found>, most: usize) -> Outcome {
    played.check_other_clients();
    played.report_memory(MEMORY);
    let [before, after] = [0, 1].map(|at: usize| played.metrics[at].about(&[GRANTED_WAITS]));
    let waits = after - before;
    let left = played.left_of(WAITING);
    let Found {
        others,
        refused,
        unclear,
    } = &played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        format!("evictions of attackers have at most {most} places"),
        others.places <= real(most),
        format!("{}", others.places),
    );
    let tried = most * 9 / 10;
    outcome.check(
        format!("they take {tried} of them at least"),
        others.places >= real(tried),
        format!("{}", others.places),
    );
    outcome.check(
        "all places are given back in the end",
        left == 0.0,
        format!("{left} are not"),
    );
    outcome.check(
        format!(
            "all {EACH} evictions of the victim wait, and are granted when its budget allows them"
        ),
        others.granted == EACH && waits >= real(EACH),
        format!(
            "{} were granted, {waits} of them had waited: {}",
            others.granted,
            others.failure.clone().unwrap_or_default()
        ),
    );
    outcome.check(
        "attackers get 429, or wait",
        *unclear == 0,
        format!("{unclear} got something else"),
    );
    outcome.note(format!(
        "{} evictions of attackers waited before the victim came; {refused} were refused",
        others.places
    ));
    for probes in others.probes {
        probes.check(outcome);
    }
    played.outcome
}

/// The path and the body of an eviction.
fn eviction(namespace: &str, pod: usize) -> (String, String) {
    let name = format!("p{pod}");
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
    });
    (path, body.to_string())
}
