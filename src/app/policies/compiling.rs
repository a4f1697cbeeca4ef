//! The input of a policy, and its compilation.

use std::sync::Arc;

use fairgate_core::{
    apf::{Compiled, ObjectSet, Policy, PolicySettings, objects::Bootstrap},
    finding::Finding,
    time::Time,
};
use fairgate_policy_cli::misspelt_rules;
use fairgate_policy_sources::DocumentSet;

/// The input of compiling a policy.
#[derive(Clone, Debug)]
pub(in crate::app) struct Compiling {
    pub(in crate::app) settings: PolicySettings,
    /// Which built-in objects the gateway adds.
    pub(in crate::app) bootstrap: Bootstrap,
    /// Whether the documents, if any, are the complete contents of an API, built-in objects included.
    pub(super) whole: bool,
    /// Shared, because a failed change keeps them.
    pub(in crate::app) documents: Option<Arc<DocumentSet>>,
    /// Where they come from, in words; `None` if the built-in objects are all there is.
    pub(in crate::app) source: Option<String>,
    /// Counts the sources that were followed: what one brings after another has taken its place is not taken.
    pub(in crate::app) source_number: u64,
    /// Since when the policy compiled from this is in force.
    pub(in crate::app) in_force_since: Time,
}

impl Compiling {
    /// Which built-in objects are added to the documents. Until the contents of an API are known, the gateway
    /// adds all of them itself.
    fn added(&self) -> Bootstrap {
        let any = self.documents.as_ref();
        let any = any.is_some_and(|set| !set.documents.is_empty());
        if self.whole && any {
            Bootstrap::Mandatory
        } else {
            self.bootstrap
        }
    }

    /// Warnings about names in the documents that match no request. They are no part of compiling, which is done again whenever the
    /// seats of servers change.
    pub(super) fn misspelt_rules(&self) -> Vec<Finding> {
        let set = self.documents.as_ref();
        set.map_or_else(Vec::new, |set| misspelt_rules(&set.objects()))
    }

    /// Compiles the documents. Objects that the policy `before` has already cost less.
    pub(super) fn compile(&self, before: Option<&Policy>) -> Result<Compiled, Vec<Finding>> {
        let (objects, unreadable) = match self.documents.as_deref() {
            None => (ObjectSet::default(), Vec::new()),
            Some(set) => (set.objects(), set.findings.clone()),
        };
        let objects = objects.with_bootstrap(self.added());
        let compiled = match before {
            None => Policy::compile(&objects, &self.settings),
            Some(before) => before.recompile(&objects, &self.settings),
        };
        let refused = unreadable.iter().any(Finding::is_error);
        let mut all = unreadable;
        match compiled {
            Ok(mut compiled) if !refused => {
                all.append(&mut compiled.findings);
                compiled.findings = all;
                Ok(compiled)
            }
            Ok(_) => Err(all),
            Err(findings) => {
                all.extend(findings);
                Err(all)
            }
        }
    }
}
