//! The way to one server: how it is reached, this core's connections to it, and its names.

use std::sync::Arc;

use http::HeaderValue;

use super::{UpstreamSettings, pool::Pool};
use fairgate_base::clock::Clock;

/// The way of one core to one server.
pub(super) struct ServerRoute {
    pub(super) settings: Arc<UpstreamSettings>,
    pub(super) pool: Pool,
    /// The server's name for the trace. A copy: each request counts a reference to it, and cores are not to share that.
    pub(super) name: Arc<str>,
    /// The server's name, as HTTP/1 has it in a header.
    pub(super) host: HeaderValue,
}

impl ServerRoute {
    /// A way with no connection yet.
    pub(super) fn new(settings: Arc<UpstreamSettings>, clock: &Clock) -> Self {
        let host = HeaderValue::from_str(settings.endpoint.authority().as_str());
        Self {
            pool: Pool::new(&settings, clock),
            name: Arc::from(&**settings.endpoint.name()),
            host: host.expect("an authority consists of visible ASCII characters"),
            settings,
        }
    }
}
