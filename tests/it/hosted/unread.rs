//! Responses that their clients do not read: they hold no seat and bounded memory, and others get theirs.

use fairgate_base::metrics_text;
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Home, SCHEMAS, Server, api::JSON, schema, until};
use crate::client::soon;

/// The bytes of responses in memory, and the most there ever were.
async fn held(server: &Server) -> (f64, f64) {
    let text = server.root().await.get("/metrics").await.text();
    let value = |name: &str| -> f64 {
        let sample = metrics_text::samples(&text).find(|sample| sample.series == name);
        sample.unwrap().value
    };
    let now = value("fairgate_response_bytes");
    (now, value("fairgate_response_peak_bytes"))
}

/// A connection that has sent a request, and reads nothing.
async fn unread(server: &Server, user: &str, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.0.address()).await.unwrap();
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {user}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Creates objects of 200 KB.
async fn fill(server: &Server, objects: usize) {
    let api = server.root().await;
    for number in 0..objects {
        let mut long = schema(&format!("zz-{number:02}"), "catch-all", 9999, "nobody");
        long["metadata"]["annotations"] = json!({"note": "x".repeat(200_000)});
        let made = api
            .call(Method::POST, SCHEMAS, JSON, long.to_string())
            .await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
}

#[tokio::test]
async fn lists_that_are_not_read_take_a_part_of_the_memory_and_others_get_theirs() {
    const BUDGET: f64 = (16 << 20) as f64;
    let home = Home::new();
    let server = Server::start(home.config_with("limits: {responseBudget: 16Mi}\n")).await;
    server.settled().await;
    fill(&server, 40).await;
    // 8 MB each, of which two fit at most, and one with all objects of 6 MB, which is another user's.
    let mut open = Vec::new();
    for _ in 0..30 {
        open.push(unread(&server, "root", SCHEMAS).await);
    }
    until(async || held(&server).await.0 > 0.0).await;
    let other = server.as_user("reader").await;
    let listed = other.get(&format!("{SCHEMAS}?limit=20")).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    let whole = listed.text().len();
    assert!(whole > 1_000_000, "{whole}");
    // Those for which there is no room are refused after some time.
    let mut refused = 0;
    let last = open.pop().unwrap();
    for mut stream in open.split_off(20) {
        let mut head = vec![0; 12];
        soon(stream.read_exact(&mut head)).await.unwrap();
        refused += usize::from(head == *b"HTTP/1.1 429");
    }
    assert!(refused > 0);
    let (_, most) = held(&server).await;
    assert!(most <= BUDGET, "{most}");
    drop((open, last));
    until(async || held(&server).await.0 == 0.0).await;
}

#[tokio::test]
async fn watches_that_are_not_read_have_one_large_object_each_in_memory_and_are_charged_for_it() {
    const WATCHES: u32 = 30;
    const OBJECT: f64 = 200_000.0;
    let home = Home::new();
    let server = Server::start(home.config_with("limits: {responseBudget: 16Mi}\n")).await;
    server.settled().await;
    fill(&server, 40).await;
    let mut open = Vec::new();
    for _ in 0..WATCHES {
        open.push(unread(&server, "root", &format!("{SCHEMAS}?watch=1")).await);
    }
    // A connection takes some of them until its buffers are full.
    until(async || held(&server).await.0 >= f64::from(WATCHES) * OBJECT).await;
    let (_, most) = held(&server).await;
    assert!(most < f64::from(WATCHES) * 2.0 * OBJECT, "{most}");
    let other = server.as_user("reader").await;
    let listed = other.get(&format!("{SCHEMAS}?limit=20")).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    drop(open);
    until(async || held(&server).await.0 == 0.0).await;
}

#[tokio::test]
async fn a_list_longer_than_the_memory_is_sent_whole_if_nothing_else_is_in_it() {
    let home = Home::new();
    let server = Server::start(home.config_with("limits: {responseBudget: 1Mi}\n")).await;
    server.settled().await;
    fill(&server, 12).await;
    let api = server.root().await;
    for accept in ["application/json", "application/yaml"] {
        let request = api.request(Method::GET, SCHEMAS).header("accept", accept);
        let listed = api.send(request, "").await;
        assert_eq!(listed.status, 200, "{accept}: {}", listed.text());
        assert!(listed.text().len() > 2_400_000);
    }
    let (now, most) = held(&server).await;
    assert!(now == 0.0 && most > 2_400_000.0, "{now} {most}");
}
