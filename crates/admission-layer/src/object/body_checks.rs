//! What a server checks in the object of a write before policies see it: its namespace, its name and its version.
//!
//! Source: Kubernetes `apiserver/pkg/endpoints/handlers/{create,update,patch}.go` and `registry/generic/registry/store.go`.
//!
//! Not here: the validation of objects.

use fairgate_apihttp::status_error::StatusError;
use fairgate_gotext::parse_uint;
use fairgate_objects::field_error::ApiFieldError;
use serde_json::{Value, json};

use crate::{
    object::evaluated_object::WriteStrategy,
    object::object_errors::{conflict, creates_by_put, modified, needs_version, not_found},
    object::objects,
    request::facts::WriteFacts,
    request::findings::BodyFindings,
    request::write_request::WriteVerb,
};

/// A write, and what its body says.
pub(crate) struct CheckedBody<'a> {
    pub(crate) object: &'a Value,
    /// The stored object.
    pub(crate) old: Option<&'a Value>,
    pub(crate) facts: &'a WriteFacts,
    pub(crate) strategy: WriteStrategy,
    /// Whether it is a custom resource.
    pub(crate) is_custom: bool,
}

impl CheckedBody<'_> {
    /// Notes the server's errors.
    pub(crate) fn check(&self, findings: &mut BodyFindings) {
        if !self.strategy.is_whole() {
            if self.strategy.is_posted() {
                findings.note(self.wrong_namespace());
            }
            return;
        }
        findings.note(self.wrong_namespace());
        if self.facts.verb == WriteVerb::Create {
            findings.note_late(self.no_name());
            return;
        }
        findings.note(self.wrong_name());
        if self.old.is_none() && !creates_by_put(self.facts) {
            findings.note(Some(not_found(self.facts)));
        }
        findings.note(self.wrong_uid());
        match self.old {
            Some(old) => {
                self.note_version(old, findings);
                findings.note(self.changed_identity(old));
            }
            None => findings.note(version(self.text("resourceVersion")).err()),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.object["metadata"][key].as_str().unwrap_or_default()
    }

    fn wrong_namespace(&self) -> Option<StatusError> {
        let (given, expected) = (self.text("namespace"), &*self.facts.namespace);
        let is_wrong = !given.is_empty() && !expected.is_empty() && given != expected;
        let is_wrong = is_wrong && !self.facts.is_namespace();
        is_wrong.then(|| {
            StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        })
    }

    fn wrong_name(&self) -> Option<StatusError> {
        let (given, expected) = (objects::name_of(self.object), &*self.facts.name);
        if given.is_empty() {
            return Some(StatusError::bad_request(format!(
                "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
            )));
        }
        (given != expected).then(|| {
            StatusError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({expected})"
            ))
        })
    }

    /// A new object without a name. The server finds that out when it validates the object.
    fn no_name(&self) -> Option<StatusError> {
        let is_named = ["name", "generateName"].map(|key| !self.text(key).is_empty());
        // The server names limits itself.
        let is_named_later = self.facts.resource == "limitranges" && self.facts.group.is_empty();
        if is_named.contains(&true) || is_named_later {
            return None;
        }
        let why = "name or generateName is required";
        let error = ApiFieldError::required("metadata.name", why);
        Some(self.invalid(&[error]))
    }

    fn invalid(&self, errors: &[ApiFieldError]) -> StatusError {
        let kind = self.facts.group_version_kind();
        let name = objects::name_of(self.object);
        StatusError::invalid(kind.kind, kind.group, name, errors)
    }

    /// A PUT is conditional on the UID that it states.
    fn wrong_uid(&self) -> Option<StatusError> {
        let given = self.text("uid");
        let found = self.old.map(|old| old["metadata"]["uid"].as_str());
        let found = found.flatten().unwrap_or_default();
        if self.facts.verb != WriteVerb::Update || given.is_empty() || given == found {
            return None;
        }
        let WriteFacts {
            group,
            resource,
            namespace,
            name,
            ..
        } = self.facts;
        let parts = [
            if self.is_custom { group } else { "" },
            resource,
            namespace,
            name,
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
             UID in precondition: {given}, UID in object meta: {found}",
            parts.join("/")
        );
        Some(conflict(self.facts, &why))
    }

    fn note_version(&self, old: &Value, findings: &mut BodyFindings) {
        let (given, found) = (
            self.text("resourceVersion"),
            &old["metadata"]["resourceVersion"],
        );
        if given == found {
            return;
        }
        match version(given) {
            Err(error) => findings.note(Some(error)),
            Ok(0) if !needs_version(self.facts, self.is_custom) => {}
            Ok(0) => {
                let detail = "must be specified for an update";
                let error = ApiFieldError::invalid("metadata.resourceVersion", &json!(0), detail);
                let WriteFacts {
                    group,
                    resource,
                    name,
                    ..
                } = self.facts;
                findings.note_unversioned(StatusError::invalid(resource, group, name, &[error]));
            }
            Ok(_) => findings.note(Some(modified(self.facts))),
        }
    }

    /// A patch that changes the UID, and the type of a custom resource: the server finds that out when it validates the object.
    fn changed_identity(&self, old: &Value) -> Option<StatusError> {
        let given = &self.object["metadata"]["uid"];
        let is_taken = !given.is_null() && !self.strategy.keeps_uid();
        if is_taken && *given != old["metadata"]["uid"] {
            let error = ApiFieldError::invalid("metadata.uid", given, "field is immutable");
            // The server checks metadata with the object, and once more.
            return Some(self.invalid(&[error.clone(), error]));
        }
        // With a subresource, the object has the type of the stored one, whatever the body says.
        if !self.is_custom || !matches!(self.strategy, WriteStrategy::Resource(_)) {
            return None;
        }
        let text = |key: &str| self.object[key].as_str().unwrap_or_default();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        let expected = (&*self.facts.kind[2], &*self.facts.api_version());
        let mut errors = Vec::new();
        if kind != expected.0 {
            let must = format!("must be {}", expected.0);
            errors.push(ApiFieldError::invalid("kind", &json!(kind), must));
        }
        if api_version != expected.1 {
            let must = format!("must be {}", expected.1);
            errors.push(ApiFieldError::invalid(
                "apiVersion",
                &json!(api_version),
                must,
            ));
        }
        let (group, _) = api_version.split_once('/').unwrap_or_default();
        let name = objects::name_of(self.object);
        (!errors.is_empty()).then(|| StatusError::invalid(kind, group, name, &errors))
    }
}

/// A version in an object; 0 if there is none.
fn version(text: &str) -> Result<u64, StatusError> {
    if text.is_empty() {
        return Ok(0);
    }
    parse_uint(text).map_err(|why| StatusError::internal(why.to_string()))
}
