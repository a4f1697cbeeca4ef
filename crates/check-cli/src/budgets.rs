//! Reads disruption budgets from files, with the pods or workloads that they are about, and reviews them.

use std::{io::Read, path::Path};

use serde_json::{Value, json};

use fairgate_core::finding::{Finding, Severity};
use fairgate_disruption::{
    advice::{self, BudgetSource, PodGroup},
    budget::DisruptionBudget,
    pod::Pod,
};
use fairgate_objects::schema::{canonical, policy_v1};
use fairgate_policy_sources::{
    PolicyDocument,
    files::{self, RawDocuments},
};

const KIND: &str = "PodDisruptionBudget";
/// How deep lists may be nested in lists.
const MAX_LIST_DEPTH: u32 = 4;
/// The namespace of objects that name none, as kubectl would create them.
const DEFAULT_NAMESPACE: &str = "default";
/// Kinds whose pods are known from a template: API version, kind, and the field with their number, which is 1 if
/// absent. Without such a field the number depends on the cluster.
const WORKLOADS: [(&str, &str, Option<&str>); 6] = [
    ("apps/v1", "Deployment", Some("replicas")),
    ("apps/v1", "StatefulSet", Some("replicas")),
    ("apps/v1", "ReplicaSet", Some("replicas")),
    ("v1", "ReplicationController", Some("replicas")),
    ("apps/v1", "DaemonSet", None),
    ("batch/v1", "Job", Some("parallelism")),
];

/// Reviews the budgets in the file or directory `from`, or in `input` if that is `-`.
pub(super) fn review(from: &Path, input: &mut dyn Read) -> Vec<Finding> {
    let RawDocuments {
        documents,
        findings,
    } = if from.as_os_str() == "-" {
        files::load_raw_from("standard input", input)
    } else {
        files::load_raw(from)
    };
    let mut found = BudgetObjects {
        findings,
        ..BudgetObjects::default()
    };
    for PolicyDocument { origin, object } in documents {
        found.read(&origin, object, None, MAX_LIST_DEPTH);
    }
    found.review(&from.display().to_string())
}

/// What budgets are reviewed with.
#[derive(Default)]
struct BudgetObjects {
    budgets: Vec<BudgetSource>,
    pods: Vec<Pod>,
    workloads: Vec<PodGroup>,
    findings: Vec<Finding>,
}

impl BudgetObjects {
    /// Reads an object, or the items of a list. Objects of other kinds are skipped. `items_of` is the API version and
    /// the kind that a typed list implies.
    fn read(&mut self, origin: &str, mut value: Value, items_of: Option<(&str, &str)>, depth: u32) {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (mut version, mut kind) = (text("apiVersion"), text("kind"));
        if let Some((list_version, item_kind)) = items_of.filter(|_| kind.is_empty()) {
            (version, kind) = (list_version.to_owned(), item_kind.to_owned());
        }
        if let Some(item_kind) = kind.strip_suffix("List")
            && depth > 0
            && let Value::Array(items) = value["items"].take()
        {
            let items_of = (!item_kind.is_empty()).then_some((&*version, item_kind));
            for (index, item) in items.into_iter().enumerate() {
                let origin = format!("{origin}, items[{index}]");
                self.read(&origin, item, items_of, depth - 1);
            }
            return;
        }
        let workload = WORKLOADS
            .iter()
            .find(|known| (known.0, known.1) == (&version, &kind));
        match (&*version, &*kind) {
            ("policy/v1", KIND) => self.read_budget(origin, value),
            (_, KIND) => {
                let message = format!("{version:?} is not served any more");
                let remedy = "write policy/v1";
                self.error(origin, &value, "apiVersion", message, remedy);
            }
            ("v1", "Pod") => self.read_pod(origin, &with_namespace(value)),
            _ => {
                if let Some((_, kind, count)) = workload {
                    self.read_workload(origin, &with_namespace(value), kind, *count);
                }
            }
        }
    }

    fn read_budget(&mut self, origin: &str, value: Value) {
        let value = with_namespace(value);
        let decoded = match canonical::decode(&policy_v1::POD_DISRUPTION_BUDGET, &value) {
            Ok(decoded) => decoded,
            Err(error) => {
                let remedy = "correct the value";
                return self.error(origin, &value, "", error.to_string(), remedy);
            }
        };
        for problem in decoded.problems {
            let remedy = "correct the name of the field, or remove it";
            self.error(origin, &value, "", problem, remedy);
        }
        match DisruptionBudget::from_value(decoded.value) {
            Ok(budget) => self.budgets.push(BudgetSource {
                origin: origin.to_owned(),
                budget,
            }),
            Err(error) => {
                let remedy = "write it as kubectl prints it";
                self.error(origin, &value, "", error.to_string(), remedy);
            }
        }
    }

    fn read_pod(&mut self, origin: &str, value: &Value) {
        match Pod::from_value(value) {
            Ok(pod) => self.pods.push(pod),
            Err(error) => self.skip(origin, value, &error.to_string()),
        }
    }

    /// Reads what the pods of a workload look like. A workload that belongs to another, such as
    /// the `ReplicaSet` of a Deployment, is skipped: the other is reviewed.
    fn read_workload(&mut self, origin: &str, value: &Value, kind: &str, count: Option<&str>) {
        let metadata = &value["metadata"];
        let owners = metadata["ownerReferences"].as_array();
        if owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true)) {
            return;
        }
        let name = metadata["name"].as_str().unwrap_or_default();
        let owner = json!({"apiVersion": value["apiVersion"], "kind": kind, "name": name, "controller": true});
        let pod = json!({"metadata": {
            "name": format!("{}/{name}", kind.to_lowercase()),
            "namespace": metadata["namespace"],
            "labels": value["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [owner],
        }});
        let number = |field: &str| value["spec"][field].as_u64().unwrap_or(1);
        let count = count.map(|field| usize::try_from(number(field)).unwrap_or(usize::MAX));
        match Pod::from_value(&pod) {
            Ok(pod) => self.workloads.push(PodGroup { pod, count }),
            Err(error) => self.skip(origin, value, &error.to_string()),
        }
    }

    /// Warns of an object without which the budgets are reviewed, because it cannot be read.
    fn skip(&mut self, origin: &str, value: &Value, problem: &str) {
        let remedy = "write it as kubectl prints it; until then budgets are reviewed without it";
        let mut finding = finding(origin, value, "", problem.to_owned(), remedy);
        finding.severity = Severity::Warning;
        self.findings.push(finding);
    }

    fn error(&mut self, origin: &str, value: &Value, field: &str, message: String, remedy: &str) {
        self.findings
            .push(finding(origin, value, field, message, remedy));
    }

    fn review(mut self, from: &str) -> Vec<Finding> {
        if self.budgets.is_empty() && !self.findings.iter().any(Finding::is_error) {
            // All that is left are warnings that single files hold no object.
            self.findings.clear();
            self.findings.push(Finding::without_object(
                Severity::Error,
                from,
                format!("no {KIND} was found"),
                "give files with budgets, as kubectl prints them",
            ));
        }
        // Where pods are known, workloads would count them again.
        let pods = &self.pods;
        let has_pods = |namespace: &str| pods.iter().any(|pod| *pod.namespace == *namespace);
        let workloads = self.workloads.into_iter();
        let mut groups: Vec<PodGroup> = workloads
            .filter(|group| !has_pods(&group.pod.namespace))
            .collect();
        groups.extend(self.pods.into_iter().map(PodGroup::one));
        self.findings.extend(advice::review(&self.budgets, &groups));
        self.findings
    }
}

fn with_namespace(mut value: Value) -> Value {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        let namespace = metadata.entry("namespace").or_insert(Value::Null);
        if namespace.as_str().is_none_or(str::is_empty) {
            *namespace = json!(DEFAULT_NAMESPACE);
        }
    }
    value
}

fn finding(origin: &str, value: &Value, field: &str, message: String, remedy: &str) -> Finding {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Finding {
        severity: Severity::Error,
        origin: origin.to_owned(),
        kind: text(&value["kind"]),
        name: text(&value["metadata"]["name"]),
        field: field.to_owned(),
        message,
        remedy: remedy.to_owned(),
    }
}
