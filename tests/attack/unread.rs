//! Clients that do not read what the gateway itself has made for them: documents, lists.
//!
//! Such a response is in memory as a whole. Its bytes are its user's part of a budget; those of documents are shared.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use serde_json::json;

use crate::{
    Attack,
    frames::{INITIAL_WINDOW_SIZE, RawConnection},
    gateway::{ADMIN, Setup, VICTIM, attacker},
    others::Mix,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms, until},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "unread-documents",
        point: "answers",
        about: "2 400 streams of /openapi/v2 with windows of one byte, by a user without rights",
        play: || documents(1),
    },
    Attack {
        name: "unread-documents-users",
        point: "answers",
        about: "the same by 20 users, 120 streams each",
        play: || documents(20),
    },
    Attack {
        name: "unread-lists",
        point: "answers",
        about: "40 lists of 66 MiB and 40 of 10 MiB with windows of one byte; others list meanwhile",
        play: || lists(1, read_nothing_http2),
    },
    Attack {
        name: "unread-lists-users",
        point: "answers",
        about: "4 lists of 66 MiB and 4 of 10 MiB of each of 20 users, with windows of one byte",
        play: || lists(20, read_nothing_http2),
    },
    Attack {
        name: "unread-lists-http1",
        point: "answers",
        about: "the same over 80 HTTP/1 connections",
        play: || lists(1, read_nothing_http1),
    },
    Attack {
        name: "unread-lists-http1-users",
        point: "answers",
        about: "4 lists of 66 MiB and 4 of 10 MiB of each of 20 users, over 160 HTTP/1 connections",
        play: || lists(20, read_nothing_http1),
    },
];

/// The budget of responses by default (`limits.responseBudget`).
const BUDGET: u64 = 64 << 20;
const METRICS: (&str, &str) = ("fairgate_response_bytes", "fairgate_response_peak_bytes");
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
/// Objects, and the length of each.
const OBJECTS: usize = 272;
const OBJECT: usize = 250 << 10;
/// The length of the list of all of them, and a little more.
const WHOLE_LIST: u64 = (OBJECTS * (OBJECT + 4096)) as u64;
/// A list of 10 MiB.
const PAGE: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?limit=40";
/// What is requested and not read.
const PATHS: [&str; 2] = [SCHEMAS, PAGE];
/// How often each of them, by one user.
const EACH: usize = 40;

/// A gateway with an API of its own in front of the upstream, whose objects these groups may read.
fn scene(readers: &[&str], users: usize) -> Scene {
    let setup = Setup {
        config: json!({"mode": "standalone", "hostedApi": {
            "readerGroups": readers,
            // Lists are longer than the quota allows by default.
            "quota": {"flowSchemas": {"bytes": "128Mi"}},
        }}),
        more_attackers: users,
        ..Setup::default()
    };
    Scene::new(&setup, Mix::default())
}

fn documents(users: usize) -> Outcome {
    const ALL: usize = 2_400;
    /// How many streams a connection may have.
    const MOST: usize = 200;
    let connections = users.max(ALL / MOST);
    let streams = ALL / connections;
    let mut played = scene(&[], users).play(async |scene| {
        let (address, mut open) = (scene.gateway.address, Vec::new());
        for number in 0..connections {
            let user = attacker(number % users);
            open.push(read_nothing(address, &user, &["/openapi/v2"], streams).await);
        }
        let answers = || -> u64 { open.iter().map(|one| one.seen().answers()).sum() };
        until(LIVENESS, || answers() >= ALL as u64).await;
        scene.goal(ms(4000)).reach().await;
        answers()
    });
    let answers = played.found;
    played.outcome.check(
        "each stream gets the head of a response",
        answers >= ALL as u64,
        format!("{answers} do"),
    );
    // What they share is nobody's part.
    played.end(BUDGET / 8, 0, 64 << 20);
    played.outcome
}

/// Lists that nobody reads, of so many users.
fn lists(users: usize, attack: fn(SocketAddr, &str, usize) -> Unread) -> Outcome {
    let scene = scene(&["attackers", "others"], users);
    // What others list at a time: about as much as their part.
    let count = if users == 1 { 40 } else { 16 };
    fill(scene.gateway.address);
    let mut played = scene.play(async |scene| {
        let address = scene.gateway.address;
        let goal = scene.goal(ms(4000));
        let each = (EACH / users).max(4);
        let unread: Vec<Unread> = (0..users)
            .map(|number| attack(address, &attacker(number), each))
            .collect();
        // Others may have had what they need before the first list is encoded.
        until(LIVENESS, || {
            scene
                .gateway
                .metrics()
                .value("fairgate_spooled_answers_total")
                > 0.0
        })
        .await;
        goal.reach().await;
        let listed = tokio::task::spawn_blocking(move || {
            let lists = (0..3).map(|_| read_list(address, count));
            lists.filter(|bytes| *bytes > (count - 10) * OBJECT).count() // a few are short
        });
        let listed = listed.await.unwrap();
        drop(unread);
        listed
    });
    let listed = played.found;
    played.outcome.check(
        "others get their lists, all three of them",
        listed == 3,
        format!("{listed} of {count} objects each"),
    );
    // The attacker's part, a list that is longer than it, and another user's list.
    let limit = BUDGET / 2 + WHOLE_LIST + (11 << 20);
    played.end(limit, WHOLE_LIST / 2, 400 << 20);
    played.outcome
}

impl<T> Played<T> {
    fn end(&mut self, limit: u64, least: u64, memory: u64) {
        self.check_other_clients();
        let [spooled] = self.rises(["fairgate_spooled_answers_total"]);
        self.outcome.check(
            "responses that are not read hold no seat, but memory",
            spooled > 0.0,
            "none was spooled",
        );
        self.budget_is_kept(METRICS, limit, least);
        self.report_memory(memory);
    }
}

/// Connections whose responses are not read.
enum Unread {
    Http1 { _sockets: Vec<TcpStream> },
    Http2 { task: tokio::task::JoinHandle<()> },
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Self::Http2 { task } = self {
            task.abort();
        }
    }
}

fn read_nothing_http2(address: SocketAddr, token: &str, each: usize) -> Unread {
    let token = token.to_owned();
    let task = tokio::spawn(async move {
        let _open = read_nothing(address, &token, &PATHS, each).await;
        std::future::pending::<()>().await;
    });
    Unread::Http2 { task }
}

/// Requests each path so often and reads one byte of each response.
async fn read_nothing(
    address: SocketAddr,
    token: &str,
    paths: &[&str],
    each: usize,
) -> RawConnection {
    let window = [(INITIAL_WINDOW_SIZE, 1)];
    let mut connection = RawConnection::open(address, &window).await.unwrap();
    for _ in 0..each {
        for path in paths {
            let _ = connection.get(path, Some(token)).await;
        }
    }
    connection
}

fn read_nothing_http1(address: SocketAddr, token: &str, each: usize) -> Unread {
    let paths = PATHS.iter().cycle().take(each * PATHS.len());
    let sockets = paths.filter_map(|path| {
        let mut socket = TcpStream::connect(address).ok()?;
        socket.write_all(&request("GET", path, token, "")).ok()?;
        Some(socket)
    });
    Unread::Http1 {
        _sockets: sockets.collect(),
    }
}

/// Creates the objects.
fn fill(address: SocketAddr) {
    let note = "x".repeat(OBJECT);
    let mut socket = TcpStream::connect(address).unwrap();
    for number in 0..OBJECTS {
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": format!("long-{number}"), "annotations": {"note": note}},
            "spec": {
                "matchingPrecedence": 9999, "priorityLevelConfiguration": {"name": "catch-all"},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "nobody"}}],
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/nowhere"]}],
                }],
            },
        });
        let path = format!("{SCHEMAS}?fieldManager=x");
        socket
            .write_all(&request("POST", &path, ADMIN, &schema.to_string()))
            .unwrap();
        let (status, _) = response(&mut socket);
        assert_eq!(status, 201, "an object is not created");
    }
}

/// Lists so many objects as another user. Returns the length of the list; 0 if it was not complete.
fn read_list(address: SocketAddr, count: usize) -> usize {
    let mut socket = TcpStream::connect(address).unwrap();
    let page = format!("{SCHEMAS}?limit={count}");
    let sent = socket.write_all(&request("GET", &page, VICTIM, ""));
    let (status, length) = response(&mut socket);
    if sent.is_ok() && status == 200 {
        length
    } else {
        0
    }
}

fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The status of a response and the length of its body; 0 if it does not arrive.
fn response(socket: &mut TcpStream) -> (u16, usize) {
    socket.set_read_timeout(Some(LIVENESS)).unwrap();
    let (mut read, mut piece) = (Vec::new(), vec![0; 65_536]);
    let mut whole = None;
    loop {
        if whole.is_none()
            && let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
            whole = Some((status.unwrap_or(0), end + 4, length.unwrap_or(0)));
        }
        if let Some((status, head, length)) = whole
            && read.len() >= head + length
        {
            return (status, length);
        }
        match socket.read(&mut piece) {
            Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
            _ => return (0, 0),
        }
    }
}
