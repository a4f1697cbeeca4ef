//! A `PodDisruptionBudget`: its parsed spec, its status, and the object itself.
//!
//! The whole object is kept, as JSON: parsed it takes up to fifty times the memory, and its owner chooses what it holds. A status
//! update sends it back as it was read, and changes only the members of the status that the writer owns.

use std::{collections::BTreeMap, sync::Arc};

use fairgate_objects::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    int_or_percent::{BoundError, IntOrPercent},
    pod::Pod,
    read::{MalformedObject, ObjectField, whole_seconds},
};

/// The maximum number of entries in `disruptedPods`. With more entries, a budget allows no eviction.
pub(crate) const MAX_DISRUPTED_PODS: usize = 2000;

/// A budget as it was read. Clones share the object and the selector, which may be large.
#[derive(Clone, Debug, PartialEq)]
pub struct DisruptionBudget {
    /// The JSON of the object.
    object: Arc<str>,
    /// The UID; empty if it has none.
    pub uid: Box<str>,
    /// When the budget was created; the earliest time if that is not known.
    pub created: Timestamp,
    /// The namespace of the budget.
    pub namespace: String,
    /// The name of the budget.
    pub name: String,
    /// The resource version that was read.
    pub resource_version: String,
    /// The generation of the spec.
    pub generation: i64,
    /// The parsed spec.
    pub spec: BudgetSpec,
    /// The parsed status.
    pub status: BudgetStatus,
}

/// The spec of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetSpec {
    /// `minAvailable`: the number of pods that must stay healthy.
    pub min_available: Result<Option<IntOrPercent>, BoundError>,
    /// `maxUnavailable`: the number of expected pods that may be unhealthy or missing.
    pub max_unavailable: Result<Option<IntOrPercent>, BoundError>,
    /// The pods that the budget covers; an error if the selector is invalid.
    pub selector: Result<Arc<LabelSelector>, String>,
    /// `unhealthyPodEvictionPolicy`: when pods that are running but not ready may be evicted.
    pub unhealthy_pods: UnhealthyPodEvictionPolicy,
}

/// When a running pod that is not ready may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnhealthyPodEvictionPolicy {
    /// Only while enough other pods are healthy. The default, also for unknown values.
    IfHealthyBudget,
    /// Always.
    AlwaysAllow,
}

/// The status of a budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetStatus {
    /// The generation of the spec for which the counters were computed.
    pub observed_generation: i64,
    /// Pods whose eviction was granted but whose deletion was not observed yet, with the time of the
    /// grant. An unreadable time counts as expired.
    pub disrupted_pods: BTreeMap<String, Timestamp>,
    /// The number of pods that may be evicted now.
    pub disruptions_allowed: i32,
    /// The number of healthy pods.
    pub current_healthy: i32,
    /// The number of pods that must be healthy.
    pub desired_healthy: i32,
    /// The total number of pods that the budget counts.
    pub expected_pods: i32,
    /// All conditions, as they were read.
    pub conditions: Vec<Value>,
}

impl DisruptionBudget {
    /// Reads a budget. List items lack `apiVersion` and `kind`; they are added.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if it has no name or a field of a wrong type.
    pub fn from_value(mut object: Value) -> Result<Self, MalformedObject> {
        let root = ObjectField::root(&object);
        let metadata = root.get("metadata")?;
        let spec = BudgetSpec::read(root.get("spec")?)?;
        let status = BudgetStatus::read(root.get("status")?)?;
        let budget = Self {
            namespace: metadata.get("namespace")?.text()?.to_owned(),
            name: metadata.get("name")?.required_text()?.to_owned(),
            resource_version: metadata.get("resourceVersion")?.text()?.to_owned(),
            generation: metadata.get("generation")?.integer()?,
            spec,
            status,
            uid: object["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .into(),
            created: read_time(&object["metadata"]["creationTimestamp"]),
            object: Arc::default(),
        };
        object["apiVersion"] = json!("policy/v1");
        object["kind"] = json!("PodDisruptionBudget");
        Ok(Self {
            object: object.to_string().into(),
            ..budget
        })
    }

    /// Reads a budget whose JSON was [kept](Self::json). `None` if that is not the JSON of a budget.
    pub(crate) fn from_json(json: &str) -> Option<Self> {
        Self::from_value(serde_json::from_str(json).ok()?).ok()
    }

    /// The JSON of the object.
    pub(crate) fn json(&self) -> &str {
        &self.object
    }

    /// Whether the budget covers this pod. A budget with an invalid selector covers no pod.
    pub fn selects(&self, pod: &Pod) -> bool {
        let selector = self.spec.selector.as_ref();
        *self.namespace == *pod.namespace
            && selector.is_ok_and(|selector| selector.matches(&pod.labels))
    }

    /// How many requirements and values the selector has.
    pub fn selector_terms(&self) -> usize {
        let selector = self.spec.selector.as_ref();
        selector.map_or(0, |selector| selector.terms())
    }

    /// The number of evictions that the status allows; 0 if the status was computed for an older spec.
    pub fn allows(&self) -> usize {
        if self.status.observed_generation < self.generation {
            return 0;
        }
        usize::try_from(self.status.disruptions_allowed).unwrap_or(0)
    }

    /// The object as it was read; null if it is nested more deeply than JSON is read, which no field of a budget can be. It costs
    /// the time to parse it.
    pub fn object(&self) -> Value {
        serde_json::from_str(&self.object).unwrap_or_default()
    }

    /// The object as it was read, with this status. It costs the time to parse it. Unknown members of the status are kept.
    pub fn with_status(&self, status: &BudgetStatus) -> Value {
        let mut object = self.object();
        if !object["status"].is_object() {
            object["status"] = json!({});
        }
        let members = object["status"].as_object_mut();
        status.write(members.unwrap_or(&mut Map::new()));
        object
    }
}

impl BudgetSpec {
    fn read(spec: ObjectField<'_, '_>) -> Result<Self, MalformedObject> {
        let bound = |name| Ok(IntOrPercent::from_value(spec.get(name)?.value()));
        let policy = spec.get("unhealthyPodEvictionPolicy")?;
        Ok(Self {
            min_available: bound("minAvailable")?,
            max_unavailable: bound("maxUnavailable")?,
            selector: LabelSelector::from_value(spec.get("selector")?.value())
                .map(Arc::new)
                .map_err(|error| error.to_string()),
            unhealthy_pods: match policy.text()? {
                "AlwaysAllow" => UnhealthyPodEvictionPolicy::AlwaysAllow,
                _ => UnhealthyPodEvictionPolicy::IfHealthyBudget,
            },
        })
    }
}

impl BudgetStatus {
    fn read(status: ObjectField<'_, '_>) -> Result<Self, MalformedObject> {
        let disrupted = status.get("disruptedPods")?.map()?;
        let disrupted = disrupted.into_iter().flatten();
        let disrupted_pods = disrupted.map(|(pod, time)| (pod.clone(), read_time(time)));
        Ok(Self {
            observed_generation: status.get("observedGeneration")?.integer()?,
            disrupted_pods: disrupted_pods.collect(),
            disruptions_allowed: status.get("disruptionsAllowed")?.counter()?,
            current_healthy: status.get("currentHealthy")?.counter()?,
            desired_healthy: status.get("desiredHealthy")?.counter()?,
            expected_pods: status.get("expectedPods")?.counter()?,
            conditions: status.get("conditions")?.list()?.to_vec(),
        })
    }

    /// The map `disruptedPods`. Entries that are in `old` with the same time keep their text.
    fn times(&self, old: Option<&Value>) -> Map<String, Value> {
        let written = |pod: &str, time: Timestamp| match old.and_then(|old| old.get(pod)) {
            Some(old) if read_time(old) == time => old.clone(),
            _ => json!(whole_seconds(time).to_string()),
        };
        let entries = self.disrupted_pods.iter();
        entries
            .map(|(pod, time)| (pod.clone(), written(pod, *time)))
            .collect()
    }

    /// Writes the known members of a status, and leaves the others as they are.
    fn write(&self, members: &mut Map<String, Value>) {
        let times = self.times(members.get("disruptedPods"));
        let no_times = times.is_empty();
        let mut set = |name: &str, value: Value, omitted: bool| {
            if omitted {
                members.remove(name);
            } else {
                members.insert(name.to_owned(), value);
            }
        };
        let generation = self.observed_generation;
        set("observedGeneration", json!(generation), generation == 0);
        set("disruptedPods", Value::Object(times), no_times);
        // The counters are written even if they are 0.
        for (name, counter) in [
            ("disruptionsAllowed", self.disruptions_allowed),
            ("currentHealthy", self.current_healthy),
            ("desiredHealthy", self.desired_healthy),
            ("expectedPods", self.expected_pods),
        ] {
            set(name, json!(counter), false);
        }
        let conditions = &self.conditions;
        set("conditions", json!(conditions), conditions.is_empty());
    }
}

/// The time of an entry; an unreadable one counts as expired.
fn read_time(value: &Value) -> Timestamp {
    let time = value.as_str().and_then(|text| text.parse().ok());
    time.unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> DisruptionBudget {
        DisruptionBudget::from_value(json!({
            "metadata": {"name": "foo", "namespace": "ns", "resourceVersion": "5", "generation": 2},
            "spec": {"minAvailable": "30%", "selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "observedGeneration": 1, "currentHealthy": 3, "later": {"a": 1},
                "disruptedPods": {"a": "2024-01-01T00:00:00Z", "b": null},
                "conditions": [{"type": "Other", "status": "True"}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_status_is_written_into_the_object_as_it_was_read() {
        let budget = budget();
        assert_eq!(
            budget.spec.min_available,
            Ok(Some(IntOrPercent::Percent(30)))
        );
        let mut status = budget.status.clone();
        status.observed_generation = 2;
        status
            .disrupted_pods
            .insert("c".into(), "2024-01-01T00:00:00.9Z".parse().unwrap());
        let object = budget.with_status(&status);
        assert_eq!(
            object,
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "foo", "namespace": "ns", "resourceVersion": "5", "generation": 2},
                "spec": {"minAvailable": "30%", "selector": {"matchLabels": {"app": "web"}}},
                "status": {
                    "observedGeneration": 2, "currentHealthy": 3, "later": {"a": 1},
                    "disruptionsAllowed": 0, "desiredHealthy": 0, "expectedPods": 0,
                    "disruptedPods": {"a": "2024-01-01T00:00:00Z", "b": null, "c": "2024-01-01T00:00:00Z"},
                    "conditions": [{"type": "Other", "status": "True"}],
                },
            })
        );
    }

    #[test]
    fn a_budget_without_status_has_an_empty_one() {
        let object = json!({"metadata": {"name": "foo"}});
        let budget = DisruptionBudget::from_value(object).unwrap();
        assert_eq!(budget.status, BudgetStatus::default());
        let written = budget.with_status(&budget.status);
        assert_eq!(written["status"]["disruptionsAllowed"], 0);
        assert_eq!(written["status"].get("disruptedPods"), None);
    }

    #[test]
    fn counters_that_are_no_32_bit_integers_are_refused() {
        for counter in [json!("5"), json!(1_i64 << 40), json!(0.5)] {
            let object =
                json!({"metadata": {"name": "foo"}, "status": {"currentHealthy": counter}});
            let error = DisruptionBudget::from_value(object).unwrap_err();
            assert_eq!(error.field, "status.currentHealthy");
        }
        assert!(DisruptionBudget::from_value(json!("x")).is_err());
        assert!(DisruptionBudget::from_value(json!(null)).is_err());
    }
}
