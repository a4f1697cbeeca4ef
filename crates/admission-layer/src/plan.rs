//! What is done about one request, before its body is read.

use std::sync::Arc;

use fairgate_admission::{AdmissionAttributes, AdmissionOperation, Fidelity, PossiblePolicy};
use fairgate_core::digest::User;
use fairgate_objects::{defaults::DefaultedKinds, schema::UnreadParts};

use crate::{
    cluster::cluster_state::{ClusterState, ServedResource},
    cluster::match_inputs::MatchInputs,
    cluster::published::ForwardedPolicies,
    object::static_resources::static_resource,
    passes::request_evaluator::RequestEvaluator,
    request::facts::{WriteFacts, equivalents, kind_of},
    request::options::QueryParameters,
    request::write_request::ForwardedWrite,
};

/// How a request is evaluated.
#[derive(Clone, Debug)]
pub(crate) struct EvaluationPlan {
    pub(crate) policies: Arc<ForwardedPolicies>,
    /// Shared with jobs that evaluate it.
    pub(crate) facts: Arc<WriteFacts>,
    pub(crate) query: QueryParameters,
    /// The greatest fidelity that one of the policies asks for.
    pub(crate) fidelity: Fidelity,
    /// Whether a policy may read the name of the object.
    pub(crate) reads_name: bool,
    /// Whether a policy may read what has a default in objects of this kind.
    pub(crate) reads_defaults: bool,
    /// Who owns the fields of an object that the request creates; `None` if no policy reads that.
    pub(crate) owner: Option<String>,
    /// The parts of the object that neither policies nor what is made for them read.
    pub(crate) unread: UnreadParts,
}

/// Whether any policy may match a request. Costs some searches in hash tables, and allocates nothing.
pub(crate) fn may_match(
    evaluator: &RequestEvaluator,
    policies: &ForwardedPolicies,
    write: &ForwardedWrite<'_>,
    user: &User,
) -> bool {
    if policies.set.is_empty() {
        return false;
    }
    let cluster = &*evaluator.cluster;
    let served = served(cluster, write);
    let served = served.as_deref();
    let equivalents = equivalents(served);
    let inputs = MatchInputs::new(cluster, &equivalents);
    operations(write).any(|operation| {
        let attributes = write.attributes(operation, kind_of(served), user);
        !is_exempt(policies.are_static, &attributes) && policies.set.may_match(&attributes, &inputs)
    })
}

/// Whether a policy may be about a request, and the upstream must have told its resources for that to be evaluated. It must if the
/// policy may be about it as another version of its resource, which is not known. Until the resources have been read for the first time,
/// it must also if the resource is none of Kubernetes itself, or if the policy has params of a kind that is not known. Costs a search in
/// a table if the upstream has told the resource.
pub(crate) fn needs_discovery(
    evaluator: &RequestEvaluator,
    policies: &ForwardedPolicies,
    write: &ForwardedWrite<'_>,
    user: &User,
) -> bool {
    let cluster = &*evaluator.cluster;
    if policies.set.is_empty() || is_known(cluster, write) {
        return false;
    }
    let served = served(cluster, write);
    let served = served.as_deref();
    let equivalents = equivalents(served);
    let inputs = MatchInputs::new(cluster, &equivalents);
    operations(write).any(|operation| {
        let attributes = write.attributes(operation, kind_of(served), user);
        let lacks_resources = || {
            let possible = policies.set.possible(&attributes, &inputs);
            possible
                .iter()
                .any(|policy| served.is_none() || has_unknown_params(cluster, policy))
        };
        !is_exempt(policies.are_static, &attributes)
            && (policies.set.may_match_another_version(&attributes, &inputs)
                || !cluster.are_resources_known() && lacks_resources())
    })
}

fn has_unknown_params(cluster: &dyn ClusterState, policy: &PossiblePolicy<'_>) -> bool {
    let mut kind = policy.param_kind.iter();
    kind.any(|kind| cluster.param_scope(kind).is_err())
}

/// Whether the upstream is known to serve the resource of a request.
pub(crate) fn is_known(cluster: &dyn ClusterState, write: &ForwardedWrite<'_>) -> bool {
    discovered(cluster, write).is_some()
}

/// Whether no policy is about a request, whatever its rules say. `are_static` is whether the policies are from files.
pub(crate) fn is_exempt(are_static: bool, attributes: &AdmissionAttributes<'_>) -> bool {
    let is_policy = attributes.resource.group == "admissionregistration.k8s.io";
    attributes.is_exempt() && !(is_policy && are_static)
}

/// What the request may turn out to do.
fn operations(write: &ForwardedWrite<'_>) -> impl Iterator<Item = AdmissionOperation> {
    let creates = write.may_create().then_some(AdmissionOperation::Create);
    std::iter::once(write.operation).chain(creates)
}

fn discovered(
    cluster: &dyn ClusterState,
    write: &ForwardedWrite<'_>,
) -> Option<Arc<ServedResource>> {
    let of = write.resource;
    cluster.resource(of.group, of.version, of.resource, write.subresource)
}

/// The resource of a request as the upstream serves it. A resource of Kubernetes that discovery does not list, because it was not
/// read yet or is older than the resource, is what it is in every server of Kubernetes.
fn served(cluster: &dyn ClusterState, write: &ForwardedWrite<'_>) -> Option<Arc<ServedResource>> {
    let of = write.resource;
    discovered(cluster, write)
        .or_else(|| static_resource(of.group, of.version, of.resource, write.subresource))
}

impl EvaluationPlan {
    /// The facts, to be changed. They are copied if a job has them.
    pub(crate) fn facts_mut(&mut self) -> &mut WriteFacts {
        Arc::make_mut(&mut self.facts)
    }

    /// The plan for a request that policies may match.
    pub(crate) fn new(
        policies: &Arc<ForwardedPolicies>,
        cluster: &dyn ClusterState,
        write: &ForwardedWrite<'_>,
        user: &Arc<User>,
        query: &str,
        user_agent: &str,
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
        let reads_owners = possible.iter().any(|policy| policy.reads_owners);
        // What is converted to other versions is asked for by the names there, and each field has an owner.
        let is_one_version = (facts.served.as_deref()).is_none_or(|of| of.equivalents.len() <= 1);
        let unread = if is_one_version && !reads_owners {
            policies.set.unread_parts()
        } else {
            UnreadParts::NONE
        };
        let [group, _, kind] = &facts.kind;
        let defaulted = if is_one_version && !kind.is_empty() {
            DefaultedKinds::of(group, kind)
        } else {
            DefaultedKinds::UNKNOWN
        };
        let reads_any = |policy: &PossiblePolicy<'_>| policy.reads_defaults.meets(defaulted);
        // Defaults have owners, too.
        let reads_defaults = reads_owners || possible.iter().any(reads_any);
        // A namespace has its name as a label, too.
        let reads_name = facts.is_namespace() || possible.iter().any(|policy| policy.reads_name);
        Self {
            policies: Arc::clone(policies),
            facts: Arc::new(facts),
            fidelity,
            reads_name,
            reads_defaults,
            unread,
            owner: reads_owners.then(|| query.manager(user_agent)),
            query,
        }
    }
}
