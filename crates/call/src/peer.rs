//! The client's end of a connection.

use std::{
    any::Any,
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use http::HeaderValue;
use rustls::pki_types::CertificateDer;

use super::PeerIdentityCache;

/// The client's end of one connection; shared by all its requests.
#[derive(Debug)]
pub struct Peer {
    /// The client's address and port.
    pub remote: SocketAddr,
    /// What the client sent in the TLS handshake; `None` on a connection without TLS.
    pub tls: Option<PeerTls>,
    /// What is kept of the authentication of its requests. Only `auth` uses it, and borrows it for one call at a
    /// time.
    pub identity: RefCell<PeerIdentityCache>,
    /// The server that its requests prefer, where there are several. Only `forward` uses it.
    pub server: RefCell<Option<Box<dyn Any>>>,
    /// The address without the port.
    address: HeaderValue,
}

/// What a client sent in the TLS handshake.
#[derive(Debug, Default)]
pub struct PeerTls {
    /// The chain that the client sent, its own certificate first; empty if it sent none. The client
    /// holds the key of the first certificate; nothing else has been verified.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The server name that the client requested (SNI).
    pub server_name: Option<String>,
}

impl Peer {
    /// A client whose certificate has not been verified yet.
    pub fn new(remote: SocketAddr, tls: Option<PeerTls>) -> Self {
        Self {
            remote,
            tls,
            identity: RefCell::default(),
            server: RefCell::default(),
            address: text_of(remote.ip()),
        }
    }

    /// The client's address, as the text of a header: each request to the upstream has it.
    pub fn address(&self) -> &HeaderValue {
        &self.address
    }

    /// A client on a plain connection.
    pub fn plain(remote: SocketAddr) -> Self {
        Self::new(remote, None)
    }

    /// For tests: a client on a plain loopback connection.
    pub fn local() -> Self {
        Self::plain(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
    }

    /// The certificate chain that the client sent; empty without one.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().map_or(&[], |tls| &tls.certificates)
    }
}

fn text_of(address: IpAddr) -> HeaderValue {
    let text = HeaderValue::try_from(address.to_string());
    text.expect("addresses consist of hexadecimal digits, dots and colons")
}
