//! Both clients forward what comes, and use a connection for many requests.

use std::{cell::Cell, convert::Infallible};

use http::header::HOST;
use http_body_util::{BodyExt as _, Full};

use super::*;

/// An upstream that returns the target, the header `x-test` and the body of each request; and how many connections it has had.
async fn upstream() -> (SocketAddr, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Rc::new(Cell::new(0));
    let counted = Rc::clone(&connections);
    turns::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.set(counted.get() + 1);
            let echo = service_fn(|request: Request<Incoming>| async move {
                let target = target(request.uri()).to_owned();
                let header = request.headers()["x-test"].to_str().unwrap().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                let said = format!("{target} {header} {body}");
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(said))))
            });
            turns::spawn_local(async move {
                let serving = http1::Builder::new();
                drop(serving.serve_connection(TokioIo::new(stream), echo).await);
            });
        }
    });
    (address, connections)
}

/// Sends requests one after another by one connection; returns the responses.
async fn exchange(proxy: SocketAddr, bodies: &[&str]) -> Vec<String> {
    let stream = TcpStream::connect(proxy).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    turns::spawn_local(async move { drop(connection.await) });
    let mut said = Vec::new();
    for body in bodies {
        let request = Request::post("/a/b?c=d")
            .header(HOST, "a")
            .header("x-test", "e")
            .body(Full::new(Bytes::from((*body).to_owned())));
        sender.ready().await.unwrap();
        let response = sender.send_request(request.unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        said.push(String::from_utf8(body.to_vec()).unwrap());
    }
    said
}

#[test]
fn requests_are_forwarded_as_they_are_by_one_connection() {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let long = "f".repeat(100_000);
        for own in [false, true] {
            let (address, connections) = upstream().await;
            let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
            let proxy = listener.local_addr().unwrap();
            if own {
                let client = OwnClient::new(address);
                turns::spawn_local(accept(listener, false, move |request| {
                    Rc::clone(&client).forward(request)
                }));
            } else {
                let client = Rc::new(PooledClient::new(address, false).unwrap());
                turns::spawn_local(accept(listener, false, move |request| {
                    Rc::clone(&client).forward(request)
                }));
            }
            let said = exchange(proxy, &["1", "2", &long]).await;
            let expected = ["1", "2", &long].map(|body| format!("/a/b?c=d e {body}"));
            assert_eq!(said, expected);
            assert_eq!(connections.get(), 1, "own client: {own}");
        }
    });
}
