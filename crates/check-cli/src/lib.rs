//! A configuration and a flow control policy without a gateway: what `fairgate check` and `fairgate explain` do.
//!
//! [`check`] reports all errors of a configuration and its policies, and the limits that result. [`explain`] says which
//! FlowSchema a request matches, and why. Both work on the policy that the configuration names, or on one that is in force
//! elsewhere: in a store, in a cluster, in a running gateway, which sends it as a [`fairgate_policy_sources::policy_in_force::PolicyInForce`].
//!
//! Not here: tests and reviews of admission policies (`fairgate-policy-cli`), and the commands that serve.

mod budgets;
pub mod check;
pub mod explain;
mod in_force;
mod places;
mod policy;
mod table;
