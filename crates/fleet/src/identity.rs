//! How ledgers, coordinators, keys and gateways are told apart.

use serde::{Deserialize, Serialize};

/// The number of a ledger: each ledger that is written has a greater one than the last. 0: none yet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The fencing token of a coordinator: the revision at which its election key was created. A successor has a greater one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// The revision of a key in the engine, for compare-and-swap; 0: the key does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRevision(pub u64);

/// One run of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRun {
    /// The configured name of the gateway. No two processes that run at the same time may have the same name.
    pub name: String,
    /// A number that no other run of this gateway has or had: 64 random bits, not 0.
    pub incarnation: u64,
}
