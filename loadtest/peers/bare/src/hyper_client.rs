//! The client of hyper-util, with its pool of connections.

use std::net::SocketAddr;
use std::rc::Rc;

use http::{Request, Response, Uri, Version, uri::Authority};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};

use crate::{remove_hop_by_hop, target};
use fairgate_base::local::LocalExecutor;

/// Sends requests by hyper-util's client.
pub(crate) struct PooledClient {
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
    version: Version,
}

impl PooledClient {
    /// A client of the calling thread, by HTTP/1.1 or, with `http2`, by HTTP/2.
    pub(crate) fn new(upstream: SocketAddr, http2: bool) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(LocalExecutor)
            .http2_only(http2)
            .build(connector);
        Ok(Self {
            client,
            upstream: upstream.to_string().parse()?,
            version: if http2 {
                Version::HTTP_2
            } else {
                Version::HTTP_11
            },
        })
    }

    /// Forwards a request.
    pub(crate) async fn forward(
        self: Rc<Self>,
        mut request: Request<Incoming>,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri = Uri::builder()
            .scheme("http")
            .authority(self.upstream.clone())
            .path_and_query(target(request.uri()))
            .build()?;
        *request.uri_mut() = uri;
        *request.version_mut() = self.version;
        let mut response = self.client.request(request).await?;
        remove_hop_by_hop(&mut response)?;
        Ok(response)
    }
}
