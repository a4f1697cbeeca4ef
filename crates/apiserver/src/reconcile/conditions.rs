//! Writes status conditions of flow schemas.
//!
//! Each condition type has its own field manager, which applies this condition only. So several
//! gateways on one store agree, and conditions of other writers stay untouched. A finding that depends
//! on the settings of one gateway is not written: gateways with different settings would overwrite each
//! other's conditions without end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    Hosted, ReconcileError,
    changes::{ChangedObject, ChangedObjects},
    path,
    recent_writes::RecentWrites,
};
use fairgate_base::clock::Clock;
use fairgate_core::apf::objects::dangling_condition;
use fairgate_objects::{
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
    metadata,
    object::Object,
};

/// The field manager of the condition `Dangling`; kube-apiserver uses the same name.
const DANGLING_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The field manager of the condition `Unreachable`.
const UNREACHABLE_MANAGER: &str = "fairgate-unreachable";
/// The condition of a schema that no request can match.
const UNREACHABLE: &str = "Unreachable";
/// The reason of the condition `Unreachable`: schemas of higher precedence match everything that this one matches.
const COVERED: &str = "Covered";

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
    changed: ChangedObjects,
    /// The level that each schema names. Schemas share the text if that level exists.
    levels_of: BTreeMap<Box<str>, Arc<str>>,
    /// The levels that exist.
    levels: BTreeSet<Arc<str>>,
    /// The messages of schemas that no request can match.
    unreachable: BTreeMap<String, String>,
    writes: RecentWrites,
}

impl ConditionWriter {
    /// Writes conditions through `hosted`.
    pub fn new(hosted: Arc<Hosted>, clock: Clock) -> Self {
        let store = Arc::clone(&hosted.state.store);
        Self {
            hosted,
            clock,
            // Levels come first, so that schemas are compared with the current levels.
            changed: ChangedObjects::new(store, vec![&PRIORITY_LEVEL, &FLOW_SCHEMA]),
            levels_of: BTreeMap::new(),
            levels: BTreeSet::new(),
            unreachable: BTreeMap::new(),
            writes: RecentWrites::default(),
        }
    }

    /// Reconciles the conditions of every schema that has changed since the last call, whose level was
    /// created or deleted, or that has become reachable or unreachable. Returns false if an object was
    /// written too often within the last minute; the caller tries again later.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first write that failed.
    pub async fn reconcile(
        &mut self,
        unreachable: &[UnreachableSchema],
    ) -> Result<bool, ReconcileError> {
        self.writes.expire(self.clock.now());
        if self.changed.collect().await? {
            // All levels and schemas follow, but not those that were deleted meanwhile.
            self.levels.clear();
            self.levels_of.clear();
        }
        self.note_unreachable(unreachable);
        let mut all_written = true;
        let mut last = None;
        while let Some(changed) = self.changed.next(last.as_ref()).await? {
            let written = if changed.kind.plural == PRIORITY_LEVEL.plural {
                self.note_level(&changed);
                true
            } else {
                self.reconcile_schema(&changed).await?
            };
            if written {
                self.changed.done(&changed);
            }
            all_written &= written;
            last = Some(changed);
        }
        Ok(all_written)
    }

    /// Records which schemas no request can match.
    fn note_unreachable(&mut self, unreachable: &[UnreachableSchema]) {
        let now = unreachable
            .iter()
            .map(|finding| (finding.schema.clone(), finding.unreachable.clone()))
            .collect();
        let before = std::mem::replace(&mut self.unreachable, now);
        let now = &self.unreachable;
        let schemas = before.keys().chain(now.keys());
        for name in schemas.filter(|&name| before.get(name) != now.get(name)) {
            self.changed.add(&FLOW_SCHEMA, name);
        }
    }

    /// Records that a level was created or deleted, which changes whether its schemas are dangling.
    fn note_level(&mut self, level: &ChangedObject) {
        let name = level.name.as_str();
        let is_news = if level.object.is_some() {
            self.levels.insert(name.into())
        } else {
            self.levels.remove(name)
        };
        if is_news {
            let schemas = self.levels_of.iter().filter(|(_, of)| &***of == name);
            for (schema, _) in schemas {
                self.changed.add(&FLOW_SCHEMA, schema);
            }
        }
    }

    /// Returns false if the schema was written too often.
    async fn reconcile_schema(&mut self, changed: &ChangedObject) -> Result<bool, ReconcileError> {
        let name = &changed.name;
        let Some(schema) = changed.object.as_ref().map(Object::stored) else {
            self.levels_of.remove(name.as_str());
            self.writes.forget(name);
            return Ok(true);
        };
        let level = schema["spec"]["priorityLevelConfiguration"]["name"]
            .as_str()
            .unwrap_or_default();
        let existing = self.levels.get(level);
        let dangling = json!(dangling_condition(level, existing.is_some()));
        let level = existing.map_or_else(|| level.into(), Arc::clone);
        self.levels_of.insert(name.as_str().into(), level);
        let is_dangling_written = self
            .write_condition(name, schema, DANGLING_MANAGER, "Dangling", Some(dangling))
            .await?;
        let unreachable = self.unreachable.get(name).map(|message| {
            json!({
                "type": UNREACHABLE,
                "status": "True",
                "reason": COVERED,
                "message": message,
            })
        });
        let is_unreachable_written = self
            .write_condition(name, schema, UNREACHABLE_MANAGER, UNREACHABLE, unreachable)
            .await?;
        Ok(is_dangling_written && is_unreachable_written)
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
        if !self.writes.allow(self.clock.now(), name) {
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
