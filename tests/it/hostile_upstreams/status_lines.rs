//! Status lines, and what comes in the place of one.

use super::{
    ok,
    row::{Row, Then},
    trial::run,
};

#[test]
fn what_is_not_http_1_is_refused() {
    run(&[
        Row::answers("garbage", "\u{1}\u{2}hostile garbage\r\n\r\n").breaks(),
        Row::answers("garbage without an end", "hostile garbage")
            .then(Then::Close)
            .fails(),
        Row::answers("HTTP/0.9", "<html>hostile</html>\n")
            .then(Then::Close)
            .fails(),
        Row::answers("a TLS alert", [21, 3, 3, 0, 2, 2, 40]).breaks(),
        Row::answers("an HTTP/2 preface", b"\0\0\0\x04\0\0\0\0\0".to_vec()).breaks(),
        Row::answers("a request", "GET /hostile HTTP/1.1\r\nHost: a\r\n\r\n").breaks(),
        Row::answers("version 2.0", ok("hostile").replace("/1.1", "/2.0")).breaks(),
        Row::answers("version 3.7", ok("hostile").replace("/1.1", "/3.7")).breaks(),
        Row::answers("version 1.2", ok("hostile").replace("/1.1", "/1.2")).breaks(),
        Row::answers("version 1", ok("hostile").replace("/1.1", "/1")).breaks(),
        Row::answers("version 01.1", ok("hostile").replace("/1.1", "/01.1")).breaks(),
        Row::answers("http in lower case", ok("hostile").replace("HTTP", "http")).breaks(),
        Row::answers("ICY", ok("hostile").replace("HTTP/1.1", "ICY")).breaks(),
        Row::answers("a space first", format!(" {}", ok("hostile"))).breaks(),
        Row::answers("a colon line first", format!("A: b\r\n{}", ok("hostile"))).breaks(),
    ]);
}

#[test]
fn only_statuses_of_three_digits_that_are_final_are_passed_on() {
    let with = |status: &str| ok("hostile").replace("200 OK", status);
    run(&[
        Row::answers("status 0", with("0 Zero")).breaks(),
        Row::answers("status 000", with("000 Zero")).breaks(),
        Row::answers("status 99", with("99 Low")).breaks(),
        Row::answers("status 099", with("099 Low")).breaks(),
        Row::answers("status 1000", with("1000 High")).breaks(),
        Row::answers("status -20", with("-20 Negative")).breaks(),
        Row::answers("status 2e2", with("2e2 OK")).breaks(),
        Row::answers("no status", with("")).breaks(),
        Row::answers("only a reason", with("OK")).breaks(),
        Row::answers("no space after the code", with("200OK")).breaks(),
        // Not defined, but a client must understand the class of any status up to 599, and those above are in use.
        Row::answers("status 299", with("299 Odd")).gets(299, "hostile"),
        Row::answers("status 600", with("600 High"))
            .gets(600, "hostile")
            .fails(),
        Row::answers("status 999", with("999 High"))
            .gets(999, "hostile")
            .fails(),
        Row::answers("no reason", with("200 ")).gets(200, "hostile"),
        Row::answers("no reason and no space", with("200"))
            .gets(200, "hostile")
            .fails(),
        Row::answers("a long reason", with(&format!("200 {}", "r".repeat(9000))))
            .gets(200, "hostile"),
        Row::answers("a reason that is not ASCII", with("200 \u{fc}"))
            .gets(200, "hostile")
            .fails(),
        Row::answers("a NUL in the reason", with("200 O\0K")).breaks(),
        Row::answers("two spaces", with(" 200 OK")).breaks(),
        Row::answers("line breaks first", format!("\r\n\r\n{}", ok("hostile")))
            .gets(200, "hostile")
            .fails(),
    ]);
}
