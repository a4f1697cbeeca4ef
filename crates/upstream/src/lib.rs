//! How the gateway talks to its upstream in its own name.
//!
//! There is one way to reach the upstream: an [`Endpoint`](endpoint::Endpoint) says where it is, a
//! [`Dialer`](dial::Dialer) opens connections to it, and an [`ApiClient`](client::ApiClient) sends requests
//! with the gateway's own credentials. All of them use the same time-outs, socket options, TLS settings and
//! error texts. The request path keeps connection pools of its own, whose connections come from the same
//! dialer.
//!
//! [`token_review`] and [`access_review`] have tokens validated and access authorized there. Results are cached,
//! and equal reviews merge ([`lookup`]).
//!
//! Where there are several servers, [`servers`] has what is known of each, [`server_monitor`] probes them, and a [`target`](target::UpstreamTarget) is any of
//! them.
//!
//! [`absence`] tells a missing object from a missing path. [`informer`] lists and watches objects there, for all that follow any. [`deep_json`] reads what nests deep.
//!
//! Requests that the gateway sends in its own name (reviews, policy objects, metrics) and connections of the request path share one
//! [`UpstreamTls`](tls::UpstreamTls), whose certificates can be replaced: the gateway follows the files of certificates, keys and
//! tokens, and new connections use what they contain.
//!
//! Not here: requests of clients, which `fairgate-proxy` forwards.

pub mod absence;
pub mod access_review;
mod cache;
pub mod client;
pub mod deep_json;
pub mod dial;
pub mod dial_error;
pub mod endpoint;
pub mod informer;
pub mod lookup;
pub mod path;
pub mod review;
pub mod server_monitor;
pub mod servers;
pub mod target;
pub mod tls;
mod tls_in_place_of_http;
pub mod token_review;
