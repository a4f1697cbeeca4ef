//! Malformed and ambiguous requests: a clear answer, and nothing reaches the upstream.

use std::fmt::Write as _;

use http::Method;

use crate::{
    client::{Client, raw, status},
    gate::Gate,
    upstream::{Speaks, Upstream, full},
};

/// Sends each of `requests` and returns the statuses; none may reach the upstream.
fn refused(requests: &[&[u8]]) -> Vec<u16> {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let statuses = requests
        .iter()
        .map(|request| status(&raw(gate.address(), request)))
        .collect();
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    statuses
}

#[test]
fn ambiguous_framing_is_refused_and_the_connection_closed() {
    let statuses = refused(&[
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Host\r\n\r\n",
        b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ]);
    assert_eq!(statuses, vec![400; statuses.len()]);
}

#[test]
fn what_is_malformed_in_other_ways_has_its_own_answer() {
    let statuses = refused(&[
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 0\r\n\r\n",
        b"GET /api/v1/watch HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/pods?timeout=30 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ]);
    assert_eq!(statuses, [405, 405, 417, 500, 400, 200]);
}

#[test]
fn a_path_that_cannot_be_classified_is_answered_in_the_servers_own_words() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let answer = raw(
        gate.address(),
        b"GET /api/v1/watch?a=1&b=2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(
        answer.ends_with(
            "\r\n\r\nInternal Server Error: \"/api/v1/watch?a=1&amp;b=2\": failed to create RequestInfo: \
             unable to determine kind and namespace from url, /api/v1/watch?a=1&amp;b=2\n"
        ),
        "{answer}"
    );
}

#[test]
fn oversize_heads_are_refused() {
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000));
    let big = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "a".repeat(2 << 20)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: a\r\n".repeat(600)
    );
    let statuses = refused(&[long_target.as_bytes(), big.as_bytes(), many.as_bytes()]);
    assert_eq!(statuses, [414, 431, 431]);
}

#[tokio::test]
async fn too_many_lines_are_refused_over_http2_too() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let mut client = Client::http2(gate.address()).await;
    // As many as fit into the size of a head, and more than a header list can hold.
    for lines in [600, 24_500, 30_000] {
        let mut request = client.request(Method::GET, "/");
        for _ in 0..lines {
            request = request.header("x", "");
        }
        let answer = client.send(request.body(full("")).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 431, "{lines} lines");
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen().len());
}

#[test]
fn a_query_of_too_many_parameters_is_refused() {
    let query = "a&".repeat(10_001);
    let request =
        format!("GET /api/v1/pods?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(refused(&[request.as_bytes()]), [400]);
}

#[test]
fn large_heads_and_many_lines_pass() {
    let upstream = Upstream::saying(Speaks::Http2, "served");
    let gate = Gate::before(&upstream);
    let mut lines = String::new();
    for i in 0..300 {
        let _ = write!(lines, "X-{i}: {}\r\n", "a".repeat(1000));
    }
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n");
    assert_eq!(status(&raw(gate.address(), request.as_bytes())), 200);
    assert!(upstream.only().headers.len() > 300);
}

#[test]
fn requests_one_after_the_other_in_one_packet_are_all_served() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let answer = raw(
        gate.address(),
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
          0\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
}

#[test]
fn a_refused_head_says_why_and_bears_the_mark() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let answer = raw(
        gate.address(),
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    );
    assert!(answer.contains("x-fairgate-reason: malformed"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(
        answer.contains(
            r#""message":"fairgate: more than one Host header","reason":"BadRequest","code":400}"#
        ),
        "{answer}"
    );
}
