//! What is seen of the gateway and of its upstream.

pub mod upstream_counts;
