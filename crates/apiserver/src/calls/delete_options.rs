//! Delete options: from the body of a request, or from its query if the body is empty.

use serde_json::Value;

use super::{CallContext, StatusError};
use fairgate_apihttp::{content_type, deletion_checks, negotiate::Media};
use fairgate_objects::codec::{self, BodyFormat};

/// The options that have an effect here.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    /// Validate only; delete nothing.
    pub(super) dry_run: bool,
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
            let media = content_type::body_media(&self.request.header("content-type"))?;
            options_in_body(media, body)?
        };
        deletion_checks::check_options(&value)?;
        Ok(DeleteOptions {
            dry_run: value["dryRun"].is_array(),
            orphan: value["orphanDependents"].as_bool(),
            sent: value,
        })
    }

    /// The query as an equivalent `DeleteOptions` body.
    fn options_in_query(&self) -> Result<Value, StatusError> {
        let seconds = self.query.number("gracePeriodSeconds")?;
        Ok(deletion_checks::options_in_query(self.query, seconds).into())
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
