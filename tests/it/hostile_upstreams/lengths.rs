//! Where the body ends: lengths, and transfer codings that are not plain chunks.

use super::{
    answer, ok,
    row::{Row, Then},
    trial::run,
};

#[test]
fn ambiguous_lengths_are_refused() {
    run(&[
        Row::answers(
            "two lengths",
            answer("Content-Length: 7\r\nContent-Length: 5", "hostile"),
        )
        .breaks(),
        Row::answers(
            "two lengths in a list",
            answer("Content-Length: 7, 5", "hostile"),
        )
        .breaks(),
        Row::answers("a negative length", answer("Content-Length: -7", "hostile")).breaks(),
        Row::answers(
            "a length with a sign",
            answer("Content-Length: +7", "hostile"),
        )
        .breaks(),
        Row::answers(
            "a hexadecimal length",
            answer("Content-Length: 0x7", "hostile"),
        )
        .breaks(),
        Row::answers(
            "a length with a fraction",
            answer("Content-Length: 7.0", "hostile"),
        )
        .breaks(),
        Row::answers("an empty length", answer("Content-Length:", "hostile")).breaks(),
        Row::answers(
            "a length in words",
            answer("Content-Length: seven", "hostile"),
        )
        .breaks(),
        Row::answers("two numbers", answer("Content-Length: 7 7", "hostile")).breaks(),
        Row::answers(
            "an empty list entry",
            answer("Content-Length: 7,", "hostile"),
        )
        .breaks(),
        Row::answers(
            "a length over 64 bits",
            answer("Content-Length: 18446744073709551616", "hostile"),
        )
        .breaks(),
        Row::answers(
            "the largest 64 bits",
            answer("Content-Length: 18446744073709551615", "hostile"),
        )
        .breaks(),
        Row::answers(
            "a very large length",
            answer("Content-Length: 9223372036854775807", "hostile"),
        )
        .then(Then::Close)
        .breaks_off(200, "hostile")
        .fails(),
    ]);
}

#[test]
fn unusual_lengths_mean_what_they_say() {
    run(&[
        // The same length twice is not ambiguous; RFC 9110 lets a recipient refuse it or take it for one.
        // The gateway passes a list on as it is.
        Row::answers(
            "equal lengths",
            answer("Content-Length: 7\r\nContent-Length: 7", "hostile"),
        )
        .gets(200, "hostile")
        .fails(),
        Row::answers(
            "equal lengths in a list",
            answer("Content-Length: 7, 7", "hostile"),
        )
        .gets(200, "hostile")
        .fails(),
        Row::answers(
            "a length with zeros",
            answer("Content-Length: 0000000007", "hostile"),
        )
        .gets(200, "hostile")
        .fails(),
        Row::answers("no body", answer("Content-Length: 0", "")).gets(200, ""),
    ]);
}

#[test]
fn a_length_with_chunks_harms_no_other_request() {
    let chunks = "7\r\nhostile\r\n0\r\n\r\n";
    run(&[
        // RFC 9112 wants a length removed that comes with chunks. It is passed on: it cuts a longer body short, and a
        // shorter one is incomplete for the client.
        Row::answers(
            "a length and chunks",
            answer("Content-Length: 7\r\nTransfer-Encoding: chunked", chunks),
        )
        .gets(200, "hostile")
        .fails(),
        Row::answers(
            "a length shorter than the chunks",
            answer("Content-Length: 3\r\nTransfer-Encoding: chunked", chunks),
        )
        .gets(200, "hos")
        .gets(200, "hostile")
        .fails(),
        Row::answers(
            "a length longer than the chunks",
            answer("Transfer-Encoding: chunked\r\nContent-Length: 300", chunks),
        )
        .breaks_off(200, "hostile")
        .gets(200, "hostile")
        .fails(),
    ]);
}

#[test]
fn unusual_transfer_codings_harm_no_other_request() {
    let coded = |coding: &str, body: &str| answer(&format!("Transfer-Encoding: {coding}"), body);
    let chunks = "7\r\nhostile\r\n0\r\n\r\n";
    run(&[
        Row::answers("Chunked", coded("Chunked", chunks)).gets(200, "hostile"),
        Row::answers("gzip", coded("gzip", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile")
            .fails(),
        Row::answers("identity", coded("identity", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile")
            .fails(),
        Row::answers("an unknown coding", coded("xchunked", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile")
            .fails(),
        Row::answers("an empty coding", coded("", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile")
            .fails(),
        Row::answers("chunked twice", coded("chunked, chunked", chunks))
            .gets(200, "hostile")
            .fails(),
        Row::answers(
            "two lines",
            coded("chunked\r\nTransfer-Encoding: chunked", chunks),
        )
        .gets(200, "hostile")
        .fails(),
        // What arrives is still compressed, and no header says so.
        Row::answers("gzip, chunked", coded("gzip, chunked", chunks))
            .gets(200, "hostile")
            .fails(),
        Row::answers("chunked, gzip", coded("chunked, gzip", chunks))
            .then(Then::Close)
            .gets(200, chunks)
            .fails(),
        Row::answers(
            "chunks in HTTP/1.0",
            coded("chunked", chunks).replace("/1.1", "/1.0"),
        )
        .then(Then::Close)
        .gets(200, chunks)
        .fails(),
        Row::answers(
            "a coding with 204",
            coded("chunked", "").replace("200 OK", "204 No Content"),
        )
        .gets(204, ""),
        Row::answers("a length", ok("hostile")).gets(200, "hostile"),
    ]);
}

#[test]
fn a_body_where_none_may_be_is_not_taken_for_an_answer() {
    let next = ok("hostile");
    let with = |status: &str, rest: &str| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{rest}",
            rest.len()
        )
    };
    run(&[
        Row::answers("204 with a body", with("204 No Content", &next)).gets(204, ""),
        Row::answers("304 with a body", with("304 Not Modified", &next)).gets(304, ""),
        Row::answers(
            "304 with the length of the body",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
        )
        .gets(304, ""),
        Row::answers("205 with a body", with("205 Reset Content", "hostile"))
            .gets(205, "hostile")
            .gets(205, ""),
        Row::answers("a body after HEAD", with("200 OK", &next))
            .only(&["HEAD"])
            .gets(200, ""),
        Row::answers(
            "chunks after HEAD",
            answer("Transfer-Encoding: chunked", "7\r\nhostile\r\n0\r\n\r\n"),
        )
        .only(&["HEAD"])
        .gets(200, ""),
        Row::answers(
            "only a head after HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
        )
        .only(&["HEAD"])
        .gets(200, "")
        .shows("content-length", "7"),
        Row::answers("no length after HEAD", "HTTP/1.1 200 OK\r\n\r\n")
            .only(&["HEAD"])
            .gets(200, ""),
        Row::answers("garbage after HEAD", "\u{1}hostile\r\n\r\n")
            .only(&["HEAD"])
            .breaks(),
        Row::silent("nothing after HEAD")
            .only(&["HEAD"])
            .then(Then::Close)
            .repeats_reads()
            .fails(),
    ]);
}
