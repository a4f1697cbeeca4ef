//! The controller in virtual time, against a model of a cluster.

mod finders;
mod isolation;
mod memory;
mod properties;
mod scenarios;
mod table;

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::time::Time;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ControllerCounts, ControllerStep, DisruptionController, ObjectKey, StatusWriteOutcome,
    SyncEnding,
    scale::{
        DiscoveredResource, ScaleLookup, ScaleQuestion, ScaleResponse, ScaleResult, ScaledObject,
    },
};
use crate::{
    budget::DisruptionBudget,
    pod::{ControllerRef, Pod},
};

/// Called before the next write of a status, once. If it returns an outcome, the status is not written.
type BeforeWrite = Box<dyn FnMut(&mut Cluster) -> Option<StatusWriteOutcome>>;

/// A cluster of one namespace, and its controller.
#[derive(Default)]
struct Cluster {
    controller: DisruptionController,
    budgets: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    /// The controllers of pods, by name.
    owners: BTreeMap<String, Owner>,
    /// The resources that discovery lists, for any group and version.
    discovered: Vec<DiscoveredResource>,
    version: u64,
    elapsed: Duration,
    /// The reasons of all events so far, without direct repetitions.
    events: Vec<&'static str>,
    before_write: Option<BeforeWrite>,
    /// Every status that the controller has sent.
    writes: Vec<Value>,
    patches: usize,
    /// The endings of all syncs so far.
    endings: Vec<SyncEnding>,
}

/// A controller of pods.
#[derive(Clone)]
struct Owner {
    api_version: &'static str,
    kind: &'static str,
    replicas: i32,
    /// The name of the controller of this one, if it has one.
    controller: Option<&'static str>,
    /// Whether this is a custom resource, of which only the scale subresource is known.
    is_custom: bool,
}

fn owner(api_version: &'static str, kind: &'static str, replicas: i32) -> Owner {
    Owner {
        api_version,
        kind,
        replicas,
        controller: None,
        is_custom: false,
    }
}

fn start() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().unwrap()
}

impl Cluster {
    /// A cluster with a budget `foo` of this spec over all pods.
    fn with_budget(mut spec: Value) -> Self {
        let mut cluster = Self::default();
        if spec.get("selector").is_none() {
            spec["selector"] = json!({});
        }
        cluster.put_budget("foo", &spec);
        cluster.settle();
        cluster
    }

    fn put_budget(&mut self, name: &str, spec: &Value) {
        let old = self.budgets.remove(name).unwrap_or(json!({}));
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        let budget = json!({
            "metadata": {"name": name, "namespace": "ns", "generation": generation},
            "spec": spec,
            "status": old["status"],
        });
        self.store_budget(name, budget);
    }

    fn store_budget(&mut self, name: &str, mut budget: Value) {
        self.version += 1;
        budget["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let read = DisruptionBudget::from_value(budget.clone()).unwrap();
        self.controller.apply_budget(read);
        self.budgets.insert(name.to_owned(), budget);
    }

    fn now(&self) -> Timestamp {
        start() + self.elapsed
    }

    fn time(&self) -> Time {
        Time::ZERO.plus(self.elapsed)
    }

    /// Creates or replaces a pod.
    fn put_pod(&mut self, name: &str, owner: Option<&str>, ready: bool) {
        let mut metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}")});
        if let Some(owner) = owner {
            metadata["ownerReferences"] = json!([self.reference(owner)]);
        }
        let ready = if ready { "True" } else { "False" };
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let status = json!({"phase": "Running", "conditions": conditions});
        self.store_pod(json!({"metadata": metadata, "status": status}));
    }

    fn store_pod(&mut self, pod: Value) {
        let read = Pod::from_value(&pod).unwrap();
        self.pods.insert(read.name.to_string(), pod);
        self.controller.apply_pod(read);
    }

    fn delete_pod(&mut self, name: &str) {
        self.pods.remove(name);
        self.controller.delete_pod(&ObjectKey::new("ns", name));
    }

    fn reference(&self, name: &str) -> Value {
        let (api_version, kind) = match self.owners.get(name) {
            Some(owner) => (owner.api_version, owner.kind),
            None => ("apps/v1", "ReplicaSet"),
        };
        json!({
            "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}"),
            "controller": true,
        })
    }

    /// Looks up a scale as the layer around the controller does.
    fn resolve(&self, owner: &ControllerRef) -> ScaleResult {
        let mut lookup = ScaleLookup::new(owner.clone());
        loop {
            let question = match lookup.question() {
                Ok(question) => question,
                Err(result) => return result.clone(),
            };
            match question {
                ScaleQuestion::Object(_, name) => {
                    let found = self.owners.get(&*name).filter(|owner| !owner.is_custom);
                    let object = found.map(|owner| ScaledObject {
                        uid: format!("uid-{name}").into(),
                        replicas: owner.replicas,
                        controller: owner.controller.map(|above| {
                            let above = json!({
                                "metadata": {"ownerReferences": [self.reference(above)]},
                            });
                            ControllerRef::from_value(&above).unwrap().unwrap()
                        }),
                    });
                    lookup.object(object.as_ref());
                }
                ScaleQuestion::Scale(owner) => {
                    let found = self.owners.get(&*owner.name);
                    let plural = owner.kind.to_lowercase() + "s";
                    lookup.scale(match found.filter(|found| found.is_custom) {
                        Some(found) => ScaleResponse::Found(super::scale::ControllerScale {
                            uid: owner.uid,
                            replicas: found.replicas,
                        }),
                        None => ScaleResponse::NotFound {
                            resource: format!("{plural}.{}", owner.group()),
                        },
                    });
                }
                ScaleQuestion::Discovery(_) => lookup.discovery(Ok(&self.discovered)),
            }
        }
    }

    /// Executes the controller's operations until there are none left at this time. Returns the time of the next one.
    fn settle(&mut self) -> Option<Time> {
        for _ in 0..10_000 {
            let (now, date) = (self.time(), self.now());
            match self.controller.step(now, date) {
                ControllerStep::LookUp(_, owner) => {
                    let result = self.resolve(&owner);
                    self.controller.looked_up(owner, result, now, date);
                }
                ControllerStep::WriteStatus(key, object) => {
                    let outcome = self.write(&key.name, &object);
                    self.controller.written(outcome, now, date);
                }
                ControllerStep::PatchPod(..) => {
                    self.patches += 1;
                    self.controller.patched(true, now);
                }
                ControllerStep::Continue => {}
                ControllerStep::Wait(until) => {
                    let reports = self.controller.take_reports();
                    self.endings
                        .extend(reports.iter().map(|report| report.ending));
                    self.check_counts();
                    let events = self.controller.take_events();
                    self.events
                        .extend(events.iter().map(|(_, event)| event.reason));
                    // The controller's own write makes it sync again, and report again.
                    self.events.dedup();
                    return until;
                }
            }
        }
        panic!("the controller does not settle");
    }

    /// Advances time by `span`, and executes the controller's operations at their times.
    fn pass(&mut self, span: Duration) {
        let end = self.elapsed + span;
        loop {
            match self.settle() {
                Some(next) if next <= Time::ZERO.plus(end) => {
                    self.elapsed = next.since(Time::ZERO).max(self.elapsed);
                }
                _ => break,
            }
        }
        self.elapsed = end;
        self.settle();
    }

    fn check_counts(&self) {
        let exhausted =
            |budget: &&Value| budget["status"]["disruptionsAllowed"].as_i64() <= Some(0);
        let expected = ControllerCounts {
            pods: self.pods.len(),
            budgets: self.budgets.len(),
            exhausted: self.budgets.values().filter(exhausted).count(),
            over_limit: 0,
        };
        assert_eq!(self.controller.counts(), expected);
    }

    fn write(&mut self, name: &str, object: &Value) -> StatusWriteOutcome {
        self.writes.push(object["status"].clone());
        if let Some(mut before) = self.before_write.take()
            && let Some(outcome) = before(self)
        {
            return outcome;
        }
        let Some(budget) = self.budgets.get(name) else {
            return StatusWriteOutcome::Failed("not found".to_owned());
        };
        if budget["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return StatusWriteOutcome::Conflict;
        }
        let mut budget = budget.clone();
        budget["status"] = object["status"].clone();
        self.store_budget(name, budget);
        StatusWriteOutcome::Written
    }

    fn status(&self) -> &Value {
        &self.budgets["foo"]["status"]
    }

    /// `disruptionsAllowed`, `currentHealthy`, `desiredHealthy` and `expectedPods`.
    fn figures(&self) -> (i64, i64, i64, i64) {
        let figure = |name: &str| self.status()[name].as_i64().unwrap_or(0);
        (
            figure("disruptionsAllowed"),
            figure("currentHealthy"),
            figure("desiredHealthy"),
            figure("expectedPods"),
        )
    }

    /// The condition `DisruptionAllowed`.
    fn condition(&self) -> &Value {
        let conditions = self.status()["conditions"].as_array().unwrap();
        let ours = |condition: &&Value| condition["type"] == "DisruptionAllowed";
        conditions.iter().find(ours).unwrap()
    }
}

/// A pod as a Deployment creates it: the pod `number` of the replica set `set`.
fn pod_of_a_deployment(set: usize, number: usize) -> Value {
    let owner = format!("checkout-service-{set:04}-7d9c5b8f64");
    let uid = |kind: u32| {
        format!(
            "0b9c2a5e-7b1c-4d6e-9a53-{kind:04x}{:08x}",
            set * 1000 + number
        )
    };
    let labels: serde_json::Map<_, _> = [
        (
            "app.kubernetes.io/name",
            format!("checkout-service-{set:04}"),
        ),
        (
            "app.kubernetes.io/instance",
            format!("checkout-service-{set:04}-production"),
        ),
        ("app.kubernetes.io/version", "2024.11.3".to_owned()),
        ("pod-template-hash", "7d9c5b8f64".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), json!(value)))
    .collect();
    json!({
        "metadata": {
            "name": format!("{owner}-x2{number:03}"), "namespace": format!("team-{:02}", set % 50), "uid": uid(1),
            "resourceVersion": (123_456_789 + number).to_string(), "labels": labels,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": true,
                "uid": format!("0b9c2a5e-7b1c-4d6e-9a53-{set:012x}"),
            }],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn a_cached_pod_takes_less_than_600_bytes() {
    const SETS: usize = 500;
    const PODS: usize = 20;
    let mut controller = DisruptionController::default();
    let heap = allocation_counter::measure(|| {
        // Not in the order of their names, because pods may arrive in any order.
        for number in 0..PODS {
            for set in 0..SETS {
                let pod = Pod::from_value(&pod_of_a_deployment(set, number * 7 % PODS)).unwrap();
                controller.apply_pod(pod);
            }
        }
        // The queue is processed, so that it takes no memory.
        let mut steps = (0..1000).map(|_| controller.step(Time::ZERO, start()));
        let last = steps.find(|step| *step != ControllerStep::Continue);
        assert_eq!(last, Some(ControllerStep::Wait(None)));
    });
    assert_eq!(controller.counts().pods, SETS * PODS);
    let bytes = usize::try_from(heap.bytes_current).unwrap() / (SETS * PODS);
    assert!(bytes < 600, "{bytes} bytes a pod");
}
