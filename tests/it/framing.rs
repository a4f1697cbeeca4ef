//! Malformed and ambiguous requests get a clear response, and nothing reaches the upstream.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use crate::{
    client::{HANG, TestClient, raw, status},
    gate::Gate,
    upstream::{Speaks, TestUpstream, full, text},
};

/// Sends each of `requests` and returns the statuses; none may reach the upstream.
fn refused(requests: &[&[u8]]) -> Vec<u16> {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
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
fn other_unusual_requests_get_the_status_that_names_their_problem() {
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
fn a_path_without_a_request_info_gets_the_error_text_of_kube_apiserver() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
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
    let names = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}close\r\n\r\n",
        "a,".repeat(600)
    );
    let statuses = refused(&[&long_target, &big, &many, &names].map(String::as_bytes));
    assert_eq!(statuses, [414, 431, 431, 431]);
}

#[tokio::test]
async fn too_many_header_fields_are_refused_over_http2_too() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http2(gate.address()).await;
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
fn large_heads_and_many_header_fields_pass() {
    let upstream = TestUpstream::saying(Speaks::Http2, "served");
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
fn pipelined_requests_in_one_packet_are_all_served() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let answer = raw(
        gate.address(),
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
          0\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
}

#[test]
fn a_refused_head_gets_a_message_and_the_reason_header() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
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

#[test]
fn heads_of_pipelined_requests_are_checked_as_strictly() {
    let upstream = thorough();
    let gate = Gate::before(&upstream);
    for bad in [
        "GET /bad HTTP/1.1\nHost: a\n\n",
        "GET /bad HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        "POST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ] {
        for before in [
            "GET /good HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
            "POST /good HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n".to_owned(),
            format!("POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}", "b".repeat(100_000)),
        ] {
            let answers = raw(gate.address(), format!("{before}{bad}").as_bytes());
            assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
            assert_eq!(answers.matches("HTTP/1.1 400").count(), 1, "{answers}");
        }
    }
    let reached = upstream.seen();
    assert!(
        reached.iter().all(|seen| seen.target == "/good"),
        "{reached:?}"
    );
}

#[test]
fn large_heads_are_checked_as_strictly() {
    let pad = format!("X: {}\r\n", "a".repeat(1000)).repeat(100);
    let requests = [
        format!("GET / HTTP/1.1\r\nHost: a\r\n{pad}X: a\nY: b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{pad}\n"),
        format!("GET / HTTP/1.1\nHost: a\r\n{pad}\r\n"),
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n{pad}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{pad}Content-Length: 4\r\n\r\n0\r\n\r\n"
        ),
    ];
    let requests: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    assert_eq!(refused(&requests), [400; 5]);
}

#[test]
fn a_head_in_single_bytes_is_served() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = b"\r\nPOST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
        GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for byte in request {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
}

#[test]
fn a_chunked_body_with_a_bare_line_feed_is_refused_and_the_connection_closed() {
    let upstream = thorough();
    let gate = Gate::before(&upstream);
    for end in [
        "0\r\n\n",
        "0\n\r\n",
        "0\n\n",
        "1\r\na\n0\r\n\r\n",
        "0\r\nT: v\n\r\n",
    ] {
        let request = format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{end}\
             GET /b HTTP/1.1\r\nHost: a\r\n\r\n\
             GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let answers = raw(gate.address(), request.as_bytes());
        assert_eq!(status(&answers), 400, "{end:?}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{end:?}: {answers}");
        assert!(answers.contains("connection: close"), "{end:?}: {answers}");
    }
    assert!(upstream.seen().iter().all(|seen| seen.target == "/a"));
}

/// An upstream that responds when it has read the body.
fn thorough() -> TestUpstream {
    TestUpstream::start(Speaks::Http1, |request| async {
        let _ = request.into_body().collect().await;
        text("served")
    })
}

/// An upstream that responds without reading the body.
fn hasty() -> TestUpstream {
    TestUpstream::start(Speaks::Http2, |_| async {
        let mut answer = text("no");
        *answer.status_mut() = StatusCode::FORBIDDEN;
        answer
    })
}

/// Reads the next response with its body, and returns its head in lower case.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap() == 0 {
            return String::from_utf8(answer).unwrap();
        }
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    head
}

#[test]
fn after_a_response_before_the_end_of_the_body_the_connection_is_reused_or_closed() {
    let upstream = hasty();
    let gate = Gate::before(&upstream);
    // Shorter bodies are read before the upstream gets the request.
    let small = vec![b'x'; 20 << 10];
    let large = vec![b'x'; 1 << 20];
    let chunk = |body: &[u8]| {
        [
            format!("{:x}\r\n", body.len()).as_bytes(),
            body,
            b"\r\n0\r\n\r\n",
        ]
        .concat()
    };
    let first_chunk = String::from_utf8(chunk(&small)).unwrap();
    let first_chunk = first_chunk.strip_suffix("0\r\n\r\n").unwrap();
    for (head, begun, body) in [
        ("Content-Length: 20480", "", small.clone()),
        ("Content-Length: 1048576", "", large.clone()),
        ("Transfer-Encoding: chunked", first_chunk, chunk(&small)),
        ("Transfer-Encoding: chunked", first_chunk, chunk(&large)),
    ] {
        for _ in 0..5 {
            let mut stream = TcpStream::connect(gate.address()).unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            write!(
                stream,
                "POST /a HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n{begun}"
            )
            .unwrap();
            let mut sender = stream.try_clone().unwrap();
            let body = body.clone();
            let (send_body, may_send) = std::sync::mpsc::channel();
            let sending = std::thread::spawn(move || {
                may_send.recv().unwrap();
                sender.write_all(&body)
            });
            let first = answer(&mut stream);
            send_body.send(()).unwrap();
            assert!(first.starts_with("http/1.1 403"), "{head}: {first}");
            let sent = sending.join().unwrap();
            if first.contains("connection: close") {
                assert_ne!(
                    head, "Content-Length: 20480",
                    "the gateway reads the rest of so small a body"
                );
                continue;
            }
            sent.unwrap();
            write!(stream, "GET /b HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let second = answer(&mut stream);
            assert!(second.starts_with("http/1.1 403"), "{head}: {second:?}");
        }
    }
}

#[test]
fn a_refused_client_that_waits_for_100_continue_gets_connection_close() {
    let upstream = hasty();
    let gate = Gate::before(&upstream);
    let answer = raw(
        gate.address(),
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20480\r\nExpect: 100-continue\r\n\r\n",
    );
    assert!(answer.contains("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[test]
fn a_client_that_closes_its_write_side_gets_its_responses() {
    // Responds to as many requests as the test allows, which it does once the client has closed its write side.
    let allowed = Arc::new(Semaphore::new(0));
    let allow = Arc::clone(&allowed);
    let upstream = TestUpstream::start(Speaks::Http1, move |_| {
        let allowed = Arc::clone(&allowed);
        async move {
            allowed.acquire().await.unwrap().forget();
            text("served")
        }
    });
    let gate = Gate::before(&upstream);
    for request in [
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.0\r\nHost: a\r\n\r\n",
    ] {
        for _ in 0..10 {
            let mut stream = TcpStream::connect(gate.address()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let requests = request.matches("Host").count();
            allow.add_permits(requests);
            let mut answers = String::new();
            stream.read_to_string(&mut answers).unwrap();
            assert_eq!(
                answers.matches(" 200 OK").count(),
                requests,
                "{request:?}: {answers:?}"
            );
        }
    }
}
