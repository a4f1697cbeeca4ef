//! Reads `flowControl`: API Priority and Fairness.

use std::path::PathBuf;

use super::{HOUR, MS, SECOND};
use crate::{
    config::{EnforcementConfig, FlowControlConfig},
    secret::Secret,
    section::ConfigSection,
    values::{self, InvalidValue},
};
use fairgate_core::apf::{
    objects::Bootstrap,
    policy::{PolicySettings, Semantics},
};

pub(super) fn flow_control(section: &mut ConfigSection<'_>) -> FlowControlConfig {
    let semantics = section.keyword("semantics", Semantics::Improved);
    let period = match semantics {
        Semantics::Compatible => 10 * SECOND,
        Semantics::Improved => 100 * MS,
    };
    FlowControlConfig {
        enforcement: section.keyword("enforcement", EnforcementConfig::Enforce),
        semantics,
        total_seats: section.ranged("totalSeats", 600, &(1..=10_000_000), values::count),
        tenant_weight: section.ranged(
            "tenantWeight",
            PolicySettings::DEFAULT_TENANT_WEIGHT,
            &(1..=1000),
            values::count,
        ),
        hash_key: hash_key(section),
        bootstrap: section.keyword("bootstrap", Bootstrap::Suggested),
        policies: section.section("policies", policies),
        borrowing_period: section
            .get("borrowingPeriod", None, |value| match value.as_str() {
                Some("") => Ok(None),
                _ => values::duration(value).and_then(|period| match period {
                    p if (100 * MS..=HOUR).contains(&p) => Ok(Some(p)),
                    _ => Err(InvalidValue::new(
                        format!("{value} is out of range"),
                        "write a value from 100ms to 1h",
                    )),
                }),
            })
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

/// The hash key, from the configuration or from a file. Its digits appear in no message.
fn hash_key(section: &mut ConfigSection<'_>) -> Option<Secret<[u8; 16]>> {
    let wrong = || {
        InvalidValue::new(
            "not a key",
            "write 32 hex digits, as `openssl rand -hex 16` prints",
        )
    };
    let key = |text: &str| parse_hash_key(text).map(Secret::new).ok_or_else(wrong);
    let inline = section.get("hashKey", None, |value| match value.as_str() {
        Some("") => Ok(None),
        Some(text) => key(text).map(Some),
        None if value.is_number() => Err(InvalidValue::new(
            "a number, since it is not quoted",
            "put the 32 hex digits in quotes",
        )),
        None => Err(wrong()),
    });
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
        .map_err(|_| wrong())
        .and_then(|text| key(text.trim()))
    {
        Ok(key) => Some(key),
        Err(InvalidValue { problem, remedy }) => {
            let problem = format!("{}: {problem}", path.display());
            section.reader.error(&field, problem, remedy);
            None
        }
    }
}

fn parse_hash_key(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}
