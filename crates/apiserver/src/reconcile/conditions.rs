//! Tells what was found about the objects, as conditions in their status.
//!
//! Each type of condition has a field manager of its own, which applies it and nothing else: so
//! several gateways on one store agree, and nobody's other conditions are touched. What a gateway
//! finds because of its own settings is not told here, or gateways with different ones would overwrite
//! each other for ever.

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

/// Who tells whether a schema's level exists; kube-apiserver tells it by the same name.
const DANGLING_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Who tells whether a schema can catch anything.
const UNREACHABLE_MANAGER: &str = "fairgate-unreachable";
/// The type of that condition.
const UNREACHABLE: &str = "Unreachable";
/// Its reason.
const COVERED: &str = "Covered";

/// The most writes of one object in [`WINDOW`].
const MAX_WRITES: usize = 6;
const WINDOW: Duration = Duration::from_secs(60);

/// What the gateway thinks of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableSchema {
    /// The schema.
    pub schema: String,
    /// Why it can catch nothing.
    pub unreachable: String,
}

/// Writes conditions.
#[derive(Debug)]
pub struct ConditionWriter {
    hosted: Arc<Hosted>,
    clock: Clock,
    /// When each object was written lately.
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

    /// Brings the conditions of every schema to what is so. Returns whether all was written; if not,
    /// an object was written too often lately and is to be tried again later.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first write that failed.
    pub async fn tell(&mut self, opinions: &[UnreachableSchema]) -> Result<bool, ReconcileError> {
        let levels = self.hosted.known(&PRIORITY_LEVEL).await?;
        let schemas = self.hosted.known(&FLOW_SCHEMA).await?;
        self.writes.retain(|name, _| schemas.contains_key(name));
        let opinions: BTreeMap<_, _> = opinions
            .iter()
            .map(|opinion| (opinion.schema.as_str(), opinion))
            .collect();
        let mut all = true;
        for (name, schema) in &schemas {
            let schema = schema.stored();
            let level = schema["spec"]["priorityLevelConfiguration"]["name"]
                .as_str()
                .unwrap_or_default();
            let dangling = json!(dangling_condition(level, levels.contains_key(level)));
            all &= self
                .tell_one(name, schema, DANGLING_MANAGER, "Dangling", Some(dangling))
                .await?;
            let opinion = opinions.get(name.as_str());
            let unreachable = opinion.map(|opinion| {
                json!({
                    "type": UNREACHABLE,
                    "status": "True",
                    "reason": COVERED,
                    "message": opinion.unreachable,
                })
            });
            all &= self
                .tell_one(name, schema, UNREACHABLE_MANAGER, UNREACHABLE, unreachable)
                .await?;
        }
        Ok(all)
    }

    /// Writes one condition, or takes it away; false if that has to wait.
    async fn tell_one(
        &mut self,
        name: &str,
        schema: &Value,
        manager: &str,
        ty: &str,
        wanted: Option<Value>,
    ) -> Result<bool, ReconcileError> {
        if !differs(schema, ty, wanted.as_ref()) {
            return Ok(true);
        }
        if !self.may_write(name) {
            return Ok(false);
        }
        let written = match wanted {
            None if !is_owned(schema) => self.cut_out(name, schema, ty).await,
            wanted => self.apply(name, manager, wanted).await,
        };
        match written {
            Err(error) if !error.is_race() => Err(error),
            _ => Ok(true),
        }
    }

    /// Has `manager` say one condition, or none any more.
    async fn apply(
        &self,
        name: &str,
        manager: &str,
        wanted: Option<Value>,
    ) -> Result<(), ReconcileError> {
        let mut conditions = Vec::new();
        if let Some(mut condition) = wanted {
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

    /// Takes away a condition that was ours until somebody had all ownership forgotten: what nobody owns
    /// does not go with whoever wrote it.
    async fn cut_out(&self, name: &str, schema: &Value, ty: &str) -> Result<(), ReconcileError> {
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
        let cut = self.patch(name, &query, "application/json-patch+json", &body);
        match cut.await {
            // Somebody has written it meanwhile: it is looked at again.
            Err(ReconcileError::Refused { status, .. })
                if status == StatusCode::UNPROCESSABLE_ENTITY =>
            {
                Ok(())
            }
            cut => cut,
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

    /// Counts a write; false if there were too many lately.
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

/// Whether the condition of a type says something else than `wanted`; when it changed does not count.
fn differs(schema: &Value, ty: &str, wanted: Option<&Value>) -> bool {
    let conditions = schema["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == ty);
    match (found, wanted) {
        (None, None) => false,
        (Some(found), Some(wanted)) => ["status", "reason", "message"]
            .iter()
            .any(|field| found[field] != wanted[field]),
        // Only what is ours is ours to take away.
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
