//! The eviction procedure: which calls to the upstream it makes, in which order, and the response.
//!
//! [`EvictionRequest`](request::EvictionRequest) is the parsed request. An [`Eviction`](machine::Eviction) is a state
//! machine that requests one call after the other and receives the outcomes. A [`Precheck`](precheck::Precheck) can
//! only refuse an eviction or leave it to the upstream. [`refusal`] has the reasons of refusals and the responses.
//!
//! Not here: authorization, and decoding bodies.

pub mod calls;
mod decision;
pub mod machine;
pub mod precheck;
pub mod refusal;
pub mod request;
pub mod server_clock;

pub use decision::refusal_by;

#[cfg(test)]
mod tests;
