//! A TCP relay between a client and a server, which can be cut like a network.
//!
//! While it is cut, connections stay open and new ones are accepted, but not one byte passes in either direction.
//! Once it is mended, what was sent in between arrives, as it does after a network has lost packets for a while.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// A relay to one server. Dropping it closes the address.
pub struct TcpRelay {
    /// Where clients connect.
    pub address: SocketAddr,
    is_cut: watch::Sender<bool>,
    listening: JoinHandle<()>,
}

impl TcpRelay {
    /// Starts a relay to `server` on the current runtime.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let (is_cut, cuts) = watch::channel(false);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, cuts.clone()));
            }
        });
        Self {
            address,
            is_cut,
            listening,
        }
    }

    /// Lets nothing through until [`mend`](Self::mend).
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Lets everything through again.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn connect(client: TcpStream, server: SocketAddr, mut cuts: watch::Receiver<bool>) {
    if cuts.wait_for(|&is_cut| !is_cut).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // A server that was killed ends the connection of the client, too.
    tokio::select! {
        () = pass(from_client, to_server, cuts.clone()) => {}
        () = pass(from_server, to_client, cuts) => {}
    }
}

/// Passes bytes on until either side is closed.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cuts: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if cuts.wait_for(|&is_cut| !is_cut).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
