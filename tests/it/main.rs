//! Behaviour through the public API: real sockets on loopback against a fake upstream.

#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "tests fail by panicking, and no other crate uses their helpers"
)]

use fairgate_testkit::{client, pki, ports, random, upstream};

mod frames;
mod gate;
mod process;
mod rules;

mod abuse;
mod addresses;
mod admission_forwarded;
mod admission_log;
mod admission_policies;
mod admission_start;
mod ceilings;
mod demo;
mod differential;
mod draining;
mod eviction;
mod examples;
mod failures;
mod fairness;
mod fleet;
mod following;
mod forwarding;
mod framing;
mod hanging_up;
mod hosted;
mod hosted_last_good;
mod hostile_upstreams;
mod in_force;
mod last_good;
mod listening;
mod metrics;
mod operator_week;
mod outages;
mod overlay;
mod panics;
mod parking;
mod pauses;
mod policy_names;
mod policy_test;
mod pooling;
mod reloads;
mod resets;
mod rotation;
mod secure_admin;
mod servers;
mod tidy;
mod tidy_names;
mod tls;
mod tunnels;
mod waiting_memory;
