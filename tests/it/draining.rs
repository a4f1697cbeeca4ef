//! Draining: no accepted request is lost when the gateway stops.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use fairgate_proxy::serve::DrainPhase;
use http::Method;

use crate::{
    client::{TestClient, body_text, piece, soon, status},
    failures::until,
    gate::Gate,
    upstream::{Speaks, TestUpstream, full, streamed, text},
};

fn quick(settings: &mut fairgate::app::AppSettings) {
    settings.serve.drain.watch_spread = Duration::from_millis(50);
    settings.serve.drain.idle_grace = Duration::from_millis(200);
    settings.serve.drain.limit = Duration::from_secs(20);
}

#[tokio::test]
async fn requests_in_progress_are_finished_and_idle_connections_closed() {
    let (came, mut comes) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let upstream = TestUpstream::start(Speaks::Http2, move |_| {
        came.send(()).unwrap();
        let mut released = released.clone();
        async move {
            released.wait_for(|released| *released).await.unwrap();
            text("finished")
        }
    });
    let gate = Gate::with(&upstream, |settings, _| quick(settings));
    let address = gate.address();
    let idle = TestClient::both(address).await;
    let [mut first, mut second] = TestClient::both(address).await;
    let requests = [&first, &second].map(|client| {
        client
            .request(Method::POST, "/api/v1/namespaces/a/pods")
            .body(full("{}"))
            .unwrap()
    });
    let [one, two] = requests;
    let one = tokio::spawn(async move { (first.send(one).await.unwrap(), first) });
    let two = tokio::spawn(async move { (second.send(two).await.unwrap(), second) });
    soon(comes.recv()).await.unwrap();
    soon(comes.recv()).await.unwrap();

    let drain = gate.gateway.drain().clone();
    let ending = thread::spawn(move || gate.gateway.shut_down());
    until(|| drain.phase() >= DrainPhase::Stopping).await;
    for client in idle {
        client.closed().await;
    }
    // Nothing new is accepted.
    until(|| TcpStream::connect(address).is_err()).await;
    release.send(true).unwrap();
    for answered in [one, two] {
        let (response, client) = soon(answered).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(body_text(response).await, "finished");
        client.closed().await;
    }
    ending.join().unwrap();
}

#[tokio::test]
async fn watches_end_cleanly() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let (send, answer) = streamed();
        send.send(Ok("event".into())).unwrap();
        tokio::spawn(async move { send.closed().await });
        http::Response::new(answer)
    });
    let gate = Gate::with(&upstream, |settings, _| quick(settings));
    let mut watches = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..5 {
        for mut client in TestClient::both(gate.address()).await {
            let mut watch = client.get("/api/v1/pods?watch=1").await.into_body();
            assert_eq!(piece(&mut watch).await.unwrap().unwrap(), "event");
            watches.push(watch);
            clients.push(client);
        }
    }
    let ending = thread::spawn(move || gate.gateway.shut_down());
    for mut watch in watches {
        assert!(piece(&mut watch).await.is_none(), "a clean end");
    }
    for client in clients {
        client.closed().await;
    }
    ending.join().unwrap();
}

#[tokio::test]
async fn no_accepted_connection_is_lost() {
    let upstream = TestUpstream::saying(Speaks::Http2, "served");
    for _ in 0..5 {
        let gate = Gate::with(&upstream, |settings, _| {
            quick(settings);
            // A loaded machine may take long from a client's connect to its write.
            settings.serve.drain.idle_grace = Duration::from_secs(15);
        });
        let address = gate.address();
        let drain = gate.gateway.drain().clone();
        // Clients connect and send requests, over and over, while the gateway drains. A client whose connection was
        // accepted gets a response.
        let clients: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    let mut answered = 0;
                    while let Ok(mut stream) = TcpStream::connect(address) {
                        let request = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                        let mut answer = String::new();
                        let done = stream
                            .write_all(request)
                            .and_then(|()| stream.read_to_string(&mut answer));
                        if let Err(error) = done {
                            return (answered, Some(error.to_string()));
                        }
                        if answer.is_empty() {
                            return (answered, Some("no response".to_owned()));
                        }
                        assert_eq!(status(&answer), 200);
                        answered += 1;
                    }
                    (answered, None)
                })
            })
            .collect();
        until(|| upstream.seen().len() > 20).await;
        let ending = thread::spawn(move || gate.gateway.shut_down());
        let outcomes: Vec<_> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        ending.join().unwrap();
        assert_eq!(drain.phase(), DrainPhase::Over);
        for (answered, lost) in outcomes {
            // Between the last `accept` and the closing of the listener the kernel may complete one
            // more handshake; it resets that connection, which no client can mistake for a response.
            assert!(
                lost.as_deref().is_none_or(|e| e.contains("reset")),
                "{lost:?} after {answered}"
            );
        }
    }
}

#[tokio::test]
async fn the_drain_limit_ends_requests_that_do_not_finish() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| std::future::pending());
    let gate = Gate::with(&upstream, |settings, _| {
        quick(settings);
        settings.serve.drain.limit = Duration::from_millis(300);
    });
    let mut client = TestClient::http2(gate.address()).await;
    let request = client.request(Method::GET, "/a").body(full("")).unwrap();
    let hangs = tokio::spawn(async move { client.send(request).await });
    until(|| !upstream.seen().is_empty()).await;
    let ending = thread::spawn(move || gate.gateway.shut_down());
    assert!(soon(hangs).await.unwrap().is_err());
    ending.join().unwrap();
}

#[tokio::test]
async fn an_http1_client_gets_connection_close_once_the_gateway_stops() {
    let upstream = TestUpstream::saying(Speaks::Http2, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        quick(settings);
        settings.serve.drain.idle_grace = Duration::from_secs(5);
    });
    let mut client = TestClient::http1(gate.address()).await;
    let response = client.get("/a").await;
    assert!(!response.headers().contains_key("connection"));
    body_text(response).await;
    let drain = gate.gateway.drain().clone();
    let ending = thread::spawn(move || gate.gateway.shut_down());
    until(|| drain.phase() >= DrainPhase::Stopping).await;
    // The data cores see the new phase a moment later; until then responses may still keep the connection open.
    loop {
        let response = client.get("/a").await;
        assert_eq!(response.status(), 200);
        let closes = response.headers().contains_key("connection");
        body_text(response).await;
        if closes {
            break;
        }
    }
    client.closed().await;
    ending.join().unwrap();
}
