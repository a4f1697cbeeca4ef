//! The options of lists, watches and deletions of collections.

use serde_json::{Map, Value, json};

use crate::{query::Query, status_error::StatusError};
use fairgate_gotext::{Quoted, parse_uint};
use fairgate_objects::{
    field_error::ApiFieldError,
    metadata,
    selector::{FieldSelector, LabelSelector},
};

/// The options of a list, a watch or a deletion of a collection.
#[derive(Clone, Debug)]
pub struct ListParameters {
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector, on name and namespace.
    pub fields: FieldSelector,
    /// Watch instead of list.
    pub watch: bool,
    /// Whether a watch may send bookmarks.
    pub bookmarks: bool,
    /// `resourceVersion`; empty if absent.
    pub resource_version: String,
    /// `resourceVersionMatch`; empty if absent.
    pub version_match: String,
    /// The duration of a watch in seconds; 0: the server's choice.
    pub timeout_seconds: i64,
    /// The maximum number of objects of a page; 0: all.
    pub limit: i64,
    /// The token from the previous page; empty for the first page.
    pub continue_token: String,
    /// Whether a watch begins with the present objects.
    pub initial_events: Option<bool>,
}

impl ListParameters {
    /// Reads and validates the options, for objects that are selected by name and namespace.
    ///
    /// # Errors
    ///
    /// 400 for a parameter that cannot be parsed, 422 for invalid options.
    pub fn read(query: &Query) -> Result<Self, StatusError> {
        let options = Self::of_any(query)?;
        options
            .fields
            .check_fields()
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        Ok(options)
    }

    /// The same for objects of any kind, which may be selected by other fields.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn of_any(query: &Query) -> Result<Self, StatusError> {
        let timeout_seconds = query.number("timeoutSeconds")?.unwrap_or_default();
        let limit = query.number("limit")?.unwrap_or_default();
        let labels = LabelSelector::parse(query.text("labelSelector"))
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"))
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let mut options = Self {
            labels,
            fields,
            watch: query.flag("watch") == Some(true),
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
            timeout_seconds,
            limit,
            continue_token: query.text("continue").to_owned(),
            initial_events: query.flag("sendInitialEvents"),
        };
        // Before the options are validated, as in kube-apiserver (`SetListOptionsDefaults`).
        options.set_defaults();
        let errors = options.errors();
        if !errors.is_empty() {
            return Err(StatusError::invalid_options("ListOptions", &errors));
        }
        Ok(options)
    }

    /// A watch without a resource version begins with the present objects, unless the client sets `sendInitialEvents`.
    fn set_defaults(&mut self) {
        let has_no_version = self.resource_version.is_empty() || self.resource_version == "0";
        if self.watch
            && has_no_version
            && self.initial_events.is_none()
            && self.version_match.is_empty()
        {
            self.initial_events = Some(true);
            "NotOlderThan".clone_into(&mut self.version_match);
        }
    }

    fn errors(&self) -> Vec<ApiFieldError> {
        if self.watch {
            self.watch_errors()
        } else {
            self.list_errors()
        }
    }

    fn list_errors(&self) -> Vec<ApiFieldError> {
        let field = "resourceVersionMatch";
        let mut errors = Vec::new();
        let wanted = self.version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(ApiFieldError::forbidden(field, detail));
            }
            if !self.continue_token.is_empty() {
                let detail = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(ApiFieldError::forbidden(field, detail));
            }
            if !["Exact", "NotOlderThan"].contains(&wanted) {
                let known = ["Exact", "NotOlderThan", ""];
                errors.push(ApiFieldError::unsupported(field, &json!(wanted), &known));
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let detail =
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(ApiFieldError::forbidden(field, detail));
            }
        }
        if self.initial_events.is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(ApiFieldError::forbidden("sendInitialEvents", detail));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<ApiFieldError> {
        let field = "resourceVersionMatch";
        let mut errors = Vec::new();
        let wanted = self.version_match.as_str();
        if self.initial_events.is_some() && wanted != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(ApiFieldError::forbidden(field, detail));
        }
        if wanted.is_empty() {
            return errors;
        }
        if self.initial_events.is_none() {
            let detail =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(ApiFieldError::forbidden(field, detail));
        }
        if wanted != "NotOlderThan" {
            errors.push(ApiFieldError::unsupported(
                field,
                &json!(wanted),
                &["NotOlderThan"],
            ));
        }
        if !self.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(ApiFieldError::forbidden(field, detail));
        }
        errors
    }

    /// Restricts the options to the object of this name.
    ///
    /// # Errors
    ///
    /// 400, when the field selector requires another name.
    pub fn only(&mut self, name: &str) -> Result<(), StatusError> {
        if self.fields.is_everything() {
            // The name comes from a path and may hold anything, also what separates the terms of a selector.
            let escaped: String = name
                .chars()
                .flat_map(|c| {
                    ['\\', ',', '=']
                        .contains(&c)
                        .then_some('\\')
                        .into_iter()
                        .chain([c])
                })
                .collect();
            self.fields = FieldSelector::parse(&format!("metadata.name={escaped}"))
                .map_err(|error| StatusError::bad_request(error.to_string()))?;
        } else if self.fields.required("metadata.name") != Some(name) {
            return Err(StatusError::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        Ok(())
    }

    /// Whether the selectors match an object.
    pub fn select(&self, object: &Value) -> bool {
        let labels = metadata::of(object)
            .get("labels")
            .and_then(Value::as_object);
        self.labels.matches(labels.unwrap_or(&Map::new()))
            && self.fields.matches(|path| match path {
                "metadata.name" => Some(metadata::name(object)),
                "metadata.namespace" => Some(metadata::text(object, "namespace")),
                _ => None,
            })
    }

    /// The resource version as a number; `None` if absent.
    ///
    /// # Errors
    ///
    /// The message of the error.
    pub fn version(&self) -> Result<Option<u64>, String> {
        parse_version(&self.resource_version)
    }
}

/// A resource version as a number; `None` if it is empty.
///
/// # Errors
///
/// The message of the error.
pub fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let version = parse_uint(text).map_err(|why| {
        let text = Quoted(text);
        format!("resourceVersion: Invalid value: {text}: {why}")
    })?;
    Ok(Some(version))
}
