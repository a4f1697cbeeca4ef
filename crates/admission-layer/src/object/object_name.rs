//! The name of a new object: where it is from, and how it gets into a body and out of a response.

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_objects::{
    codec::{BodyFormat, envelope, protobuf, request_document::insert_text},
    schema::meta_v1,
};
use serde_json::Value;

use crate::{object::objects, request::facts::WriteFacts};

/// How many names a server tries.
const ATTEMPTS: u32 = 8;
/// The number of `name` in the metadata of an object, as protobuf has it.
const NAME: u32 = 1;

/// A name that was chosen for the object of a request.
#[derive(Debug)]
pub(crate) struct ChosenName {
    pub(crate) name: String,
    pub(crate) prefix: String,
    /// The body before it had a name.
    pub(crate) unnamed: Bytes,
    /// How many names have been chosen.
    pub(crate) attempts: u32,
}

impl ChosenName {
    /// Whether a server would give up if this name is taken.
    pub(crate) fn is_last(&self) -> bool {
        self.attempts >= ATTEMPTS
    }
}

/// The name of the object of a request, as far as a server generates it and a policy reads it.
#[derive(Debug, Default)]
pub(crate) enum ObjectName {
    /// The client names the object, or no policy reads the name.
    #[default]
    OfClient,
    /// It was chosen here, and is in the body.
    Chosen(ChosenName),
    /// It will be in the response to the client's own dry run.
    OfDryRun,
    /// The server has generated it.
    OfServer(String),
}

/// Where the name of a new object is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameSource {
    /// The client; what it leaves to the server is read by no policy.
    Client,
    /// It was chosen here, and is in the body.
    Gateway,
    /// The server has generated it.
    Server(String),
}

/// What a new object's name is to begin with; `None` if it has a name, or no beginning.
pub(crate) fn prefix_of(object: &Value) -> Option<&str> {
    let prefix = object["metadata"]["generateName"].as_str()?;
    let is_unnamed = match &object["metadata"]["name"] {
        Value::Null => true,
        name => name == "",
    };
    Some(prefix).filter(|prefix| is_unnamed && !prefix.is_empty())
}

/// The body with this name; `None` if it is no object.
pub(crate) fn with_name(format: BodyFormat, body: &[u8], name: &str) -> Option<Vec<u8>> {
    match format {
        BodyFormat::Json => insert_text(body, &["metadata", "name"], name),
        BodyFormat::Protobuf => envelope::with_metadata(body, &[(NAME, name)]).ok(),
        // The body of an enforced write is JSON once it was read.
        BodyFormat::Yaml => None,
    }
}

/// Whether a response says that there is an object with this name.
pub(crate) fn says_taken(body: &[u8], name: &str) -> bool {
    let status = match envelope::open(body) {
        Ok(opened) => protobuf::decode(&meta_v1::STATUS, opened.raw).ok(),
        Err(_) => serde_json::from_slice::<Value>(body).ok(),
    };
    status.is_some_and(|status| {
        status["reason"] == "AlreadyExists" && status["details"]["name"] == name
    })
}

/// The name of the object in a response.
pub(crate) fn name_in(body: &[u8], facts: &WriteFacts) -> Option<String> {
    let format = if body.starts_with(&envelope::PREFIX) {
        BodyFormat::Protobuf
    } else {
        BodyFormat::Json
    };
    let object = objects::decode(format, body, facts, Fidelity::AsSent).ok()?;
    // A table has the metadata of each object.
    let objects = [&object, &object["rows"][0]["object"]];
    let names = objects.map(objects::name_of);
    let name = names.into_iter().find(|name| !name.is_empty());
    name.map(str::to_owned)
}
