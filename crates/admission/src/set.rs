//! The policies that are in force, and evaluating a request by them.

use std::cell::OnceCell;
use std::collections::HashMap;

use fairgate_cel::PatternBudget;
use fairgate_objects::{defaults::DefaultedKinds, schema::UnreadParts};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::early::EarlyConditions;
use crate::evaluate::{Evaluate, SharedValues};
use crate::evaluation::EvaluationBudgets;
use crate::inputs::{AdmissionInputs, PolicyParamKind};
use crate::matching::index::{Candidates, PolicyIndex};
use crate::matching::{MatchRequest, ResourceMatcher};
use crate::pattern_limits;
use crate::policy::CompiledPolicy;
use crate::verdict::{AdmissionAbort, AdmissionVerdict};

/// A policy that may match a request whose objects are not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PossiblePolicy<'p> {
    /// Its name.
    pub name: &'p str,
    /// Whether its expressions may read the name of the object.
    pub reads_name: bool,
    /// The kinds of objects of which its expressions may read a field that has a default, or that depends on one.
    pub reads_defaults: DefaultedKinds,
    /// Whether its expressions may read who owns the fields of the object.
    pub reads_owners: bool,
    /// The kind of its params; `None` if it has none.
    pub param_kind: Option<&'p PolicyParamKind>,
}

/// A policy or binding that is not for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyMismatch<'p> {
    /// The name of the policy.
    pub policy: &'p str,
    /// The name of the binding that excludes the request; `None` if the policy does.
    pub binding: Option<&'p str>,
    /// The field of `matchConstraints` or `matchResources` that says so, such as `objectSelector`.
    pub field: &'static str,
}

/// Compiled policies with their bindings. It does not change; a new one replaces it.
#[derive(Default)]
pub struct PolicySet {
    policies: Vec<CompiledPolicy>,
    index: PolicyIndex,
    /// The number of conditions that several policies have.
    shared_conditions: usize,
    /// The parts of objects that no policy reads.
    unread: UnreadParts,
}

impl PolicySet {
    /// Compiles policies. They are evaluated in the order given, each with its bindings in the order given; policies
    /// without binding are left out, bindings without policy are ignored.
    ///
    /// Nothing here fails, as in kube-apiserver: an expression that does not compile is an error when it is needed, and
    /// a wrong configuration is an error for each request that matches. The objects must have their defaults.
    ///
    /// It costs about 0.1 ms for a policy of usual size. What the patterns of one policy, and of all of them, may take is
    /// limited in counted steps and bytes.
    pub fn compile(
        policies: &[ValidatingAdmissionPolicy],
        bindings: &[ValidatingAdmissionPolicyBinding],
    ) -> Self {
        let mut set = Self {
            policies: Vec::with_capacity(policies.len()),
            index: PolicyIndex::default(),
            shared_conditions: 0,
            unread: UnreadParts::NONE,
        };
        let mut distinct = HashMap::new();
        let mut patterns = PatternBudget::new(pattern_limits::OF_SET);
        let mut by_policy: HashMap<&str, Vec<_>> = HashMap::new();
        for binding in bindings {
            let own = by_policy.entry(&binding.spec.policy_name).or_default();
            own.push(binding);
        }
        for policy in policies {
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            let Some(own) = by_policy.get(name) else {
                continue;
            };
            let number = u32::try_from(set.policies.len()).unwrap_or(u32::MAX);
            let mut compiled = patterns.within(pattern_limits::OF_POLICY, |patterns| {
                CompiledPolicy::compile(policy, own, patterns)
            });
            let constraints = policy.spec.as_ref().map(|spec| &spec.match_constraints);
            // Compared as text: most sets repeat a few matchConstraints, and these are matched once for a request.
            let constraints = serde_json::to_string(&constraints).unwrap_or_default();
            compiled.constraints = *distinct.entry(constraints).or_insert(number);
            set.index.insert(number, compiled.matcher.as_ref());
            set.policies.push(compiled);
        }
        set.share_conditions();
        let unread = set.policies.iter().map(|policy| policy.unread);
        set.unread = unread.fold(UnreadParts::ALL, UnreadParts::and);
        set
    }

    /// The parts of objects that none of the policies reads, whatever it matches: which policies match is known for certain only
    /// when a request is evaluated, since the labels of its namespace may change until then.
    pub fn unread_parts(&self) -> UnreadParts {
        self.unread
    }

    /// Numbers the conditions that several policies have and that read only `request`: they are evaluated once for a request.
    fn share_conditions(&mut self) {
        let early = |policy: &&CompiledPolicy| policy.early_fields.is_some();
        let sources = self.policies.iter().filter(early);
        let sources = sources.flat_map(|policy| &policy.conditions);
        let mut counts: HashMap<Box<str>, (usize, u32)> = HashMap::new();
        for condition in sources.filter(|condition| condition.program.is_ok()) {
            counts
                .entry(condition.source.as_str().into())
                .or_default()
                .0 += 1;
        }
        let mut next = 0;
        for policy in &mut self.policies {
            if policy.early_fields.is_none() {
                continue;
            }
            let numbers = policy.conditions.iter().map(|condition| {
                let (count, number) = counts.get_mut(condition.source.as_str())?;
                // A condition that only one policy has is not worth a place among the results of a request.
                if *count < 2 || condition.program.is_err() {
                    return None;
                }
                if *number == 0 {
                    next += 1;
                    *number = next;
                }
                Some(*number - 1)
            });
            policy.shared_conditions = numbers.collect();
        }
        self.shared_conditions = next as usize;
    }

    /// Compiles policies and bindings that are given as JSON; see [`compile`](Self::compile).
    ///
    /// # Errors
    ///
    /// When one of them is not a policy or a binding. Objects that were validated cause no error.
    pub fn from_json(policies: &[&Value], bindings: &[&Value]) -> Result<Self, serde_json::Error> {
        let policies = policies
            .iter()
            .map(|one| ValidatingAdmissionPolicy::deserialize(*one));
        let bindings = bindings
            .iter()
            .map(|one| ValidatingAdmissionPolicyBinding::deserialize(*one));
        let (policies, bindings) = (
            policies.collect::<Result<Vec<_>, _>>()?,
            bindings.collect::<Result<Vec<_>, _>>()?,
        );
        Ok(Self::compile(&policies, &bindings))
    }

    /// The number of policies.
    pub fn len(&self) -> usize {
        self.policies.len()
    }

    /// Whether there is no policy.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether any policy may match the request, whose objects need not be known yet: if none does, no body has to be
    /// read. It asks the host for the namespace and for equivalent resources alone, and allocates nothing unless a policy
    /// has matchConditions that read only `request`: if one of these is certain to be false, the policy does not match.
    ///
    /// A creation without a name in its path may match rules for names, because the object has the name.
    ///
    /// It costs some searches in hash tables, and a comparison for each policy that is about this resource.
    pub fn may_match(
        &self,
        attributes: &AdmissionAttributes<'_>,
        inputs: &dyn AdmissionInputs,
    ) -> bool {
        let request = MatchRequest::before_body(attributes, inputs);
        let value = OnceCell::new();
        let conditions = EarlyConditions::new(&request, &value, self.shared_conditions);
        let mut policies = self.candidate_policies(&request);
        policies.any(|policy| conditions.may_match(policy))
    }

    /// Whether a policy or binding may match the request as another version of its resource, and does not as it is requested. To be
    /// asked about a resource that the host does not know: it may have just been defined, as one that policies are about.
    pub fn may_match_another_version(
        &self,
        attributes: &AdmissionAttributes<'_>,
        inputs: &dyn AdmissionInputs,
    ) -> bool {
        let request = MatchRequest::before_body(attributes, inputs);
        self.candidate_policies(&request)
            .any(|policy| policy.may_match_another_version(&request))
    }

    /// The policies that may match the request, in order; [`may_match`](Self::may_match) says whether there are any.
    pub fn possible<'a>(
        &'a self,
        attributes: &AdmissionAttributes<'_>,
        inputs: &dyn AdmissionInputs,
    ) -> Vec<PossiblePolicy<'a>> {
        let request = MatchRequest::before_body(attributes, inputs);
        let value = OnceCell::new();
        let conditions = EarlyConditions::new(&request, &value, self.shared_conditions);
        let policies = self.candidate_policies(&request);
        policies
            .filter(|policy| conditions.may_match(policy))
            .map(|policy| PossiblePolicy {
                name: &policy.name,
                reads_name: policy.reads_name,
                reads_defaults: policy.reads_defaults,
                reads_owners: policy.reads_owners,
                param_kind: policy.param_kind.as_ref(),
            })
            .collect()
    }

    fn numbered(&self, number: u32) -> &CompiledPolicy {
        &self.policies[number as usize]
    }

    /// Evaluates a request. All policies are evaluated, even after one has denied it.
    ///
    /// # Errors
    ///
    /// When the namespace of the request is not available, which refuses the request whatever the failure policies are.
    pub fn evaluate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        inputs: &'a dyn AdmissionInputs,
        budgets: EvaluationBudgets,
    ) -> Result<AdmissionVerdict<'a>, AdmissionAbort> {
        let request = MatchRequest::with_objects(attributes, inputs);
        let candidates = self.candidates(&request);
        let mut evaluate = Evaluate::new(request, budgets, candidates.len());
        let mut values = SharedValues::default();
        for number in candidates {
            evaluate.policy(self.numbered(number), &mut values)?;
        }
        Ok(evaluate.verdict())
    }

    /// The policies and bindings that are not for this request, and why. For tools that explain a verdict.
    pub fn mismatches<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        inputs: &'a dyn AdmissionInputs,
    ) -> Vec<PolicyMismatch<'a>> {
        let request = MatchRequest::with_objects(attributes, inputs);
        let mut found = Vec::new();
        for policy in &self.policies {
            let mut mismatch = |binding, matcher: &ResourceMatcher| {
                let field = matcher.mismatch(&request);
                found.extend(field.map(|field| PolicyMismatch {
                    policy: &policy.name,
                    binding,
                    field,
                }));
                field.is_some()
            };
            let Ok(matcher) = &policy.matcher else {
                continue;
            };
            if mismatch(None, matcher) {
                continue;
            }
            for binding in &policy.bindings {
                if let Some(Ok(matcher)) = &binding.matcher {
                    mismatch(Some(&binding.name), matcher);
                }
            }
        }
        found
    }

    fn candidates(&self, request: &MatchRequest<'_>) -> Candidates {
        if self.policies.is_empty() {
            return Candidates::new();
        }
        self.index.candidates(request)
    }

    /// The policies that the index finds for the request, in order.
    fn candidate_policies(
        &self,
        request: &MatchRequest<'_>,
    ) -> impl Iterator<Item = &CompiledPolicy> {
        let candidates = self.candidates(request);
        candidates.into_iter().map(|number| self.numbered(number))
    }
}

impl std::fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.policies.iter().map(|policy| &policy.name);
        f.debug_list().entries(names).finish()
    }
}

/// Where the policies in force are published.
pub trait PolicySetSource: std::fmt::Debug + Send + Sync + 'static {
    /// The policies in force; `None` until they are known.
    fn policies(&self) -> Option<std::sync::Arc<PolicySet>>;
}
