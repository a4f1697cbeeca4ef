//! What is done about one request, before its body is read.

use std::sync::Arc;

use fairgate_admission::{AdmissionAttributes, AdmissionOperation, Fidelity, PossiblePolicy};
use fairgate_core::digest::User;

use crate::{
    admitter::Admitter,
    cluster_state::{ClusterState, ServedResource},
    facts::{WriteFacts, equivalents, kind_of},
    match_inputs::MatchInputs,
    options::QueryParameters,
    published::ForwardedPolicies,
    write_request::ForwardedWrite,
};

/// How a request is judged.
#[derive(Clone, Debug)]
pub(crate) struct JudgePlan {
    pub(crate) policies: Arc<ForwardedPolicies>,
    pub(crate) facts: WriteFacts,
    pub(crate) query: QueryParameters,
    /// The greatest fidelity that one of the policies asks for.
    pub(crate) fidelity: Fidelity,
    /// Whether a policy may read the name of the object.
    pub(crate) reads_name: bool,
    /// Whether a policy may read what has a default.
    pub(crate) reads_defaults: bool,
}

/// Whether any policy may match a request. Costs some searches in hash tables, and allocates nothing.
pub(crate) fn may_match(
    admitter: &Admitter,
    policies: &ForwardedPolicies,
    write: &ForwardedWrite<'_>,
    user: &User,
) -> bool {
    if policies.set.is_empty() {
        return false;
    }
    let cluster = &*admitter.cluster;
    let served = served(cluster, write);
    let served = served.as_deref();
    let equivalents = equivalents(served);
    let inputs = MatchInputs::new(cluster, &equivalents);
    operations(write).any(|operation| {
        let attributes = write.attributes(operation, kind_of(served), user);
        !is_exempt(policies, &attributes) && policies.set.may_match(&attributes, &inputs)
    })
}

/// Whether a request is for a resource that is not known, and a policy may be about it as another version of one that is. Costs a
/// search in a table if it is known.
pub(crate) fn needs_discovery(
    admitter: &Admitter,
    policies: &ForwardedPolicies,
    write: &ForwardedWrite<'_>,
    user: &User,
) -> bool {
    let cluster = &*admitter.cluster;
    if policies.set.is_empty() || is_known(cluster, write) {
        return false;
    }
    let inputs = MatchInputs::new(cluster, &[]);
    operations(write).any(|operation| {
        let attributes = write.attributes(operation, kind_of(None), user);
        !is_exempt(policies, &attributes)
            && policies.set.may_match_another_version(&attributes, &inputs)
    })
}

/// Whether the upstream is known to serve the resource of a request.
pub(crate) fn is_known(cluster: &dyn ClusterState, write: &ForwardedWrite<'_>) -> bool {
    served(cluster, write).is_some()
}

/// Whether no policy is about a request, whatever its rules say.
fn is_exempt(policies: &ForwardedPolicies, attributes: &AdmissionAttributes<'_>) -> bool {
    let is_policy = attributes.resource.group == "admissionregistration.k8s.io";
    attributes.is_exempt() && !(is_policy && policies.are_static)
}

/// What the request may turn out to do.
fn operations(write: &ForwardedWrite<'_>) -> impl Iterator<Item = AdmissionOperation> {
    let creates = write.may_create().then_some(AdmissionOperation::Create);
    std::iter::once(write.operation).chain(creates)
}

fn served(cluster: &dyn ClusterState, write: &ForwardedWrite<'_>) -> Option<Arc<ServedResource>> {
    let of = write.resource;
    cluster.resource(of.group, of.version, of.resource, write.subresource)
}

impl JudgePlan {
    /// The plan for a request that policies may match.
    pub(crate) fn new(
        policies: &Arc<ForwardedPolicies>,
        cluster: &dyn ClusterState,
        write: &ForwardedWrite<'_>,
        user: &Arc<User>,
        query: &str,
    ) -> Self {
        let served = served(cluster, write);
        let mut possible: Vec<PossiblePolicy<'_>> = Vec::new();
        {
            let served = served.as_deref();
            let equivalents = equivalents(served);
            let inputs = MatchInputs::new(cluster, &equivalents);
            for operation in operations(write) {
                let attributes = write.attributes(operation, kind_of(served), user);
                possible.extend(policies.set.possible(&attributes, &inputs));
            }
        }
        let fidelities = possible
            .iter()
            .filter_map(|policy| policies.fidelity_of(policy.name));
        let fidelity = fidelities.max().unwrap_or(Fidelity::Completed);
        let query = QueryParameters::parse(query);
        let mut facts = WriteFacts::new(write, user, served);
        facts.dry_run = query.is_dry_run();
        let reads_defaults = possible.iter().any(|policy| policy.reads_defaults);
        // A namespace has its name as a label, too.
        let reads_name = facts.is_namespace() || possible.iter().any(|policy| policy.reads_name);
        Self {
            policies: Arc::clone(policies),
            facts,
            query,
            fidelity,
            reads_name,
            reads_defaults,
        }
    }
}
