//! The schemas of custom resources, by which the server prunes bodies before its policies see them.
//!
//! A schema that is out of date would hide a member that the server keeps. So for each write, the version of the definition is read, without its
//! contents; the definition itself only if that version is not known here. What is kept is bounded in bytes.
//!
//! Not here: what a schema does ([`fairgate_objects::custom`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::custom::{CustomDefinition, CustomSchema};
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

/// The definitions that were read.
#[derive(Debug, Default)]
pub(crate) struct CustomDefinitions {
    kept: Mutex<KeptDefinitions>,
    /// Who has it reads a definition. Others wait for that, and then find it here.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KeptDefinitions {
    /// By path.
    definitions: HashMap<String, KeptDefinition>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptDefinition {
    at: DefinitionVersion,
    definition: Arc<CustomDefinition>,
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

impl KeptDefinitions {
    fn get(&self, path: &str, at: &DefinitionVersion) -> Option<Arc<CustomDefinition>> {
        let kept = self.definitions.get(path)?;
        (kept.at == *at && at.is_stated()).then(|| Arc::clone(&kept.definition))
    }

    fn keep(&mut self, path: String, at: DefinitionVersion, definition: &Arc<CustomDefinition>) {
        if let Some(before) = self.definitions.remove(&path) {
            self.bytes -= before.definition.bytes();
        }
        if self.bytes + definition.bytes() > MAX_KEPT {
            (self.bytes, self.definitions) = (0, HashMap::new());
        }
        self.bytes += definition.bytes();
        let definition = Arc::clone(definition);
        self.definitions
            .insert(path, KeptDefinition { at, definition });
    }
}

impl CustomDefinitions {
    /// The schema of a version of the custom resource that is defined at `path`; `None` if it is no custom resource.
    ///
    /// # Errors
    ///
    /// The definition could not be read, or has no such version.
    pub(crate) async fn schema(
        &self,
        upstream: &UpstreamReader,
        (path, version): (String, String),
        share: BodyShare,
    ) -> Result<Option<CustomSchema>, ReadFailure> {
        let definition = self.definition(upstream, path, share).await?;
        let schema = |definition: Arc<CustomDefinition>| {
            let schema = definition.version(&version);
            schema.ok_or_else(|| format!("it has no version {version}").into())
        };
        definition.map(schema).transpose()
    }

    async fn definition(
        &self,
        upstream: &UpstreamReader,
        path: String,
        share: BodyShare,
    ) -> Result<Option<Arc<CustomDefinition>>, ReadFailure> {
        let read = upstream.object_metadata(&path, share.another()).await?;
        let Some(metadata) = read else {
            return Ok(None);
        };
        let at = DefinitionVersion::of(&metadata.value);
        if let Some(kept) = lock(&self.kept).get(&path, &at) {
            return Ok(Some(kept));
        }
        let _reading = self.turn_to_read().await;
        // Whoever had the turn before may have read the same definition.
        if let Some(kept) = lock(&self.kept).get(&path, &at) {
            return Ok(Some(kept));
        }
        let Some(definition) = upstream.object(&path, share).await? else {
            return Ok(None);
        };
        // It may have changed since its metadata was read: what is kept is told by what it was compiled from.
        let at = DefinitionVersion::of(&definition.value);
        let compiled = upstream.made_of(definition, CustomDefinition::new).await?;
        let compiled = Arc::new(compiled);
        lock(&self.kept).keep(path, at, &compiled);
        Ok(Some(compiled))
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
        let mut kept = KeptDefinitions::default();
        let path = |number: usize| number.to_string();
        let at = |version: &str| {
            DefinitionVersion::of(&json!({"metadata": {"uid": "u", "resourceVersion": version}}))
        };
        let definition = json!({"spec": {"versions": [{"name": "v1"}]}});
        let definition = Arc::new(CustomDefinition::new(&definition));
        kept.keep(path(1), at("1"), &definition);
        assert!(kept.get(&path(1), &at("1")).is_some());
        assert!(kept.get(&path(1), &at("2")).is_none() && kept.get(&path(2), &at("1")).is_none());
        kept.keep(path(1), at("2"), &definition);
        assert_eq!(kept.bytes, definition.bytes());
        // A server that does not say any version is asked each time.
        kept.keep(path(2), at(""), &definition);
        assert!(kept.get(&path(2), &at("")).is_none());
        let most = MAX_KEPT / definition.bytes();
        for number in 0..most + 2 {
            kept.keep(path(number), at("1"), &definition);
            let all = kept.definitions.len();
            assert!(kept.bytes <= MAX_KEPT && kept.bytes == all * definition.bytes());
        }
        assert!(kept.definitions.len() < most);
    }
}
