//! Admission policies: requests that make them cost as much as they may, and bodies that are hard to read.

use std::{
    borrow::Cow,
    io::{self, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::{
    Attack,
    cluster::{SLOWLY_REVIEWED, WIDE},
    gateway::{Gateway, Setup, attacker},
    goal::Goal,
    hard_bodies::{JSON, LONGEST, MAPS, MERGE, TEXTS, WIDGETS, hard, resource},
    hostile::{HostileClients, HostileRequest, Responses, lower_priority},
    mode,
    others::Mix,
    report::Outcome,
    scene::{Played, Scene},
    time::{LOW_PRIORITY_LIVENESS, ms, now},
    upstream::{FakeUpstream, STREAMS},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "policy-costs",
        point: "policies",
        about: "64 clients write objects for which policies run to their cost limit: loops, regular expressions",
        play: || median(|| costs(CLIENTS)),
    },
    Attack {
        name: "policy-costs-users",
        point: "policies",
        about: BY_USERS,
        play: || median(|| costs(TWENTY)),
    },
    Attack {
        name: "policy-bodies",
        point: "policies",
        about: "64 clients write bodies of 3 MiB and more, nested, broken and unknown ones",
        play: || median(|| bodies(CLIENTS)),
    },
    Attack {
        name: "policy-bodies-users",
        point: "policies",
        about: BY_USERS,
        play: || median(|| bodies(TWENTY)),
    },
    Attack {
        name: "policy-stored",
        point: "policies",
        about: "64 clients patch objects of 1.4 MB that are stored, and policies wait for the authorizer",
        play: || median(|| stored(CLIENTS)),
    },
    Attack {
        name: "policy-stored-users",
        point: "policies",
        about: BY_USERS,
        play: || median(|| stored(TWENTY)),
    },
    Attack {
        name: "policy-unfinished",
        point: "policies",
        about: "one user leaves bodies unfinished, of every length that there is still room for",
        play: || median(unfinished),
    },
    Attack {
        name: "policy-unfinished-by-many",
        point: "policies",
        about: "24 users, one after the other, leave bodies unfinished, of every length that there is still room for",
        play: || median(unfinished_by_many),
    },
];

pub(crate) const BY_USERS: &str = "the same by 40 clients of 20 users";

pub(crate) const CLIENTS: HostileClients = HostileClients {
    clients: 64,
    users: USERS,
    requests: 80,
};
pub(crate) const TWENTY: HostileClients = HostileClients {
    clients: 40,
    users: 20,
    requests: 40,
};
/// How long attacks last at least where figures are measured.
const LASTS: Duration = ms(4000);
/// The budget of bodies of a data core by default (`admission.bodyBudget`).
pub(crate) const BUDGET: u64 = 64 << 20;
pub(crate) const METRICS: (&str, &str) = (
    "fairgate_admission_body_bytes",
    "fairgate_admission_body_peak_bytes",
);
pub(crate) const USERS: usize = 8;
/// Others' p99 may become so many times what it was; or [`LEAST`], since attackers, others, upstream and gateway share
/// the machine.
const TIMES: u32 = 2;
const LEAST: Duration = ms(5);

/// How often each attack is played where figures are measured.
const PLAYS: usize = 3;

/// Plays an attack, several times where figures are measured: what is evaluated beside a control, the median decides. See
/// [`Outcome::median`].
pub(crate) fn median(play: fn() -> Outcome) -> Outcome {
    if mode::measures() {
        let plays: Vec<_> = (0..PLAYS).map(|_| play()).collect();
        Outcome::median(&plays)
    } else {
        play()
    }
}

/// A policy about the resources of a group, and its binding, as YAML.
pub(crate) fn policy(name: &str, group: &str, resource: &str, expressions: &[&str]) -> String {
    let validations: Vec<_> = (expressions.iter())
        .map(|expression| json!({"expression": expression}))
        .collect();
    let api_version = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [group],
                "apiVersions": ["*"], "resources": [resource]}]},
            "validations": validations,
        },
    });
    let binding = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    format!("---\n{policy}\n---\n{binding}\n")
}

/// What the others write has to be this.
pub(crate) fn cheap() -> String {
    policy(
        "cheap",
        "",
        "*",
        &["!has(object.data) || size(object.data) < 100"],
    )
}

/// A gateway that enforces policies. Attackers have 200 seats of their own, so that no other waits for theirs.
pub(crate) fn setup(policies: String, users: usize) -> Setup {
    Setup {
        attacked_level: true,
        more_attackers: users,
        config: json!({
            "flowControl": {"totalSeats": 1250},
            "admission": {"mode": "enforce", "policies": {"files": ["admission"]}},
        }),
        files: vec![("admission/policies.yaml".to_owned(), policies)],
        ..Setup::default()
    }
}

/// Where these policies are in force, with so many attackers.
pub(crate) fn scene_with(policies: String, users: usize) -> Scene {
    let count = count(&policies);
    let scene = Scene::new(&setup(policies, users), Mix::default());
    wait_until_in_force(&scene.gateway, count, ms(20));
    scene.on_a_busy_machine()
}

/// Waits until so many policies are in force; looks that often.
pub(crate) fn wait_until_in_force(gateway: &Gateway, count: u32, period: Duration) {
    let begun = now();
    while !are_in_force(gateway, count) {
        assert!(
            begun.elapsed() < LOW_PRIORITY_LIVENESS,
            "the policies do not come into force"
        );
        std::thread::sleep(period);
    }
}

/// Whether so many policies are in force, or more.
pub(crate) fn are_in_force(gateway: &Gateway, count: u32) -> bool {
    let all = gateway.metrics();
    all.sum(|series| series == "fairgate_admission_policies") >= f64::from(count)
}

/// The number of policies in files.
pub(crate) fn count(files: &str) -> u32 {
    let count = files.matches("matchConstraints").count();
    u32::try_from(count).unwrap()
}

impl<T> Played<T> {
    pub(crate) fn check_policies(&mut self) {
        self.check_other_clients();
        self.others_wait_at_most(TIMES, LEAST);
    }
}

fn costs(clients: HostileClients) -> Outcome {
    /// Resident memory: the bodies of both cores, three times over.
    const MEMORY: u64 = (3 * 128) << 20;
    const LOOPS: &[&str] = &[
        "object.l.all(a, object.l.all(b, object.l.all(c, a == a || b == c)))",
        "object.l.filter(a, object.l.exists(b, b > 1000000000 + a)).size() == 0",
        "object.l.map(a, object.l.map(b, [a, b])).size() > 0",
    ];
    const REGEX: &[&str] = &[
        "!object.s.matches('(a*)*b')",
        "!object.s.matches('(a|aa|aaa)+(b|c)$')",
        "!object.s.matches('(.*a){20}b')",
        "object.s.find('([a-z]+)+[0-9]') == ''",
    ];
    let mut policies = cheap();
    policies.push_str(&policy("loops", "x.io", "widgets", LOOPS));
    policies.push_str(&policy("regex", "x.io", "texts", REGEX));
    let scene = scene_with(policies, clients.users);
    let played = scene.play(async |scene| clients.attack(scene, costly()).await);
    end(played, MEMORY)
}

impl HostileClients {
    /// Has the clients send `requests` until the attack is over.
    pub(crate) async fn attack(&self, scene: &Scene, requests: Vec<HostileRequest>) -> Responses {
        let goal = scene.goal(LASTS);
        self.send(scene.gateway.address, requests, goal).await
    }
}

/// Requests that make the policies of [`costs`] run to their limits. Smaller ones begin on a data core.
fn costly() -> Vec<HostileRequest> {
    let request = |name, path, body: String| HostileRequest {
        name,
        method: Method::POST,
        path: Cow::Borrowed(path),
        content_type: JSON.into(),
        more: None,
        body: body.into(),
        // Denied, or allowed.
        codes: &[201, 422],
    };
    let list = |count: usize| {
        let list: Vec<usize> = (0..count).collect();
        resource("Widget", json!({"l": list})).to_string()
    };
    let text = |count| resource("Text", json!({"s": "a".repeat(count)})).to_string();
    vec![
        request("short list", WIDGETS, list(2000)),
        request("long list", WIDGETS, list(100_000)),
        request("short text", TEXTS, text(20_000)),
        request("long text", TEXTS, text(1 << 20)),
    ]
}

fn bodies(clients: HostileClients) -> Outcome {
    /// Resident memory: the bodies of both cores (twice 64 MiB) and as many copies on their way, two bodies that are
    /// being evaluated, decoded at up to 48 times their size.
    const MEMORY: u64 = (2 * 128 + 2 * 48 * 3) << 20;
    let mut policies = cheap();
    for resource in ["widgets", "texts"] {
        policies.push_str(&policy(
            resource,
            "x.io",
            resource,
            &["has(object.metadata.name)"],
        ));
    }
    let scene = scene_with(policies, clients.users).beside(send_elsewhere);
    let played = scene.play(async |scene| clients.attack(scene, hard()).await);
    end(played, MEMORY)
}

/// Sends the bodies to a server that has nothing to do with the gateway. Moving them through the kernel takes both cores of a
/// small machine, whoever reads them.
fn send_elsewhere() {
    let server = FakeUpstream::start(STREAMS);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let nobody = Goal::new(&Arc::from([]), LASTS);
    let responses = runtime.block_on(CLIENTS.send(server.address, hard(), nobody));
    // Not how many in this time: beside other processes, threads of the lowest priority send few.
    assert!(
        responses.number() > 0 && responses.lost().is_none(),
        "the server does not read the bodies: {}",
        responses.lost().unwrap_or("nothing was sent")
    );
}

fn stored(clients: HostileClients) -> Outcome {
    /// Resident memory: the bytes of both cores (twice 64 MiB), twice over, and two objects that are being evaluated, decoded at
    /// up to 48 times their size.
    const MEMORY: u64 = (2 * 128 + 2 * 48 * 2) << 20;
    let asks =
        format!("authorizer.group('x.io').resource('{SLOWLY_REVIEWED}').check('get').allowed()");
    let mut policies = cheap();
    policies.push_str(&policy("widgets", "x.io", "widgets", &[&asks]));
    let patches = || {
        let body = Bytes::from_static(b"{\"metadata\":{\"labels\":{\"a\":\"b\"}}}");
        vec![HostileRequest {
            name: "a small patch",
            method: Method::PATCH,
            path: WIDE.into(),
            content_type: MERGE.into(),
            more: None,
            body,
            // Where all else is busy for long, the time for a request may pass before its object is read.
            codes: &[200, 503],
        }]
    };
    let scene = scene_with(policies, clients.users);
    let played = scene.play(async |scene| clients.attack(scene, patches()).await);
    // The texts alone fit into the budget: what is decoded counts, too, while a request waits.
    let refused = played.found.with_code(429);
    let mut outcome = end(played, MEMORY);
    outcome.check(
        "stored objects that are held decoded count: further requests get 429",
        refused > 0,
        "none did",
    );
    outcome
}

/// How long bodies stay unfinished where figures are measured.
const UNFINISHED: Duration = ms(3000);
/// How long the attacker waits for refusals before it goes on with shorter ones.
const REFUSED_WITHIN: Duration = ms(30);
/// Their lengths, each so often.
const LENGTHS: [usize; 13] = [
    LONGEST,
    LONGEST,
    1 << 20,
    1 << 18,
    1 << 16,
    1 << 14,
    1 << 12,
    1 << 10,
    1 << 8,
    1 << 6,
    1 << 4,
    1 << 2,
    2,
];
const EACH: usize = 24;

fn unfinished() -> Outcome {
    unfinished_by(1, scene_with(cheap(), 1))
}

fn unfinished_by_many() -> Outcome {
    // They send so much that moving it keeps the machine busy.
    let scene = scene_with(cheap(), MANY_USERS).beside(send_elsewhere);
    unfinished_by(MANY_USERS, scene)
}

/// Attackers with identities of their own, each of whom leaves half of the room there is.
const MANY_USERS: usize = 24;

fn unfinished_by(users: usize, scene: Scene) -> Outcome {
    let played = scene.play(async |scene| {
        let address = scene.gateway.address;
        let left = tokio::task::spawn_blocking(move || leave_unfinished(address, users)).await;
        // Only now there is no room left.
        scene.goal(UNFINISHED).reach().await;
        let mut held = left.unwrap();
        held.retain(is_awaited);
        held.len()
    });
    let mut played = played;
    played.check_policies();
    // One user may have as much as is left; the others need little.
    let limit = if users == 1 {
        BUDGET / 2 + (1 << 20)
    } else {
        BUDGET
    };
    played.budget_is_kept(METRICS, limit, BUDGET / 4);
    let held = played.found;
    played.outcome.check(
        "the attacker's bodies are read",
        held > 0,
        "not a single byte of them",
    );
    played
        .outcome
        .note(format!("{held} bodies stayed unfinished"));
    played.outcome
}

/// Has users send bodies without their last byte, long ones first, and keeps those that the gateway reads. Returns those
/// that it did not refuse.
fn leave_unfinished(address: SocketAddr, users: usize) -> Vec<TcpStream> {
    lower_priority();
    let mut held = Vec::new();
    let mut lengths = LENGTHS.to_vec();
    for user in 0..users {
        let mut has_some = false;
        // Where one user has found no room from the first, later ones do not look for it.
        lengths.retain(|length| {
            let sent =
                (0..EACH).filter_map(|_| unfinished_body(address, &attacker(user), *length).ok());
            let mut sent: Vec<_> = sent.collect();
            std::thread::sleep(REFUSED_WITHIN);
            sent.retain(is_awaited);
            has_some |= !sent.is_empty();
            held.extend(sent);
            has_some
        });
    }
    held
}

/// A connection with a request whose body of `length` bytes lacks the last one.
fn unfinished_body(address: SocketAddr, user: &str, length: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {user}\r\nContent-Type: {JSON}\r\nContent-Length: \
         {length}\r\n\r\n"
    );
    stream.set_write_timeout(Some(ms(300)))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![b' '; length - 1])?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Whether there is no response yet, and the connection not closed.
fn is_awaited(stream: &TcpStream) -> bool {
    let peeked = stream.peek(&mut [0]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

pub(crate) fn end(mut played: Played<Responses>, memory: u64) -> Outcome {
    played.check_policies();
    played.report_memory(memory);
    played.budget_is_kept(METRICS, BUDGET, BUDGET / 16);
    played.a_metric_shows_it(&["fairgate_admission_requests_total"]);
    played.found.check(&mut played.outcome);
    played.outcome
}
