//! The crate as its users see it.
//!
//! `original` compares verdicts with those of Kubernetes' own dispatcher (`crates/admission/oracle`);
//! `world` is the cluster in which the requests of that corpus are evaluated; `limits` tries what could run without bound; `early` what
//! is known before the body of a request;
//! `allocations` counts what the request path allocates.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

mod allocations;
mod amplification;
mod early;
mod known;
mod limits;
mod original;
mod outcome;
mod patterns;
mod types;
mod validation;
mod world;
