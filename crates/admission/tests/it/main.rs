//! The crate as its users see it.
//!
//! `original` compares verdicts with those that Kubernetes' own dispatcher comes to (`crates/admission/oracle`);
//! `world` has what the requests of that corpus are judged in; `limits` tries what could run without bound.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

mod known;
mod limits;
mod original;
mod outcome;
mod types;
mod validation;
mod world;
