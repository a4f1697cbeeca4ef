//! The object that the body of a write describes: read, or applied to the stored one as a patch, and completed with what a
//! server would keep or add.

use bytes::Bytes;
use fairgate_apihttp::{content_type::PatchType, status_error::StatusError};
use fairgate_objects::{
    codec::{self, BodyFormat, DecodedObject, FieldValidation},
    custom::{self, CustomSchema},
    defaults, metadata, schema,
};
use serde_json::{Value, json};

use crate::{
    limits::workers::LARGE,
    object::body_checks::CheckedBody,
    object::evaluated_object::{Fresh, WriteStrategy},
    object::object_name::{self, NameSource},
    object::objects,
    object::token_account::{self, TokenAccount},
    request::facts::WriteFacts,
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
    Patch(PatchType),
}

/// A body that describes an object.
#[derive(Debug)]
pub(crate) struct BodyObject {
    pub(crate) bytes: Bytes,
    /// The object, if the bytes have been decoded.
    pub(crate) decoded: Option<DecodedObject>,
    pub(crate) reading: BodyReading,
    pub(crate) fidelity: Fidelity,
    /// What the server makes of it; `None` if only the server knows, and the object is then not evaluated by this body.
    pub(crate) strategy: Option<WriteStrategy>,
    /// The schema of a custom resource, by which the server prunes it.
    pub(crate) schema: Option<CustomSchema>,
    /// What the server sets in a new object.
    pub(crate) fresh: Fresh,
    /// Whether the request creates the object, which then may name it.
    pub(crate) is_new: bool,
    /// Where that name is from.
    pub(crate) name: NameSource,
    /// Who owns the fields of a new object; `None` if no policy reads that.
    pub(crate) owner: Option<String>,
    /// Whether the defaults of its kind are set. If no policy reads them, that is left out.
    pub(crate) has_defaults: bool,
    /// The service account, if the body is a request for a token of it.
    pub(crate) account: Option<TokenAccount>,
    pub(crate) strictness: BodyStrictness,
}

/// What happens to unknown and duplicate fields.
#[derive(Clone, Debug)]
pub(crate) struct BodyStrictness {
    pub(crate) validation: FieldValidation,
    /// What was said of duplicate fields when they were removed.
    pub(crate) duplicates: Vec<String>,
}

impl BodyStrictness {
    /// Notes what strict decoding says of a body. Duplicate fields have been removed from it, so the upstream does not know of them: strict
    /// validation refuses them here. Unknown fields are left to the upstream, which may know them, unless policies deny the request.
    ///
    /// # Errors
    ///
    /// The refusal.
    fn check(
        &self,
        unknown: Vec<String>,
        facts: &mut WriteFacts,
        refuse: impl FnOnce(String) -> StatusError,
    ) -> Result<(), StatusError> {
        if self.validation != FieldValidation::Strict {
            if self.validation == FieldValidation::Warn {
                facts.findings.warnings.extend(unknown);
            }
            return Ok(());
        }
        if self.duplicates.is_empty() && unknown.is_empty() {
            return Ok(());
        }
        let problems = [&*self.duplicates, &unknown].concat().join(", ");
        let error = refuse(format!("strict decoding error: {problems}"));
        if self.duplicates.is_empty() {
            facts.findings.note(Some(error));
            return Ok(());
        }
        Err(error)
    }
}

impl BodyObject {
    /// Whether it takes too long to read it on a data core.
    pub(crate) fn is_large(&self) -> bool {
        let limit = match self.reading {
            BodyReading::Object(BodyFormat::Yaml) => LARGE_YAML,
            BodyReading::Object(BodyFormat::Json | BodyFormat::Protobuf) => LARGE,
            BodyReading::Patch(PatchType::Json) => LARGE_JSON_PATCH,
            BodyReading::Patch(_) => LARGE_PATCH,
        };
        self.bytes.len() > limit || self.may_have_many_defaults()
    }

    /// Whether setting the defaults may take long, though the body is short: of many small objects each gets some.
    fn may_have_many_defaults(&self) -> bool {
        let schema = self.schema.as_ref();
        if schema.is_some_and(CustomSchema::repeats_defaults) {
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
        &mut self,
        facts: &mut WriteFacts,
        old: Option<&Value>,
    ) -> Result<Value, StatusError> {
        // Objects with one have been read by it.
        let is_custom = self.fidelity > Fidelity::AsSent && !facts.has_table();
        let mut object = match self.reading {
            BodyReading::Object(format) => self.read_object(format, is_custom, facts)?,
            BodyReading::Patch(format) => {
                let old = old.unwrap_or(&Value::Null);
                let validation = self.strictness.validation;
                let mut patched = objects::patched(format, old, &self.bytes, facts, validation)?;
                if is_custom {
                    let read = custom::as_read(&mut patched.value, self.schema.as_ref());
                    let unknown = read.map_err(|error| patched.refused(error.to_string()))?;
                    patched.problems.extend(unknown);
                }
                let unknown = std::mem::take(&mut patched.problems);
                let refuse = |problems| patched.refused(problems);
                self.strictness.check(unknown, facts, refuse)?;
                patched.value
            }
        };
        self.check(&object, old, facts);
        if let Some(account) = &self.account {
            account.settle(&mut object, facts);
        }
        if self.fidelity > Fidelity::AsSent {
            if matches!(self.reading, BodyReading::Object(_)) {
                objects::complete(&mut object, facts);
            }
            objects::settle_namespace(&mut object, facts);
        }
        let version = object["metadata"]["resourceVersion"].as_str();
        let stored = old.map(|old| &old["metadata"]["resourceVersion"]);
        // A patch that states none has that of the stored object.
        facts.states_version = match self.reading {
            BodyReading::Object(_) => version.is_some_and(|version| !["", "0"].contains(&version)),
            BodyReading::Patch(_) => version != stored.and_then(Value::as_str),
        };
        self.set_defaults(&mut object, facts);
        if self.is_new {
            self.name(&mut object, facts)?;
        }
        if self.fidelity > Fidelity::AsSent && object.get("metadata").is_some_and(Value::is_object)
        {
            let when = match self.reading {
                BodyReading::Object(_) => "",
                BodyReading::Patch(_) => " after mutating admission happens",
            };
            let warning = metadata::dedup_owners(&mut object, when);
            facts.findings.warnings.extend(warning);
        }
        if self.fidelity > Fidelity::AsSent
            && let Some(strategy) = self.strategy
        {
            let owner = self.owner.as_deref();
            let owner = owner.map(|owner| (owner, self.schema.as_ref()));
            let applied = strategy.apply(&mut object, old, facts, &self.fresh, owner);
            applied.map_err(|error| StatusError::bad_request(error.to_string()))?;
        }
        if self.has_defaults && self.fidelity > Fidelity::AsSent {
            schema::add_nulls(facts.kind.each_ref().map(String::as_str), &mut object);
        }
        Ok(object)
    }

    /// Gives the object its defaults, and checks what depends on them.
    fn set_defaults(&self, object: &mut Value, facts: &mut WriteFacts) {
        let kind = facts.group_version_kind();
        let [group, version, kind] = [kind.group, kind.version, kind.kind];
        if self.fidelity > Fidelity::AsSent {
            if self.has_defaults {
                defaults::apply(group, version, kind, object);
                defaults::apply_times(group, version, kind, object, &self.fresh.time());
            } else {
                defaults::apply_to_metadata(group, kind, object);
            }
        }
        if self.account.is_some() {
            token_account::note_duration(object, facts);
        }
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
            object["metadata"]["name"] = json!(fairgate_apihttp::random::generated_name(&prefix)?);
        }
        Ok(())
    }

    fn is_stored(&self) -> bool {
        let is_stored = |strategy| matches!(strategy, WriteStrategy::Resource(of) if of.is_stored);
        self.strategy.is_some_and(is_stored)
    }

    /// The object that the body is.
    fn read_object(
        &mut self,
        format: BodyFormat,
        is_custom: bool,
        facts: &mut WriteFacts,
    ) -> Result<Value, StatusError> {
        let (mut object, mut unknown) = match self.decoded.take() {
            Some(decoded) => (decoded.value, decoded.problems),
            None => objects::decode_strictly(format, &self.bytes, facts, self.fidelity)?,
        };
        let of = facts.kind.clone();
        let refuse = |why: String| {
            let [_, version, kind] = &of;
            let prefix = format!("{kind} in version {version:?} cannot be handled as a {kind}");
            StatusError::bad_request(format!("{prefix}: {why}"))
        };
        if is_custom {
            let is_known = !of[2].is_empty();
            if self.schema.is_some() && is_known {
                let expected = of.each_ref().map(String::as_str);
                let checked = codec::check_custom_type(&object, &self.bytes, expected);
                checked.map_err(|error| StatusError::bad_request(error.to_string()))?;
            }
            let read = custom::as_read(&mut object, self.schema.as_ref());
            unknown = read.map_err(|error| refuse(error.to_string()))?;
        }
        self.strictness.check(unknown, facts, refuse)?;
        facts.set_kind_by(&object);
        Ok(object)
    }

    /// Notes what a server would refuse before its policies, of the resources that are known.
    fn check(&self, object: &Value, old: Option<&Value>, facts: &mut WriteFacts) {
        let is_custom = self.schema.is_some();
        let Some(strategy) = self.strategy.filter(|_| is_custom || facts.has_table()) else {
            return;
        };
        let mut findings = std::mem::take(&mut facts.findings);
        let checked = CheckedBody {
            object,
            old,
            facts,
            strategy,
            is_custom,
        };
        checked.check(&mut findings);
        facts.findings = findings;
    }
}
