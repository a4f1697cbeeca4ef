//! matchConditions that are known before the body of a request is: those that read only parts of `request` which its
//! path, its method and its user tell.
//!
//! A policy whose conditions are false needs no body. What is said here is what judging would say later; where that is
//! not certain, the policy may match.

use std::cell::{Cell, OnceCell, RefCell};

use fairgate_cel::CelJson;
use smallvec::SmallVec;

use crate::attributes::AdmissionObjects;
use crate::evaluation::values::request_value;
use crate::evaluation::{EvaluationBudgets, EvaluationContext, is_certainly_unmet};
use crate::matching::{EarlyMatch, MatchRequest};
use crate::policy::CompiledPolicy;

/// The highest cost of the conditions of all policies that are evaluated for one request, in CEL cost units. Further ones
/// are left to judging, which has worker threads.
const BUDGET: u64 = 20_000;
/// The steps that the conditions of one policy may take besides those that their cost allows.
const WORK_LIMIT: u64 = 20_000;
/// For so many different constraints of policies it is noted whether they match.
const MOST_CONSTRAINTS: usize = 16;
/// The fields of `request` that a body may tell.
const OF_BODY: [&str; 2] = ["options", "dryRun"];

/// The conditions of the policies that may match one request.
pub(crate) struct EarlyConditions<'r> {
    request: &'r MatchRequest<'r>,
    value: OnceCell<CelJson<'r>>,
    left: Cell<u64>,
    /// What was found for the constraints with these numbers.
    matches: RefCell<SmallVec<[(u32, EarlyMatch); MOST_CONSTRAINTS]>>,
}

impl<'r> EarlyConditions<'r> {
    pub(crate) fn new(request: &'r MatchRequest<'r>) -> Self {
        Self {
            request,
            value: OnceCell::new(),
            left: Cell::new(BUDGET),
            matches: RefCell::default(),
        }
    }

    /// Whether the policy may match, as far as that is known before the objects are. Allocates nothing unless the policy has
    /// conditions that are false whatever the objects are.
    pub(crate) fn may_match(&self, policy: &CompiledPolicy) -> bool {
        match self.early_match(policy) {
            EarlyMatch::No => false,
            EarlyMatch::Possible => true,
            EarlyMatch::Sound => !self.rule_out(policy),
        }
    }

    /// Many policies have the constraints of others.
    fn early_match(&self, policy: &CompiledPolicy) -> EarlyMatch {
        let mut known = self.matches.borrow_mut();
        if let Some((_, found)) = known.iter().find(|(of, _)| *of == policy.constraints) {
            return *found;
        }
        let found = policy.early_match(self.request);
        if known.len() < MOST_CONSTRAINTS {
            known.push((policy.constraints, found));
        }
        found
    }

    /// Whether a condition of the policy is false, whatever the objects are.
    fn rule_out(&self, policy: &CompiledPolicy) -> bool {
        let Some(fields) = &policy.early_fields else {
            return false;
        };
        fields.iter().all(|field| self.is_known(field))
            && self.is_sound(policy)
            && self.is_false(policy)
    }

    fn is_known(&self, field: &str) -> bool {
        let attributes = self.request.attributes;
        let has_kind = !attributes.kind.kind.is_empty();
        let has_name = !self.request.is_name_unknown;
        match field {
            "name" => has_name,
            // That of a namespace object is its name.
            "namespace" => has_name || attributes.resource.resource != "namespaces",
            "kind" | "requestKind" => has_kind,
            other => !OF_BODY.contains(&other),
        }
    }

    /// Whether judging comes to the conditions without an error before them, if the policy matches without one.
    fn is_sound(&self, policy: &CompiledPolicy) -> bool {
        let request = self.request;
        let attributes = request.attributes;
        let namespace = attributes.namespace;
        policy.param_kind.is_none()
            && policy.bindings.iter().all(|binding| {
                let matcher = binding.matcher.as_ref();
                matcher.is_none_or(|of| of.as_ref().is_ok_and(|of| of.is_sound(request)))
            })
            && (namespace.is_empty() || request.inputs.cluster().namespace(namespace).is_ok())
    }

    fn is_false(&self, policy: &CompiledPolicy) -> bool {
        let attributes = self.request.attributes;
        let make = || request_value(attributes, attributes.resource, attributes.kind);
        let budgets = EvaluationBudgets {
            conditions: self.left.get(),
            ..EvaluationBudgets::default()
        };
        let context = EvaluationContext {
            inputs: self.request.inputs,
            objects: AdmissionObjects::default(),
            requested: Some(self.value.get_or_init(make)),
            request: None,
            namespace: None,
            full_namespace: None,
            authorizer: None,
            resource_check: None,
            budgets,
            work: WORK_LIMIT,
        };
        let (is_unmet, left) = is_certainly_unmet(policy, &context);
        self.left.set(left);
        is_unmet
    }
}
