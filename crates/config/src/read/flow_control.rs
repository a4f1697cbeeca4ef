//! Reads `flowControl`: API Priority and Fairness.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;

use crate::{
    config::FlowControlConfig,
    secret::Secret,
    section::ConfigSection,
    values::{InvalidValue, Setting},
};
use fairgate_core::apf::policy::Semantics;

pub(super) fn flow_control(section: &mut ConfigSection<'_>) -> FlowControlConfig {
    let semantics = section.get("semantics");
    let period = match semantics {
        Semantics::Compatible => Duration::from_secs(10),
        Semantics::Improved => Duration::from_millis(100),
    };
    FlowControlConfig {
        enforcement: section.get("enforcement"),
        semantics,
        total_seats: section.get("totalSeats"),
        tenant_weight: section.get("tenantWeight"),
        hash_key: hash_key(section),
        bootstrap: section.get("bootstrap"),
        policies: section.section("policies", policies),
        borrowing_period: section
            .get::<Option<_>>("borrowingPeriod")
            .unwrap_or(period),
    }
}

fn policies(section: &mut ConfigSection<'_>) -> Option<PathBuf> {
    let path = section.path("directory")?;
    if !path.is_dir() {
        let field = section.field("directory");
        // Where policies come from files, there is no state directory by default.
        let are_kept = section.reader.is_set("state.directory");
        let problem = format!("{} is not a readable directory", path.display());
        section.reader.no_policies(&field, problem, are_kept);
    }
    Some(path)
}

impl Setting for Option<Secret<[u8; 16]>> {
    fn notation() -> String {
        "32 hex digits".to_owned()
    }

    fn read(value: &Value) -> Result<Self, InvalidValue> {
        written_hash_key(value)
    }

    /// Nothing of it, also if it is no key.
    fn shown_as(&self, text: String) -> String {
        if text.is_empty() {
            text
        } else {
            "<secret>".to_owned()
        }
    }
}

/// The hash key as the configuration has it; empty text is none.
fn written_hash_key(value: &Value) -> Result<Option<Secret<[u8; 16]>>, InvalidValue> {
    match value.as_str() {
        Some("") => Ok(None),
        Some(text) => parse_hash_key(text).map(Some),
        None if value.is_number() => Err(InvalidValue::new(
            "a number, since it is not quoted",
            "put the 32 hex digits in quotes",
        )),
        None => Err(not_a_key()),
    }
}

/// The hash key, from the configuration or from a file. Its digits appear in no message.
fn hash_key(section: &mut ConfigSection<'_>) -> Option<Secret<[u8; 16]>> {
    let inline = section.get("hashKey");
    let path = section.path("hashKeyFile");
    let field = section.field("hashKeyFile");
    if let (Some(_), Some(_)) = (&inline, &path) {
        section
            .reader
            .error(&field, "hashKey is set, too", "keep one of the two");
    }
    let Some(path) = path else { return inline };
    let contents = section.reader.contents(&field, &path)?;
    match str::from_utf8(&contents)
        .map_err(|_| not_a_key())
        .and_then(|text| parse_hash_key(text.trim()))
    {
        Ok(key) => Some(key),
        Err(InvalidValue { problem, remedy }) => {
            let problem = format!("{}: {problem}", path.display());
            section.reader.error(&field, problem, remedy);
            None
        }
    }
}

fn parse_hash_key(text: &str) -> Result<Secret<[u8; 16]>, InvalidValue> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(not_a_key());
    }
    let key = u128::from_str_radix(text, 16).map_err(|_| not_a_key())?;
    Ok(Secret::new(key.to_be_bytes()))
}

fn not_a_key() -> InvalidValue {
    InvalidValue::new(
        "not a key",
        "write 32 hex digits, as `openssl rand -hex 16` prints",
    )
}
