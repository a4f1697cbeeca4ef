//! Disruption budgets of tenants, which the gateway hosts and computes: many with long selectors, whose objects or whose pods'
//! labels change all the time. Those of others have to be computed meanwhile.

use std::{
    borrow::Cow,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{
    Attack,
    admin::{LIVEZ, Probes, probe},
    gateway::{ATTACKER, VICTIM},
    hostile::{HostileClients, HostileRequest, Responses},
    mode,
    others::Client,
    own_work,
    pods::EACH,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms, now},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "budget-selectors",
        point: "27.2.2",
        about: "a namespace with 170 budgets, 60 of 15 000 values and 10 of 28 000 terms, which are patched again and again; a third of them where only counts decide",
        play: || play(1, large(), budget_patch),
    },
    Attack {
        name: "budget-selectors-users",
        point: "27.2.2",
        about: "20 namespaces with 8 budgets each, 3 of 5 000 values and one of 9 000 terms",
        play: || play(20, &SMALLER, budget_patch),
    },
    Attack {
        name: "label-flaps",
        point: "27.2.2",
        about: "the same namespace, and a label of its 5 pods changes all the time",
        play: || play(1, large(), label_patch),
    },
    Attack {
        name: "label-flaps-users",
        point: "27.2.2",
        about: "the same 20 namespaces, whose pods change",
        play: || play(20, &SMALLER, label_patch),
    },
];

/// Budgets of one namespace: compared with each pod, with many values, with many terms, and others.
struct Budgets {
    compared: usize,
    with_values: usize,
    values: usize,
    with_terms: usize,
    terms: usize,
    short: usize,
}

/// The terms of a selector that is compared with each pod and selects none. All such budgets of a namespace are within the limit of
/// `eviction.selectorTerms`, which is 100 000.
const COMPARED_TERMS: usize = 1_900;

const LARGE: Budgets = Budgets {
    compared: 40,
    with_values: 60,
    values: 15_000,
    with_terms: 10,
    terms: 28_000,
    short: 100,
};
/// The same where only counts decide: no count depends on how many there are.
const FEWER: Budgets = Budgets {
    with_values: 20,
    with_terms: 3,
    short: 33,
    ..LARGE
};
const SMALLER: Budgets = Budgets {
    compared: 8,
    with_values: 3,
    values: 5_000,
    with_terms: 1,
    terms: 9_000,
    short: 4,
};
/// Labels of each pod, which are looked up in each selector that it is compared with.
const LABELS: usize = 1_000;
/// Look-ups of one slice of the controller: two halves, each with one pod and one budget more, and what it takes to find budgets.
const OF_A_SLICE: usize = 4_096 + 2 * LABELS + 200;
/// How many budgets the victim creates.
const OWN: usize = 10;
const CLIENTS: usize = 20;

/// What one tenant has.
fn large() -> &'static Budgets {
    if mode::measures() { &LARGE } else { &FEWER }
}

/// The namespace of a tenant.
fn namespace(number: usize) -> String {
    format!("t{number}")
}

pub(crate) fn path(namespace: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
}

/// What was found.
struct Found {
    responses: Responses,
    probes: [Probes; 2],
    /// How many of the victim's budgets were computed while the attack was on, and why not all.
    computed: usize,
    failure: Option<String>,
}

fn play(
    tenants: usize,
    budgets: &'static Budgets,
    patch: fn(usize, usize) -> HostileRequest,
) -> Outcome {
    // Without a quota: what budgets cost is to be seen of more than one namespace may have by default.
    let config = json!({
        "eviction": {"mode": "authoritative", "controller": "on"},
        "hostedApi": {"quota": {"podDisruptionBudgets": {"objects": 0, "bytes": 0}}},
    });
    let namespaces = (0..tenants).map(namespace).chain(["v".to_owned()]);
    let scene = own_work::scene_with_pods(&config, tenants, |pods| {
        pods.add(namespaces);
        pods.have_labels(LABELS);
    });
    let created: usize = (0..tenants)
        .map(|tenant| budgets.create(scene.gateway.address, &namespace(tenant)))
        .sum();
    wait_until_known(&scene, created);
    let clients = HostileClients {
        clients: CLIENTS,
        users: tenants,
        requests: CLIENTS,
    };
    let played = scene
        .play(async |scene| attack(scene, clients, move |number| patch(number, tenants)).await);
    checked(played, created)
}

/// Plays the attack. Meanwhile the victim creates budgets, and the gateway is probed.
async fn attack(
    scene: &Scene,
    clients: HostileClients,
    make: impl Fn(usize) -> HostileRequest + Send + Sync + 'static,
) -> Found {
    let goal = scene.goal(ms(4000));
    let answered = Arc::<AtomicUsize>::default();
    let others = async {
        let seen = goal.lasts_for(async {
            while answered.load(Ordering::Relaxed) < CLIENTS && goal.has_time() {
                tokio::time::sleep(ms(10)).await;
            }
            let (mut computed, mut failure) = (0, None);
            for number in 0..OWN {
                match own_budget(scene.gateway.address, number).await {
                    Ok(()) => computed += 1,
                    Err(error) => failure = Some(error),
                }
            }
            let admin = scene.gateway.admin;
            let probes = [probe(admin, LIVEZ).await, probe(admin, "/metrics").await];
            (probes, computed, failure)
        });
        let seen = seen.await;
        goal.reach().await;
        seen
    };
    let attack = clients.send_each(
        scene.gateway.address,
        make,
        goal.clone(),
        Arc::clone(&answered),
    );
    let (responses, (probes, computed, failure)) = tokio::join!(attack, others);
    Found {
        responses,
        probes,
        computed,
        failure,
    }
}

fn checked(mut played: Played<Found>, created: usize) -> Outcome {
    objects_are_counted(&mut played, created);
    own_work::check_work(&mut played, 512 << 20, |found| {
        (&found.responses, &found.probes)
    });
    let [look_ups] = played.rises(["fairgate_disruption_label_lookups_total"]);
    let longest = played.metrics[1].value("fairgate_disruption_longest_slice_lookups");
    let changes = played.scene.upstream.pods().changes();
    let Found {
        computed, failure, ..
    } = &played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        format!("all {OWN} new budgets of the victim are computed while the attack is on"),
        *computed == OWN,
        format!("{computed}: {}", failure.clone().unwrap_or_default()),
    );
    outcome.check(
        format!("no slice of the controller has more than {OF_A_SLICE} look-ups"),
        longest <= f64::from(u32::try_from(OF_A_SLICE).unwrap()),
        format!("{longest}"),
    );
    outcome.note(format!(
        "{created} budgets; {changes} changes of labels; {look_ups} look-ups, at most {longest} at a time"
    ));
    played.outcome
}

/// However often objects change, as many are held, and as long ones: budgets, those that the victim creates besides, and the pods of
/// the upstream.
fn objects_are_counted(played: &mut Played<Found>, created: usize) {
    /// What a budget of the victim takes, and what its status or an annotation adds to one of the attackers'.
    const OWN_BYTES: usize = 2_000;
    const ADDED: usize = 500;
    const BYTES: &str = "fairgate_hosted_object_bytes{resource=\"poddisruptionbudgets.policy\"}";
    let all = &played.metrics[1];
    let held = ["budgets", "pods"].map(|of| all.value(&format!("fairgate_disruption_{of}")));
    let pods = played.scene.upstream.pods().number();
    let [before, after] = [0, 1].map(|at: usize| played.metrics[at].about(&[BYTES]));
    let (grown, allowed) = (after - before, OWN * OWN_BYTES + created * ADDED);
    let real = |count: usize| f64::from(u32::try_from(count).unwrap());
    played.outcome.check(
        format!(
            "the controller holds {created} to {} budgets and {pods} pods",
            created + OWN
        ),
        (real(created)..=real(created + OWN)).contains(&held[0])
            && (real(pods)..=real(pods)).contains(&held[1]),
        format!("{held:?}"),
    );
    played.outcome.check(
        format!("hosted budgets take at most {allowed} bytes more than before"),
        before > 0.0 && grown <= real(allowed),
        format!("{grown}, of {before}"),
    );
    played
        .outcome
        .note(format!("hosted budgets: {before} bytes, and {grown} more"));
}

impl Budgets {
    /// Creates them in a namespace. Returns how many there are.
    fn create(&self, address: SocketAddr, namespace: &str) -> usize {
        let values: Vec<_> = (0..self.values)
            .map(|number| format!("v{number}"))
            .collect();
        let values = json!([{"key": "app", "operator": "In", "values": values}]);
        let terms = (0..self.terms)
            .map(|number| json!({"key": format!("k{number}"), "operator": "DoesNotExist"}));
        let terms = json!(terms.collect::<Vec<_>>());
        let short = json!([{"key": "app", "operator": "In", "values": ["v1"]}]);
        let none = (0..COMPARED_TERMS - 2)
            .map(|number| json!({"key": format!("k{number}"), "operator": "DoesNotExist"}))
            .chain([json!({"key": "app", "operator": "NotIn", "values": ["v1"]})]);
        let none = json!(none.collect::<Vec<_>>());
        let all = [
            // The oldest: within the limit.
            (self.compared, &none),
            (self.with_values, &values),
            (self.with_terms, &terms),
            (self.short, &short),
        ];
        let all = all
            .into_iter()
            .flat_map(|(count, selector)| std::iter::repeat_n(selector, count));
        let mut created = 0;
        for (number, selector) in all.enumerate() {
            let budget = budget(
                &match number.checked_sub(self.compared) {
                    None => format!("compared-{number}"),
                    Some(number) => format!("large-{number}"),
                },
                &json!({"matchExpressions": selector}),
                1,
            );
            let code = post(address, &path(namespace), &budget);
            assert!(
                [201, 403].contains(&code),
                "a budget is not created: {code}"
            );
            created += usize::from(code == 201);
        }
        created
    }
}

/// A budget of which so many pods have to stay.
pub(crate) fn budget(name: &str, selector: &Value, least: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": least, "selector": selector},
    })
}

/// Waits until the controller has so many budgets.
fn wait_until_known(scene: &Scene, count: usize) {
    let begun = now();
    let count = f64::from(u32::try_from(count).unwrap());
    while scene.gateway.metrics().value("fairgate_disruption_budgets") < count {
        assert!(begun.elapsed() < LIVENESS, "the budgets are not followed");
        std::thread::sleep(ms(20));
    }
}

/// Changes one of the large budgets.
fn budget_patch(number: usize, tenants: usize) -> HostileRequest {
    let path = path(&namespace(number % tenants));
    merge(
        "a patch of a budget",
        format!("{path}/large-{}", number / tenants % 4),
        &json!({"metadata": {"annotations": {"number": number.to_string()}}}),
    )
}

/// Changes a label of a pod.
fn label_patch(number: usize, tenants: usize) -> HostileRequest {
    let namespace = namespace(number % tenants);
    merge(
        "a patch of a pod",
        format!(
            "/api/v1/namespaces/{namespace}/pods/p{}",
            number / tenants % EACH
        ),
        &json!({"metadata": {"labels": {"flap": number.to_string()}}}),
    )
}

fn merge(name: &'static str, path: String, patch: &Value) -> HostileRequest {
    HostileRequest {
        name,
        method: Method::PATCH,
        path: Cow::Owned(path),
        content_type: "application/merge-patch+json".into(),
        more: None,
        body: patch.to_string().into(),
        codes: &[200],
    }
}

/// Creates a budget in the victim's namespace, and waits until its status is computed.
async fn own_budget(address: SocketAddr, number: usize) -> Result<(), String> {
    let name = format!("own-{number}");
    let selector = json!({"matchLabels": {"app": "v1"}});
    let object = budget(&name, &selector, 1).to_string();
    let mut client = Client::connect(address, false).await?;
    let body = ("application/json", object.into());
    let own = path("v");
    let sent = client.send_body(Method::POST, &own, Some(VICTIM), body);
    let response = sent.await?;
    if response.status() != 201 {
        return Err(format!("created: {}", response.status()));
    }
    let _ = response.into_body().collect().await;
    let begun = now();
    while begun.elapsed() < LIVENESS {
        let path = format!("{}/{name}", path("v"));
        let response = client.send(Method::GET, &path, Some(VICTIM)).await?;
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        if object["status"]["observedGeneration"] == 1 {
            return Ok(());
        }
        tokio::time::sleep(ms(20)).await;
    }
    Err("it is not computed".to_owned())
}

/// The code of the response to a POST.
pub(crate) fn post(address: SocketAddr, path: &str, object: &Value) -> u16 {
    let body = object.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {ATTACKER}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LIVENESS)).unwrap();
    let mut response = [0; 12];
    let sent = (socket.write_all(head.as_bytes()))
        .and_then(|()| socket.write_all(body.as_bytes()))
        .and_then(|()| socket.read_exact(&mut response));
    sent.unwrap();
    let code = std::str::from_utf8(&response[9..]).ok();
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}
