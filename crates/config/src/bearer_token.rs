//! The gateway's own bearer token, in a file.

use std::path::Path;

use crate::{file_version::FileVersion, secret::Secret, values::InvalidValue};

/// A bearer token from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerTokenFile {
    /// The token: visible ASCII characters, at least one.
    pub token: Secret<String>,
    /// The file that the token comes from.
    pub file: FileVersion,
}

impl BearerTokenFile {
    /// The token in `contents`, which were read from `path`. White space around it does not count.
    pub(super) fn new(path: &Path, contents: &[u8]) -> Result<Self, InvalidValue> {
        let token = contents.trim_ascii();
        match std::str::from_utf8(token) {
            Ok(text) if !token.is_empty() && token.iter().all(u8::is_ascii_graphic) => Ok(Self {
                token: Secret::new(text.to_owned()),
                file: FileVersion::new(path, contents),
            }),
            _ => Err(InvalidValue::new(
                "the file does not contain exactly one token",
                "write only the token into it",
            )),
        }
    }

    /// The same file with other contents.
    ///
    /// # Errors
    ///
    /// Why they cannot be used, with the path.
    pub fn with_contents(&self, contents: &[u8]) -> Result<Self, String> {
        Self::new(&self.file.path, contents).map_err(|invalid| self.file.cannot_be_used(&invalid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_token_is_accepted() {
        let token = |contents: &[u8]| BearerTokenFile::new(Path::new("token"), contents);
        assert_eq!(*token(b" a.b-c\n").unwrap().token, "a.b-c");
        for contents in [&b""[..], b" \n", b"two words", b"t\xc3\xb6ken", b"a\nb"] {
            assert!(token(contents).is_err(), "{contents:?}");
        }
        let error = token(b"a").unwrap().with_contents(b"a b").unwrap_err();
        assert!(
            error.starts_with("token: the file does not contain"),
            "{error}"
        );
        assert!(!format!("{:?}", token(b"hunter2")).contains("hunter2"));
    }
}
