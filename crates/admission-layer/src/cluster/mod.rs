//! What the control side tells the layers: the policies in force, and what is known of the cluster.

pub(crate) mod cluster_state;
pub(crate) mod known_revisions;
pub(crate) mod match_inputs;
pub(crate) mod published;
