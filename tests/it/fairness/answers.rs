//! What a client is told: refusals word for word, and by which objects it was judged.

use fairgate_proxy::forward::UpstreamSettings;
use http::HeaderValue;

use super::*;
use crate::rules::{Full, Rules};

const OURS: (&str, &str) = ("uid-of-schema-small", "uid-of-level-small");

/// Fills the one seat, and the queue if there is one; what comes next is refused.
async fn refused(full: Full, http2: bool) -> Told {
    let (upstream, mut asked) = by_hand(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, full));
    let first = get(&gate, PODS).await;
    let executing = soon(asked.recv()).await.unwrap();
    let mut waiting = None;
    if matches!(full, Full::Queue { .. }) {
        waiting = Some(get(&gate, PODS).await);
        until(|| small(&gate) == (1, 1, 1)).await;
    }
    let told = ask(&gate, http2, "alice", Method::GET, PODS)
        .await
        .told()
        .await;
    executing.say("");
    first.served().await;
    if let Some(waiting) = waiting {
        soon(asked.recv()).await.unwrap().say("");
        waiting.served().await;
    }
    assert!(asked.try_recv().is_err(), "what is refused is not sent");
    until(|| small(&gate) == (0, 0, 0)).await;
    told
}

#[tokio::test]
async fn a_refusal_is_told_in_the_very_words() {
    for (full, reason) in [
        (Full::Reject, "concurrency-limit"),
        (Full::queue(1), "queue-full"),
    ] {
        for http2 in [false, true] {
            let told = refused(full, http2).await;
            assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(told.body, "Too many requests, please try again later.\n");
            assert_eq!(told.only("content-type"), "text/plain; charset=utf-8");
            assert_eq!(told.only("x-content-type-options"), "nosniff");
            assert_eq!(told.only("x-fairgate-reason"), reason);
            let retry_after: u32 = told.only("retry-after").parse().unwrap();
            assert!((1..=32).contains(&retry_after), "{told:?}");
            assert_eq!(told.uids(), OURS);
        }
    }
}

#[tokio::test]
async fn the_exempt_pass_whatever_the_rest_does() {
    let (upstream, mut asked) = by_hand(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let first = get(&gate, PODS).await;
    let executing = soon(asked.recv()).await.unwrap();
    let masters = [
        ask(&gate, false, "root", Method::GET, PODS).await,
        ask(&gate, true, "root", Method::DELETE, PODS).await,
    ];
    for _ in &masters {
        soon(asked.recv()).await.unwrap().say("");
    }
    for master in masters {
        let told = master.told().await;
        assert_eq!(told.status, StatusCode::OK);
        let (schema, level) = told.uids();
        assert!(!schema.is_empty() && !level.is_empty());
        assert_ne!(told.uids(), OURS);
    }
    assert_eq!(small(&gate), (1, 0, 1));
    executing.say("");
    first.served().await;
}

#[tokio::test]
async fn after_a_quarter_of_its_time_in_the_queue_a_request_is_refused() {
    let (upstream, mut asked) = by_hand(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
    let first = get(&gate, PODS).await;
    let executing = soon(asked.recv()).await.unwrap();
    let since = now();
    let target = "/api/v1/namespaces/a/pods?timeout=2s";
    let told = get(&gate, target).await.told().await;
    let waited = now().since(since);
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(told.only("x-fairgate-reason"), "time-out");
    assert_eq!(told.uids(), OURS);
    assert!(waited >= ms(500) && waited < ms(2000), "{waited:?}");
    assert_eq!((small(&gate), gate.flow_control().queued()), ((1, 0, 1), 0));
    executing.say("");
    first.served().await;
    assert!(asked.try_recv().is_err(), "what is refused is not sent");
}

#[tokio::test]
async fn the_uids_told_are_ours_and_no_others() {
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
                let told = ask(&gate, http2, "alice", method, target)
                    .await
                    .told()
                    .await;
                assert_eq!((told.status, told.uids()), (StatusCode::OK, OURS));
            }
        }
    }
}

#[tokio::test]
async fn errors_tell_the_uids_too() {
    let rules = Rules::small(5, Full::Reject).set(|set| set.request_timeout = ms(200));
    // Takes no connection; takes one and closes it; never answers.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let none = nobody.local_addr().unwrap();
    drop(nobody);
    let closer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closes = closer.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = closer.accept().await {
            use tokio::io::AsyncReadExt as _;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let silent = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    for (address, method, status) in [
        (none, Method::GET, StatusCode::SERVICE_UNAVAILABLE),
        (none, Method::POST, StatusCode::SERVICE_UNAVAILABLE),
        (closes, Method::GET, StatusCode::SERVICE_UNAVAILABLE),
        (closes, Method::POST, StatusCode::BAD_GATEWAY),
        (silent.address, Method::GET, StatusCode::GATEWAY_TIMEOUT),
        (silent.address, Method::POST, StatusCode::GATEWAY_TIMEOUT),
    ] {
        let to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
        let gate = Gate::towards_under(
            |cores| rules.flow_control(cores),
            to,
            |_, to| to.deadline_grace = Duration::ZERO,
        );
        let target = "/api/v1/namespaces/a/pods?timeout=50ms";
        let told = ask(&gate, false, "alice", method, target)
            .await
            .told()
            .await;
        assert_eq!((told.status, told.uids()), (status, OURS), "{told:?}");
        until(|| small(&gate) == (0, 0, 0)).await;
    }
}

#[tokio::test]
async fn a_long_running_request_passes_unless_there_are_too_many() {
    let (upstream, mut asked) = by_hand(Speaks::Http1);
    let rules = Rules::small(1, Full::Reject).set(|set| {
        set.long_running.per_user = 2;
        set.long_running.total = 3;
    });
    let gate = Gate::governed(&upstream, &rules);
    let first = get(&gate, PODS).await;
    let executing = soon(asked.recv()).await.unwrap();

    let log = "/api/v1/namespaces/a/pods/p/log";
    let mut running = Vec::new();
    for user in ["alice", "alice", "bob"] {
        let asking = ask(&gate, false, user, Method::GET, log).await;
        running.push((asking, soon(asked.recv()).await.unwrap()));
    }
    assert_eq!(gate.flow_control().long_running.running(), 3);
    assert_eq!(small(&gate), (1, 0, 1), "they take no seat");
    for user in ["alice", "carol"] {
        let told = ask(&gate, false, user, Method::GET, log).await.told().await;
        assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(told.only("x-fairgate-reason"), "too-many-long-running");
        assert!(!told.only("retry-after").is_empty());
    }
    for (asking, upstream) in running {
        upstream.say("");
        let told = asking.told().await;
        assert_eq!(told.status, StatusCode::OK);
        assert!(!told.headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    }
    until(|| gate.flow_control().long_running.running() == 0).await;
    let proxied = "/api/v1/namespaces/a/services/s/proxy/";
    let again = ask(&gate, true, "alice", Method::POST, proxied).await;
    soon(asked.recv()).await.unwrap().say("");
    again.served().await;
    executing.say("");
    first.served().await;
}
