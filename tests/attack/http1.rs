//! Edge cases of HTTP/1.1: responses before the body, clients that half-close, and heads and bodies
//! that two servers could parse differently.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
};

use crate::{
    Attack,
    gateway::{Setup, VICTIM},
    others::Mix,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "early-response",
        point: "B.9",
        about: "no attack: a POST that is refused before its body has arrived, then another request",
        play: early_response,
    },
    Attack {
        name: "half-close",
        point: "B.9",
        about: "no attack: a client that closes its write side still gets its response",
        play: half_close,
    },
    Attack {
        name: "head-checks",
        point: "B.9",
        about: "ambiguous heads, pipelined or over 16 KiB; chunked bodies that end with a bare LF",
        play: head_checks,
    },
];

/// Plays with only a few other clients.
fn play<T: Send + 'static>(each: fn(SocketAddr) -> T) -> Played<T> {
    let mix = Mix {
        readers: 1,
        writers: 1,
        watches: 1,
        ..Mix::default()
    };
    let mut played = Scene::new(&Setup::default(), mix).play(async |scene| {
        let (address, goal) = (scene.gateway.address, scene.goal(ms(0)));
        let found = tokio::task::spawn_blocking(move || each(address)).await;
        goal.reach().await;
        found.unwrap()
    });
    played.check_other_clients();
    played
}

/// The head of a request; `more` are further header lines.
fn head(method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {VICTIM}\r\n{more}\r\n"
    )
}

const PODS: &str = "/api/v1/namespaces/v/pods/p";

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIVENESS))?;
    Ok(stream)
}

fn early_response() -> Outcome {
    const TIMES: usize = 5;
    let mut played = play(|address| (0..TIMES).filter(|_| early(address).is_ok()).count());
    let well = played.found;
    played.outcome.check(
        "the next request gets a response, or the first response says that the connection closes",
        well == TIMES,
        format!("{well} of {TIMES}"),
    );
    played.outcome
}

/// Sends a POST that is refused, its body 20 ms after the head. Sends another request unless the response says that the
/// connection closes.
fn early(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    let body = [b'x'; 4000];
    let post = head(
        "POST",
        "/api/v1/namespaces/v/early",
        "Content-Length: 4000\r\n",
    );
    stream.write_all(post.as_bytes())?;
    std::thread::sleep(ms(20));
    // It may be closed already, which is correct if the response says `Connection: close`.
    let _ = stream.write_all(&body);
    let response = read_response(&mut stream)?;
    if !response.starts_with("http/1.1 403") {
        return Err(io::Error::other("not a 403"));
    }
    if response.contains("connection: close") {
        return Ok(());
    }
    stream.write_all(head("GET", PODS, "").as_bytes())?;
    let next = read_response(&mut stream)?;
    if next.starts_with("http/1.1 200") {
        Ok(())
    } else {
        Err(io::Error::other("no second response"))
    }
}

/// Reads a response with its body, and returns its head in lower case.
fn read_response(stream: &mut TcpStream) -> io::Result<String> {
    let mut read = Vec::new();
    let mut byte = [0];
    let mut until = |end: &dyn Fn(&[u8]) -> bool| {
        read.clear();
        while !end(&read) {
            stream.read_exact(&mut byte)?;
            read.push(byte[0]);
        }
        io::Result::Ok(String::from_utf8_lossy(&read).to_lowercase())
    };
    let head = until(&|read| read.ends_with(b"\r\n\r\n"))?;
    let length = head
        .split("\r\ncontent-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
    if let Some(length) = length {
        until(&|read| read.len() == length)?;
    } else if head.contains("transfer-encoding: chunked") {
        until(&|read| read.ends_with(b"\r\n0\r\n\r\n"))?;
    }
    Ok(head)
}

fn half_close() -> Outcome {
    const TIMES: usize = 10;
    let mut played = play(|address| {
        let response_of = |number: usize| {
            let path = [
                "/api/v1/namespaces/v/pods/t0",
                "/api/v1/namespaces/v/pods/t100",
            ];
            let mut stream = connect(address)?;
            stream.write_all(head("GET", path[number % 2], "").as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
            read_response(&mut stream)
        };
        let all = (0..TIMES).map(|number| response_of(number).unwrap_or_default());
        all.filter(|response| response.starts_with("http/1.1 200"))
            .count()
    });
    let answered = played.found;
    played.outcome.check(
        "a client that half-closes gets its response",
        answered == TIMES,
        format!("{answered} of {TIMES} did"),
    );
    played.outcome
}

/// The statuses of the responses, and whether the connection was closed after them.
#[derive(Debug, Default)]
struct Replies {
    statuses: Vec<u16>,
    is_closed: bool,
}

impl Replies {
    fn of(read: &[u8], is_closed: bool) -> Self {
        let text = String::from_utf8_lossy(read);
        let heads = text.split("HTTP/1.1 ").skip(1);
        Self {
            statuses: heads
                .filter_map(|head| head.get(..3)?.parse().ok())
                .collect(),
            is_closed,
        }
    }

    fn served(&self) -> usize {
        let served = self.statuses.iter().filter(|status| **status < 300);
        served.count()
    }
}

/// Input that two servers could parse differently: its name, the bytes, and whether the responses are
/// as required.
type Case = (&'static str, String, fn(&Replies) -> bool);

fn cases() -> Vec<Case> {
    let good = head("GET", PODS, "");
    let bare = format!("GET {PODS} HTTP/1.1\nHost: gate\r\nAuthorization: Bearer {VICTIM}\r\n\r\n");
    let long = format!("X-Long: {}\r\n", "a".repeat(20 << 10));
    let two = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    let post = |more: &str| head("POST", "/api/v1/namespaces/v/configmaps", more);
    let both = post(two) + "0\r\n\r\n";
    let long_both = post(&format!("{long}{two}")) + "0\r\n\r\n";
    let long_bare = head("GET", PODS, &format!("{long}X-Other: a\n"));
    let chunked = |end: &str| post("Transfer-Encoding: chunked\r\n") + "2\r\n{}\r\n" + end + &good;
    let only_first: fn(&Replies) -> bool =
        |replies| replies.served() <= 1 && replies.statuses.first() == Some(&200);
    let none: fn(&Replies) -> bool =
        |replies| replies.served() == 0 && !replies.statuses.is_empty();
    // Refused, closed, or both served: one request never hides the other.
    let no_silence: fn(&Replies) -> bool =
        |replies| replies.served() == 2 || replies.statuses.contains(&400) || replies.is_closed;
    vec![
        (
            "pipelined head with a bare LF",
            good.clone() + &bare,
            only_first,
        ),
        (
            "pipelined head with two lengths",
            good.clone() + &both,
            only_first,
        ),
        ("long head with two lengths", long_both, none),
        ("long head with a bare LF", long_bare, none),
        (
            "chunked body that ends with LF",
            chunked("0\r\n\n"),
            no_silence,
        ),
        (
            "chunked body whose last size ends with LF",
            chunked("0\n\r\n"),
            no_silence,
        ),
    ]
}

fn head_checks() -> Outcome {
    let mut played = play(|address| {
        let play = |(name, bytes, is_correct): Case| {
            let replies = ask(address, bytes.as_bytes(), is_correct).unwrap_or_default();
            (name, is_correct(&replies), replies)
        };
        cases().into_iter().map(play).collect::<Vec<_>>()
    });
    for (name, is_correct, replies) in std::mem::take(&mut played.found) {
        let closed = if replies.is_closed {
            ", closed"
        } else {
            ", open"
        };
        let found = format!("{:?}{closed}", replies.statuses);
        played
            .outcome
            .check(format!("{name}: refused"), is_correct, found);
    }
    played.outcome
}

/// Sends `bytes` and reads until the connection is closed, as it is after a refusal, or all requests are served.
fn ask(address: SocketAddr, bytes: &[u8], is_correct: fn(&Replies) -> bool) -> io::Result<Replies> {
    let mut stream = connect(address)?;
    let _ = stream.write_all(bytes);
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let is_closed = match stream.read(&mut piece) {
            Ok(0) => true,
            Ok(count) => {
                read.extend_from_slice(&piece[..count]);
                false
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            Err(_) => return Ok(Replies::of(&read, false)),
        };
        let replies = Replies::of(&read, is_closed);
        if is_closed || replies.served() == 2 && is_correct(&replies) {
            return Ok(replies);
        }
    }
}
