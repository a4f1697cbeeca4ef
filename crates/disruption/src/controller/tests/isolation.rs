//! What a tenant's budgets cost, counted, and what the budgets of others notice of it.

use fairgate_core::time::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::start;
use crate::{
    budget::DisruptionBudget,
    controller::{
        ControllerStep, DisruptionController, StatusWriteOutcome, scale::ControllerScale,
        slice::SLICE,
    },
    pod::Pod,
};

/// How the names of owners begin that have a scale.
const SCALED: &str = "scaled";

/// Namespaces of a cluster. Statuses are written at once.
struct Namespaces {
    controller: DisruptionController,
    version: u64,
    /// The namespaces of the statuses that were written, in order.
    writes: Vec<String>,
    /// The owners whose scales were looked up, in order.
    look_ups: Vec<String>,
}

impl Namespaces {
    fn new(limit: u64) -> Self {
        Self {
            controller: DisruptionController::new(limit),
            version: 0,
            writes: Vec::new(),
            look_ups: Vec::new(),
        }
    }

    fn put_budget(&mut self, namespace: &str, name: &str, age: usize, selector: &Value) {
        let spec = json!({"minAvailable": 1, "selector": selector});
        self.put_budget_of(namespace, name, age, &spec);
    }

    fn put_budget_of(&mut self, namespace: &str, name: &str, age: usize, spec: &Value) {
        self.version += 1;
        let budget = json!({
            "metadata": {
                "namespace": namespace, "name": name, "generation": 1,
                "resourceVersion": self.version.to_string(),
                "creationTimestamp": format!("2024-01-01T{:02}:{:02}:{:02}Z", age / 3600, age / 60 % 60, age % 60),
            },
            "spec": spec,
        });
        self.apply(budget);
    }

    fn apply(&mut self, budget: Value) {
        let budget = DisruptionBudget::from_value(budget).unwrap();
        self.controller.apply_budget(budget);
    }

    fn put_pod(&mut self, namespace: &str, name: &str, labels: &Value) {
        self.put_pod_of(namespace, name, labels, None);
    }

    /// A pod of the Job of this name.
    fn put_pod_of(&mut self, namespace: &str, name: &str, labels: &Value, owner: Option<&str>) {
        let owners = owner.map(|owner| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true})
        });
        let owners: Vec<Value> = owners.into_iter().collect();
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "labels": labels, "ownerReferences": owners},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.controller.apply_pod(Pod::from_value(&pod).unwrap());
    }

    fn delete_pod(&mut self, namespace: &str, name: &str) {
        let key = crate::controller::ObjectKey::new(namespace, name);
        self.controller.delete_pod(&key);
    }

    /// One step. Returns whether there is more to do.
    fn step(&mut self) -> bool {
        match self.controller.step(Time::ZERO, start()) {
            ControllerStep::Wait(_) => return false,
            ControllerStep::WriteStatus(key, object) => {
                self.writes.push(key.namespace.to_string());
                let outcome = StatusWriteOutcome::Written;
                self.controller.written(outcome, Time::ZERO, start());
                self.apply(object);
            }
            ControllerStep::LookUp(_, owner) => {
                self.look_ups.push(owner.name.to_string());
                let uid = owner.uid.clone();
                let scale = owner
                    .name
                    .starts_with(SCALED)
                    .then_some(ControllerScale { uid, replicas: 1 });
                self.controller
                    .looked_up(owner, Ok(scale), Time::ZERO, start());
            }
            ControllerStep::Continue => {}
            step @ ControllerStep::PatchPod(..) => panic!("{step:?}"),
        }
        true
    }

    fn settle(&mut self) {
        let steps = (0..1_000_000).take_while(|_| self.step()).count();
        assert!(steps < 1_000_000);
    }

    /// The message of the condition of a budget, and how many disruptions it allows.
    fn standing(&self, namespace: &str, name: &str) -> (String, i64) {
        let key = crate::controller::ObjectKey::new(namespace, name);
        let status = &self.controller.budget(&key).unwrap().object()["status"];
        let message = status["conditions"][0]["message"].as_str();
        (
            message.unwrap_or_default().to_owned(),
            status["disruptionsAllowed"].as_i64().unwrap(),
        )
    }
}

/// Budgets of a tenant: 60 with 1 500 values, 10 with 2 800 requirements, 100 others. (What is counted does not depend on how many
/// more there are, but reading them takes a while.)
fn put_large_budgets(namespaces: &mut Namespaces) {
    let values: Vec<_> = (0..1_500).map(|number| format!("v{number}")).collect();
    let many_values =
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]});
    let terms =
        (0..2_800).map(|number| json!({"key": format!("k{number}"), "operator": "DoesNotExist"}));
    let many_terms = json!({"matchExpressions": terms.collect::<Vec<_>>()});
    for number in 0..170 {
        let selector = match number {
            0..60 => &many_values,
            60..70 => &many_terms,
            _ => &json!({"matchLabels": {"app": "v1"}}),
        };
        namespaces.put_budget("mallory", &format!("large-{number:03}"), number, selector);
    }
    for number in 0..5 {
        namespaces.put_pod(
            "mallory",
            &format!("p{number}"),
            &json!({"app": "v1", "flap": "0"}),
        );
    }
}

#[test]
fn a_label_of_a_tenant_with_large_budgets_costs_what_matches_and_not_what_there_is() {
    let mut namespaces = Namespaces::new(u64::MAX);
    put_large_budgets(&mut namespaces);
    namespaces.settle();
    let before = namespaces.controller.work();
    let writes = namespaces.writes.len();
    for flap in 0..100 {
        let labels = json!({"app": "v1", "flap": flap.to_string()});
        namespaces.put_pod("mallory", &format!("p{}", flap % 5), &labels);
        while namespaces.step() {}
    }
    let work = namespaces.controller.work();
    let per_change = (work.look_ups - before.look_ups) / 100;
    // All 170 budgets select the pod: each is compared with it, and has a sync with five pods of two labels.
    assert!(per_change <= 170 * 15, "{per_change} look-ups a change");
    assert_eq!(namespaces.writes.len(), writes, "no status has changed");
    assert!(work.longest_slice <= SLICE + 200, "{work:?}");
}

#[test]
fn a_slice_is_bounded_however_many_labels_pods_and_selectors_have() {
    let mut namespaces = Namespaces::new(u64::MAX);
    put_large_budgets(&mut namespaces);
    // Pods with as many labels as the selectors have requirements.
    for pod in 0..20 {
        let labels = (0..2000).map(|number| (format!("l{number}"), json!("x")));
        let labels: serde_json::Map<_, _> = labels.collect();
        namespaces.put_pod("mallory", &format!("labelled-{pod}"), &json!(labels));
    }
    namespaces.settle();
    let work = namespaces.controller.work();
    assert!(work.look_ups > 400_000, "{work:?}");
    assert!(work.longest_slice <= SLICE + 2 * 2001, "{work:?}");
}

#[test]
fn the_budgets_of_others_take_turns_with_those_of_a_tenant_that_has_many() {
    let mut namespaces = Namespaces::new(u64::MAX);
    put_large_budgets(&mut namespaces);
    namespaces.put_budget("alice", "web", 0, &json!({"matchLabels": {"app": "web"}}));
    namespaces.settle();
    namespaces.writes.clear();
    // All pods of the tenant go, so all statuses have to be written again; then one of alice comes.
    for number in 0..5 {
        namespaces.delete_pod("mallory", &format!("p{number}"));
    }
    namespaces.controller.queue_all();
    namespaces.put_pod("alice", "web-1", &json!({"app": "web"}));
    namespaces.settle();
    let alice = namespaces
        .writes
        .iter()
        .position(|namespace| namespace == "alice");
    assert!(alice.is_some_and(|before| before <= 1), "{alice:?}");
    assert!(namespaces.writes.len() > 100, "{}", namespaces.writes.len());
}

#[test]
fn owners_without_scale_are_looked_up_until_the_first_and_delay_no_other_namespace() {
    let mut namespaces = Namespaces::new(u64::MAX);
    for number in 0..1000 {
        // Their order is not that of their pods.
        let owner = match number {
            0 => SCALED.to_owned(),
            _ => format!("job-{:03}", 1000 - number),
        };
        let name = format!("p{number:03}");
        namespaces.put_pod_of("mallory", &name, &json!({}), Some(&owner));
    }
    let spec = json!({"maxUnavailable": 1, "selector": {}});
    namespaces.put_budget_of("mallory", "jobs", 0, &spec);
    namespaces.put_budget("alice", "web", 0, &json!({"matchLabels": {"app": "web"}}));
    while namespaces.writes.is_empty() {
        assert!(namespaces.step());
    }
    assert_eq!(namespaces.writes, ["mallory"]);
    assert_eq!(namespaces.look_ups, [SCALED, "job-999"]);
    let message = "found no controllers for pod \"p001\"";
    let (standing, allowed) = namespaces.standing("mallory", "jobs");
    assert_eq!((standing.as_str(), allowed), (message, 0));
    while namespaces.writes.len() < 2 {
        assert!(namespaces.step());
    }
    assert_eq!(namespaces.writes, ["mallory", "alice"]);
    assert_eq!(namespaces.look_ups.len(), 2);
}

#[test]
fn a_namespace_pays_for_the_look_ups_of_its_owners() {
    let mut namespaces = Namespaces::new(u64::MAX);
    for number in 0..100 {
        let (name, owner) = (format!("p{number:03}"), format!("{SCALED}-{number}"));
        namespaces.put_pod_of("mallory", &name, &json!({}), Some(&owner));
        namespaces.put_pod("alice", &name, &json!({}));
    }
    let spec = json!({"maxUnavailable": 1, "selector": {}});
    for number in 0..60 {
        let name = format!("b{number:02}");
        namespaces.put_budget_of("mallory", &name, number, &spec);
        namespaces.put_budget("alice", &name, number, &json!({}));
    }
    let writes = |namespaces: &Namespaces, of: &str| {
        namespaces.writes.iter().filter(|one| *one == of).count()
    };
    while writes(&namespaces, "mallory") < 10 {
        assert!(namespaces.step());
    }
    // Its pods are compared twice, and their owners looked up between: three times the cost, apart from a turn before it was charged.
    let alice = writes(&namespaces, "alice");
    assert!((23..=30).contains(&alice), "{alice}");
}

#[test]
fn a_pod_that_changes_all_the_time_delays_no_other_namespace() {
    let mut namespaces = Namespaces::new(u64::MAX);
    for number in 0..3000 {
        let selector = json!({"matchExpressions": [
            {"key": format!("n{number}"), "operator": "Exists"}, {"key": "a", "operator": "NotIn", "values": ["b"]},
        ]});
        let selector = if number % 2 == 0 {
            json!({"matchExpressions": [
                {"key": "zone", "operator": "DoesNotExist"}, {"key": "flap", "operator": "NotIn", "values": ["x"]},
                {"key": format!("n{number}"), "operator": "DoesNotExist"},
            ]})
        } else {
            selector
        };
        namespaces.put_budget("mallory", &format!("b{number}"), number, &selector);
    }
    namespaces.put_budget("alice", "web", 0, &json!({"matchLabels": {"app": "web"}}));
    namespaces.settle();
    namespaces.writes.clear();
    for number in 0..500 {
        let labels = json!({"flap": "x", "number": number.to_string()});
        namespaces.put_pod("mallory", &format!("p{number}"), &labels);
        namespaces.put_pod("mallory", "same", &labels);
    }
    namespaces.put_pod("alice", "web-1", &json!({"app": "web"}));
    let steps = (0..1000).take_while(|_| {
        namespaces.step();
        namespaces.writes.is_empty()
    });
    let steps = steps.count();
    assert!(
        steps <= 4,
        "{steps} slices until the status of another namespace"
    );
    namespaces.settle();
}

#[test]
fn budgets_beyond_the_limit_of_their_namespace_allow_nothing_and_say_so() {
    let mut namespaces = Namespaces::new(10_000);
    put_large_budgets(&mut namespaces);
    namespaces.put_budget("alice", "web", 0, &json!({"matchLabels": {"app": "web"}}));
    for number in 0..2 {
        namespaces.put_pod("alice", &format!("web-{number}"), &json!({"app": "web"}));
    }
    namespaces.settle();
    // Six have 1 501 terms, and ten more each.
    let counts = namespaces.controller.counts();
    assert_eq!((counts.budgets, counts.over_limit), (171, 164));
    assert_eq!(
        namespaces.standing("mallory", "large-005"),
        (String::new(), 4)
    );
    let (message, allowed) = namespaces.standing("mallory", "large-006");
    assert!(
        message.contains("10000 requirements and values"),
        "{message}"
    );
    assert_eq!(allowed, 0);
    assert_eq!(namespaces.standing("alice", "web"), (String::new(), 1));
    let events = namespaces.controller.take_events();
    let told = events
        .iter()
        .filter(|(_, event)| event.reason == "TooManySelectorTerms");
    assert_eq!(told.count(), 164);
    // Once older ones are gone, others are within the limit and are computed.
    for number in 0..70 {
        let key = crate::controller::ObjectKey::new("mallory", &format!("large-{number:03}"));
        namespaces.controller.delete_budget(&key);
    }
    namespaces.settle();
    assert_eq!(namespaces.controller.counts().over_limit, 0);
    assert_eq!(
        namespaces.standing("mallory", "large-169"),
        (String::new(), 4)
    );
}

#[test]
fn what_is_over_the_limit_is_written_once() {
    let mut namespaces = Namespaces::new(1000);
    put_large_budgets(&mut namespaces);
    namespaces.settle();
    let writes = namespaces.writes.len();
    for flap in 0..100 {
        let labels = json!({"app": "v1", "flap": flap.to_string()});
        namespaces.put_pod("mallory", "p0", &labels);
        namespaces.settle();
    }
    assert_eq!(namespaces.writes.len(), writes);
}

/// What a tenant may do in its namespace: a budget with so many terms, a pod with so many labels, or the end of either.
#[derive(Clone, Debug)]
enum TenantAction {
    PutBudget(usize, usize),
    DeleteBudget(usize),
    PutPod(usize, usize),
    DeletePod(usize),
    QueueAll,
    Step,
}

fn tenant_actions() -> impl Strategy<Value = Vec<TenantAction>> {
    let names = 0..12_usize;
    let action = prop_oneof![
        (names.clone(), 1..TERMS).prop_map(|(name, terms)| TenantAction::PutBudget(name, terms)),
        names.clone().prop_map(TenantAction::DeleteBudget),
        (names.clone(), 1..LABELS).prop_map(|(name, labels)| TenantAction::PutPod(name, labels)),
        names.prop_map(TenantAction::DeletePod),
        Just(TenantAction::QueueAll),
        Just(TenantAction::Step),
    ];
    proptest::collection::vec(action, 1..60)
}

/// The most terms of a budget and labels of a pod in [`tenant_actions`].
const TERMS: usize = 3000;
const LABELS: usize = 500;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The longest turn of the controller, counted: half of a slice to match changed pods, half to compare pods with a budget,
    /// and in each half one pair of a pod and a budget that was begun in time.
    #[test]
    fn no_turn_is_longer_than_a_slice_whatever_a_tenant_does(actions in tenant_actions()) {
        let mut namespaces = Namespaces::new(u64::MAX);
        for action in actions {
            match action {
                TenantAction::PutBudget(name, terms) => {
                    // Half of the requirements hold for every pod, so that all of them are looked up.
                    let terms = (0..terms).map(|number| match number % 2 {
                        0 => json!({"key": format!("k{number}"), "operator": "DoesNotExist"}),
                        _ => json!({"key": "l0", "operator": "Exists"}),
                    });
                    let selector = json!({"matchExpressions": terms.collect::<Vec<_>>()});
                    namespaces.put_budget("mallory", &format!("b{name}"), name, &selector);
                }
                TenantAction::DeleteBudget(name) => {
                    let key = crate::controller::ObjectKey::new("mallory", &format!("b{name}"));
                    namespaces.controller.delete_budget(&key);
                }
                TenantAction::PutPod(name, labels) => {
                    let labels = (0..labels).map(|number| (format!("l{number}"), json!("x")));
                    let labels: serde_json::Map<_, _> = labels.collect();
                    namespaces.put_pod("mallory", &format!("p{name}"), &json!(labels));
                }
                TenantAction::DeletePod(name) => namespaces.delete_pod("mallory", &format!("p{name}")),
                TenantAction::QueueAll => namespaces.controller.queue_all(),
                TenantAction::Step => {
                    namespaces.step();
                }
            }
        }
        namespaces.settle();
        let work = namespaces.controller.work();
        let pair = u64::try_from(TERMS + LABELS).unwrap();
        prop_assert!(work.longest_slice <= SLICE + 2 * pair, "{work:?}");
    }
}
