//! matchConditions that can be evaluated before the body of a request is read: those that read only parts of `request` that
//! are known from path, method and user.
//!
//! A policy whose conditions are false needs no body. What is said here is what evaluating would say later; where that is
//! not certain, the policy may match.

use std::cell::{Cell, OnceCell, RefCell};

use fairgate_cel::CelJson;
use smallvec::SmallVec;

use crate::evaluation::values::request_value;
use crate::evaluation::{EarlyResult, EarlyRun};
use crate::matching::{EarlyMatch, MatchRequest};
use crate::policy::CompiledPolicy;

/// The highest cost of the conditions of all policies that are evaluated for one request, in CEL cost units. Further ones
/// are left to evaluating, which has worker threads.
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
    value: &'r OnceCell<CelJson<'r>>,
    run: OnceCell<EarlyRun<'r>>,
    /// Whether the namespace of the request is known, where that was asked.
    has_namespace: OnceCell<bool>,
    left: Cell<u64>,
    /// What was found for the constraints with these numbers.
    matches: RefCell<SmallVec<[(u32, EarlyMatch); MOST_CONSTRAINTS]>>,
    /// What the conditions with these numbers gave, once one of them is asked.
    shared: RefCell<Vec<Option<EarlyResult>>>,
    shared_count: usize,
}

impl<'r> EarlyConditions<'r> {
    /// For policies that share so many conditions. `value` holds the value of `request`, once it is needed.
    pub(crate) fn new(
        request: &'r MatchRequest<'r>,
        value: &'r OnceCell<CelJson<'r>>,
        shared_count: usize,
    ) -> Self {
        Self {
            request,
            value,
            run: OnceCell::new(),
            has_namespace: OnceCell::new(),
            left: Cell::new(BUDGET),
            matches: RefCell::default(),
            shared: RefCell::default(),
            shared_count,
        }
    }

    /// Whether the policy may match, as far as that is known before the objects are. Allocates nothing unless the policy has
    /// conditions that are false whatever the objects are.
    pub(crate) fn may_match(&self, policy: &'r CompiledPolicy) -> bool {
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
    fn rule_out(&self, policy: &'r CompiledPolicy) -> bool {
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

    /// Whether evaluating comes to the conditions without an error before them, if the policy matches without one.
    fn is_sound(&self, policy: &CompiledPolicy) -> bool {
        let request = self.request;
        let attributes = request.attributes;
        let namespace = attributes.namespace;
        policy.param_kind.is_none()
            && policy.bindings.iter().all(|binding| {
                let matcher = binding.matcher.as_ref();
                matcher.is_none_or(|of| of.as_ref().is_ok_and(|of| of.is_sound(request)))
            })
            && (namespace.is_empty() || self.has_namespace(namespace))
    }

    fn has_namespace(&self, name: &str) -> bool {
        let find = || self.request.inputs.cluster().namespace(name).is_ok();
        *self.has_namespace.get_or_init(find)
    }

    fn run(&self) -> &EarlyRun<'r> {
        self.run.get_or_init(|| {
            let attributes = self.request.attributes;
            let make = || request_value(attributes, attributes.resource, attributes.kind);
            EarlyRun::new(self.request.inputs, self.value.get_or_init(make))
        })
    }

    /// Whether one is false and none is an error. All are evaluated, because evaluating evaluates all, within a budget.
    fn is_false(&self, policy: &'r CompiledPolicy) -> bool {
        let work = WORK_LIMIT / policy.conditions.len().max(1) as u64;
        let (mut is_false, mut cost) = (false, 0_u64);
        let conditions = policy.conditions.iter().zip(&policy.shared_conditions);
        for (index, (condition, shared)) in conditions.enumerate() {
            let evaluate = || {
                let limits = (self.left.get(), work);
                self.run().condition(index, condition, limits)
            };
            let result = self.result(*shared, evaluate);
            let Some(EarlyResult {
                is_false: Some(one),
                cost: of_one,
            }) = result
            else {
                return false;
            };
            is_false |= one;
            cost = cost.saturating_add(of_one);
        }
        is_false && cost <= BUDGET
    }

    /// The result of a condition, which is evaluated once if several policies have it, unless an observer is told of each.
    fn result(
        &self,
        shared: Option<u32>,
        evaluate: impl FnOnce() -> Option<EarlyResult>,
    ) -> Option<EarlyResult> {
        let mut shared_results = self.shared.borrow_mut();
        if shared_results.is_empty() && self.request.inputs.observer().is_none() {
            shared_results.resize(self.shared_count, None);
        }
        let place = shared.and_then(|number| shared_results.get_mut(number as usize));
        if let Some(Some(known)) = place {
            return Some(*known);
        }
        if self.left.get() == 0 {
            return None;
        }
        let result = evaluate();
        let cost = result.map_or(BUDGET, |result| result.cost);
        self.left.set(self.left.get().saturating_sub(cost));
        if let Some(place) = place {
            *place = result;
        }
        result
    }
}
