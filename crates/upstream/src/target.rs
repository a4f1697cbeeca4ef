//! Where the gateway's own requests go: to the one upstream, or to any of several servers.
//!
//! Of several, new connections go to the first that takes requests, and to the next where that fails. When a server no longer answers, the
//! connections to it are given up: requests that wait there fail soon, and can be sent again elsewhere.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{
    dial::{Dialed, Dialer, HttpVersion},
    dial_error::DialError,
    endpoint::Endpoint,
    servers::{UpstreamServer, UpstreamServers},
};
use fairgate_core::servers::load::HasLoad as _;

/// Completes when a connection is to be given up.
pub(crate) type GivenUp = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Where the gateway's own requests go.
#[derive(Clone, Debug)]
pub enum UpstreamTarget {
    /// To the one upstream.
    One(Endpoint),
    /// To any of these servers. The endpoint gives the requests their scheme and authority.
    Any(Endpoint, Arc<UpstreamServers>),
}

impl From<Endpoint> for UpstreamTarget {
    fn from(endpoint: Endpoint) -> Self {
        Self::One(endpoint)
    }
}

impl UpstreamTarget {
    /// The endpoint, or the first one.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        match self {
            Self::One(endpoint) | Self::Any(endpoint, _) => endpoint,
        }
    }

    /// The name in logs and messages: authorities, separated by commas.
    pub fn name(&self) -> Arc<str> {
        match self {
            Self::One(endpoint) => Arc::clone(endpoint.name()),
            Self::Any(_, servers) => {
                let names = servers.configured().iter();
                let names: Vec<&str> = names.map(|server| &**server.endpoint.name()).collect();
                names.join(",").into()
            }
        }
    }

    /// Why the last attempt to open a connection failed, if none of the servers takes requests.
    pub fn problem(&self) -> Option<Arc<DialError>> {
        match self {
            Self::One(endpoint) => endpoint.problem(),
            Self::Any(_, servers) => {
                if servers.is_any_open() {
                    return None;
                }
                let list = servers.list();
                let of_server = list.iter().find_map(|server| server.endpoint().problem());
                let names = || servers.configured().iter();
                of_server.or_else(|| names().find_map(|server| server.endpoint.problem()))
            }
        }
    }
}

/// Opens connections to a target.
pub(crate) struct TargetDialer {
    target: UpstreamTarget,
    protocols: &'static [HttpVersion],
}

impl TargetDialer {
    pub(crate) fn new(target: UpstreamTarget, protocols: &'static [HttpVersion]) -> Self {
        Self { target, protocols }
    }

    /// Opens a connection; of several servers to the first that can be reached.
    ///
    /// # Errors
    ///
    /// That of the server that was tried last.
    pub(crate) async fn dial(&self) -> Result<(Dialed, Option<GivenUp>), DialError> {
        let (endpoint, servers) = match &self.target {
            UpstreamTarget::One(endpoint) => {
                let dialer = Dialer::new(endpoint.clone(), self.protocols);
                return Ok((dialer.dial().await?, None));
            }
            UpstreamTarget::Any(endpoint, servers) => (endpoint, servers),
        };
        let mut failure = None;
        for server in in_order(servers) {
            let dialer = Dialer::new(server.endpoint().clone(), self.protocols);
            match dialer.dial().await {
                Ok(dialed) => return Ok((dialed, Some(given_up(&server)))),
                Err(error) => {
                    servers.not_connected(&server);
                    failure = Some(error);
                }
            }
        }
        // Without a server, its name has no address.
        Err(failure.unwrap_or_else(|| DialError::Unresolved {
            url: Arc::clone(endpoint.url()),
            source: Arc::new(std::io::Error::other("no address is known")),
        }))
    }
}

/// The servers, those that take requests first, without those whose addresses are gone.
fn in_order(servers: &UpstreamServers) -> Vec<Arc<UpstreamServer>> {
    let mut list = servers.list().to_vec();
    list.retain(|server| server.load().is_listed());
    list.sort_by_key(|server| server.load().capacity() == 0);
    list
}

/// Completes when `server`, which may not answer now, stops answering once more.
fn given_up(server: &Arc<UpstreamServer>) -> GivenUp {
    let mut unresponsive = server.unresponsive();
    unresponsive.mark_unchanged();
    Box::pin(async move {
        while unresponsive.changed().await.is_ok() {
            if *unresponsive.borrow() {
                return;
            }
        }
        std::future::pending::<()>().await;
    })
}
