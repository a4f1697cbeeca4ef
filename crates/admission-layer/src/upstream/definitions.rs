//! The schemas of custom resources, by which the server prunes bodies before its policies see them.
//!
//! A schema that is out of date would hide a member that the server keeps. So for each write, the version of the definition is read, without its
//! contents; the definition itself only if that version is not known here. What is kept is bounded in bytes.
//!
//! Not here: what a schema does ([`fairgate_objects::custom`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::custom::CustomSchema;
use serde_json::Value;
use tokio::sync::MutexGuard;

use crate::{
    limits::body_budget::{BodyShare, ReadFailure},
    upstream::upstream_objects::UpstreamReader,
};

/// The most bytes of schemas that are kept; when there are more, all are read again.
const MAX_KEPT: usize = 32 << 20;
/// How long a write waits for the definitions that others read.
const OTHERS_READ: Duration = Duration::from_millis(500);

/// The schemas that were read.
#[derive(Debug, Default)]
pub(crate) struct CustomDefinitions {
    kept: Mutex<KeptSchemas>,
    /// Who has it reads a definition. Others wait for that, and then find it here.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KeptSchemas {
    /// By path of the definition and version of the resource.
    schemas: HashMap<(String, String), KeptSchema>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptSchema {
    at: DefinitionVersion,
    schema: Arc<CustomSchema>,
}

/// Which state of a definition it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DefinitionVersion([String; 2]);

impl DefinitionVersion {
    fn of(definition: &Value) -> Self {
        let text = |key: &str| definition["metadata"][key].as_str().unwrap_or_default();
        Self(["uid", "resourceVersion"].map(|key| text(key).to_owned()))
    }

    /// Whether another state would have another version.
    fn is_stated(&self) -> bool {
        !self.0[1].is_empty()
    }
}

impl KeptSchemas {
    fn get(&self, key: &(String, String), at: &DefinitionVersion) -> Option<Arc<CustomSchema>> {
        let kept = self.schemas.get(key)?;
        (kept.at == *at && at.is_stated()).then(|| Arc::clone(&kept.schema))
    }

    fn keep(&mut self, key: (String, String), at: DefinitionVersion, schema: &Arc<CustomSchema>) {
        if let Some(before) = self.schemas.remove(&key) {
            self.bytes -= before.schema.bytes();
        }
        if self.bytes + schema.bytes() > MAX_KEPT {
            (self.bytes, self.schemas) = (0, HashMap::new());
        }
        self.bytes += schema.bytes();
        let schema = Arc::clone(schema);
        self.schemas.insert(key, KeptSchema { at, schema });
    }
}

impl CustomDefinitions {
    /// The schema of a version of the custom resource that is defined at `path`; `None` if it is no custom resource.
    ///
    /// # Errors
    ///
    /// The definition could not be read.
    pub(crate) async fn schema(
        &self,
        upstream: &UpstreamReader,
        key: (String, String),
        share: BodyShare,
    ) -> Result<Option<Arc<CustomSchema>>, ReadFailure> {
        let read = upstream.object_metadata(&key.0, share.another()).await?;
        let Some(metadata) = read else {
            return Ok(None);
        };
        let at = DefinitionVersion::of(&metadata.value);
        if let Some(kept) = lock(&self.kept).get(&key, &at) {
            return Ok(Some(kept));
        }
        let _reading = self.turn_to_read().await;
        // Whoever had the turn before may have read the same definition.
        if let Some(kept) = lock(&self.kept).get(&key, &at) {
            return Ok(Some(kept));
        }
        let Some(definition) = upstream.object(&key.0, share).await? else {
            return Ok(None);
        };
        // It may have changed since its metadata was read: what is kept is told by what it was compiled from.
        let at = DefinitionVersion::of(&definition.value);
        let version = key.1.clone();
        let compile = move |definition: &Value| CustomSchema::of_version(definition, &version);
        let Some(schema) = upstream.made_of(definition, compile).await? else {
            return Err(format!("it has no version {}", key.1).into());
        };
        let schema = Arc::new(schema);
        lock(&self.kept).keep(key, at, &schema);
        Ok(Some(schema))
    }

    /// Whose turn it is reads a definition for all who wait. It may take long if its user causes much work: the others read
    /// for themselves then.
    async fn turn_to_read(&self) -> Option<MutexGuard<'_, ()>> {
        let turn = self.reading.lock();
        tokio::time::timeout(OTHERS_READ, turn).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_long_for_what_another_user_reads() {
        let definitions = CustomDefinitions::default();
        let turn = definitions.turn_to_read().await;
        assert!(turn.is_some());
        assert!(definitions.turn_to_read().await.is_none());
        drop(turn);
        assert!(definitions.turn_to_read().await.is_some());
    }

    #[test]
    fn a_schema_is_that_of_the_definition_in_this_version_and_what_is_kept_is_bounded() {
        let mut kept = KeptSchemas::default();
        let key = |number: usize| (number.to_string(), "v1".to_owned());
        let at = |version: &str| {
            DefinitionVersion::of(&json!({"metadata": {"uid": "u", "resourceVersion": version}}))
        };
        let schema = json!({"spec": {"versions": [{"name": "v1"}]}});
        let schema = Arc::new(CustomSchema::of_version(&schema, "v1").unwrap());
        kept.keep(key(1), at("1"), &schema);
        assert!(kept.get(&key(1), &at("1")).is_some());
        assert!(kept.get(&key(1), &at("2")).is_none() && kept.get(&key(2), &at("1")).is_none());
        kept.keep(key(1), at("2"), &schema);
        assert_eq!(kept.bytes, schema.bytes());
        // A server that does not say any version is asked each time.
        kept.keep(key(2), at(""), &schema);
        assert!(kept.get(&key(2), &at("")).is_none());
        let most = MAX_KEPT / schema.bytes();
        for number in 0..most + 2 {
            kept.keep(key(number), at("1"), &schema);
            assert!(kept.bytes <= MAX_KEPT && kept.bytes == kept.schemas.len() * schema.bytes());
        }
        assert!(kept.schemas.len() < most);
    }
}
