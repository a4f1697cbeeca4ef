//! The hosted API: an API server for the kinds of [`fairgate_objects::kinds`].
//!
//! It serves these kinds without an upstream, or instead of it. [`HostedLayer`] is a layer in front of the
//! innermost service of the request path. [`Hosted`] serves a request on the control runtime: `route` maps
//! the path to objects or a document, [`fairgate_apihttp::authorize`] decides whether the user may do that, and `calls` are
//! the verbs, which are the same for every kind. Objects are in a [`fairgate_store::Store`].
//!
//! In front of an upstream with an API of its own, the upstream authorizes requests
//! ([`fairgate_upstream::access_review`]). A request for a document that both have is forwarded, and the
//! gateway's part is merged into the response (`merging`), and so are its metrics (`merged_metrics`).
//!
//! What an object is (tables of kinds, codecs, patches, field ownership) is in [`fairgate_objects`].
//! A new kind is an entry there; nothing here knows a kind by name but [`reconcile`] and `admission`, which evaluates writes
//! by the admission policies among the objects.
//!
//! Not here: authentication (`auth`), flow control (`fairness`), what the objects mean (`apf`).
//!
#![doc = include_str!("design.md")]

mod admin;
mod admission;
mod calls;
mod compression;
pub mod discovery;
mod documents;
#[doc(hidden)]
pub mod fuzzing;
mod hosted;
mod layer;
mod limits;
mod merging;
mod namespace_records;
pub mod namespaces;
mod objects;
mod openapi;
mod ownership;
mod param_rights;
mod raw_json;
pub mod reconcile;
mod reviews;
mod route;
mod state;
#[cfg(test)]
mod test_api;
mod upstream_namespaces;

pub use admin::{AdminEndpoints, AdminFuture, AdminResponse};
pub use admission::{GatewayAdmission, HostedAdmission};
pub use hosted::{Hosted, HostedSettings};
pub use layer::{HostedLayer, HostedService, Ownership};
pub use limits::quota;
pub use objects::watch_stream::WatchStream;
pub use ownership::ServedSubresource;
pub use param_rights::ParamResources;
pub use upstream_namespaces::UpstreamNamespaces;

/// A response of the hosted API.
pub type HostedResponse = fairgate_apihttp::response::ApiResponse<Box<WatchStream>>;
/// The body of a response of the hosted API.
pub type HostedBody = fairgate_apihttp::response::ApiBody<Box<WatchStream>>;
