//! Delete options: from the body of a request, or from its query if the body is empty.

use serde_json::{Value, json};

use super::{CallContext, StatusError};
use crate::{
    negotiate::{self, Media},
    query,
};
use fairgate_objects::{
    codec::{self, BodyFormat},
    field_error::ApiFieldError,
};

/// The options that have an effect here.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    /// Validate only; delete nothing.
    pub(super) dry_run: bool,
    /// The UID that the object must have.
    pub(super) uid: Option<String>,
    /// The resource version that the object must have.
    pub(super) resource_version: Option<String>,
    /// `orphanDependents`, if given.
    pub(super) orphan: Option<bool>,
    /// All of them, as they were sent.
    pub(super) sent: Value,
}

impl CallContext<'_> {
    /// Reads and checks the options.
    pub(super) fn delete_options(&self) -> Result<DeleteOptions, StatusError> {
        let body = self.request.body()?;
        let value = if body.is_empty() {
            self.options_in_query()?
        } else {
            let media = negotiate::input(self.request.header("content-type"))?;
            options_in_body(media, body)?
        };
        check(&value)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(DeleteOptions {
            dry_run: value["dryRun"].is_array(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan: value["orphanDependents"].as_bool(),
            sent: value,
        })
    }

    /// The query as an equivalent `DeleteOptions` body.
    fn options_in_query(&self) -> Result<Value, StatusError> {
        let mut value = json!({});
        if let Some(seconds) = self.query.number("gracePeriodSeconds")? {
            value["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(orphan) = self.query.flag("orphanDependents") {
            value["orphanDependents"] = json!(orphan);
        }
        if let Some(policy) = self.query.first("propagationPolicy") {
            value["propagationPolicy"] = json!(policy);
        }
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        if !dry_run.is_empty() {
            value["dryRun"] = json!(dry_run);
        }
        for key in ["uid", "resourceVersion"] {
            if let Some(wanted) = self.query.first(key) {
                value["preconditions"][key] = json!(wanted);
            }
        }
        Ok(value)
    }
}

fn options_in_body(media: Media, body: &[u8]) -> Result<Value, StatusError> {
    let format = match media {
        Media::Json => BodyFormat::Json,
        Media::Yaml => BodyFormat::Yaml,
        Media::Protobuf => BodyFormat::Protobuf,
    };
    codec::decode_options(format, body).map_err(|error| StatusError::bad_request(error.to_string()))
}

fn check(options: &Value) -> Result<(), StatusError> {
    let mut errors = Vec::new();
    let field = "propagationPolicy";
    let policy = &options["propagationPolicy"];
    if !options["orphanDependents"].is_null() && !policy.is_null() {
        errors.push(ApiFieldError::invalid(
            field,
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    let known = ["Foreground", "Background", "Orphan"];
    if let Some(policy) = policy.as_str()
        && !known.contains(&policy)
    {
        errors.push(ApiFieldError::unsupported(
            field,
            &json!(policy),
            &["Foreground", "Background", "Orphan", "nil"],
        ));
    }
    let dry_run: Vec<&str> = options["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    query::check_dry_run(&dry_run, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_options("DeleteOptions", &errors))
    }
}
