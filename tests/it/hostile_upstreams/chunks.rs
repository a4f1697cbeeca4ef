//! Chunked bodies.

use super::{
    chunked,
    row::{Row, Step, Then},
    trial::run,
};

/// A body whose framing is wrong once these bytes of it came: the client must not take it for complete, and the gateway must
/// close the connection.
fn wrong(name: &'static str, body: &str, before: &str) -> Row {
    Row::answers(name, chunked(body))
        .then(Then::GatewayCloses)
        .breaks_off(200, before)
        .fails()
}

#[test]
fn chunks_with_wrong_sizes_break_off() {
    run(&[
        wrong("a size in words", "seven\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a negative size", "-7\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a size with a sign", "+7\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a size with a prefix", "0x7\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("an empty size", "\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("only an extension", ";a=b\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a space first", " 7\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a space within", "0 7\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("17 digits", "10000000000000007\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a NUL", "7\0\r\nhostile\r\n0\r\n\r\n", ""),
        wrong("a later chunk", "7\r\nhostile\r\nx\r\n\r\n", "hostile"),
        Row::answers("64 bits", chunked("ffffffffffffffff\r\nhostile"))
            .then(Then::Close)
            .breaks_off(200, "hostile")
            .fails(),
        Row::answers("63 bits", chunked("7fffffffffffffff\r\nhostile"))
            .then(Then::Close)
            .breaks_off(200, "hostile"),
        Row::answers(
            "many zeros",
            chunked("0000000000000007\r\nhostile\r\n0\r\n\r\n"),
        )
        .gets(200, "hostile")
        .breaks_off(200, ""),
        Row::answers(
            "17 digits with zeros",
            chunked("00000000000000007\r\nhostile\r\n0\r\n\r\n"),
        )
        .gets(200, "hostile")
        .breaks_off(200, ""),
        Row::answers(
            "a capital digit",
            chunked(&format!("A\r\n{}\r\n0\r\n\r\n", "x".repeat(10))),
        )
        .gets(200, "x".repeat(10)),
        Row::answers(
            "a space after the size",
            chunked("7 \r\nhostile\r\n0\r\n\r\n"),
        )
        .gets(200, "hostile")
        .breaks_off(200, ""),
    ]);
}

#[test]
fn chunks_with_wrong_line_breaks_break_off_or_are_harmless() {
    run(&[
        wrong("data too long", "7\r\nhostile!\r\n0\r\n\r\n", "hostile"),
        wrong("data too short", "9\r\nhostile\r\n0\r\n\r\n", "hostile\r\n"),
        wrong(
            "no line break after the data",
            "7\r\nhostile0\r\n\r\n",
            "hostile",
        ),
        wrong(
            "a bare LF after the data",
            "7\r\nhostile\n0\r\n\r\n",
            "hostile",
        ),
        wrong(
            "a bare CR after the data",
            "7\r\nhostile\r0\r\n\r\n",
            "hostile",
        ),
        wrong("a bare CR after the size", "7\rhostile\r\n0\r\n\r\n", ""),
        wrong(
            "a bare LF after the size",
            "7\nhostile\r\n0\r\n\r\n",
            "hostile",
        )
        .gets(200, "hostile"),
        wrong(
            "a bare LF in an extension",
            "7;a\nb\r\nhostile\r\n0\r\n\r\n",
            "",
        ),
        wrong(
            "a bare LF after the last size",
            "7\r\nhostile\r\n0\n\r\n",
            "hostile",
        ),
        // Taken for the beginning of a trailer, whose rest never comes.
        wrong("a bare LF at the end", "7\r\nhostile\r\n0\r\n\n", "hostile").then(Then::Close),
        wrong(
            "no line break at the end",
            "7\r\nhostile\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n",
            "hostile",
        ),
    ]);
}

#[test]
fn extensions_and_trailers_have_limits() {
    let extension = |length| format!("7;{}\r\nhostile\r\n0\r\n\r\n", "e".repeat(length));
    let trailer = |length| format!("7\r\nhostile\r\n0\r\nX-T: {}\r\n\r\n", "t".repeat(length));
    run(&[
        Row::answers(
            "an extension",
            chunked("7;a=\"b;c\"\r\nhostile\r\n0;d\r\n\r\n"),
        )
        .gets(200, "hostile"),
        Row::answers("an extension of 1 KB", chunked(&extension(1000)))
            .gets(200, "hostile")
            .breaks_off(200, ""),
        wrong("an extension of 64 KB", &extension(64 << 10), ""),
        Row::answers("an extension without an end", chunked("7;"))
            .step(Step::Flood(vec![b'e'; 64 << 10], 64 << 20))
            .breaks_off(200, ""),
        Row::answers("extensions without end", chunked(""))
            .step(Step::Flood(
                format!("1;{}\r\nx\r\n", "e".repeat(100)).into(),
                64 << 20,
            ))
            .breaks_off(200, "x".repeat(1 << 20)),
        // Trailers are for this hop: no client asked for them.
        Row::answers("a trailer", chunked(&trailer(5)))
            .gets(200, "hostile")
            .hides(&["x-t"]),
        Row::answers(
            "many trailers",
            chunked(&format!(
                "7\r\nhostile\r\n0\r\n{}\r\n",
                "X-T: 1\r\n".repeat(200)
            )),
        )
        .gets(200, "hostile")
        .breaks_off(200, "hostile"),
        wrong("a trailer of 1 MB", &trailer(1 << 20), "hostile"),
        Row::answers(
            "a trailer without an end",
            chunked("7\r\nhostile\r\n0\r\nX-T: "),
        )
        .step(Step::Flood(vec![b't'; 64 << 10], 64 << 20))
        .breaks_off(200, "hostile"),
        wrong(
            "a malformed trailer",
            "7\r\nhostile\r\n0\r\nX T\r\n\r\n",
            "hostile",
        ),
        Row::answers(
            "a length as a trailer",
            chunked("7\r\nhostile\r\n0\r\nContent-Length: 3\r\n\r\n"),
        )
        .gets(200, "hostile")
        .breaks_off(200, "hostile"),
    ]);
}
