//! What the gateway does itself for somebody, such as compiling: others must get their turns, and their requests for hosted
//! objects, health checks and metrics must not wait for it.

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{
    admin::{LIVEZ, Probes, probe},
    gateway::{Setup, VICTIM},
    hostile::{HostileClients, HostileRequest, Responses},
    others::{Client, Mix},
    pods::Pods,
    report::Outcome,
    scene::{Played, Scene},
    time::{LOW_PRIORITY_LIVENESS, ms},
    upstream::{FakeUpstream, STREAMS},
};

pub(crate) const JSON: &str = "application/json";
/// An object that the gateway hosts.
const HOSTED: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt";
/// How many requests of the victim have to get their turns.
const TURNS: usize = 10;
/// Resident memory that the work may take.
const MEMORY: u64 = 256 << 20;
/// What the gateway may hold of bodies of requests for objects that it hosts.
const BODIES: u64 = 64 << 20;
const BODY_METRICS: (&str, &str) = (
    "fairgate_hosted_body_bytes",
    "fairgate_hosted_body_peak_bytes",
);
/// Heavy requests that the gateway serves at a time.
const AT_ONCE: usize = 2;

/// A gateway that hosts objects in front of the upstream, with these keys of its configuration and so many more attackers. Others
/// read a hosted object. Every user may do everything.
pub(crate) fn scene(config: &Value, users: usize) -> Scene {
    scene_with_pods(config, users, |_| {})
}

/// The same, where the upstream has the pods that `prepare` adds.
pub(crate) fn scene_with_pods(config: &Value, users: usize, prepare: impl FnOnce(&Pods)) -> Scene {
    let mut all = json!({"mode": "overlay"});
    for (key, value) in config.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let setup = Setup {
        config: all,
        more_attackers: users,
        ..Setup::default()
    };
    let mix = Mix {
        read: HOSTED,
        ..Mix::default()
    };
    let upstream = FakeUpstream::start(STREAMS);
    prepare(upstream.pods());
    Scene::with_upstream(upstream, &setup, mix)
}

/// What was found while attackers had the gateway work.
pub(crate) struct OwnWork {
    pub(crate) responses: Responses,
    probes: [Probes; 2],
    turns: Turns,
}

/// How the requests of the victim that need a turn were served.
struct Turns {
    served: usize,
    failure: Option<String>,
    /// Responses of attackers meanwhile.
    before: usize,
}

/// Plays the attack of these clients. Meanwhile the gateway is probed, and the victim sends requests that `turn` makes and that
/// need turns like those of the attackers.
pub(crate) async fn attack(
    scene: &Scene,
    clients: HostileClients,
    make: impl Fn(usize) -> HostileRequest + Send + Sync + 'static,
    turn: impl Fn(usize) -> HostileRequest,
) -> OwnWork {
    let goal = scene.goal(ms(4000));
    let (address, admin) = (scene.gateway.address, scene.gateway.admin);
    let answered = Arc::<AtomicUsize>::default();
    let others = async {
        let seen = goal.lasts_for(async {
            // All attackers are at work before the others are looked at.
            while answered.load(Ordering::Relaxed) < clients.clients && goal.has_time() {
                tokio::time::sleep(ms(10)).await;
            }
            let turns = take_turns(address, &answered, turn).await;
            let probes = [probe(admin, LIVEZ).await, probe(admin, "/metrics").await];
            (turns, probes)
        });
        let seen = seen.await;
        goal.reach().await;
        seen
    };
    let attackers = clients.send_each(address, make, goal.clone(), Arc::clone(&answered));
    let (responses, (turns, probes)) = tokio::join!(attackers, others);
    OwnWork {
        responses,
        probes,
        turns,
    }
}

async fn take_turns(
    address: SocketAddr,
    answered: &AtomicUsize,
    turn: impl Fn(usize) -> HostileRequest,
) -> Turns {
    let mut turns = Turns {
        served: 0,
        failure: None,
        before: 0,
    };
    for number in 0..TURNS {
        let before = answered.load(Ordering::Relaxed);
        let sending = tokio::time::timeout(LOW_PRIORITY_LIVENESS, one_turn(address, turn(number)));
        match sending.await {
            Ok(Ok(())) => turns.served += 1,
            Ok(Err(error)) => turns.failure = Some(error),
            Err(_) => turns.failure = Some("no response in time".to_owned()),
        }
        turns.before += answered.load(Ordering::Relaxed) - before;
    }
    turns
}

async fn one_turn(address: SocketAddr, request: HostileRequest) -> Result<(), String> {
    let mut client = Client::connect(address, false).await?;
    let body = (&*request.content_type, request.body.clone());
    let sent = client.send_body(request.method, &request.path, Some(VICTIM), body);
    let response = sent.await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if request.codes.contains(&status) {
        Ok(())
    } else {
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(format!("{}: {status} {body}", request.name))
    }
}

/// Checks what attacks on the gateway's own work have in common: others are served, also by the admin port, the attackers get the
/// responses that they should, and the bodies of all requests are counted. Memory should grow by so many bytes at most.
pub(crate) fn check_work<F>(
    played: &mut Played<F>,
    memory: u64,
    of: impl Fn(&F) -> (&Responses, &[Probes; 2]),
) {
    played.check_other_clients();
    played.report_memory(memory);
    // What the attackers send, or sent before the attack, has bodies of thousands of bytes at least.
    played.budget_is_kept(BODY_METRICS, BODIES, 32 << 10);
    let (responses, probes) = of(&played.found);
    responses.check(&mut played.outcome);
    for probes in probes {
        probes.check(&mut played.outcome);
    }
}

/// Checks what others notice. Of the attackers' requests, at most one of each of `users` and those that are being served may come
/// before each of the victim's.
pub(crate) fn checked(mut played: Played<OwnWork>, clients: HostileClients) -> Outcome {
    check_work(&mut played, MEMORY, |found| {
        (&found.responses, &found.probes)
    });
    let turns = &played.found.turns;
    let outcome = &mut played.outcome;
    outcome.check(
        format!("all {TURNS} requests of the victim that need a turn are served"),
        turns.served == TURNS,
        format!(
            "{}: {}",
            turns.served,
            turns.failure.clone().unwrap_or_default()
        ),
    );
    // Besides, each client may have had its response before and say so later.
    let allowed = TURNS * (clients.users + AT_ONCE + 1) + clients.clients;
    outcome.check(
        format!("at most {allowed} of the attackers' requests are served meanwhile"),
        turns.before <= allowed,
        format!("{} are", turns.before),
    );
    outcome.note(format!(
        "{} of the attackers' requests were served while the victim waited for {TURNS} turns ({allowed} allowed)",
        turns.before
    ));
    played.outcome
}

/// A request to create an object.
pub(crate) fn create(
    name: &'static str,
    path: impl Into<Cow<'static, str>>,
    object: &Value,
    codes: &'static [u16],
) -> HostileRequest {
    HostileRequest {
        name,
        method: Method::POST,
        path: path.into(),
        content_type: JSON.into(),
        more: None,
        body: object.to_string().into(),
        codes,
    }
}
