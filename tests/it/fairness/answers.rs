//! What a client receives: the exact text of refusals, and the headers that name the objects which classified
//! its request.

use fairgate_proxy::forward::UpstreamSettings;
use http::HeaderValue;

use super::*;
use crate::{
    ports,
    rules::{Full, Rules},
};

const OURS: (&str, &str) = ("uid-of-schema-small", "uid-of-level-small");

/// Fills the only seat, and the queue if there is one. Returns the response to the next request, which is refused.
async fn refused(full: Full, http2: bool) -> TestResponse {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, full));
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let mut waiting = None;
    if matches!(full, Full::Queue { .. }) {
        waiting = Some(get(&gate, PODS).await);
        until(|| small(&gate) == (1, 1, 1)).await;
    }
    let response = start_request(&gate, http2, "alice", Method::GET, PODS)
        .await
        .response()
        .await;
    executing.respond("");
    first.served().await;
    if let Some(waiting) = waiting {
        soon(held.recv()).await.unwrap().respond("");
        waiting.served().await;
    }
    assert!(
        held.try_recv().is_err(),
        "a refused request is not sent upstream"
    );
    until(|| small(&gate) == (0, 0, 0)).await;
    response
}

#[tokio::test]
async fn a_refusal_has_the_text_of_kube_apiserver() {
    for (full, reason) in [
        (Full::Reject, "concurrency-limit"),
        (Full::queue(1), "queue-full"),
    ] {
        for http2 in [false, true] {
            let response = refused(full, http2).await;
            assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(
                response.body,
                "Too many requests, please try again later.\n"
            );
            assert_eq!(response.header("content-type"), "text/plain; charset=utf-8");
            assert_eq!(response.header("x-content-type-options"), "nosniff");
            assert_eq!(response.header("x-fairgate-reason"), reason);
            let retry_after: u32 = response.header("retry-after").parse().unwrap();
            assert!((1..=32).contains(&retry_after), "{response:?}");
            assert_eq!(response.uids(), OURS);
        }
    }
}

#[tokio::test]
async fn exempt_requests_pass_while_the_limited_level_is_full() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let masters = [
        start_request(&gate, false, "root", Method::GET, PODS).await,
        start_request(&gate, true, "root", Method::DELETE, PODS).await,
    ];
    for _ in &masters {
        soon(held.recv()).await.unwrap().respond("");
    }
    for master in masters {
        let response = master.response().await;
        assert_eq!(response.status, StatusCode::OK);
        let (schema, level) = response.uids();
        assert!(!schema.is_empty() && !level.is_empty());
        assert_ne!(response.uids(), OURS);
    }
    assert_eq!(small(&gate), (1, 0, 1));
    executing.respond("");
    first.served().await;
}

#[tokio::test]
async fn a_request_is_refused_after_a_quarter_of_its_timeout_in_the_queue() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let since = now();
    let target = "/api/v1/namespaces/a/pods?timeout=2s";
    let response = get(&gate, target).await.response().await;
    // The upper bound is tested without a clock, in the proxy's `wait_limit`.
    let waited = now().since(since);
    assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.header("x-fairgate-reason"), "time-out");
    assert_eq!(response.uids(), OURS);
    assert!(waited >= ms(500), "{waited:?}");
    assert_eq!((small(&gate), gate.flow_control().queued()), ((1, 0, 1), 0));
    executing.respond("");
    first.served().await;
    assert!(
        held.try_recv().is_err(),
        "a refused request is not sent upstream"
    );
}

#[tokio::test]
async fn responses_have_only_the_uids_that_the_gateway_sets() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::start(speaks, |_| async {
            let mut answer = text("");
            for name in [
                "x-kubernetes-pf-flowschema-uid",
                "x-kubernetes-pf-prioritylevel-uid",
            ] {
                for value in ["theirs", "theirs too"] {
                    let headers = answer.headers_mut();
                    headers.append(name, HeaderValue::from_static(value));
                }
            }
            answer
        });
        let gate = Gate::governed(&upstream, &Rules::small(5, Full::Reject));
        for http2 in [false, true] {
            for (method, target) in [
                (Method::GET, PODS),
                (Method::POST, PODS),
                (Method::HEAD, "/livez/ping"),
                (Method::GET, "/api/v1/pods?watch=1&resourceVersion=7"),
            ] {
                let response = start_request(&gate, http2, "alice", method, target)
                    .await
                    .response()
                    .await;
                assert_eq!((response.status, response.uids()), (StatusCode::OK, OURS));
            }
        }
    }
}

#[tokio::test]
async fn error_responses_have_the_uids_too() {
    // The limit after which a seat is free although the upstream never responds.
    let rules = Rules::small(5, Full::Reject).set(|set| set.request_timeout = ms(3000));
    // Three upstreams: one refuses connections, one closes them, one never responds.
    let none = ports::unused();
    let closer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closes = closer.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = closer.accept().await {
            use tokio::io::AsyncReadExt as _;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let silent = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    for (address, method, timeout, status) in [
        (none, Method::GET, "60s", StatusCode::SERVICE_UNAVAILABLE),
        (none, Method::POST, "60s", StatusCode::SERVICE_UNAVAILABLE),
        (closes, Method::GET, "60s", StatusCode::SERVICE_UNAVAILABLE),
        (closes, Method::POST, "60s", StatusCode::BAD_GATEWAY),
        (
            silent.address,
            Method::GET,
            "50ms",
            StatusCode::GATEWAY_TIMEOUT,
        ),
        (
            silent.address,
            Method::POST,
            "50ms",
            StatusCode::GATEWAY_TIMEOUT,
        ),
    ] {
        let to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
        let gate = Gate::towards_under(
            |cores| rules.flow_control(cores),
            to,
            |_, to| to.deadline_grace = Duration::ZERO,
        );
        let target = format!("/api/v1/namespaces/a/pods?timeout={timeout}");
        let response = start_request(&gate, false, "alice", method, &target)
            .await
            .response()
            .await;
        assert_eq!(
            (response.status, response.uids()),
            (status, OURS),
            "{response:?}"
        );
        until(|| small(&gate) == (0, 0, 0)).await;
    }
}

#[tokio::test]
async fn a_long_running_request_passes_unless_there_are_too_many() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = Rules::small(1, Full::Reject).set(|set| {
        set.long_running.per_user = 2;
        set.long_running.total = 3;
    });
    let gate = Gate::governed(&upstream, &rules);
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();

    let log = "/api/v1/namespaces/a/pods/p/log";
    let mut running = Vec::new();
    for user in ["alice", "alice", "bob"] {
        let pending = start_request(&gate, false, user, Method::GET, log).await;
        running.push((pending, soon(held.recv()).await.unwrap()));
    }
    assert_eq!(gate.flow_control().long_running.running(), 3);
    assert_eq!(small(&gate), (1, 0, 1), "they take no seat");
    for user in ["alice", "carol"] {
        let response = start_request(&gate, false, user, Method::GET, log)
            .await
            .response()
            .await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            response.header("x-fairgate-reason"),
            "too-many-long-running"
        );
        assert!(!response.header("retry-after").is_empty());
    }
    for (pending, upstream) in running {
        upstream.respond("");
        let response = pending.response().await;
        assert_eq!(response.status, StatusCode::OK);
        assert!(
            !response
                .headers
                .contains_key("x-kubernetes-pf-flowschema-uid")
        );
    }
    until(|| gate.flow_control().long_running.running() == 0).await;
    let proxied = "/api/v1/namespaces/a/services/s/proxy/";
    let again = start_request(&gate, true, "alice", Method::POST, proxied).await;
    soon(held.recv()).await.unwrap().respond("");
    again.served().await;
    executing.respond("");
    first.served().await;
}
