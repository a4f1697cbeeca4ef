//! Answers before the body of the request was read.

use super::{
    ok,
    row::{Row, Step, Then},
    trial::run,
};

/// Of the body of a request.
const LARGE: usize = 8 << 20;

fn early(name: &'static str, answer: String, body_bytes: usize) -> Row {
    Row {
        reads_body: false,
        body_bytes,
        ..Row::answers(name, answer).only(&["POST"])
    }
}

#[test]
fn an_answer_before_the_body_was_read_is_passed_on() {
    let too_large = || ok("hostile").replace("200 OK", "413 Too Large");
    let closing = || too_large().replace("X-Hostile: 1", "Connection: close");
    run(&[
        early("413, then the body is read", too_large(), LARGE)
            .step(Step::ReadBody)
            .gets(413, "hostile"),
        early("413 and close, then the body is read", closing(), LARGE)
            .step(Step::ReadBody)
            .then(Then::Close)
            .gets(413, "hostile"),
        // A reset may overtake the answer.
        early("413, then the connection is closed", closing(), LARGE)
            .then(Then::Close)
            .gets(413, "hostile")
            .fails(),
        early("413, then a reset", too_large(), LARGE)
            .then(Then::Reset)
            .gets(413, "hostile")
            .fails(),
        early("413, then half-close", closing(), LARGE)
            .then(Then::HalfClose)
            .gets(413, "hostile"),
        early("413, and the body is never read", too_large(), LARGE)
            .then(Then::Hold)
            .gets(413, "hostile"),
        early(
            "413 and close, and the body is never read",
            closing(),
            LARGE,
        )
        .then(Then::Hold)
        .gets(413, "hostile"),
        early("an answer before a small body is read", ok("hostile"), 1000)
            .step(Step::ReadBody)
            .gets(200, "hostile"),
        early(
            "an answer, and a small body is never read",
            ok("hostile"),
            1000,
        )
        .then(Then::Close)
        .gets(200, "hostile"),
        early("closed before a large body was read", String::new(), LARGE)
            .then(Then::Close)
            .fails(),
        early("reset before a large body was read", String::new(), LARGE)
            .then(Then::Reset)
            .fails(),
    ]);
}
