//! Connections that end, in and after answers.

use super::{
    answer, chunked, ok,
    row::{Row, Step, Then},
    trial::run,
};

#[test]
fn an_answer_that_did_not_begin_is_a_failure() {
    let head = "HTTP/1.1 200 OK\r\nContent-Le";
    run(&[
        Row::silent("closed")
            .then(Then::Close)
            .repeats_reads()
            .fails(),
        Row::silent("half-closed")
            .then(Then::HalfClose)
            .repeats_reads()
            .fails(),
        Row::silent("reset")
            .then(Then::Reset)
            .repeats_reads()
            .fails(),
        Row::answers("closed within the head", head)
            .then(Then::Close)
            .repeats_reads()
            .fails(),
        Row::answers("half-closed within the head", head)
            .then(Then::HalfClose)
            .repeats_reads()
            .fails(),
        Row::answers("reset within the head", head)
            .then(Then::Reset)
            .repeats_reads()
            .fails(),
        Row::answers("closed within the status line", "HTTP/1.")
            .then(Then::Close)
            .repeats_reads()
            .fails(),
        Row::answers(
            "closed before the empty line",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
        )
        .then(Then::Close)
        .repeats_reads()
        .fails(),
        Row::silent("no answer in time")
            .then(Then::Hold)
            .times_out()
            .may_repeat_reads(),
        Row::answers("no whole head in time", head)
            .then(Then::Hold)
            .times_out()
            .may_repeat_reads(),
    ]);
}

#[test]
fn a_body_that_breaks_off_is_incomplete_for_the_client() {
    let short = answer("Content-Length: 70", "hostile");
    let chunk = chunked("7\r\nhostile\r\n");
    run(&[
        Row::answers("closed within a length", &*short)
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers("half-closed within a length", &*short)
            .then(Then::HalfClose)
            .breaks_off(200, "hostile"),
        Row::answers("reset within a length", &*short)
            .then(Then::Reset)
            .breaks_off(200, "hostile"),
        Row::answers("closed between chunks", &*chunk)
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers("half-closed between chunks", &*chunk)
            .then(Then::HalfClose)
            .breaks_off(200, "hostile"),
        Row::answers("reset between chunks", &*chunk)
            .then(Then::Reset)
            .breaks_off(200, "hostile"),
        Row::answers("closed within a chunk", chunked("70\r\nhostile"))
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers("closed within a size", chunked("7\r\nhostile\r\n1"))
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers("closed after the data", chunked("7\r\nhostile"))
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers(
            "closed before the last line",
            chunked("7\r\nhostile\r\n0\r\n"),
        )
        .then(Then::Close)
        .breaks_off(200, "hostile"),
        Row::answers("closed before any data", answer("Content-Length: 7", ""))
            .then(Then::Close)
            .breaks_off(200, ""),
    ]);
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let old = |lines: &str, rest: &str| answer(lines, rest).replace("/1.1", "/1.0");
    run(&[
        Row::answers("until close", answer("X-A: 1", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile"),
        Row::answers("until half-close", answer("X-A: 1", "hostile"))
            .then(Then::HalfClose)
            .gets(200, "hostile"),
        Row::answers("until reset", answer("X-A: 1", "hostile"))
            .then(Then::Reset)
            .breaks_off(200, "hostile"),
        Row::answers("an empty body until close", answer("X-A: 1", ""))
            .then(Then::Close)
            .gets(200, ""),
        Row::answers(
            "two answers until close",
            format!("HTTP/1.1 200 OK\r\n\r\n{}", ok("hostile")),
        )
        .then(Then::Close)
        .gets(200, ok("hostile")),
        Row::answers("1.0 until close", old("X-A: 1", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile"),
        Row::answers("1.0 with a length", old("Content-Length: 7", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile"),
        Row::answers(
            "1.0 with a length, left open",
            old("Content-Length: 7", "hostile"),
        )
        .then(Then::GatewayCloses)
        .gets(200, "hostile"),
        Row::answers(
            "1.0 with keep-alive",
            old("Content-Length: 7\r\nConnection: keep-alive", "hostile"),
        )
        .gets(200, "hostile"),
        Row::answers(
            "1.0 with keep-alive and no length",
            old("Connection: keep-alive", "hostile"),
        )
        .then(Then::Close)
        .gets(200, "hostile"),
        Row::answers(
            "Connection: close, left open",
            answer("Connection: close\r\nContent-Length: 7", "hostile"),
        )
        .then(Then::GatewayCloses)
        .gets(200, "hostile"),
        Row::answers("closed after the answer", ok("hostile"))
            .then(Then::Close)
            .gets(200, "hostile"),
        Row::answers("half-closed after the answer", ok("hostile"))
            .then(Then::HalfClose)
            .gets(200, "hostile"),
        Row::answers("closed later", ok("hostile"))
            .step(Step::AfterResponse)
            .then(Then::Close)
            .gets(200, "hostile"),
        Row::answers("half-closed later", ok("hostile"))
            .step(Step::AfterResponse)
            .then(Then::HalfClose)
            .gets(200, "hostile"),
        Row::answers("reset later", ok("hostile"))
            .step(Step::AfterResponse)
            .then(Then::Reset)
            .gets(200, "hostile"),
    ]);
}
