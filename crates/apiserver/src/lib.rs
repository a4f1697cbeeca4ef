//! The hosted API: an API server for the kinds of [`fairgate_objects::kinds`].
//!
//! It serves these kinds without an upstream, or instead of it. [`HostedLayer`] is a layer in front of the
//! innermost service of the request path. [`Hosted`] serves a request on the control runtime: `route` maps
//! the path to objects or a document, [`authorize`] decides whether the user may do that, and `calls` are
//! the verbs, which are the same for every kind. Objects are in a [`fairgate_store::Store`].
//!
//! In front of an upstream with an API of its own, the upstream authorizes requests
//! ([`fairgate_upstream::access_review`]). A request for a document that both have is forwarded, and the
//! gateway's part is merged into the response (`merging`), and so are its metrics (`merged_metrics`).
//!
//! What an object is (tables of kinds, codecs, patches, field ownership) is in [`fairgate_objects`].
//! A new kind is an entry there; nothing here knows a kind by name but [`reconcile`] and `admission`, which judges writes
//! by the admission policies among the objects.
//!
//! Not here: authentication (`auth`), flow control (`fairness`), what the objects mean (`apf`).

pub mod access;
mod admin;
mod admission;
pub mod authorize;
mod calls;
mod compression;
mod content_type;
pub mod continue_token;
pub mod deletion_checks;
pub mod discovery;
mod documents;
mod encoded_document;
#[doc(hidden)]
pub mod fuzzing;
mod hosted;
mod hosted_bodies;
mod layer;
mod list_parameters;
mod list_response;
mod listed_object;
mod merged_document_id;
mod merged_documents;
mod merged_metrics;
mod merging;
mod metrics_memory;
mod metrics_text;
mod namespace_records;
pub mod namespaces;
mod negotiate;
mod object_writer;
mod openapi;
mod ownership;
mod param_rights;
pub mod posted;
mod query;
pub mod quota;
mod random;
mod raw_json;
pub mod reconcile;
mod request;
mod response;
mod response_room;
mod reviews;
mod route;
mod state;
mod status_error;
mod stored;
mod upstream_body;
mod watch_stream;

pub use fairgate_admission::warning_headers;

pub use admin::{AdminEndpoints, AdminFuture, AdminResponse};
pub use admission::{GatewayAdmission, HostedAdmission, KnownAnswers, PolicySetSource};
pub use content_type::{
    PatchType, body_media, custom_patch_type, patch_type, unsupported_custom_patch,
};
pub use hosted::{Hosted, HostedSettings};
pub use layer::{HostedLayer, HostedService, Ownership};
pub use list_parameters::ListParameters;
pub use negotiate::{Media, Output, Representation};
pub use ownership::ServedSubresource;
pub use param_rights::ParamResources;
pub use query::{Query, Write, manager_of};
pub use random::generated_name;
pub use request::{ApiRequest, Caller, MAX_BODY};
pub use response::{ApiBody, ApiResponse};
pub use status_error::{StatusError, gateway_reasons};
pub use watch_stream::WatchStream;
