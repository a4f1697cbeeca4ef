//! A panic in one request affects no other request.

use bytes::Bytes;
use fairgate_call::{BodyEnd, Call, Refusal, Reply, ReplyBody, ReplyGuard};

use crate::{
    client::{TestClient, body_text, soon},
    failures::until,
    gate::{Gate, Leaf},
};

/// Panics at the point that the path names.
fn panicky() -> Leaf<impl FnMut(&Call) -> Result<Reply, Refusal> + Clone> {
    Leaf(|call: &Call| {
        let path = call.request.uri().path();
        assert_ne!(path, "/panic/call", "on purpose");
        let mut reply = http::Response::new(ReplyBody::full("fine"));
        if path == "/panic/body" {
            reply.body_mut().hold(Box::new(PanickyGuard));
        }
        Ok(reply)
    })
}

/// Panics with the first data of a reply.
pub struct PanickyGuard;

impl ReplyGuard for PanickyGuard {
    fn data(&mut self, _: &Bytes) {
        panic!("on purpose");
    }

    fn end(self: Box<Self>, _: BodyEnd) {}
}

#[tokio::test]
async fn a_panic_in_the_stack_is_a_500_and_the_connection_stays_open() {
    let gate = Gate::around(panicky, |_| {});
    for mut client in TestClient::both(gate.address()).await {
        let response = client.get("/panic/call").await;
        assert_eq!(response.status(), 500);
        let body = body_text(response).await;
        assert!(!body.contains("on purpose"), "no detail leaves the gateway");
        assert_eq!(body_text(client.get("/fine").await).await, "fine");
    }
    assert_eq!(gate.limit.free(), 1000, "every seat is free again");
}

#[tokio::test]
async fn a_panic_in_the_body_ends_the_stream_and_no_other() {
    let gate = Gate::around(panicky, |_| {});
    let mut client = TestClient::http2(gate.address()).await;
    let response = client.get("/panic/body").await;
    let broken = soon(http_body_util::BodyExt::collect(response.into_body())).await;
    assert!(broken.is_err());
    assert_eq!(body_text(client.get("/fine").await).await, "fine");
    until(|| gate.limit.free() == 1000).await;
}
