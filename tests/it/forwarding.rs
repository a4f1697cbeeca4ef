//! How requests and responses pass through the gateway.

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use http_body_util::BodyExt;

use crate::{
    client::{TestClient, body, body_text, piece, raw, soon, status},
    gate::Gate,
    upstream::{Speaks, TestUpstream, full, streamed, text},
};

#[tokio::test]
async fn a_get_passes_over_every_pair_of_protocols() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::saying(speaks, "hello");
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let response = client.get("/api/v1/pods?limit=5").await;
            assert_eq!(response.status(), 200);
            assert_eq!(body_text(response).await, "hello");
        }
        let seen = upstream.seen();
        assert_eq!(seen.len(), 2);
        for request in seen {
            assert_eq!(request.target, "/api/v1/pods?limit=5");
            assert_eq!(request.headers["x-remote-user"], "alice");
            let http2 = request.version == Version::HTTP_2;
            assert_eq!(http2, upstream.http2);
        }
    }
}

#[tokio::test]
async fn the_target_arrives_byte_for_byte() {
    let upstream = TestUpstream::saying(Speaks::Http2, "");
    let gate = Gate::before(&upstream);
    let targets = [
        "/api/v1/namespaces/a/../b/pods",
        "//api//v1/pods/",
        "/api/v1/namespaces/a%2Fb/pods/%252e?b=2&a=1&&c=%zz;d",
        "/apis/x/v1/y?watch=0&labelSelector=a+b%20c&watch=1",
    ];
    for mut client in TestClient::both(gate.address()).await {
        for target in targets {
            body(client.get(target).await).await;
        }
    }
    let arrived: Vec<String> = upstream
        .seen()
        .into_iter()
        .map(|seen| seen.target)
        .collect();
    assert_eq!(arrived, [targets, targets].concat());
}

#[test]
fn a_target_without_a_path_arrives_as_the_root() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::saying(speaks, "hello");
        let gate = Gate::before(&upstream);
        for (target, expected) in [
            ("http://a", 200),
            ("http://a#b", 200),
            ("#b", 400),
            ("http://a?b=/c", 200),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert_eq!(
                status(&raw(gate.address(), request.as_bytes())),
                expected,
                "{target}"
            );
        }
        let targets: Vec<_> = upstream
            .seen()
            .into_iter()
            .map(|seen| seen.target)
            .collect();
        assert_eq!(targets, ["/", "/", "/?b=/c"]);
    }
}

#[tokio::test]
async fn a_body_is_streamed_both_ways_piece_by_piece() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::start(speaks, |request| async move {
            let (send, answer) = streamed();
            tokio::spawn(async move {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    let _ = send.send(Ok(frame.into_data().unwrap()));
                }
            });
            http::Response::new(answer)
        });
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let (send, request) = streamed();
            send.send(Ok("first".into())).unwrap();
            let mut echo = soon(client.post("/api/v1/namespaces/a/services/s/proxy/echo", request))
                .await
                .into_body();
            assert_eq!(piece(&mut echo).await.unwrap().unwrap(), "first");
            send.send(Ok("second".into())).unwrap();
            assert_eq!(piece(&mut echo).await.unwrap().unwrap(), "second");
            drop(send);
            assert!(piece(&mut echo).await.is_none());
        }
    }
}

#[tokio::test]
async fn the_events_of_a_watch_arrive_at_once() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (send, answer) = streamed();
        let answer = std::sync::Mutex::new(Some(answer));
        let upstream = TestUpstream::start(speaks, move |_| {
            let answer = answer.lock().unwrap().take().unwrap();
            async move { http::Response::new(answer) }
        });
        let gate = Gate::before(&upstream);
        let mut client = TestClient::http2(gate.address()).await;
        // The head comes before any event.
        let mut watch = soon(client.get("/api/v1/pods?watch=1")).await.into_body();
        for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"BOOKMARK\"}\n"] {
            send.send(Ok(event.into())).unwrap();
            assert_eq!(piece(&mut watch).await.unwrap().unwrap(), event);
        }
        drop(send);
        assert!(piece(&mut watch).await.is_none());
    }
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let upstream = TestUpstream::start(Speaks::Http2, |request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        http::Response::new(full(body))
    });
    let gate = Gate::before(&upstream);
    let sent: Bytes = (0..5_000_000_u32)
        .map(|i| u8::try_from(i % 251).unwrap())
        .collect::<Vec<u8>>()
        .into();
    for mut client in TestClient::both(gate.address()).await {
        let response = client.post("/upload", full(sent.clone())).await;
        assert!(body(response).await == sent);
    }
}

#[tokio::test]
async fn a_head_request_gets_a_response_without_a_body() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::start(speaks, |_| async {
            let mut answer = text("");
            answer
                .headers_mut()
                .insert("content-length", "12345".parse().unwrap());
            answer
        });
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let request = client
                .request(Method::HEAD, "/livez/ping")
                .body(full(""))
                .unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.headers()["content-length"], "12345");
            assert!(body(response).await.is_empty());
        }
        assert!(upstream.seen().iter().all(|s| s.method == Method::HEAD));
    }
}

#[tokio::test]
async fn the_gateway_itself_responds_to_expect_100_continue() {
    let upstream = TestUpstream::start(Speaks::Http1, |request| async move {
        http::Response::new(full(
            request.into_body().collect().await.unwrap().to_bytes(),
        ))
    });
    let gate = Gate::before(&upstream);
    let address = gate.address();
    let answer = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(
                b"POST /upload HTTP/1.1\r\nHost: gate\r\nContent-Length: 4\r\n\
                  Expect: 100-continue\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
        let mut reported = [0; 25];
        stream.read_exact(&mut reported).unwrap();
        assert_eq!(&reported, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"data").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
    .await
    .unwrap();
    assert_eq!(status(&answer), 200);
    assert!(answer.ends_with("data"));
    assert!(!upstream.only().headers.contains_key("expect"));
}

#[tokio::test]
async fn no_identity_that_a_client_claims_reaches_the_upstream() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::saying(speaks, "");
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let mut request = client
                .request(Method::GET, "/api")
                .header("X-Remote-User", "mallory")
                .header("x_remote_group", "mallory")
                .header("X-ReMoTe-Extra-Scopes", "mallory")
                .header("Impersonate-User", "mallory")
                .header("Impersonate-Uid", "mallory")
                .header("Authorization", "Bearer mallory")
                .header("X-Forwarded-For", "mallory")
                .header("X-Real-Ip", "mallory");
            if !client.is_http2() {
                request = request.header("Connection", "X-Remote-User, X-Forwarded-For");
            }
            let response = client.send(request.body(full("")).unwrap()).await.unwrap();
            assert_eq!(response.status(), 200);
            body(response).await;
        }
        for seen in upstream.seen() {
            assert_eq!(seen.headers["x-remote-user"], "alice");
            assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");
            assert!(!format!("{:?}", seen.headers).contains("mallory"));
        }
    }
}

#[tokio::test]
async fn request_trailers_and_hop_by_hop_response_headers_are_not_forwarded() {
    let upstream = TestUpstream::start(Speaks::Http1, |request| async move {
        let collected = request.into_body().collect().await.unwrap();
        assert!(collected.trailers().is_none());
        let mut answer = http::Response::new(full(collected.to_bytes()));
        let headers = answer.headers_mut();
        headers.insert("connection", "x-hop".parse().unwrap());
        headers.insert("x-hop", "1".parse().unwrap());
        headers.insert("keep-alive", "timeout=5".parse().unwrap());
        headers.insert("etag", "e".parse().unwrap());
        answer
    });
    let gate = Gate::before(&upstream);
    let address = gate.address();
    let answer = tokio::task::spawn_blocking(move || {
        raw(
            address,
            b"POST /a HTTP/1.1\r\nHost: gate\r\nTransfer-Encoding: chunked\r\nTrailer: x-remote-user\r\n\
              Connection: close\r\n\r\n2\r\nok\r\n0\r\nX-Remote-User: mallory\r\n\r\n",
        )
    })
    .await
    .unwrap();
    assert_eq!(status(&answer), 200, "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
    let lower = answer.to_ascii_lowercase();
    assert!(lower.contains("etag: e"));
    assert!(!lower.contains("x-hop") && !lower.contains("keep-alive"));
}

#[tokio::test]
async fn the_client_gets_the_status_and_headers_of_the_upstream() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let mut answer = text("gone");
        *answer.status_mut() = StatusCode::GONE;
        answer
            .headers_mut()
            .append("warning", "299 - \"a\"".parse().unwrap());
        answer
            .headers_mut()
            .append("warning", "299 - \"b\"".parse().unwrap());
        answer
    });
    let gate = Gate::before(&upstream);
    for mut client in TestClient::both(gate.address()).await {
        let response = client.get("/api").await;
        assert_eq!(response.status(), StatusCode::GONE);
        assert_eq!(response.headers().get_all("warning").iter().count(), 2);
        assert!(!response.headers().contains_key("x-fairgate-reason"));
    }
}

#[tokio::test]
async fn an_audit_id_is_kept_if_it_is_a_uuid_and_replaced_if_not() {
    let upstream = TestUpstream::saying(Speaks::Http1, "");
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http1(gate.address()).await;
    let given = "01234567-89ab-4def-8123-456789abcdef";
    for id in [given, "mallory was here"] {
        let request = client.request(Method::GET, "/api").header("Audit-ID", id);
        body(client.send(request.body(full("")).unwrap()).await.unwrap()).await;
    }
    let seen = upstream.seen();
    assert_eq!(seen[0].headers["audit-id"], given);
    let made = seen[1].headers["audit-id"].to_str().unwrap();
    assert_eq!(made.len(), 36);
    assert_ne!(made, given);
}
