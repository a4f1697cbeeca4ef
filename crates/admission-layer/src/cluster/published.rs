//! The policies in force, as the control side publishes them, for forwarded requests and for writes to hosted objects.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use arc_swap::{ArcSwapOption, Guard};
use fairgate_admission::{Fidelity, PolicySet, PolicySetSource};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use tokio::sync::Notify;

/// The policies that forwarded requests are evaluated by. It does not change; a new one replaces it.
#[derive(Debug, Default)]
pub struct ForwardedPolicies {
    /// The policies with their bindings, compiled.
    pub set: Arc<PolicySet>,
    /// The fidelity of each policy of `set` by its name, sorted by name: what its annotation asks for, or else what is
    /// configured.
    pub fidelity: Vec<(String, Fidelity)>,
    /// Whether the policies are those of files of the gateway: only these evaluate requests for policies and bindings.
    pub are_static: bool,
}

/// Where the policies in force are published.
///
/// Empty until policies, bindings and namespaces have been listed once: requests that may be subject to policies wait
/// until then.
#[derive(Debug)]
pub struct PublishedPolicies {
    current: ArcSwapOption<ForwardedPolicies>,
    is_known: Notify,
    /// Whether the first ones will be those of files.
    will_be_static: AtomicBool,
    /// The time until which they may be used, in nanoseconds; [`FOR_EVER`] unless that is limited.
    usable_until: AtomicU64,
}

const FOR_EVER: u64 = u64::MAX;

impl Default for PublishedPolicies {
    fn default() -> Self {
        Self {
            current: ArcSwapOption::empty(),
            is_known: Notify::default(),
            will_be_static: AtomicBool::new(false),
            usable_until: AtomicU64::new(FOR_EVER),
        }
    }
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

    /// Says that the policies will be those of files, which evaluate requests for policies and bindings, too: these wait for them.
    pub fn expect_files(&self) {
        self.will_be_static.store(true, Ordering::Relaxed);
    }

    pub(crate) fn will_be_static(&self) -> bool {
        self.will_be_static.load(Ordering::Relaxed)
    }

    /// Limits how long the policies in force may be used, until this is called again.
    pub fn usable_until(&self, until: Time) {
        self.usable_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the policies in force have not been confirmed for so long that requests must not be evaluated by them. Reads the
    /// clock only if that is limited.
    pub fn are_stale(&self, clock: &Clock) -> bool {
        let until = self.usable_until.load(Ordering::Relaxed);
        until != FOR_EVER && clock.now().as_nanos() > until
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
