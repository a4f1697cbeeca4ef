//! What policy may know of a request.
//!
//! A [`RequestDigest`] is the whole input of classification and work estimation. Nothing after it
//! reads a header to decide. No credential and no body is in here.
//!
//! A request is read in this order: `info` splits the path and finds verb, namespace, resource and
//! name; `query` decodes the parameters that matter; `options` and `selector` read those of a list
//! or watch; [`parse_duration`](fairgate_gotext::parse_duration) reads the client's deadline.

mod error;
pub(crate) mod info;
pub(crate) mod options;
mod query;
mod selector;
pub(crate) mod user;
pub(crate) mod verb;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

pub use error::InfoError;
pub use info::RequestInfo;
pub use options::ListOptions;
pub use query::{MAX_PARAMETERS, is_parameter, query_pairs};
pub use selector::{
    ExpectedToken, FieldTerm, FieldTermError, LabelOperator, LabelRequirement, LabelSelectorParser,
    LabelSyntaxError, field_terms,
};
pub use user::User;
pub use verb::Verb;

/// A request as classification sees it: its user, and its attributes.
#[derive(Clone, Debug)]
pub struct RequestDigest {
    /// What the method, path and query ask for.
    pub info: RequestInfo,
    /// The user; shared, because a user is resolved once per connection or token.
    pub user: Arc<User>,
}

/// A part of a decoded path, for people to read: bytes that are not UTF-8 are replaced.
///
/// Borrows where nothing needs replacing. Not for decisions: different paths can read the same.
pub fn readable(part: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(part)
}

/// A path without empty segments, `.` and `..`, as a server may read it that normalizes paths. It begins
/// with `/` and does not end with it, unless it is `/`.
pub fn normalized_path(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}
