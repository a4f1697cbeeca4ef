//! Header fields: their syntax, and those that are only for the next hop.

use super::{ok, ok_with, row::Row, trial::run};

#[test]
fn malformed_header_lines_are_refused_or_harmless() {
    run(&[
        Row::answers("a bare CR in a value", ok_with("X-A: 1\rX-B: 2", "hostile")).breaks(),
        Row::answers("a bare CR in a name", ok_with("X-\rA: 1", "hostile")).breaks(),
        Row::answers(
            "a bare CR ends a line",
            ok_with("X-A: 1\r", "hostile").replace("1\r\r\n", "1\r"),
        )
        .breaks(),
        // RFC 9112 lets a recipient take a bare LF for the end of a line.
        Row::answers(
            "a bare LF ends a line",
            ok_with("X-A: 1\nX-B: 2", "hostile"),
        )
        .gets(200, "hostile")
        .fails()
        .shows("x-a", "1")
        .shows("x-b", "2"),
        Row::answers("a bare LF ends every line", ok("hostile").replace('\r', ""))
            .gets(200, "hostile")
            .fails(),
        Row::answers("a space before the colon", ok_with("X-A : 1", "hostile")).breaks(),
        Row::answers("a space in a name", ok_with("X A: 1", "hostile")).breaks(),
        Row::answers(
            "a space before the length",
            ok("hostile").replace("Length:", "Length :"),
        )
        .breaks(),
        Row::answers("a folded line", ok_with("X-A: 1\r\n 2", "hostile")).breaks(),
        Row::answers(
            "a folded first line",
            ok("hostile").replace("\r\nContent", "\r\n Content"),
        )
        .breaks(),
        Row::answers("a NUL in a value", ok_with("X-A: 1\x002", "hostile")).breaks(),
        Row::answers("a NUL in a name", ok_with("X-\0A: 1", "hostile")).breaks(),
        Row::answers(
            "a control character in a value",
            ok_with("X-A: 1\x012", "hostile"),
        )
        .breaks(),
        Row::answers("DEL in a value", ok_with("X-A: 1\x7f2", "hostile")).breaks(),
        Row::answers("an empty name", ok_with(": 1", "hostile")).breaks(),
        Row::answers("a line without a colon", ok_with("hostile", "hostile")).breaks(),
        Row::answers("a name with a slash", ok_with("X/A: 1", "hostile")).breaks(),
        Row::answers(
            "a name that is not ASCII",
            ok_with("X-\u{fc}: 1", "hostile"),
        )
        .breaks(),
    ]);
}

#[test]
fn unusual_values_are_passed_on() {
    run(&[
        Row::answers("a tab in a value", ok_with("X-A: 1\t2", "hostile"))
            .gets(200, "hostile")
            .shows("x-a", "1\t2"),
        Row::answers("an empty value", ok_with("X-A:", "hostile"))
            .gets(200, "hostile")
            .shows("x-a", ""),
        // Opaque bytes, by RFC 9110.
        Row::answers(
            "a value that is not ASCII",
            ok_with("X-A: \u{fc}", "hostile"),
        )
        .gets(200, "hostile")
        .shows("x-a", "\u{c3}\u{bc}"),
        Row::answers("a value that is not UTF-8", {
            let mut answer = ok_with("X-A: #", "hostile").into_bytes();
            let at = answer.iter().position(|byte| *byte == b'#').unwrap();
            answer[at] = 0xff;
            answer
        })
        .gets(200, "hostile")
        .shows("x-a", "\u{ff}"),
    ]);
}

#[test]
fn headers_for_the_next_hop_do_not_reach_the_client() {
    run(&[
        Row::answers("Connection: close", ok_with("Connection: close", "hostile"))
            .gets(200, "hostile"),
        Row::answers(
            "Connection names a header",
            ok_with("Connection: X-Foo\r\nX-Foo: hop\r\nX-Bar: end", "hostile"),
        )
        .gets(200, "hostile")
        .hides(&["x-foo"])
        .shows("x-bar", "end"),
        Row::answers(
            "two Connection lines",
            ok_with(
                "Connection: x-foo\r\nX-Foo: hop\r\nX-Bar: hop\r\nConnection: keep-alive, X-BAR",
                "hostile",
            ),
        )
        .gets(200, "hostile")
        .hides(&["x-foo", "x-bar", "keep-alive"]),
        Row::answers(
            "Connection names the length",
            ok_with("Connection: content-length", "hostile"),
        )
        .gets(200, "hostile"),
        Row::answers(
            "Keep-Alive",
            ok_with(
                "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive",
                "hostile",
            ),
        )
        .gets(200, "hostile")
        .hides(&["keep-alive", "proxy-connection"]),
        Row::answers(
            "Proxy-Authenticate",
            ok_with("Proxy-Authenticate: Basic", "hostile").replace("200 OK", "407 No"),
        )
        .gets(407, "hostile")
        .hides(&["proxy-authenticate"]),
        Row::answers(
            "Upgrade",
            ok_with("Connection: upgrade\r\nUpgrade: h2c", "hostile"),
        )
        .gets(200, "hostile")
        .hides(&["upgrade"]),
        Row::answers(
            "TE and Trailer",
            ok_with("TE: trailers\r\nTrailer: X-A", "hostile"),
        )
        .gets(200, "hostile")
        .hides(&["te", "trailer"]),
    ]);
}
