//! Writes status conditions of flow schemas.
//!
//! Each condition type has its own field manager, which applies this condition only. So several
//! gateways on one store agree, and conditions of other writers stay untouched. A finding that depends
//! on the settings of one gateway is not written: gateways with different settings would overwrite each
//! other for ever.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Hosted, ReconcileError, path};
use fairgate_base::clock::Clock;
use fairgate_core::{apf::objects::dangling_condition, time::Time};
use fairgate_objects::{
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
    metadata,
};

/// The field manager of the condition `Dangling`; kube-apiserver uses the same name.
const DANGLING_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The field manager of the condition `Unreachable`.
const UNREACHABLE_MANAGER: &str = "fairgate-unreachable";
/// The condition of a schema that no request can match.
const UNREACHABLE: &str = "Unreachable";
/// Its reason: schemas of higher precedence match everything that it matches.
const COVERED: &str = "Covered";

/// The most writes of one object in [`WINDOW`].
const MAX_WRITES: usize = 6;
const WINDOW: Duration = Duration::from_secs(60);

/// A schema that no request can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableSchema {
    /// The name of the schema.
    pub schema: String,
    /// Why no request can match it: the message of the condition.
    pub unreachable: String,
}

/// Writes the conditions `Dangling` and `Unreachable` of all schemas.
#[derive(Debug)]
pub struct ConditionWriter {
    hosted: Arc<Hosted>,
    clock: Clock,
    /// When each object was written within [`WINDOW`].
    writes: BTreeMap<String, VecDeque<Time>>,
}

impl ConditionWriter {
    /// Writes conditions through `hosted`.
    pub fn new(hosted: Arc<Hosted>, clock: Clock) -> Self {
        Self {
            hosted,
            clock,
            writes: BTreeMap::new(),
        }
    }

    /// Reconciles the conditions of every schema. Returns false if an object was written too often
    /// within the last minute; the caller tries again later.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first write that failed.
    pub async fn reconcile(
        &mut self,
        unreachable: &[UnreachableSchema],
    ) -> Result<bool, ReconcileError> {
        let levels = self.hosted.cached_objects(&PRIORITY_LEVEL).await?;
        let schemas = self.hosted.cached_objects(&FLOW_SCHEMA).await?;
        self.writes.retain(|name, _| schemas.contains_key(name));
        let unreachable: BTreeMap<_, _> = unreachable
            .iter()
            .map(|finding| (finding.schema.as_str(), finding))
            .collect();
        let mut all_written = true;
        for (name, schema) in &schemas {
            let schema = schema.stored();
            let level = schema["spec"]["priorityLevelConfiguration"]["name"]
                .as_str()
                .unwrap_or_default();
            let dangling = json!(dangling_condition(level, levels.contains_key(level)));
            all_written &= self
                .write_condition(name, schema, DANGLING_MANAGER, "Dangling", Some(dangling))
                .await?;
            let finding = unreachable.get(name.as_str());
            let unreachable = finding.map(|finding| {
                json!({
                    "type": UNREACHABLE,
                    "status": "True",
                    "reason": COVERED,
                    "message": finding.unreachable,
                })
            });
            all_written &= self
                .write_condition(name, schema, UNREACHABLE_MANAGER, UNREACHABLE, unreachable)
                .await?;
        }
        Ok(all_written)
    }

    /// Writes one condition, or removes it if `desired` is `None`. Returns false if the object was
    /// written too often.
    async fn write_condition(
        &mut self,
        name: &str,
        schema: &Value,
        manager: &str,
        ty: &str,
        desired: Option<Value>,
    ) -> Result<bool, ReconcileError> {
        if !differs(schema, ty, desired.as_ref()) {
            return Ok(true);
        }
        if !self.may_write(name) {
            return Ok(false);
        }
        let written = match desired {
            None if !is_owned(schema) => self.remove_unowned(name, schema, ty).await,
            desired => self.apply(name, manager, desired).await,
        };
        match written {
            Err(error) if !error.is_race() => Err(error),
            _ => Ok(true),
        }
    }

    /// Applies `desired` as `manager`. With `None` the manager gives up its condition, which removes it.
    async fn apply(
        &self,
        name: &str,
        manager: &str,
        desired: Option<Value>,
    ) -> Result<(), ReconcileError> {
        let mut conditions = Vec::new();
        if let Some(mut condition) = desired {
            condition["lastTransitionTime"] = json!(self.hosted.state.now_text());
            conditions.push(condition);
        }
        let body = json!({
            "apiVersion": FLOW_SCHEMA.api_version(FLOW_SCHEMA.stored().name),
            "kind": FLOW_SCHEMA.kind,
            "metadata": {"name": name},
            "status": {"conditions": conditions},
        });
        let query = format!("fieldManager={manager}&force=true");
        self.patch(name, &query, "application/apply-patch+yaml", &body)
            .await
    }

    /// Removes a condition that the gateway wrote and that has no field manager any more, because a
    /// client cleared `metadata.managedFields`. An apply does not remove fields without an owner.
    async fn remove_unowned(
        &self,
        name: &str,
        schema: &Value,
        ty: &str,
    ) -> Result<(), ReconcileError> {
        let conditions = schema["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let Some(at) = conditions.position(|condition| condition["type"] == ty) else {
            return Ok(());
        };
        let path = format!("/status/conditions/{at}");
        let body = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata::text(schema, "resourceVersion")},
            {"op": "remove", "path": path},
        ]);
        let query = format!("fieldManager={UNREACHABLE_MANAGER}");
        let patched = self.patch(name, &query, "application/json-patch+json", &body);
        match patched.await {
            // The `test` failed because of a concurrent write: the next pass tries again.
            Err(ReconcileError::Refused { status, .. })
                if status == StatusCode::UNPROCESSABLE_ENTITY =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Patches the status of a schema.
    async fn patch(
        &self,
        name: &str,
        query: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<(), ReconcileError> {
        let path = format!("{}/status", path(&FLOW_SCHEMA, name));
        self.hosted
            .call(Method::PATCH, &path, query, content_type, Some(body))
            .await
    }

    /// Counts a write; false if there were [`MAX_WRITES`] within [`WINDOW`].
    fn may_write(&mut self, name: &str) -> bool {
        let now = self.clock.now();
        let writes = self.writes.entry(name.to_owned()).or_default();
        while writes
            .front()
            .is_some_and(|first| now.since(*first) >= WINDOW)
        {
            writes.pop_front();
        }
        if writes.len() >= MAX_WRITES {
            return false;
        }
        writes.push_back(now);
        true
    }
}

/// Whether the condition of a type differs from `desired`. `lastTransitionTime` is ignored.
fn differs(schema: &Value, ty: &str, desired: Option<&Value>) -> bool {
    let conditions = schema["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == ty);
    match (found, desired) {
        (None, None) => false,
        (Some(found), Some(desired)) => ["status", "reason", "message"]
            .iter()
            .any(|field| found[field] != desired[field]),
        // Remove conditions of the gateway only.
        (Some(found), None) => {
            ty == UNREACHABLE && (is_owned(schema) || found["reason"] == COVERED)
        }
        (None, Some(_)) => true,
    }
}

/// Whether [`UNREACHABLE_MANAGER`] owns anything of a schema.
fn is_owned(schema: &Value) -> bool {
    let managed = metadata::of(schema).get("managedFields");
    let mut managed = managed.and_then(Value::as_array).into_iter().flatten();
    managed.any(|entry| entry["manager"] == UNREACHABLE_MANAGER)
}
