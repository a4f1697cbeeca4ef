//! Accepts the connections of a stand-in API server.

use std::time::Duration;

use fairgate_base::tasks;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// The pause after `accept` fails, for example because file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections, and has `serve` serve each in a task of its own. Never returns; when it is dropped, the
/// connections end.
pub async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // If it fails, responses are only slower.
        let _ = stream.set_nodelay(true);
        connections.spawn(tasks::boxed(serve(stream)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn connections_are_served_together_and_end_with_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(accept(listener, async |mut stream: TcpStream| {
            let _ = stream.write_all(b"x").await;
            std::future::pending::<()>().await;
        }));
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'x');
            open.push(stream);
        }
        server.abort();
        for mut stream in open {
            assert!(stream.read_u8().await.is_err());
        }
    }
}
