//! Names of headers that contain identities.

use http::HeaderName;

use crate::values::InvalidValue;

/// The default prefix of headers with extra attributes.
pub(super) const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Headers that must not be configured as identity headers.
const RESERVED: [&str; 6] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn header(name: &str) -> Result<HeaderName, InvalidValue> {
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
