//! Tests of the crate through its public interface: against recorded answers of the originals, and against hostile
//! expressions.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

mod conformance;
mod differential;
mod limits;
mod support;
