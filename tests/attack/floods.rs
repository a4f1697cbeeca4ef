//! Floods of HTTP/2 frames that cost the sender little.
//!
//! Two connections send as fast as they can, reconnect when they are closed, and stop once others were served meanwhile, or when one
//! has taken [`FRAMES`] frames. The gateway ends such connections, or reads no more of them; other clients are not
//! affected, and memory does not grow.

use std::{net::SocketAddr, time::Duration};

use crate::{
    Attack,
    frames::{
        END_HEADERS, END_STREAM, HEADER_TABLE_SIZE, RawConnection, block, frame, get, header, kind,
        reset, settings,
    },
    gateway::{ATTACKER, Setup},
    goal::Goal,
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::ms,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "flood-rapid-reset",
        point: "floods",
        about: "HEADERS, immediately followed by RST_STREAM",
        play: || play(&RAPID_RESET),
    },
    Attack {
        name: "flood-continuation",
        point: "floods",
        about: "a head that goes on in empty CONTINUATION frames",
        play: || play(&CONTINUATION),
    },
    Attack {
        name: "flood-ping",
        point: "floods",
        about: "PING",
        play: || play(&PING),
    },
    Attack {
        name: "flood-ping-unread",
        point: "floods",
        about: "PING whose acknowledgements are not read",
        play: || play(&PING_UNREAD),
    },
    Attack {
        name: "flood-settings",
        point: "floods",
        about: "SETTINGS",
        play: || play(&SETTINGS),
    },
    Attack {
        name: "flood-settings-unread",
        point: "floods",
        about: "SETTINGS whose acknowledgements are not read",
        play: || play(&SETTINGS_UNREAD),
    },
    Attack {
        name: "flood-empty-data",
        point: "floods",
        about: "empty DATA frames of a body that does not end",
        play: || play(&EMPTY_DATA),
    },
    Attack {
        name: "flood-window-update",
        point: "B.11",
        about: "WINDOW_UPDATE by one byte",
        play: || play(&WINDOW_UPDATE),
    },
    Attack {
        name: "flood-priority",
        point: "floods",
        about: "PRIORITY of streams that do not exist",
        play: || play(&PRIORITY),
    },
    Attack {
        name: "hpack-bomb",
        point: "floods",
        about: "16 KiB of references to a header of 4 KiB: a list of 60 MiB",
        play: || play(&HPACK_BOMB),
    },
];

const CONNECTIONS: usize = 2;
const LASTS: Duration = ms(2000);
/// The most frames that are sent on one connection.
const FRAMES: u64 = 3_000_000;
/// The pause before an attacker reconnects.
const PAUSE: Duration = ms(50);
/// If a write takes longer, the gateway has stopped reading: an attacker's patience, which can only make a flood shorter.
const STUCK: Duration = ms(1000);
const MEMORY: u64 = 64 << 20;

/// The frames of a flood.
struct Flood {
    /// The bytes that begin it on a new connection.
    opening: fn(&mut RawConnection) -> Vec<u8>,
    /// The bytes of the next frames, and the number of frames.
    piece: fn(&mut RawConnection) -> (Vec<u8>, u64),
    /// Whether the attacker reads the responses.
    reads: bool,
}

const PODS: &str = "/api/v1/namespaces/a/pods/p";

const RAPID_RESET: Flood = Flood {
    opening: |_| Vec::new(),
    piece: |connection| {
        let pair = |stream| [get(stream, PODS, Some(ATTACKER)), reset(stream)].concat();
        let pairs = (0..200).flat_map(|_| pair(connection.stream())).collect();
        (pairs, 400)
    },
    reads: true,
};

const CONTINUATION: Flood = Flood {
    opening: |connection| {
        let block = block("GET", PODS, Some(ATTACKER));
        frame(kind::HEADERS, END_STREAM, connection.stream(), &block)
    },
    piece: |_| many(&frame(kind::CONTINUATION, 0, 1, &[])),
    reads: true,
};

const PING: Flood = Flood {
    opening: |_| Vec::new(),
    piece: |_| many(&frame(kind::PING, 0, 0, &[7; 8])),
    reads: true,
};

const PING_UNREAD: Flood = Flood {
    reads: false,
    ..PING
};

const SETTINGS: Flood = Flood {
    opening: |_| Vec::new(),
    piece: |_| many(&settings(&[])),
    reads: true,
};

const SETTINGS_UNREAD: Flood = Flood {
    reads: false,
    ..SETTINGS
};

const EMPTY_DATA: Flood = Flood {
    opening: |connection| {
        let block = block("POST", "/api/v1/namespaces/a/pods", Some(ATTACKER));
        frame(kind::HEADERS, END_HEADERS, connection.stream(), &block)
    },
    piece: |_| many(&frame(kind::DATA, 0, 1, &[])),
    reads: true,
};

const WINDOW_UPDATE: Flood = Flood {
    opening: |_| Vec::new(),
    piece: |_| many(&frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
    reads: true,
};

const PRIORITY: Flood = Flood {
    opening: |_| Vec::new(),
    piece: |_| many(&frame(kind::PRIORITY, 0, 101, &[0, 0, 0, 0, 16])),
    reads: true,
};

const HPACK_BOMB: Flood = Flood {
    opening: |_| settings(&[(HEADER_TABLE_SIZE, 4096)]),
    piece: |connection| {
        let mut bomb = block("GET", PODS, Some(ATTACKER));
        // A literal that is put into the table.
        let mut entry = header("x-bomb", &"a".repeat(3900));
        entry[0] = 0x40;
        bomb.extend_from_slice(&entry);
        bomb.resize(16_000, NEWEST_ENTRY);
        let flags = END_HEADERS | END_STREAM;
        (frame(kind::HEADERS, flags, connection.stream(), &bomb), 1)
    },
    reads: true,
};

/// The byte that refers to the newest entry of the dynamic table, number 62.
const NEWEST_ENTRY: u8 = 0xbe;

/// A frame repeated to about 64 KiB, and the number of repetitions.
fn many(frame: &[u8]) -> (Vec<u8>, u64) {
    let count = (64 << 10) / frame.len();
    (frame.repeat(count), count as u64)
}

/// What one attacker has done.
#[derive(Clone, Copy, Default)]
struct Done {
    frames: u64,
    /// Connections that were ended, or on which nothing more could be written.
    ended: usize,
    /// Connections on which all frames could be written.
    endless: usize,
    served: u64,
}

fn play(flood: &'static Flood) -> Outcome {
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let address = scene.gateway.address;
        let goal = scene.goal(LASTS);
        let attackers: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(attack(address, flood, goal.clone())))
            .collect();
        let mut all = Done::default();
        for attacker in attackers {
            let done = attacker.await.unwrap();
            all.frames += done.frames;
            all.ended += done.ended;
            all.endless += done.endless;
            all.served += done.served;
        }
        all
    });
    played.check_other_clients();
    played.report_memory(MEMORY);
    let Done {
        frames,
        ended,
        endless,
        served,
    } = played.found;
    played.outcome.check(
        "the gateway ends the connection, or reads no more",
        endless == 0 && ended >= CONNECTIONS,
        format!("it accepted {frames} frames"),
    );
    let per_frame = played.outcome.cpu.as_nanos() / u128::from(frames.max(1));
    played.outcome.note(format!(
        "{frames} frames, {per_frame} ns of the gateway's processor time each; \
         {ended} connections ended or stuck, {served} requests served"
    ));
    played.outcome
}

async fn attack(address: SocketAddr, flood: &Flood, goal: Goal) -> Done {
    let mut done = Done::default();
    let is_on = |done: &Done| {
        let is_short = goal.is_open() || done.ended == 0 && goal.has_time();
        is_short && done.endless == 0
    };
    while is_on(&done) {
        let opened = if flood.reads {
            RawConnection::open(address, &[]).await
        } else {
            RawConnection::open_deaf(address).await
        };
        let Ok(mut connection) = opened else {
            done.ended += 1;
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let opening = (flood.opening)(&mut connection);
        let mut sent = connection.send_within(STUCK, &opening).await;
        let mut on_this = 0;
        while sent.is_ok() && is_on(&done) && on_this < FRAMES {
            let (piece, frames) = (flood.piece)(&mut connection);
            sent = connection.send_within(STUCK, &piece).await;
            on_this += if sent.is_ok() { frames } else { 0 };
            if connection.seen().is_ended() {
                break;
            }
        }
        let is_ended = sent.is_err() || connection.seen().is_ended();
        done.ended += usize::from(is_ended);
        done.endless += usize::from(!is_ended && on_this >= FRAMES);
        done.frames += on_this;
        done.served += connection.seen().served();
        if is_ended {
            tokio::time::sleep(PAUSE).await;
        }
    }
    done
}
