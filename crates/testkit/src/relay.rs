//! A TCP relay between a client and a server, which can be cut like a network.
//!
//! While it is cut, connections stay open and new ones are accepted, but not one byte passes. Once it is mended, what was
//! sent in between arrives late, even if the client has gone meanwhile, as it does after a network has lost packets for a
//! while.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// The pause after bytes that arrive late. What the client has sent later, such as a cancellation, comes later.
const PAUSE: Duration = Duration::from_millis(100);

/// What does not pass.
#[derive(Clone, Copy, Default, PartialEq)]
struct Cut {
    requests: bool,
    responses: bool,
}

/// A relay to one server. Dropping it closes the address.
pub struct TcpRelay {
    /// Where clients connect.
    pub address: SocketAddr,
    cut: watch::Sender<Cut>,
    listening: JoinHandle<()>,
}

impl TcpRelay {
    /// Starts a relay to `server` on the current runtime.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let (cut, cuts) = watch::channel(Cut::default());
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, cuts.clone()));
            }
        });
        Self {
            address,
            cut,
            listening,
        }
    }

    /// Lets nothing through until [`mend`](Self::mend).
    pub fn cut(&self) {
        self.cut.send_replace(Cut {
            requests: true,
            responses: true,
        });
    }

    /// Lets requests through and no responses.
    pub fn cut_responses(&self) {
        self.cut.send_replace(Cut {
            requests: false,
            responses: true,
        });
    }

    /// Lets everything through again.
    pub fn mend(&self) {
        self.cut.send_replace(Cut::default());
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn connect(client: TcpStream, server: SocketAddr, mut cuts: watch::Receiver<Cut>) {
    if cuts.wait_for(|cut| !cut.requests).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pass(from_client, to_server, cuts.clone(), |cut| cut.requests);
    let responses = pass(from_server, to_client, cuts, |cut| cut.responses);
    // A server that was killed ends the connection of the client, too.
    tokio::select! {
        () = requests => {}
        () = responses => {}
    }
}

/// Passes bytes on until either side is closed.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut cuts: watch::Receiver<Cut>,
    is_cut: fn(&Cut) -> bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let is_late = is_cut(&cuts.borrow());
        if cuts.wait_for(|cut| !is_cut(cut)).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        if is_late {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
