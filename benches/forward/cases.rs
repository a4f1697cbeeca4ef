//! The kinds of requests whose cost is counted.
//!
//! Clients send one request after another, so that a data core does the same each time. Only HTTP/2 has several in flight,
//! in groups that are sent and answered together.

use std::net::SocketAddr;

use bytes::Bytes;
use fairgate_proxy::fairness::Enforcement;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::{
    client::{Client, Http2Client, POD, get, with_body},
    gateway::{flow_control, refusing_flow_control, start, token_line},
    request_cost::{COUNT_ROOM, RequestCase},
    upstream::{EVENT_BYTES, Upstream},
};

/// Requests that a connection of HTTP/2 has in flight.
const TOGETHER: u16 = 8;

const OFF: &str = "GET, enforcement off";
const ENFORCED: &str = "GET";
const TOKEN: &str = "GET with a token of 1.1 KB";
const HTTP2: &str = "GET over HTTP/2, 8 in flight";
const POST: &str = "POST of 4 KiB";
const REFUSED: &str = "GET refused with 429";
const WATCH: &str = "watch, an event of 1 KiB";

const fn case(name: &'static str) -> RequestCase {
    RequestCase {
        name,
        // What differs between runs (ticks, the order of threads as they start) is less than 0.2 % of that.
        requests: 1_000,
        count_room: COUNT_ROOM,
    }
}

pub(crate) const CASES: [RequestCase; 7] = [
    case(OFF),
    case(ENFORCED),
    case(TOKEN),
    RequestCase {
        // How many responses of a group a data core receives together depends on other processes, too, and copies and readings
        // of the clock on that.
        count_room: 1.0,
        ..case(HTTP2)
    },
    case(POST),
    case(REFUSED),
    case(WATCH),
];

/// Starts a gateway and sends it requests of a case.
pub(crate) fn send(case: &str, requests: u64) {
    // Clients and upstream stay on this thread, which is not counted.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime can be made")
        .block_on(send_to_gateway(case, requests));
}

async fn send_to_gateway(case: &str, requests: u64) {
    let upstream = Upstream::start(if case == HTTP2 { TOGETHER.into() } else { 1 }).await;
    let flow_control = match case {
        OFF => flow_control(Enforcement::Off),
        REFUSED => refusing_flow_control(),
        _ => flow_control(Enforcement::Enforce),
    };
    // As long as that of a service account.
    let token = "fairgate".repeat(1_100 / 8);
    let gateway = start(&flow_control, &token_line(&token), upstream.address);
    let address = gateway.address();
    match case {
        HTTP2 => {
            let mut client = Http2Client::new(address).await;
            for _ in 0..requests / u64::from(TOGETHER) {
                client.get_together(TOGETHER.into()).await;
            }
        }
        WATCH => watch(address, &upstream, requests).await,
        _ => one_after_another(address, case, &token, requests).await,
    }
}

async fn one_after_another(address: SocketAddr, case: &str, token: &str, requests: u64) {
    let mut client = Client::new(address).await;
    let token = HeaderValue::try_from(format!("Bearer {token}")).expect("it is visible");
    for _ in 0..requests {
        let mut request = get(POD);
        let mut expected = StatusCode::OK;
        match case {
            TOKEN => {
                let headers = request.headers_mut();
                headers.insert(header::AUTHORIZATION, token.clone());
            }
            POST => {
                let body = Bytes::from_static(&[b'x'; 4096]);
                request = with_body(Method::POST, "/api/v1/namespaces/default/pods", body);
                let json = HeaderValue::from_static("application/json");
                request.headers_mut().insert(header::CONTENT_TYPE, json);
            }
            REFUSED => expected = StatusCode::TOO_MANY_REQUESTS,
            _ => {}
        }
        client.exchange(request, expected).await;
    }
}

/// Opens a watch and takes one event after another.
async fn watch(address: SocketAddr, upstream: &Upstream, events: u64) {
    let mut client = Client::new(address).await;
    let target = "/api/v1/namespaces/default/pods?watch=true";
    let response = client.send(get(target)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    for _ in 0..events {
        upstream.next_event.send(()).expect("the upstream waits");
        let mut taken = 0;
        while taken < EVENT_BYTES {
            let frame = body.frame().await.expect("the watch goes on");
            let data = frame.expect("the connection stays").into_data();
            taken += data.map_or(0, |data| data.len());
        }
    }
}
