//! `PATCH`: JSON patch, merge patch, strategic merge patch, and server-side apply.

use http::StatusCode;
use serde_json::{Value, json};

use super::{CallContext, HostedResponse, OwnedKind, StatusError, update::Changed};
use fairgate_apihttp::{
    content_type::PatchType,
    query::{Write, WriteOptions},
};
use fairgate_objects::{
    codec::{self, FieldValidation, json::ParsedText},
    field_error::ApiFieldError,
    kind::KindVersion,
    metadata, object,
    patch::{self, PatchError, Patched},
    schema::{Struct, TypePackage, canonical},
    ssa::{self, ApplyError, Conflict, WriteContext},
};

impl CallContext<'_> {
    pub(super) async fn patch(&self, how: PatchType) -> Result<HostedResponse, StatusError> {
        let body = self.request.body()?;
        let apply = how == PatchType::Apply;
        let agent = &self.request.header("user-agent");
        let options = WriteOptions::read(self.query, Write::Patch { apply }, agent)?;
        let updated = if apply {
            let config = applied(body)?;
            self.change("", &options, |live| self.apply(live, &config, &options))
                .await?
        } else {
            self.change("", &options, |live| self.patched(how, live, body, &options))
                .await?
        };
        let status = if updated.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        self.answer(status, updated.object)
    }

    /// Applies a patch of one of the three types other than apply.
    fn patched(
        &self,
        how: PatchType,
        live: Option<&Value>,
        body: &[u8],
        options: &WriteOptions,
    ) -> Result<Changed, StatusError> {
        let live = live.ok_or_else(|| StatusError::not_found(self.kind, &self.place.name))?;
        let validation = options.validation;
        let patched = match how {
            PatchType::Json => patch::json_patch(live, body, validation),
            PatchType::Merge => patch::merge_patch(live, body, validation),
            PatchType::Strategic => patch::strategic(self.version.shape, live, body, validation),
            PatchType::Apply => return Err(StatusError::internal("an apply is no plain patch")),
        }
        .map_err(fault_of)?;
        let mut new = self.decode_patched(how, &patched, options.validation)?;
        self.carry_empty(&patched.value, &mut new);
        self.track(Some(live), &mut new, options);
        self.finish(new, false)
    }

    /// Decodes a patched document into an object in the version of the call. The patch may have changed
    /// `apiVersion` to another version of the kind.
    fn decode_patched(
        &self,
        how: PatchType,
        patched: &Patched,
        validation: FieldValidation,
    ) -> Result<Value, StatusError> {
        let refuse = |text: String| {
            let error = ApiFieldError::patched(&patched.quoted(), text);
            StatusError::invalid("", "", "", &[error])
        };
        let mut value = patched.value.clone();
        let mut problems = patched.problems.clone();
        let mut version = self.version;
        // As kube-apiserver: the result of a strategic patch is not serialized and decoded again, so its
        // type is not checked.
        let versioned = if how == PatchType::Strategic {
            codec::unstructured::restore(self.version.shape, &mut value).map_err(refuse)?;
            true
        } else {
            version = self.version_of(&value);
            let api_version = self.kind.api_version(version.name);
            codec::check_type(&value, &api_version, self.kind.kind).map_err(refuse)?;
            has_version(&value)
        };
        let shape = if versioned {
            version.shape
        } else {
            &UNVERSIONED
        };
        let decoded = canonical::decode_version(shape, version.name, &value)
            .map_err(|error| refuse(error.to_string()))?;
        problems.extend(decoded.problems);
        if !problems.is_empty() {
            match validation {
                FieldValidation::Ignore => {}
                FieldValidation::Warn => self.warn_of(&problems, validation),
                FieldValidation::Strict => {
                    let text = format!("strict decoding error: {}", problems.join(", "));
                    return Err(refuse(text));
                }
            }
        }
        let mut value = decoded.value;
        if !versioned {
            self.check_name(&value)?;
        }
        value["kind"] = json!(self.kind.kind);
        (version.default)(&mut value);
        Ok(object::converted(self.kind, version, self.version, value))
    }

    /// The version in the document's `apiVersion`; the version of the call if it names no known one.
    fn version_of(&self, document: &Value) -> &'static KindVersion {
        let mut versions = self.kind.versions.iter();
        versions
            .find(|version| document["apiVersion"] == self.kind.api_version(version.name))
            .unwrap_or(self.version)
    }

    fn apply(
        &self,
        live: Option<&Value>,
        config: &ParsedText,
        options: &WriteOptions,
    ) -> Result<Changed, StatusError> {
        if live.is_none() && self.place.status {
            return Err(StatusError::not_found(self.kind, &self.place.name));
        }
        let now = self.state.now_text();
        let api_version = self.kind.api_version(self.version.name);
        let actor = WriteContext {
            manager: &options.manager,
            subresource: self.subresource(),
            api_version: &api_version,
            now: &now,
        };
        let mut merged = ssa::apply(
            &OwnedKind(self.kind),
            live,
            &config.value,
            &actor,
            options.force,
        )
        .map_err(|error| apply_fault(&error))?;
        // As kube-apiserver: duplicate keys are reported only after the apply succeeded.
        if options.validation == FieldValidation::Strict && !config.duplicates.is_empty() {
            return Err(StatusError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                config.duplicates.join("\n  ")
            )));
        }
        self.warn_of(&config.duplicates, options.validation);
        let refuse = |error: String| {
            let kind = format!("{api_version}, Kind={}", self.kind.kind);
            StatusError::internal(format!(
                "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert \
                 unstructured object to {kind}: {error}",
                self.place.namespace, self.place.name
            ))
        };
        codec::unstructured::restore(self.version.shape, &mut merged).map_err(refuse)?;
        let decoded = canonical::decode_version(self.version.shape, self.version.name, &merged)
            .map_err(|error| refuse(error.to_string()))?;
        let mut new = decoded.value;
        (self.version.default)(&mut new);
        if live.is_none() {
            self.check_no_uid(&new)?;
        }
        self.finish(new, live.is_none())
    }

    fn finish(&self, mut object: Value, may_create: bool) -> Result<Changed, StatusError> {
        self.settle_namespace(&mut object)?;
        self.check_name(&object)?;
        if let Some(warning) =
            metadata::dedup_owners(&mut object, " after mutating admission happens")
        {
            self.warn(warning);
        }
        Ok(Changed { object, may_create })
    }
}

/// The shape of a document without `apiVersion`. kube-apiserver decodes it into its internal Go type. This
/// type has no JSON tags, so no field of the document matches, not even the name.
static UNVERSIONED: Struct = Struct::new("Unversioned", TypePackage::GroupVersion, &[]);

fn has_version(document: &Value) -> bool {
    let version = document["apiVersion"].as_str();
    version.is_some_and(|version| !version.is_empty())
}

fn apply_fault(error: &ApplyError) -> StatusError {
    match error {
        ApplyError::BadRequest(text) => StatusError::bad_request(text.clone()),
        ApplyError::Internal(text) => StatusError::internal(text.clone()),
        ApplyError::Conflicts(conflicts) => {
            let causes: Vec<Value> = conflicts.listed.iter().map(cause).collect();
            StatusError::new(StatusCode::CONFLICT, "Conflict", error.to_string())
                .with_details(json!({"causes": causes}))
        }
    }
}

/// Parses the body of an apply as YAML, without validation against a shape. An empty body is an empty
/// object.
fn applied(body: &[u8]) -> Result<ParsedText, StatusError> {
    let refuse = |why: &dyn std::fmt::Display| {
        StatusError::bad_request(format!("error decoding YAML: {why}"))
    };
    let mut parsed = codec::yaml::parse(body)
        .map_err(|error| refuse(&format_args!("error converting YAML to JSON: {error}")))?;
    if parsed.value.is_null() {
        parsed.value = json!({});
    }
    if parsed.value.is_object() {
        return Ok(parsed);
    }
    Err(refuse(&format_args!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
         map[string]interface {{}}",
        go_word(&parsed.value)
    )))
}

fn cause(conflict: &Conflict) -> Value {
    json!({
        "reason": "FieldManagerConflict",
        "message": conflict.message(),
        "field": conflict.path,
    })
}

fn fault_of(error: PatchError) -> StatusError {
    match error {
        PatchError::BadRequest(text) => StatusError::bad_request(text),
        PatchError::TooLarge(text) => StatusError::too_large(&text),
        PatchError::Unprocessable => StatusError::unprocessable(),
        PatchError::TooDeep { patched, why } => {
            StatusError::invalid("", "", "", &[ApiFieldError::patched(&patched, why)])
        }
        PatchError::Internal(text) => StatusError::internal(text),
    }
}

fn go_word(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Object(_) => "object",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    }
}
