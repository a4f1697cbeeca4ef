//! Large heads, large bodies, and very small pieces.

use super::{
    answer, chunked, ok, ok_with,
    row::{Row, Step, Then},
    trial::run,
};

#[test]
fn heads_have_limits() {
    let lines = |number: usize| {
        let lines: Vec<_> = (0..number).map(|at| format!("X-{at}: {at}")).collect();
        ok_with(&lines.join("\r\n"), "hostile")
    };
    let value = |length| ok_with(&format!("X-A: {}", "a".repeat(length)), "hostile");
    run(&[
        Row::answers("100 lines", lines(100))
            .gets(200, "hostile")
            .shows("x-99", "99"),
        Row::answers("500 lines", lines(500))
            .gets(200, "hostile")
            .shows("x-499", "499"),
        Row::answers("600 lines", lines(600)).breaks(),
        Row::answers("20,000 lines", lines(20_000)).breaks(),
        Row::answers(
            "600 equal lines",
            ok_with(&["X-A: 1"; 600].join("\r\n"), "hostile"),
        )
        .breaks(),
        Row::answers("a head of 60 KB", value(60 << 10)).gets(200, "hostile"),
        Row::answers("a head of 900 KB", value(900 << 10)).gets(200, "hostile"),
        Row::answers("a head of 2 MB", value(2 << 20)).breaks(),
        Row::answers(
            "a name of 70 KB",
            ok_with(&format!("{}: 1", "a".repeat(70 << 10)), "hostile"),
        )
        .breaks(),
        Row::answers("a value without an end", "HTTP/1.1 200 OK\r\nX-A: ")
            .step(Step::Flood(vec![b'a'; 64 << 10], 64 << 20))
            .fails(),
        Row::answers("lines without end", "HTTP/1.1 200 OK\r\n")
            .step(Step::Flood("X-A: 1\r\n".repeat(1000).into(), 64 << 20))
            .fails(),
        Row::silent("line breaks without end")
            .step(Step::Flood("\r\n".repeat(1000).into(), 64 << 20))
            .fails(),
        Row::answers("a reason without an end", "HTTP/1.1 200 ")
            .step(Step::Flood(vec![b'r'; 64 << 10], 64 << 20))
            .fails(),
    ]);
}

#[test]
fn large_bodies_and_small_pieces_arrive_whole() {
    let numbers: Vec<_> = (0..1_200_000).map(|at| format!("{at:07}")).collect();
    let large = numbers.concat();
    let in_chunks = |size: usize| {
        let chunks = large.as_bytes().chunks(size);
        let chunks = chunks.map(|chunk| {
            let data = std::str::from_utf8(chunk).unwrap();
            format!("{:x}\r\n{data}\r\n", chunk.len())
        });
        chunked(&format!("{}0\r\n\r\n", chunks.collect::<String>()))
    };
    let dripped = |name, answer: String| Row::silent(name).step(Step::Drip(answer.into()));
    run(&[
        Row::answers("a large body with a length", ok(&large)).gets(200, &*large),
        Row::answers("a large body in chunks", in_chunks(50_000)).gets(200, &*large),
        Row::answers("a large body in one chunk", in_chunks(usize::MAX)).gets(200, &*large),
        Row::answers("a large body until close", answer("X-A: 1", &large))
            .then(Then::Close)
            .gets(200, &*large),
        Row::answers(
            "a large body that breaks off",
            answer("Content-Length: 99999999", &large),
        )
        .then(Then::Close)
        .breaks_off(200, &*large),
        Row::answers(
            "chunks of one byte",
            chunked(&format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(20_000))),
        )
        .gets(200, "x".repeat(20_000)),
        dripped("byte by byte with a length", ok("hostile")).gets(200, "hostile"),
        dripped(
            "byte by byte in chunks",
            chunked("3\r\nhos\r\n4\r\ntile\r\n0\r\n\r\n"),
        )
        .gets(200, "hostile"),
        dripped("byte by byte until close", answer("X-A: 1", "hostile"))
            .then(Then::Close)
            .gets(200, "hostile"),
        dripped(
            "byte by byte with interim responses",
            format!("HTTP/1.1 100 Continue\r\n\r\n{}", ok("hostile")),
        )
        .gets(200, "hostile"),
    ]);
}
