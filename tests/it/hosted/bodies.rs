//! The memory for bodies of requests for hosted objects (`hostedApi.bodyBudget`).

use fairgate_base::metrics_text;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Home, SCHEMAS, Server, until};
use crate::client::soon;

const SENT: usize = 3 << 19;

/// The bytes of bodies in memory, and the most there ever were.
async fn held(server: &Server) -> (f64, f64) {
    let text = server.root().await.get("/metrics").await.text();
    let value = |name: &str| -> f64 {
        let sample = metrics_text::samples(&text).find(|sample| sample.series == name);
        sample.unwrap().value
    };
    let now = value("fairgate_hosted_body_bytes");
    (now, value("fairgate_hosted_body_peak_bytes"))
}

/// A connection that has sent all of a body but its last byte.
async fn unfinished(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.0.address()).await.unwrap();
    let head = format!(
        "POST {SCHEMAS} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer root\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        SENT + 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; SENT]).await.unwrap();
    stream
}

#[tokio::test]
async fn bodies_take_as_much_memory_as_is_configured() {
    for (limits, fits) in [("hostedApi: {bodyBudget: 8Mi}\n", 2), ("", 4)] {
        let home = Home::new();
        let server = Server::start(home.config_with(limits)).await;
        server.settled().await;
        let mut open = Vec::new();
        for number in 1..=fits {
            open.push(unfinished(&server).await);
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let bytes = (number * SENT) as f64;
            until(async || held(&server).await.0 >= bytes).await;
        }
        if fits == 2 {
            // Of 8 MiB, one user has at most as much as was still free before the last piece, of at most 1 MiB, arrived.
            let mut refused = unfinished(&server).await;
            let mut head = vec![0; 12];
            soon(refused.read_exact(&mut head)).await.unwrap();
            assert_eq!(head, b"HTTP/1.1 429");
            assert!(held(&server).await.1 <= f64::from(9 << 19));
        }
        drop(open);
        until(async || held(&server).await.0 == 0.0).await;
    }
}
