//! Who holds the other end of a connection.

use std::{
    any::Any,
    cell::OnceCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
};

use rustls::pki_types::CertificateDer;

/// The client's end of one connection; shared by all its requests.
#[derive(Debug)]
pub struct Peer {
    /// Where it connects from.
    pub remote: SocketAddr,
    /// What TLS says of it; `None` on a plain connection.
    pub tls: Option<PeerTls>,
    /// What a layer learnt of this connection and would not like to find out anew for each request:
    /// the user a certificate names, for instance. The first to set it keeps it.
    pub memo: OnceCell<Rc<dyn Any>>,
}

/// What the handshake says of a client.
#[derive(Debug, Default)]
pub struct PeerTls {
    /// The chain the client sent, its own certificate first; empty when it sent none. The client
    /// holds the key of the first; nothing else has been checked.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The name the client asked for.
    pub server_name: Option<String>,
}

impl Peer {
    /// A peer on a plain connection.
    pub fn plain(remote: SocketAddr) -> Self {
        Self {
            remote,
            tls: None,
            memo: OnceCell::new(),
        }
    }

    /// A peer for tests: a plain connection from loopback.
    pub fn local() -> Self {
        Self::plain(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
    }

    /// The certificate chain the client sent; empty without one.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().map_or(&[], |tls| &tls.certificates)
    }
}
