//! The stand-in for an API server: `fairgate-loadtest upstream`.
//!
//! It serves any path over HTTP/1.1 and HTTP/2, with or without TLS, in the time and with the objects that the scenario says,
//! and behaves under overload as [`model`] describes. A second address controls it: `GET /stats`,
//! `POST /slowdown/FACTOR`, `POST /down`, `POST /up`.

mod model;
mod server;
mod workers;

pub(crate) use server::{UpstreamAddresses, serve};
pub(crate) use workers::UpstreamStats;
