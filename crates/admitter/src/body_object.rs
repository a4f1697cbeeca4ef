//! The object that the body of a write describes: read, or applied to the stored one as a patch, and completed with what a
//! server would keep or add.

use std::sync::Arc;

use bytes::Bytes;
use fairgate_apiserver::StatusError;
use fairgate_objects::{
    codec::BodyFormat,
    custom::{self, CustomSchema},
    defaults, metadata,
};
use serde_json::{Value, json};

use crate::{
    facts::WriteFacts,
    judged_object::{Fresh, WriteStrategy},
    object_name::{self, NameSource},
    objects::{self, PatchFormat},
    workers::LARGE,
};
use fairgate_admission::Fidelity;

/// [`LARGE`] for YAML, which takes longer to read, and whose aliases stand for more than their length.
pub(crate) const LARGE_YAML: usize = 1 << 10;
/// The same for JSON patches: each operation may copy all that is there.
const LARGE_JSON_PATCH: usize = 512;
/// The same for patches whose lists are merged.
const LARGE_PATCH: usize = 4 << 10;

/// It takes about a microsecond to give an object in a body its defaults: so many may take too long on a data core.
const MANY_OBJECTS: usize = 1_000;
/// A body that is no longer has few objects, whatever is in it.
const FEW_OBJECTS: usize = 4 << 10;

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyReading {
    /// It is the object.
    Object(BodyFormat),
    /// It is a patch of the stored object.
    Patch(PatchFormat),
}

/// A body that describes an object.
#[derive(Debug)]
pub(crate) struct BodyObject {
    pub(crate) bytes: Bytes,
    pub(crate) reading: BodyReading,
    pub(crate) fidelity: Fidelity,
    /// What the server makes of it; `None` if only the server knows, and the object is then not judged by this body.
    pub(crate) strategy: Option<WriteStrategy>,
    /// The schema of a custom resource, by which the server prunes it.
    pub(crate) schema: Option<Arc<CustomSchema>>,
    /// What the server sets in a new object.
    pub(crate) fresh: Fresh,
    /// Whether the request creates the object, which then may name it.
    pub(crate) is_new: bool,
    /// Where that name is from.
    pub(crate) name: NameSource,
    /// Whether the defaults of its kind are set. If no policy reads them, that is left out.
    pub(crate) has_defaults: bool,
}

impl BodyObject {
    /// Whether it takes too long to read it on a data core.
    pub(crate) fn is_large(&self) -> bool {
        let limit = match self.reading {
            BodyReading::Object(BodyFormat::Yaml) => LARGE_YAML,
            BodyReading::Object(BodyFormat::Json | BodyFormat::Protobuf) => LARGE,
            BodyReading::Patch(PatchFormat::Json) => LARGE_JSON_PATCH,
            BodyReading::Patch(_) => LARGE_PATCH,
        };
        self.bytes.len() > limit || self.may_have_many_defaults()
    }

    /// Whether setting the defaults may take long, though the body is short: of many small objects each gets some.
    fn may_have_many_defaults(&self) -> bool {
        let repeats = |schema: &CustomSchema| schema.repeats_defaults();
        if self.schema.as_deref().is_some_and(repeats) {
            return self.bytes.len() > FEW_OBJECTS;
        }
        self.has_defaults
            && match self.reading {
                BodyReading::Object(BodyFormat::Json) => {
                    memchr::memchr_iter(b'{', &self.bytes).count() > MANY_OBJECTS
                }
                _ => self.bytes.len() > 2 * FEW_OBJECTS,
            }
    }

    /// The object as policies are to see it. Adds what it says of the request to `facts`.
    ///
    /// # Errors
    ///
    /// As kube-apiserver, if the body cannot be read, or the patch not be applied.
    pub(crate) fn read(
        &self,
        facts: &mut WriteFacts,
        old: Option<&Value>,
    ) -> Result<Value, StatusError> {
        // Objects with one have been read by it.
        let is_custom = self.fidelity > Fidelity::AsSent && !facts.has_table();
        let mut object = match self.reading {
            BodyReading::Object(format) => {
                let mut object = objects::decode(format, &self.bytes, facts, self.fidelity)?;
                if is_custom {
                    self.read_custom(&mut object)?;
                }
                facts.set_kind_by(&object);
                if self.fidelity > Fidelity::AsSent {
                    objects::complete(&mut object, facts);
                }
                object
            }
            BodyReading::Patch(format) => {
                let old = old.unwrap_or(&Value::Null);
                let mut object = objects::patched(format, old, &self.bytes, facts)?;
                if is_custom {
                    self.read_custom(&mut object)?;
                }
                object
            }
        };
        let kind = facts.group_version_kind();
        let has_defaults = self.has_defaults || defaults::change_metadata(kind.group, kind.kind);
        if has_defaults && self.fidelity > Fidelity::AsSent {
            defaults::apply(kind.group, kind.version, kind.kind, &mut object);
        }
        if self.is_new {
            self.name(&mut object, facts)?;
        }
        if self.fidelity > Fidelity::AsSent && object.get("metadata").is_some_and(Value::is_object)
        {
            // The server warns the client when it carries the request out.
            metadata::dedup_owners(&mut object, "");
        }
        if self.fidelity > Fidelity::AsSent
            && let Some(strategy) = self.strategy
        {
            let applied = strategy.apply(&mut object, old, facts, &self.fresh);
            applied.map_err(|error| StatusError::bad_request(error.to_string()))?;
        }
        Ok(object)
    }

    /// Gives a new object the name that the server generates. One that no policy reads is only shown in messages.
    fn name(&self, object: &mut Value, facts: &mut WriteFacts) -> Result<(), StatusError> {
        let prefix = object_name::prefix_of(object).filter(|_| self.is_stored());
        let prefix = prefix.map(str::to_owned);
        if let (Some(_), NameSource::Server(name)) = (&prefix, &self.name) {
            object["metadata"]["name"] = json!(name);
        }
        let is_generated = prefix.is_some() || self.name == NameSource::Gateway;
        facts.name_by(object, is_generated);
        if let (Some(prefix), NameSource::Client) = (prefix, &self.name) {
            object["metadata"]["name"] = json!(fairgate_apiserver::generated_name(&prefix)?);
        }
        Ok(())
    }

    fn is_stored(&self) -> bool {
        let is_stored = |strategy| matches!(strategy, WriteStrategy::Resource(of) if of.is_stored);
        self.strategy.is_some_and(is_stored)
    }

    fn read_custom(&self, object: &mut Value) -> Result<(), StatusError> {
        let read = custom::as_read(object, self.schema.as_deref());
        read.map_err(|error| StatusError::bad_request(error.to_string()))
    }
}
