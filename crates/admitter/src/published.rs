//! The policies in force, as the control side publishes them.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use fairgate_admission::PolicySet;

use crate::mode::Fidelity;

/// The policies that forwarded requests are judged by. It does not change; a new one replaces it.
#[derive(Debug)]
pub struct ForwardedPolicies {
    /// The policies with their bindings, compiled.
    pub set: PolicySet,
    /// The fidelity of each policy of `set` by its name, sorted by name: what its annotation asks for, or else what is
    /// configured.
    pub fidelity: Vec<(String, Fidelity)>,
    /// Whether the policies are those of files of the gateway: only these judge requests for policies and bindings.
    pub are_static: bool,
}

/// Where the policies in force are published.
///
/// Empty until policies, bindings and namespaces have been listed once: requests that may be subject to policies wait
/// until then.
#[derive(Debug, Default)]
pub struct PublishedPolicies(ArcSwapOption<ForwardedPolicies>);

impl PublishedPolicies {
    /// The policies in force; none until they are known.
    pub fn current(&self) -> Option<Arc<ForwardedPolicies>> {
        self.0.load_full()
    }

    /// Replaces the policies in force.
    pub fn publish(&self, policies: ForwardedPolicies) {
        self.0.store(Some(Arc::new(policies)));
    }
}
