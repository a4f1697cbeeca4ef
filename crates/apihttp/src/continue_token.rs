//! Continue tokens: the key at which the next page of a list begins, and the revision at which it is read.
//!
//! The format is that of kube-apiserver. A client can change a token, but not read another resource with
//! it: the key is only looked up below the prefix of the resource of the request.

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose::NO_PAD},
};
use serde_json::Value;

use crate::status_error::StatusError;
use fairgate_objects::{
    codec,
    schema::canonical::{self, Source as _},
};

/// As Go decodes it: the unused bits of the last character may have any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const LENIENT: GeneralPurposeConfig = NO_PAD.with_decode_allow_trailing_bits(true);

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision to read; `None`: the newest.
    pub revision: Option<u64>,
    /// The first key to read, below the resource's prefix: `name` or `namespace/name`.
    pub start: String,
}

impl ContinueToken {
    /// The token of a page that begins after `key`.
    pub fn behind(key: &str, revision: Option<u64>) -> Self {
        Self {
            revision,
            start: format!("{key}\0"),
        }
    }

    /// The token as text.
    pub fn encode(&self) -> String {
        let revision = self
            .revision
            .map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let key = serde_json::to_string(&format!("/{}", self.start)).unwrap_or_default();
        BASE64.encode(format!(
            "{{\"v\":\"{VERSION}\",\"rv\":{revision},\"start\":{key}}}"
        ))
    }

    /// Parses a token from a client.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn decode(text: &str) -> Result<Self, StatusError> {
        Self::read(text).map_err(|why| {
            StatusError::bad_request(format!(
                "invalid continue token: continue key is not valid{why}"
            ))
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let data = decode_base64(text)
            .map_err(|at| format!(": illegal base64 data at input byte {at}"))?;
        let token = codec::json::parse(&data)
            .map_err(|error| format!(": {error}"))?
            .value;
        check_types(&token)?;
        let version = token["v"].as_str().unwrap_or_default();
        if version != VERSION {
            return Err(format!(
                ": server does not recognize this encoded version {version}"
            ));
        }
        let revision = match token["rv"].as_i64().unwrap_or_default() {
            0 => {
                return Err(format!(
                    ": incorrect encoded start resourceVersion (version {VERSION})"
                ));
            }
            revision => u64::try_from(revision).ok(),
        };
        let start = token["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(format!(": encoded start key empty (version {VERSION})"));
        }
        let key = start.strip_prefix('/').unwrap_or(start);
        if !is_clean(key) {
            return Err(format!(": {start}"));
        }
        Ok(Self {
            revision,
            start: key.to_owned(),
        })
    }
}

/// Decodes base64 as Go does, which ignores line breaks. The error is the position that Go reports.
fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    let mut digits = Vec::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\r' | b'\n' => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => digits.push(byte),
            _ => return Err(at),
        }
    }
    // An incomplete last group.
    BASE64
        .decode(digits)
        .map_err(|_| text.len().saturating_sub(1))
}

/// Checks the types of the fields; the error is that of Go's decoder.
fn check_types(token: &Value) -> Result<(), String> {
    if !token.is_object() && !token.is_null() {
        let found = canonical::found(&token.view());
        return Err(format!(
            ": json: cannot unmarshal {found} into Go value of type storage.continueToken"
        ));
    }
    for (key, wanted) in [("v", "string"), ("rv", "int64"), ("start", "string")] {
        let value = &token[key];
        let fits = match wanted {
            "int64" => value.is_i64(),
            _ => value.is_string(),
        };
        if !fits && !value.is_null() {
            let mut found = canonical::found(&value.view()).to_owned();
            if wanted == "int64" && value.is_number() {
                found = format!("number {value}");
            }
            return Err(format!(
                ": json: cannot unmarshal {found} into Go struct field continueToken.{key} of type \
                 {wanted}"
            ));
        }
    }
    Ok(())
}

/// Whether a key has no empty, `.` or `..` segment.
fn is_clean(key: &str) -> bool {
    key.is_empty()
        || key
            .split('/')
            .all(|segment| !["", ".", ".."].contains(&segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(json: &str) -> Result<ContinueToken, String> {
        ContinueToken::decode(&BASE64.encode(json)).map_err(|fault| fault.message)
    }

    #[test]
    fn a_token_is_what_the_api_server_writes() {
        let token = ContinueToken::behind("catch-all", Some(407));
        assert_eq!(
            token.encode(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NDA3LCJzdGFydCI6Ii9jYXRjaC1hbGxcdTAwMDAifQ"
        );
        assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token);
        let newest = ContinueToken::behind("a", None);
        assert_eq!(ContinueToken::decode(&newest.encode()).unwrap(), newest);
    }

    #[test]
    fn errors_of_invalid_tokens_are_those_of_kube_apiserver() {
        let prefix = "invalid continue token: continue key is not valid";
        let cases = [
            (
                r#"{"v":"meta.k8s.io/v2","rv":"5","start":"a"}"#,
                ": json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":"a"}"#,
                ": json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                "[]",
                ": json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#,
                ": encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"v2","rv":5,"start":"a"}"#,
                ": server does not recognize this encoded version v2",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../a"}"#, ": ../a"),
        ];
        for (json, why) in cases {
            assert_eq!(encoded(json).unwrap_err(), format!("{prefix}{why}"));
        }
        assert!(encoded("nope").is_err());
    }

    #[test]
    fn invalid_base64_is_reported_with_its_position() {
        // As kube-apiserver 1.36 responds.
        for (text, at) in [
            ("!!!", 0),
            ("x", 0),
            ("x!", 1),
            ("xx=", 2),
            ("xxx=", 3),
            ("abcde", 4),
            ("abcd\r\ne", 6),
            ("a\n", 1),
            ("abcdx\ny\nz\n!", 10),
        ] {
            let why = ContinueToken::decode(text).unwrap_err().message;
            assert!(
                why.ends_with(&format!(" at input byte {at}")),
                "{text:?}: {why}"
            );
        }
        let token = ContinueToken::behind("a", None);
        let folded = token.encode().replace('J', "J\r\n");
        assert_eq!(ContinueToken::decode(&folded).unwrap(), token);
    }
}
