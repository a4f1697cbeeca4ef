//! Responses as the codec and hyper's client read them: what the codec accepts, hyper reads alike, and what only hyper
//! accepts is refused for a reason that the crate's documentation declares.
//!
//! `FAIRGATE_SEED` draws other mutations, `FAIRGATE_RESPONSES` says how many.

use std::collections::BTreeMap;

use fairgate_core::random::Random;
use fairgate_http1::Http1Error;
use http::Method;

use crate::{
    exchange::{self, Seen, cut},
    hyper_client::{self, Read},
};

/// Parts of responses that mutations insert.
pub(crate) const WORDS: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 000 A\r\n",
    "HTTP/1.1 1000 A\r\n",
    "HTTP/0.9 200 OK\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 3, 3\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "X: y\r\n",
    "X:\r\n",
    "X : y\r\n",
    "X: y\r\n z\r\n",
    "3\r\nabc\r\n",
    "abc",
    "1",
    "00",
    "0\r\n",
    "0\r\n\r\n",
    "0\r\nT: v\r\n\r\n",
    "0\r\nT: v\n\r\n",
    "ffffffffffffffff\r\n",
    "10000000000000000\r\n",
    ";a=\"b\"",
    " \t",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "\0",
    "\u{e9}",
    ":",
];

/// Whole responses, valid and hostile.
const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd",
    "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\n\r\nuntil the close",
    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3 \t;x\r\nabc\r\n0\r\nT: v\r\nU:\r\nT: w\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r_0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc_\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r_abc\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r_",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000003\r\nabc\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\nT: v\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\nabc",
    "HTTP/1.1 000 A\r\n\r\n",
    "HTTP/1.1 99 A\r\n\r\n",
    "HTTP/1.1 1000 A\r\n\r\n",
    "HTTP/1.1 999 \r\n\r\n",
    "HTTP/1.1 200\r\n\r\n",
    "HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\nContent-Length: 1\n\na",
    "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
    "HTTP/1.1 200 \u{e9}\r\nX: \u{e9}\r\n\r\n",
    "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
    "HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
    "hello\n",
    "SSH-2.0-OpenSSH\r\n",
    "",
];

/// These, and those at the limits.
fn table() -> Vec<Vec<u8>> {
    let mut table: Vec<Vec<u8>> = RESPONSES
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    for lines in [63, 64, 65, 98, 99, 100, 101] {
        table.push(format!("{head}{}\r\n0\r\n\r\n", "x:y\r\n".repeat(lines)).into());
        table.push(format!("{head}\r\n0\r\n{}\r\n", "x:y\r\n".repeat(lines)).into());
        let interim = "HTTP/1.1 100 A\r\n\r\n".repeat(lines);
        table.push(format!("{interim}{head}\r\n0\r\n\r\n").into());
    }
    for size in [
        7000,
        9000,
        16 * 1024 - 8,
        16 * 1024 - 7,
        16 * 1024 - 2,
        16 * 1024 - 1,
        16 * 1024,
    ] {
        let long = "z".repeat(size);
        if size < 10_000 {
            table.push(format!("{head}x: {long}\r\n\r\n0\r\n\r\n").into());
        }
        table.push(format!("{head}\r\n0\r\nx:{long}\r\n\r\n").into());
        table.push(format!("{head}\r\n0;{long}\r\n\r\n").into());
        table.push(format!("{head}\r\n0{}\r\n\r\n", " ".repeat(size)).into());
    }
    table
}

/// Whether the crate's documentation says that such a response is refused although hyper accepts it.
fn is_declared(error: &Http1Error, bytes: &[u8]) -> bool {
    let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    match error {
        // Only empty lines before a head.
        Http1Error::Version => {
            bytes.starts_with(b"\r\n")
                || bytes.starts_with(b"\n")
                || has(b"\n\r\n\r\n")
                || has(b"\n\n")
                || has(b"\n\r\n\n")
        }
        Http1Error::HeadTooLarge => bytes.len() > exchange::LIMITS.bytes,
        Http1Error::TooManyInterim
        | Http1Error::SeveralLengths
        | Http1Error::LengthAndEncoding
        | Http1Error::UnsupportedEncoding => true,
        Http1Error::ChunkSizeTooLarge => has(b"00"),
        Http1Error::ExtensionTooLong => has(b"  "),
        Http1Error::TrailersTooLarge => bytes.split(|byte| *byte == b'\n').count() > 64,
        Http1Error::MalformedTrailers(reason) => *reason == httparse::Error::NewLine,
        _ => false,
    }
}

/// Why both do not agree, if they do not.
fn disagreement(bytes: &[u8], seen: &Seen, hyper: &Read) -> Option<&'static str> {
    let is_refused = |error: &Option<Http1Error>| {
        let declared = |error: &Http1Error| is_declared(error, bytes);
        error.as_ref().is_some_and(declared)
    };
    let common = seen.content.len().min(hyper.content.len());
    if seen.head.is_some() && seen.head != hyper.head {
        return Some("hyper reads another head, or none");
    }
    if seen.head.is_none() && hyper.head.is_some() && !is_refused(&seen.error) {
        return Some("only hyper accepts the head");
    }
    if seen.content[..common] != hyper.content[..common] {
        return Some("the content differs");
    }
    if seen.left.is_none() {
        let is_other = hyper.is_whole && !is_refused(&seen.error);
        return is_other.then_some("only hyper accepts the body");
    }
    if !hyper.is_whole {
        return Some("hyper refuses the body");
    }
    let is_same = seen.content == hyper.content && seen.trailers == hyper.trailers;
    (!is_same).then_some("the body differs")
}

/// Changes `bytes` in a few places.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.within(0..4) {
        let below = |random: &mut Random, end: usize| {
            usize::try_from(random.within(0..end as u64 + 1)).expect("it is below a length")
        };
        let from = below(random, bytes.len());
        let to = (from + below(random, 6)).min(bytes.len());
        match random.within(0..5) {
            0 => drop(bytes.drain(from..to)),
            1 if from < bytes.len() => bytes[from] ^= 1 << random.within(0..8),
            2 => {
                let part = bytes[from..to].to_vec();
                bytes.splice(from..from, part);
            }
            _ => {
                let word = random.pick(WORDS).as_bytes().to_vec();
                bytes.splice(from..to, word);
            }
        }
    }
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |given| given.parse().expect(name))
}

#[test]
fn what_is_accepted_hyper_reads_alike() {
    let runtime = hyper_client::runtime();
    let seed = number("FAIRGATE_SEED", 1);
    let mut random = Random::seeded(seed);
    let table = table();
    let methods = [
        Method::GET,
        Method::GET,
        Method::POST,
        Method::HEAD,
        Method::CONNECT,
    ];
    let mut tally: BTreeMap<String, u32> = BTreeMap::new();
    for case in 0..table.len() as u64 * 3 + number("FAIRGATE_RESPONSES", 4000) {
        let (bytes, method) = match usize::try_from(case).expect("it counts") {
            // First each response as it is, to each method.
            index if index < table.len() * 3 => {
                let method = &methods[2 + index / table.len()];
                (table[index % table.len()].clone(), method)
            }
            _ => {
                let mut bytes = random.pick(&table).clone();
                mutate(&mut random, &mut bytes);
                (bytes, random.pick(&methods))
            }
        };
        let places: Vec<usize> = (0..random.within(0..5))
            .map(|_| usize::try_from(random.within(0..bytes.len() as u64 + 1)).unwrap())
            .collect();
        let pieces = cut(&bytes, &places);
        let seen = exchange::read(&pieces, method);
        let hyper = hyper_client::read(&runtime, &pieces, method);
        if let Some(reason) = disagreement(&bytes, &seen, &hyper) {
            let text = bytes.escape_ascii();
            panic!(
                "FAIRGATE_SEED={seed}, case {case}: {reason}\n{method} {text}\n{seen:?}\n{hyper:?}"
            );
        }
        let kind = match (&seen.error, seen.left, hyper.is_whole) {
            (_, Some(_), _) => "accepted".to_owned(),
            (error, None, true) => format!("only hyper: {error:?}"),
            (_, None, false) => "both refuse".to_owned(),
        };
        *tally.entry(kind).or_default() += 1;
    }
    println!("{tally:#?}");
    assert!(tally["accepted"] > 500, "{tally:?}");
}

#[test]
fn connections_that_stay_open_do_so_in_hyper() {
    let runtime = hyper_client::runtime();
    let cases = [
        "1.1 200 A\r\nContent-Length: 1\r\n\r\na",
        "1.1 204 A\r\n\r\n",
        "1.1 204 A\r\nConnection: close\r\n\r\n",
        "1.1 204 A\r\nConnection: x ,\tClose\r\n\r\n",
        "1.1 204 A\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
        "1.1 204 A\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        "1.1 204 A\r\nConnection: closed\r\n\r\n",
        "1.0 204 A\r\n\r\n",
        "1.0 204 A\r\nConnection: keep-alive\r\n\r\n",
        "1.0 204 A\r\nConnection: x\r\nConnection: Keep-Alive\r\n\r\n",
        "1.0 204 A\r\nConnection: keep-alive, close\r\n\r\n",
        "1.1 200 A\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "1.1 200 A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n",
        "1.1 200 A\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    for case in cases {
        let bytes = format!("HTTP/{case}").into_bytes();
        let seen = exchange::read(&[&bytes], &Method::GET);
        assert_eq!(seen.left, Some(0), "{case:?}");
        let expected = hyper_client::keeps_alive(&runtime, &bytes);
        assert_eq!(seen.keep_alive, expected, "{case:?}");
    }
}
