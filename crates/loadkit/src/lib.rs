//! What the demonstration and the load tester share.
//!
//! - [`accepting`] accepts the connections of a stand-in API server.
//! - [`pauses`] waits as a client does: for the time of its next request, and as long as a refusal says.
//!
//! Not here: the servers and clients themselves. Those of the demonstration take one kind of request and keep each latency;
//! those of the load tester follow a scenario, speak HTTP/2 and TLS, and count in histograms.

pub mod accepting;
pub mod pauses;
