//! The policies in force, as the control side publishes them, for forwarded requests and for writes to hosted objects.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use fairgate_admission::{Fidelity, PolicySet};
use fairgate_apiserver::PolicySetSource;
use tokio::sync::Notify;

/// The policies that forwarded requests are judged by. It does not change; a new one replaces it.
#[derive(Debug, Default)]
pub struct ForwardedPolicies {
    /// The policies with their bindings, compiled.
    pub set: Arc<PolicySet>,
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
pub struct PublishedPolicies {
    current: ArcSwapOption<ForwardedPolicies>,
    is_known: Notify,
}

impl ForwardedPolicies {
    /// The fidelity of a policy.
    pub(crate) fn fidelity_of(&self, policy: &str) -> Option<Fidelity> {
        let by_name = |(name, _): &(String, Fidelity)| name.as_str().cmp(policy);
        let at = self.fidelity.binary_search_by(by_name).ok()?;
        Some(self.fidelity[at].1)
    }
}

impl PublishedPolicies {
    /// The policies in force; none until they are known.
    pub fn current(&self) -> Option<Arc<ForwardedPolicies>> {
        self.current.load_full()
    }

    /// The same, borrowed: cheaper where they are only looked at.
    pub(crate) fn borrowed(&self) -> Guard<Option<Arc<ForwardedPolicies>>> {
        self.current.load()
    }

    /// Waits until policies are known.
    pub(crate) async fn known(&self) {
        loop {
            let published = self.is_known.notified();
            if self.current.load().is_some() {
                return;
            }
            published.await;
        }
    }

    /// Replaces the policies in force, and returns those that were in force until now. Requests may still use them: freeing
    /// them is left to the caller.
    pub fn publish(&self, policies: ForwardedPolicies) -> Option<Arc<ForwardedPolicies>> {
        let retired = self.current.swap(Some(Arc::new(policies)));
        self.is_known.notify_waiters();
        retired
    }
}

impl PolicySetSource for PublishedPolicies {
    fn policies(&self) -> Option<Arc<PolicySet>> {
        let current = self.current.load();
        current.as_ref().map(|policies| Arc::clone(&policies.set))
    }
}
