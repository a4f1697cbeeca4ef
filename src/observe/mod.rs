//! What the gateway tells of itself: metrics, dumps, logs.
//!
//! It reads, and never decides.

pub mod cells;
pub mod upstream_counts;
