//! The options in the headers and the query of a write: of a `POST` of an object that is returned but not stored, and of writes that others
//! carry out.

use crate::{
    content_type,
    negotiate::{self, Output, Produces},
    query::{Query, Write, WriteOptions},
    request::ApiRequest,
    status_error::StatusError,
};
use fairgate_objects::codec::{BodyFormat, FieldValidation};

/// The format of the body of a `POST`, and the options of the creation.
#[derive(Clone, Debug)]
pub struct PostOptions {
    /// The format of the body.
    pub format: BodyFormat,
    /// The values of `dryRun`: each `All`.
    pub dry_run: Vec<String>,
    /// How unknown and duplicate fields are handled.
    pub validation: FieldValidation,
}

/// The format of the response to a request for an object.
///
/// # Errors
///
/// 406, to be written as [`Output::JSON`].
pub fn output(request: &ApiRequest) -> Result<Output, StatusError> {
    let query = Query::parse(&request.query);
    let (accept, agent) = (&request.header("accept"), &request.header("user-agent"));
    negotiate::output(accept, Produces::Objects, &query, agent)
}

/// Checks the format of the response to a write, and its options, as kube-apiserver does before it reads the body. `is_custom` is whether the
/// resource is a custom one, which has no router in front.
///
/// # Errors
///
/// 406 or 422.
pub fn check_write(request: &ApiRequest, write: Write, is_custom: bool) -> Result<(), StatusError> {
    check_output(request, is_custom)?;
    let query = Query::parse(&request.query);
    WriteOptions::read(&query, write, &request.header("user-agent")).map(drop)
}

/// Checks the format of the response alone.
///
/// # Errors
///
/// 406.
pub fn check_output(request: &ApiRequest, is_custom: bool) -> Result<(), StatusError> {
    let query = Query::parse(&request.query);
    let (accept, agent) = (&request.header("accept"), &request.header("user-agent"));
    if is_custom {
        negotiate::custom_output(accept, &query, agent)?;
    } else {
        negotiate::output(accept, Produces::Objects, &query, agent)?;
    }
    Ok(())
}

impl PostOptions {
    /// Reads the options, after the body of the request was read.
    ///
    /// # Errors
    ///
    /// The first of these that applies, in the API server's order: 415 for an unknown media type, 413 if the body was
    /// too long to be read, 422 for invalid options.
    pub fn read(request: &ApiRequest) -> Result<Self, StatusError> {
        let media = content_type::body_media(&request.header("content-type"))?;
        request.body()?;
        let query = Query::parse(&request.query);
        let options = WriteOptions::read(&query, Write::Create, &request.header("user-agent"))?;
        Ok(Self {
            format: media.format(),
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            validation: options.validation,
        })
    }
}
