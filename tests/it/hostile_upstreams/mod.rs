//! What clients get when an upstream speaks HTTP/1.1 wrongly, or in an unusual way.
//!
//! Each test is a table. A [`row::Row`] is an answer, what the upstream does with the connection then, and what the client must
//! get. [`trial::run`] sends each row with `GET` and with `POST`, on a new connection and on one that served a request before.
//! After each of these requests come clean ones: they must get their own answers, whatever the hostile answer left behind. The
//! gateway runs as a process, so that a crash is noticed, too.
//!
//! The tables tell what the gateway does, not which client it uses upstream. Where a stricter client may well refuse an
//! answer that is passed on today, the row allows both.
//!
//! Not here: upstreams that cannot be reached and stalled bodies (`failures`), HTTP/2 (`resets`).

mod chunks;
mod client;
mod early;
mod endings;
mod fields;
mod interim;
mod lengths;
mod row;
mod scripted;
mod sizes;
mod status_lines;
mod trial;
mod unasked;

/// A complete answer with a length.
fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nX-Hostile: 1\r\n\r\n{body}")
}

/// A complete answer with this header line, which ends without a line break.
fn ok_with(line: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{line}\r\n\r\n{body}")
}

/// An answer with these header lines, and what follows the head.
fn answer(lines: &str, rest: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n{rest}")
}

/// An answer with a chunked body.
fn chunked(body: &str) -> String {
    answer("Transfer-Encoding: chunked", body)
}
