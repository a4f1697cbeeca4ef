//! Names of headers that contain identities.

use http::HeaderName;
use serde_json::Value;

use crate::values::{self, InvalidValue, Setting, settings};

/// Headers that must not be configured as identity headers.
const RESERVED: [&str; 6] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

settings! {
    HeaderName: "header name", one_header;
    Vec<HeaderName>: "list of header names", headers;
}

fn one_header(value: &Value) -> Result<HeaderName, InvalidValue> {
    header(&values::text(value)?)
}

fn headers(value: &Value) -> Result<Vec<HeaderName>, InvalidValue> {
    let names = values::texts(value)?;
    names.iter().map(|name| header(name)).collect()
}

fn header(name: &str) -> Result<HeaderName, InvalidValue> {
    let wrong = |problem| {
        InvalidValue::new(
            format!("{name:?} {problem}"),
            "write a name such as X-Remote-User",
        )
    };
    let header = name
        .parse::<HeaderName>()
        .map_err(|_| wrong("is not a header name"))?;
    if RESERVED.contains(&header.as_str()) {
        return Err(wrong("is a reserved header"));
    }
    Ok(header)
}

pub(super) fn prefix(name: &str) -> Result<String, InvalidValue> {
    header(name).map(|name| name.as_str().to_owned())
}
