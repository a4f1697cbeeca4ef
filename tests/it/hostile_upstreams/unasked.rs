//! Bytes that no request asked for. They must never become the answer to the next request.

use super::{
    chunked, ok,
    row::{Row, Step, Then},
    trial::run,
};

/// The answer is right, and these bytes follow at once.
fn at_once(name: &'static str, more: impl AsRef<[u8]>) -> Row {
    let answer = [ok("right").as_bytes(), more.as_ref()].concat();
    Row::answers(name, answer)
        .then(Then::GatewayCloses)
        .gets(200, "right")
}

/// The answer is right, and these bytes follow when the client has it, and the connection is idle.
fn later(name: &'static str, more: impl Into<Vec<u8>>) -> Row {
    Row::answers(name, ok("right"))
        .step(Step::AfterResponse)
        .step(Step::Send(more.into()))
        .then(Then::GatewayCloses)
        .gets(200, "right")
}

#[test]
fn bytes_after_an_answer_are_not_the_next_answer() {
    let next = ok("hostile");
    run(&[
        at_once("an answer follows at once", &next),
        at_once("ten answers follow at once", next.repeat(10)),
        at_once("a line break follows at once", "\r\n"),
        at_once("one byte follows at once", "H"),
        at_once("garbage follows at once", "\u{1}hostile"),
        at_once(
            "a part of an answer follows at once",
            &next[..next.len() - 3],
        ),
        Row::answers(
            "an answer follows chunks",
            chunked(&format!("5\r\nright\r\n0\r\n\r\n{next}")),
        )
        .then(Then::GatewayCloses)
        .gets(200, "right"),
        Row::answers(
            "an answer follows 304",
            format!("HTTP/1.1 304 Not Modified\r\n\r\n{next}"),
        )
        .then(Then::GatewayCloses)
        .gets(304, ""),
        at_once(
            "an answer of 1 MB follows at once",
            ok(&"hostile".repeat(150_000)),
        ),
        later("an answer follows later", &*next),
        later("ten answers follow later", next.repeat(10)),
        later("a line break follows later", "\r\n"),
        later("one byte follows later", "H"),
        later("garbage follows later", "\u{1}hostile"),
        later("100 follows later", "HTTP/1.1 100 Continue\r\n\r\n"),
        later(
            "408 follows later",
            ok("hostile").replace("200 OK", "408 Request Timeout\r\nConnection: close"),
        ),
        Row::answers("an answer and the end follow later", ok("right"))
            .step(Step::AfterResponse)
            .step(Step::Send(next.into()))
            .then(Then::Close)
            .gets(200, "right"),
    ]);
}
