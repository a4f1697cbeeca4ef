//! Interim responses before the answer.

use super::{
    ok,
    row::{Row, Step, Then},
    trial::run,
};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn interim_responses_do_not_stand_for_the_answer() {
    let before = |interim: &str| format!("{interim}{}", ok("hostile"));
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </hostile>\r\n\r\n";
    run(&[
        Row::answers("100", before(CONTINUE)).gets(200, "hostile"),
        Row::answers("102", before("HTTP/1.1 102 Processing\r\n\r\n")).gets(200, "hostile"),
        Row::answers("103", before(early))
            .gets(200, "hostile")
            .hides(&["link"]),
        Row::answers("199", before("HTTP/1.1 199 Odd\r\n\r\n")).gets(200, "hostile"),
        Row::answers("20 interim responses", before(&CONTINUE.repeat(20))).gets(200, "hostile"),
        // A client may give up here.
        Row::answers("200 interim responses", before(&CONTINUE.repeat(200)))
            .gets(200, "hostile")
            .fails(),
        Row::answers("many interim responses", before(&CONTINUE.repeat(20_000)))
            .gets(200, "hostile")
            .fails(),
        Row::answers(
            "100 with a length",
            before("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n"),
        )
        .gets(200, "hostile")
        .fails(),
        Row::answers("100, then nothing", CONTINUE)
            .then(Then::Close)
            .repeats_reads()
            .fails(),
        Row::answers(
            "100 after the answer",
            format!("{}{CONTINUE}", ok("hostile")),
        )
        .gets(200, "hostile"),
    ]);
}

#[test]
fn interim_responses_without_end_hold_up_no_other_request() {
    run(&[Row::silent("interim responses without end")
        .step(Step::Flood(CONTINUE.repeat(100).into(), 1 << 30))
        .times_out()
        .fails()]);
}

#[test]
fn a_switch_of_protocols_that_was_not_requested_is_refused() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\n";
    run(&[
        Row::answers("101", format!("{switch}\r\n")).breaks(),
        Row::answers(
            "101 to a WebSocket",
            format!("{switch}Connection: upgrade\r\nUpgrade: websocket\r\n\r\nhostile"),
        )
        .breaks(),
        Row::answers(
            "101, then an answer",
            format!("{switch}\r\n{}", ok("hostile")),
        )
        .breaks(),
        Row::answers(
            "426",
            ok("hostile").replace("200 OK", "426 Upgrade Required\r\nUpgrade: h2c"),
        )
        .gets(426, "hostile")
        .hides(&["upgrade"]),
    ]);
}
