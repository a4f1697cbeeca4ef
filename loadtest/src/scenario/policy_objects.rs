//! The policy objects of a scenario, compiled as fairgate does it.

use serde_json::Value;

use super::Scenario;
use fairgate_core::{
    apf::{Compiled, ObjectSet, Policy, PolicySettings},
    finding::Finding,
};

/// Fixed, so that every run deals the same queues.
pub(crate) const HASH_KEY: [u8; 16] = *b"fairgate loadtst";

/// Compiles policy objects for the gateway of `scenario`.
///
/// # Errors
///
/// All findings; the origin of each is the index of its object.
pub(crate) fn compile(scenario: &Scenario, objects: &[Value]) -> Result<Policy, Vec<Finding>> {
    let documents = objects.iter().enumerate();
    let documents = documents.map(|(index, object)| (index.to_string(), object.clone()));
    let set = ObjectSet::read(documents).with_bootstrap(scenario.gateway.bootstrap);
    let settings = PolicySettings {
        total_seats: scenario.gateway.total_seats,
        semantics: scenario.gateway.semantics,
        hash_key: HASH_KEY,
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let Compiled {
        policy, findings, ..
    } = Policy::compile(&set, &settings)?;
    let errors: Vec<Finding> = findings.into_iter().filter(Finding::is_error).collect();
    if errors.is_empty() {
        Ok(policy)
    } else {
        Err(errors)
    }
}
