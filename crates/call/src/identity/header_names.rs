//! The names of front-proxy headers, as the `--requestheader-*` flags of kube-apiserver set them.
//!
//! They are used to read the identity that a trusted proxy sends (`front_proxy`), to send it to the upstream
//! (`upstream`), and to remove such headers from clients' requests (`spoof`).

use http::HeaderName;

/// The names of the headers that carry an identity, in order of preference.
///
/// Names are case-insensitive. A reader tries all of them, a writer uses the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderNames {
    /// Headers of the user's name; at least one.
    pub user: Vec<HeaderName>,
    /// Headers of the user's uid; may be empty.
    pub uid: Vec<HeaderName>,
    /// Headers of a group; at least one.
    pub group: Vec<HeaderName>,
    /// Prefixes of extra attributes, before the attribute's key, in lower case; at least one.
    pub extra_prefix: Vec<Box<str>>,
}

/// Why a set of header names is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HeaderNameError {
    /// It is not an HTTP token.
    #[error("{kind} header {name:?}: not a valid header name; use letters, digits and hyphens")]
    Invalid { kind: &'static str, name: String },
    /// No header is named for this part of an identity.
    #[error("no {kind} header is named; name at least one")]
    Missing { kind: &'static str },
}

impl RequestHeaderNames {
    /// Parses a set of header names. If `uid` is empty, uids are neither read nor sent.
    ///
    /// # Errors
    ///
    /// One error for each invalid name, and one for each of user, group and extra prefix that has no name.
    pub fn new(
        user: &[impl AsRef<str>],
        uid: &[impl AsRef<str>],
        group: &[impl AsRef<str>],
        extra_prefix: &[impl AsRef<str>],
    ) -> Result<Self, Vec<HeaderNameError>> {
        let mut errors = Vec::new();
        let names = Self {
            user: parse("user", user, &mut errors),
            uid: parse("uid", uid, &mut errors),
            group: parse("group", group, &mut errors),
            extra_prefix: parse("extra prefix", extra_prefix, &mut errors)
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
        };
        for (kind, missing) in [
            ("user", user.is_empty()),
            ("group", group.is_empty()),
            ("extra prefix", extra_prefix.is_empty()),
        ] {
            if missing {
                errors.push(HeaderNameError::Missing { kind });
            }
        }
        if errors.is_empty() {
            Ok(names)
        } else {
            Err(errors)
        }
    }

    /// All full names, without the prefixes.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.user.iter().chain(&self.uid).chain(&self.group)
    }
}

/// The valid header names of `names`; the others are added to `errors`.
fn parse(
    kind: &'static str,
    names: &[impl AsRef<str>],
    errors: &mut Vec<HeaderNameError>,
) -> Vec<HeaderName> {
    let mut parsed = Vec::with_capacity(names.len());
    for name in names.iter().map(AsRef::as_ref) {
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => parsed.push(name),
            Err(_) => errors.push(HeaderNameError::Invalid {
                kind,
                name: name.to_owned(),
            }),
        }
    }
    parsed
}

/// The default names: `X-Remote-User`, `-Uid`, `-Group`, and the prefix `X-Remote-Extra-`.
impl Default for RequestHeaderNames {
    fn default() -> Self {
        Self {
            user: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefix: vec!["x-remote-extra-".into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[&str] = &[];

    #[test]
    fn the_default_names_are_the_usual_ones() {
        let written = RequestHeaderNames::new(
            &["X-Remote-User"],
            &["X-Remote-Uid"],
            &["X-Remote-Group"],
            &["X-Remote-Extra-"],
        );
        assert_eq!(written, Ok(RequestHeaderNames::default()));
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let errors = RequestHeaderNames::new(&["X User"], NONE, NONE, &["extra:"]).unwrap_err();
        let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "user header \"X User\": not a valid header name; use letters, digits and hyphens",
                "extra prefix header \"extra:\": not a valid header name; use letters, digits and hyphens",
                "no group header is named; name at least one",
            ]
        );
    }
}
