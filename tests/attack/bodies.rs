//! Clients that do not send the bodies of their requests, and so occupy the seats of a level while nothing executes.
//!
//! Short bodies are read before a request gets its seat. A longer one holds a seat, and its client has to send it at a least rate
//! while others need the seat.

use std::{
    io::{self, Write as _},
    net::TcpStream,
    time::Duration,
};

use crate::{
    Attack,
    frames::{END_HEADERS, RawConnection, block, frame, header, kind, reset},
    gateway::{ATTACKED_SEATS, ATTACKER, NEIGHBOUR, Setup, attacker},
    goal::Goal,
    others::Mix,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms, now, until},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "unfinished-bodies",
        point: "27.2.3",
        about: "POSTs of 1000 bytes, of which 8 are sent; reset after 1.2 s, again and again, by one user over HTTP/2",
        play: aborted,
    },
    Attack {
        name: "unfinished-bodies-users",
        point: "27.2.3",
        about: "the same by 20 users over HTTP/1 and HTTP/2, 10 at a time each",
        play: many_users,
    },
    Attack {
        name: "unfinished-bodies-drip",
        point: "27.2.3",
        about: "400 POSTs of 1000 bytes, a byte a second, over HTTP/1 and HTTP/2, by one user",
        play: || drip(1),
    },
    Attack {
        name: "unfinished-bodies-drip-users",
        point: "27.2.3",
        about: "the same by 20 users",
        play: || drip(USERS),
    },
    Attack {
        name: "unfinished-bodies-long",
        point: "27.2.3",
        about: "60 POSTs of 100 KiB, a byte a second, by one user: each holds a seat until others need it",
        play: || long(1),
    },
    Attack {
        name: "unfinished-bodies-long-users",
        point: "27.2.3",
        about: "the same by 20 users",
        play: || long(USERS),
    },
    Attack {
        name: "queued-bodies",
        point: "27.2.3",
        about: "2 000 POSTs of 2 MB over HTTP/1 by 20 users, of which few have a seat",
        play: queued,
    },
    Attack {
        name: "queued-bodies-http2",
        point: "27.2.3",
        about: "the same over HTTP/2, 32 KiB of each body, on one connection of each user",
        play: queued_http2,
    },
];

const PATH: &str = "/api/v1/namespaces/a/configmaps";
/// How long a client keeps its request open.
const OPEN: Duration = ms(1200);
const LASTS: Duration = ms(10_000);
const USERS: usize = 20;
const AT_ONCE: usize = 10;
/// The budget of requests without a seat whose bodies have not arrived (`limits.unfinishedBodyBytes`), and what each takes at least.
const AWAITED: u64 = 32 << 20;
const AWAITED_EACH: u64 = 2 << 10;
const AWAITED_METRICS: (&str, &str) = (
    "fairgate_awaited_body_bytes",
    "fairgate_awaited_body_peak_bytes",
);
/// What a core may read ahead of bodies, and of one of them at a time.
const READ_AHEAD: u64 = (64 << 20) + (1 << 20);
const READ_AHEAD_METRICS: (&str, &str) = (
    "fairgate_read_ahead_bytes",
    "fairgate_read_ahead_peak_bytes",
);
/// What clients of queued HTTP/2 requests may have sent that is not read; two cores may exceed it by a window each.
const WINDOWS: u64 = (128 << 20) + 2 * (256 << 10);
const WINDOW_METRICS: (&str, &str) = (
    "fairgate_stream_window_bytes",
    "fairgate_stream_window_peak_bytes",
);

/// The others are neighbours in the attackers' level.
fn scene() -> Scene {
    let setup = Setup {
        attacked_level: true,
        more_attackers: USERS,
        ..Setup::default()
    };
    let mix = Mix {
        watches: 0,
        user: NEIGHBOUR,
        ..Mix::default()
    };
    Scene::new(&setup, mix)
}

/// Seats that are held while nothing of the attackers executes, as seen during the attack, and the responses that attackers got.
struct Found {
    most_seats: f64,
}

/// Looks at the seats until the goal is reached.
async fn watch_seats(scene: &Scene, goal: &Goal) -> Found {
    let mut most_seats = 0.0_f64;
    while goal.is_open() {
        let metrics = scene.gateway.metrics();
        let executing =
            metrics.of_level("apiserver_flowcontrol_current_executing_seats", "attacked");
        most_seats = most_seats.max(executing);
        tokio::time::sleep(ms(50)).await;
    }
    Found { most_seats }
}

/// The seats that the others use at a time.
const OTHERS: u32 = 6;

fn checked(mut played: Played<Found>, most_allowed: u32) -> Outcome {
    played.check_other_clients();
    let most = played.found.most_seats;
    played.outcome.check(
        format!("at most {most_allowed} seats are held, which the others need"),
        most <= f64::from(most_allowed),
        format!("{most} were"),
    );
    let begun = played.scene.upstream.attackers().begun;
    played.outcome.check(
        "nothing of the attackers executes upstream",
        begun == 0,
        format!("{begun} did"),
    );
    let [late] = played.rises(["fairgate_late_bodies_total"]);
    played.outcome.note(format!(
        "at most {most} of {ATTACKED_SEATS} seats were held; {late} bodies came too slowly"
    ));
    played.report_memory(64 << 20);
    played.outcome
}

fn aborted() -> Outcome {
    let mut played = scene().play(async |scene| {
        let goal = scene.goal(LASTS);
        let attack = abort_http2(scene, &goal, ATTACKER.to_owned(), 20);
        tokio::join!(watch_seats(scene, &goal), attack).0
    });
    awaited_bodies_are_counted(&mut played, 20);
    checked(played, OTHERS)
}

/// All `requests` waited for their bodies at a time, nearly, and what they took was counted.
fn awaited_bodies_are_counted(played: &mut Played<Found>, requests: usize) {
    let least = requests as u64 * AWAITED_EACH * 3 / 4;
    played.budget_is_kept(AWAITED_METRICS, AWAITED, least);
}

fn many_users() -> Outcome {
    let mut played = scene().play(async |scene| {
        let goal = scene.goal(LASTS);
        let http2 =
            (0..USERS / 2).map(|number| abort_http2(scene, &goal, attacker(number), AT_ONCE));
        let http1 = (USERS / 2..USERS).map(|number| abort_http1(scene, &goal, attacker(number)));
        let attacks = async {
            let http2 = futures_util::future::join_all(http2);
            let http1 = futures_util::future::join_all(http1);
            tokio::join!(http2, http1);
        };
        tokio::join!(watch_seats(scene, &goal), attacks).0
    });
    awaited_bodies_are_counted(&mut played, USERS * AT_ONCE);
    checked(played, OTHERS)
}

fn drip(users: usize) -> Outcome {
    const HTTP2: usize = 10;
    const HTTP1: usize = 200;
    let mut played = scene().play(async |scene| {
        let goal = scene.goal(4 * LASTS);
        let http2 = drip_http2(scene, &goal, (users, HTTP2), 1000);
        let http1 = drip_http1(scene, &goal, (users, HTTP1));
        let (found, ..) = tokio::join!(watch_seats(scene, &goal), http2, http1);
        found
    });
    awaited_bodies_are_counted(&mut played, HTTP2 * STREAMS + HTTP1);
    checked(played, OTHERS)
}

fn long(users: usize) -> Outcome {
    let mut played = scene().play(async |scene| {
        let goal = scene.goal(LASTS);
        let attack = drip_http2(scene, &goal, (users, 3), 100 << 10);
        tokio::join!(watch_seats(scene, &goal), attack).0
    });
    let [late] = played.rises(["fairgate_late_bodies_total"]);
    played.outcome.check(
        "slow clients are refused while no seat is free",
        late > 0.0,
        "none was",
    );
    // What has come of the bodies of those that wait for a seat.
    played.budget_is_kept(READ_AHEAD_METRICS, READ_AHEAD, 8);
    checked(played, ATTACKED_SEATS)
}

/// Bodies of requests that wait in the queues of their level. The others are in another one.
fn queued() -> Outcome {
    const EACH: usize = 100;
    const LENGTH: usize = 2_000_000;
    // What the read-ahead of two cores may hold, and as much for connections, seats and freed pages.
    const MEMORY: u64 = (2 * 2 * 64) << 20;
    let setup = Setup {
        attacked_level: true,
        more_attackers: USERS,
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let goal = scene.goal(LASTS);
        let mut open: Vec<_> = (0..USERS * EACH)
            .filter_map(|number| begin_http1(scene, &attacker(number % USERS), LENGTH).ok())
            .map(|stream| (stream, LENGTH - 9))
            .collect();
        let piece = vec![b'x'; 65_536];
        let mut most = 0.0_f64;
        while goal.is_open() {
            for (stream, left) in &mut open {
                // All but the last byte. A client whose request was refused goes on in vain.
                let sent = stream.write(&piece[..piece.len().min(*left)]);
                *left -= sent.unwrap_or_default();
            }
            let metrics = scene.gateway.metrics();
            let waiting = "apiserver_flowcontrol_current_inqueue_requests";
            most = most.max(metrics.of_level(waiting, "attacked"));
            tokio::time::sleep(ms(5)).await;
        }
        most
    });
    played.check_other_clients();
    let most = played.found;
    played.outcome.check(
        "requests of the attackers wait in queues",
        most >= 200.0,
        format!("at most {most}"),
    );
    played.outcome.note(format!("at most {most} waited"));
    played.budget_is_kept(READ_AHEAD_METRICS, READ_AHEAD, READ_AHEAD / 8);
    played.report_memory(MEMORY);
    played.outcome
}

fn queued_http2() -> Outcome {
    const EACH: usize = 100;
    let setup = Setup {
        attacked_level: true,
        more_attackers: USERS,
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let goal = scene.goal(LASTS);
        // All of them together are less than the window of the connection.
        let piece = vec![b'x'; 16 << 10];
        let mut open = Vec::new();
        for number in 0..USERS {
            let mut connection = RawConnection::open(scene.gateway.address, &[])
                .await
                .unwrap();
            // Once anything is answered, it may send more than 64 KiB.
            let _ = connection.get(PATH, None).await;
            until(LIVENESS, || connection.seen().answers() > 0).await;
            for _ in 0..EACH {
                let stream = connection.stream();
                let mut frames = unfinished(stream, &attacker(number), 2_000_000);
                for _ in 0..2 {
                    frames.extend(frame(kind::DATA, 0, stream, &piece));
                }
                let _ = connection.send(&frames).await;
            }
            open.push(connection);
        }
        goal.reach().await;
        open.iter().filter(|one| one.seen().is_ended()).count()
    });
    played.check_other_clients();
    let ended = played.found;
    played.outcome.check(
        "no connection is ended, whatever its streams get",
        ended == 0,
        format!("{ended} are"),
    );
    played.budget_is_kept(WINDOW_METRICS, WINDOWS, WINDOWS / 8);
    played.budget_is_kept(READ_AHEAD_METRICS, READ_AHEAD, READ_AHEAD / 64);
    // What the read-ahead of two cores and the windows may hold, and connections and freed pages.
    played.report_memory((2 * 64 + 128 + 64) << 20);
    played.outcome
}

/// The frames of a POST of this many bytes, 8 of which are sent.
fn unfinished(stream: u32, user: &str, length: usize) -> Vec<u8> {
    let mut head = block("POST", PATH, Some(user));
    head.extend(header("content-length", &length.to_string()));
    let mut frames = frame(kind::HEADERS, END_HEADERS, stream, &head);
    frames.extend(frame(kind::DATA, 0, stream, b"12345678"));
    frames
}

/// Begins so many requests, resets them, and begins anew.
async fn abort_http2(scene: &Scene, goal: &Goal, user: String, at_once: usize) {
    while goal.is_open() {
        let Ok(mut connection) = RawConnection::open(scene.gateway.address, &[]).await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        while goal.is_open() && !connection.seen().is_ended() {
            let streams: Vec<u32> = (0..at_once).map(|_| connection.stream()).collect();
            for stream in &streams {
                let _ = connection.send(&unfinished(*stream, &user, 1000)).await;
            }
            tokio::time::sleep(OPEN).await;
            let resets: Vec<u8> = streams.into_iter().flat_map(reset).collect();
            let _ = connection.send(&resets).await;
        }
    }
}

/// The same over HTTP/1: connections are closed.
async fn abort_http1(scene: &Scene, goal: &Goal, user: String) {
    while goal.is_open() {
        let open: Vec<_> = (0..AT_ONCE)
            .filter_map(|_| begin_http1(scene, &user, 1000).ok())
            .collect();
        tokio::time::sleep(OPEN).await;
        drop(open);
    }
}

/// Sends the first eight bytes of a POST of `length`.
fn begin_http1(scene: &Scene, user: &str, length: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(scene.gateway.address)?;
    stream.set_nonblocking(true)?;
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {user}\r\nContent-Length: {length}\r\n\r\n12345678"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

/// Requests on one connection.
const STREAMS: usize = 20;

/// Sends a byte of each of [`STREAMS`] requests, by so many users in turn, on each connection every second, and begins anew when the
/// gateway has ended them.
async fn drip_http2(
    scene: &Scene,
    goal: &Goal,
    (users, connections): (usize, usize),
    length: usize,
) {
    let each = (0..connections).map(|_| async move {
        while goal.is_open() {
            let opened = RawConnection::open(scene.gateway.address, &[]).await;
            let Ok(mut connection) = opened else {
                tokio::time::sleep(ms(20)).await;
                continue;
            };
            let streams: Vec<u32> = (0..STREAMS).map(|_| connection.stream()).collect();
            for (number, stream) in streams.iter().enumerate() {
                let user = attacker(number % users);
                let _ = connection.send(&unfinished(*stream, &user, length)).await;
            }
            let has_all = |answers: u64| answers >= STREAMS as u64;
            while goal.is_open() && !has_all(connection.seen().answers()) {
                let drops = streams
                    .iter()
                    .flat_map(|stream| frame(kind::DATA, 0, *stream, b"x"));
                if connection.send(&drops.collect::<Vec<u8>>()).await.is_err() {
                    break;
                }
                pause(goal, ms(1000)).await;
            }
        }
    });
    futures_util::future::join_all(each).await;
}

async fn drip_http1(scene: &Scene, goal: &Goal, (users, connections): (usize, usize)) {
    let mut open: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    while goal.is_open() {
        for (number, one) in open.iter_mut().enumerate() {
            let is_over = one
                .as_mut()
                .is_none_or(|stream| stream.write_all(b"x").is_err());
            if is_over {
                *one = begin_http1(scene, &attacker(number % users), 1000).ok();
            }
        }
        pause(goal, ms(1000)).await;
    }
}

/// Waits, unless the attack is over.
async fn pause(goal: &Goal, time: Duration) {
    let begun = now();
    while goal.is_open() && begun.elapsed() < time {
        tokio::time::sleep(ms(50)).await;
    }
}
