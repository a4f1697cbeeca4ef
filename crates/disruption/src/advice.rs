//! Advice about budgets: finds those that never allow an eviction, so that nodes with their pods cannot be drained, and
//! those that have no effect. Such budgets are valid, but often written by mistake.

use std::collections::BTreeMap;

use fairgate_core::finding::{Finding, Severity};

use crate::{
    budget::DisruptionBudget, int_or_percent::IntOrPercent, never_allows::NeverAllows, pod::Pod,
};
use fairgate_objects::disruption_budget::validate_spec;

/// The maximum number of names of pods in one finding.
const MOST_NAMES: usize = 3;

/// A budget and where it was read, such as `file.yaml, document 2`.
#[derive(Clone, Debug)]
pub struct BudgetSource {
    /// The file and document, or other place, for the finding.
    pub origin: String,
    /// The budget that was read there.
    pub budget: DisruptionBudget,
}

impl BudgetSource {
    fn finding(&self, severity: Severity, field: &str, message: String, remedy: &str) -> Finding {
        Finding {
            severity,
            origin: self.origin.clone(),
            kind: "PodDisruptionBudget".to_owned(),
            name: self.budget.name.clone(),
            field: field.to_owned(),
            message,
            remedy: remedy.to_owned(),
        }
    }

    fn warning(&self, field: &str, message: impl Into<String>, remedy: &str) -> Finding {
        self.finding(Severity::Warning, field, message.into(), remedy)
    }
}

/// Pods with the same labels and owner: one pod, or all pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// One of the pods. For a workload, its name is that of the workload as kubectl prints it: `deployment/web`.
    pub pod: Pod,
    /// The desired number of pods; `None` if it depends on the cluster, as for a `DaemonSet`.
    pub count: Option<usize>,
}

impl PodGroup {
    /// A group of one pod.
    pub fn one(pod: Pod) -> Self {
        let count = Some(1);
        Self { pod, count }
    }

    /// The kind of the owner, if owners of this kind have no scale, which the disruption controller would need.
    fn owner_without_scale(&self) -> Option<&str> {
        let kind = &*self.pod.controller.as_ref()?.kind;
        ["DaemonSet", "Job", "Node"].contains(&kind).then_some(kind)
    }
}

/// Reviews a set of budgets. `pods` are the pods of their namespaces. If `pods` is empty, they are not known, and only
/// the budgets themselves are checked. The cost is proportional to the number of budgets times the number of pods.
pub fn review(budgets: &[BudgetSource], pods: &[PodGroup]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in budgets {
        let errors = validate_spec(&source.budget.object(), None);
        if errors.is_empty() {
            review_bounds(source, &mut findings);
            if !pods.is_empty() {
                review_pods(source, pods, &mut findings);
            }
        }
        findings.extend(errors.into_iter().map(|error| {
            let message = error.message();
            let remedy = "correct the field; the API server refuses this object";
            source.finding(Severity::Error, &error.field, message, remedy)
        }));
    }
    review_overlaps(budgets, pods, &mut findings);
    findings
}

/// Checks a budget without its pods.
fn review_bounds(source: &BudgetSource, findings: &mut Vec<Finding>) {
    const LOWER: &str = "leave room for at least one disruption, for example maxUnavailable: 1";
    let spec = &source.budget.spec;
    let no_eviction =
        "no ready pod can ever be evicted, so nodes with these pods cannot be drained";
    match NeverAllows::by_spec(spec) {
        Some(NeverAllows::NoneUnavailable(_)) => {
            let message = format!("no pod may be unavailable: {no_eviction}");
            findings.push(source.warning("spec.maxUnavailable", message, LOWER));
        }
        Some(NeverAllows::AllAvailable(_)) => {
            let message = format!("all pods must be available: {no_eviction}");
            findings.push(source.warning("spec.minAvailable", message, LOWER));
        }
        Some(NeverAllows::NoBound) => {
            let message = format!("without minAvailable and maxUnavailable {no_eviction}");
            findings.push(source.warning("spec", message, "set minAvailable or maxUnavailable"));
        }
        Some(NeverAllows::TooFewPods { .. }) | None => {}
    }
    if source.budget.object()["spec"]["selector"].is_null() {
        let message = "without a selector the budget covers no pod";
        let remedy = "set the selector; {} selects all pods of the namespace";
        findings.push(source.warning("spec.selector", message, remedy));
    }
}

/// Checks a budget with the pods that it covers.
fn review_pods(source: &BudgetSource, pods: &[PodGroup], findings: &mut Vec<Finding>) {
    let budget = &source.budget;
    let covered = pods.iter().filter(|group| budget.selects(&group.pod));
    let covered: Vec<&PodGroup> = covered.collect();
    if covered.is_empty() {
        if !budget.object()["spec"]["selector"].is_null() {
            let message = "the selector matches none of the pods";
            let remedy = "compare the selector with the labels of the pods";
            findings.push(source.warning("spec.selector", message, remedy));
        }
        return;
    }
    // `None` if the number of any group is unknown.
    let count: Option<usize> = covered.iter().map(|group| group.count).sum();
    if let (Ok(Some(IntOrPercent::Int(least))), Some(count @ 1..)) =
        (&budget.spec.min_available, count)
        && usize::try_from(*least).is_ok_and(|least| least >= count)
    {
        let message = format!(
            "{least} pods must be available and there are {count}: no ready pod can be evicted"
        );
        let remedy = "lower minAvailable or add replicas";
        findings.push(source.warning("spec.minAvailable", message, remedy));
    }
    review_owners(source, &covered, findings);
}

/// Checks the owners of a budget's pods, if the budget needs their scales for the expected number of pods.
fn review_owners(source: &BudgetSource, covered: &[&PodGroup], findings: &mut Vec<Finding>) {
    let budget = &source.budget;
    let uses_scales = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Ok(Some(_)), _) => Some("spec.maxUnavailable"),
        (_, Ok(Some(IntOrPercent::Percent(_)))) => Some("spec.minAvailable"),
        _ => None,
    };
    let Some(field) = uses_scales else {
        return;
    };
    let named = |is_meant: &dyn Fn(&PodGroup) -> bool| -> Vec<&str> {
        let meant = covered.iter().filter(|group| is_meant(group));
        meant.map(|group| &*group.pod.name).collect()
    };
    let unmanaged = named(&|group| group.pod.controller.is_none());
    if !unmanaged.is_empty() {
        let message = format!(
            "pods without a controller do not count as expected pods: {}",
            names(&unmanaged)
        );
        let remedy = "use minAvailable with an integer for pods without a controller";
        findings.push(source.warning(field, message, remedy));
    }
    let Some(kind) = covered.iter().find_map(|group| group.owner_without_scale()) else {
        return;
    };
    let owned = named(&|group| group.owner_without_scale() == Some(kind));
    let message = format!(
        "a {kind} has no scale subresource, so its expected pods cannot be counted and the budget never allows a disruption: {}",
        names(&owned)
    );
    let remedy = "use minAvailable with an integer, or leave these pods out of the selector";
    findings.push(source.warning(field, message, remedy));
}

/// Finds pods that several budgets cover, or, without pods, budgets with the same selector.
fn review_overlaps(budgets: &[BudgetSource], pods: &[PodGroup], findings: &mut Vec<Finding>) {
    const REMEDY: &str = "make the selectors disjoint; the eviction of a pod of two budgets fails";
    let mut overlaps: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    for PodGroup { pod, .. } in pods {
        let all = budgets.iter().enumerate();
        let mut covering = all.filter(|(_, one)| one.budget.selects(pod));
        if let (Some((first, _)), Some((second, _))) = (covering.next(), covering.next()) {
            overlaps.entry((first, second)).or_default().push(&pod.name);
        }
    }
    for ((first, second), pods) in overlaps {
        let first = &budgets[first].budget.name;
        let message = format!("covers the same pods as {first:?}: {}", names(&pods));
        findings.push(budgets[second].warning("spec.selector", message, REMEDY));
    }
    if !pods.is_empty() {
        return;
    }
    for (index, source) in budgets.iter().enumerate() {
        let selector = |one: &DisruptionBudget| one.object()["spec"]["selector"].clone();
        let same = budgets[..index].iter().find(|other| {
            let selector_of_source = selector(&source.budget);
            other.budget.namespace == source.budget.namespace
                && !selector_of_source.is_null()
                && selector(&other.budget) == selector_of_source
        });
        if let Some(other) = same {
            let message = format!("has the same selector as {:?}", other.budget.name);
            findings.push(source.warning("spec.selector", message, REMEDY));
        }
    }
}

/// The first names, and the number of the others.
fn names(all: &[&str]) -> String {
    let shown = all[..all.len().min(MOST_NAMES)].join(", ");
    match all.len() - all.len().min(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn source(name: &str, spec: &Value) -> BudgetSource {
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        BudgetSource {
            origin: format!("{name}.yaml"),
            budget: DisruptionBudget::from_value(object).unwrap(),
        }
    }

    fn pod(name: &str, app: &str, owned: bool) -> Pod {
        let mut metadata = json!({"name": name, "namespace": "ns", "labels": {"app": app}});
        if owned {
            metadata["ownerReferences"] = json!([{"kind": "ReplicaSet", "controller": true}]);
        }
        Pod::from_value(&json!({"metadata": metadata})).unwrap()
    }

    fn messages(budgets: &[BudgetSource], pods: &[Pod]) -> Vec<String> {
        let pods: Vec<_> = pods.iter().cloned().map(PodGroup::one).collect();
        let findings = review(budgets, &pods);
        findings
            .into_iter()
            .map(|finding| format!("{} {}: {}", finding.name, finding.field, finding.message))
            .collect()
    }

    fn spec(field: &str, bound: Value) -> Value {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        spec[field] = bound;
        spec
    }

    #[test]
    fn budgets_that_allow_no_eviction_are_found() {
        for (spec, field) in [
            (spec("maxUnavailable", json!(0)), "spec.maxUnavailable"),
            (spec("maxUnavailable", json!("0%")), "spec.maxUnavailable"),
            (spec("minAvailable", json!("100%")), "spec.minAvailable"),
            (json!({"selector": {}}), "spec"),
            (json!({"minAvailable": 1}), "spec.selector"),
        ] {
            let findings = review(&[source("a", &spec)], &[]);
            let [finding] = findings.as_slice() else {
                panic!("one finding: {findings:?}");
            };
            assert_eq!((finding.field.as_str(), finding.is_error()), (field, false));
        }
        for spec in [
            spec("maxUnavailable", json!(1)),
            spec("minAvailable", json!("99%")),
            spec("minAvailable", json!(0)),
        ] {
            assert!(review(&[source("a", &spec)], &[]).is_empty());
        }
        let findings = review(&[source("a", &spec("minAvailable", json!("x")))], &[]);
        assert!(findings.len() == 1 && findings[0].is_error());
    }

    #[test]
    fn pods_show_what_budgets_alone_do_not() {
        let web = [pod("w1", "web", true), pod("w2", "web", true)];
        let one = |spec: &Value, pods: &[Pod]| messages(&[source("a", spec)], pods);
        assert!(one(&spec("minAvailable", json!(1)), &web).is_empty());
        assert_eq!(
            one(&spec("minAvailable", json!(2)), &web),
            [
                "a spec.minAvailable: 2 pods must be available and there are 2: no ready pod can be \
                 evicted"
            ]
        );
        assert_eq!(
            one(&spec("minAvailable", json!(1)), &[pod("d", "db", true)]),
            ["a spec.selector: the selector matches none of the pods"]
        );
        let bare: Vec<Pod> = (0..5)
            .map(|n| pod(&format!("w{n}"), "web", false))
            .collect();
        let text = "pods without a controller do not count as expected pods: w0, w1, w2 and 2 more";
        assert_eq!(
            one(&spec("minAvailable", json!("50%")), &bare),
            [format!("a spec.minAvailable: {text}")]
        );
        assert_eq!(
            one(&spec("maxUnavailable", json!(1)), &bare),
            [format!("a spec.maxUnavailable: {text}")]
        );
        assert!(one(&spec("minAvailable", json!(2)), &bare).is_empty());
    }

    #[test]
    fn workloads_stand_for_their_pods() {
        let group = |kind: &str, count| {
            let owner = json!([{"kind": kind, "controller": true}]);
            let metadata = json!({"name": format!("{}/w", kind.to_lowercase()), "namespace": "ns",
                "labels": {"app": "web"}, "ownerReferences": owner});
            let pod = Pod::from_value(&json!({"metadata": metadata})).unwrap();
            PodGroup { pod, count }
        };
        let of = |spec: &Value, groups: &[PodGroup]| {
            let findings = review(&[source("a", spec)], groups);
            let messages: Vec<_> = findings.into_iter().map(|found| found.message).collect();
            messages.join("\n")
        };
        let three = [group("Deployment", Some(1)), group("StatefulSet", Some(2))];
        assert_eq!(of(&spec("minAvailable", json!(2)), &three), "");
        let text = "3 pods must be available and there are 3: no ready pod can be evicted";
        assert_eq!(of(&spec("minAvailable", json!(3)), &three), text);
        assert_eq!(
            of(
                &spec("minAvailable", json!(3)),
                &[group("Deployment", Some(0))]
            ),
            ""
        );
        let logs = [group("DaemonSet", None)];
        assert_eq!(of(&spec("minAvailable", json!(3)), &logs), "");
        let text = "a DaemonSet has no scale subresource, so its expected pods cannot be counted and the budget never allows a \
                    disruption: daemonset/w";
        assert_eq!(of(&spec("maxUnavailable", json!(3)), &logs), text);
        assert_eq!(of(&spec("minAvailable", json!("10%")), &logs), text);
    }

    #[test]
    fn budgets_over_the_same_pods_are_found() {
        let mut all = spec("maxUnavailable", json!(1));
        all["selector"] = json!({});
        let budgets = [
            source("a", &spec("maxUnavailable", json!(1))),
            source("b", &all),
        ];
        let pods = [pod("w", "web", true), pod("d", "db", true)];
        let expected = ["b spec.selector: covers the same pods as \"a\": w"];
        assert_eq!(messages(&budgets, &pods), expected);
        assert!(messages(&budgets, &[]).is_empty());
        let budgets = [source("a", &all), source("b", &all)];
        let expected = ["b spec.selector: has the same selector as \"a\""];
        assert_eq!(messages(&budgets, &[]), expected);
    }
}
