//! The notations of single values in a scenario: durations, sizes, rates, keywords.

use std::time::Duration;

use serde_json::Value;

use fairgate_gotext::parse_duration;

/// Why a value is invalid, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidKey {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl InvalidKey {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// Text.
pub(super) fn text(value: &Value) -> Result<String, InvalidKey> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| InvalidKey::new(format!("{value} is not text"), "put quotes around it"))
}

/// A list of text.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, InvalidKey> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect();
    match texts {
        Some(texts) if value.is_array() => Ok(texts),
        _ => Err(InvalidKey::new(
            format!("{value} is not a list of text"),
            "write it as [a, b]",
        )),
    }
}

/// `true` or `false`.
pub(super) fn flag(value: &Value) -> Result<bool, InvalidKey> {
    value.as_bool().ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is neither true nor false"),
            "write true or false",
        )
    })
}

/// A duration as Go writes it.
pub(super) fn duration(value: &Value) -> Result<Duration, InvalidKey> {
    let parsed = value
        .as_str()
        .and_then(|text| parse_duration(text.as_bytes()).ok());
    parsed.ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is not a duration"),
            "write it as 500ms, 10s or 1m30s",
        )
    })
}

/// A duration that is not zero.
pub(super) fn some_time(value: &Value) -> Result<Duration, InvalidKey> {
    match duration(value)? {
        Duration::ZERO => Err(InvalidKey::new("it takes no time", "write at least 1ms")),
        some => Ok(some),
    }
}

/// A whole number that is at least `least`.
pub(super) fn count_from(least: u32) -> impl Fn(&Value) -> Result<u32, InvalidKey> {
    move |value| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| *number >= least).ok_or_else(|| {
            let problem = format!("{value} is not a whole number from {least} on");
            InvalidKey::new(problem, "write a whole number without quotes")
        })
    }
}

/// Any whole number.
pub(super) fn seed(value: &Value) -> Result<u64, InvalidKey> {
    value.as_u64().ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is not a whole number"),
            "write a number such as 7",
        )
    })
}

/// A number of bytes, such as 500, 64Ki or 1Mi; at most 1Gi.
pub(super) fn size(value: &Value) -> Result<u32, InvalidKey> {
    let bytes = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            let unit = match &text[digits.len()..] {
                "" => Some(1),
                "Ki" => Some(1 << 10),
                "Mi" => Some(1 << 20),
                "Gi" => Some(1 << 30),
                _ => None,
            };
            digits
                .parse::<u64>()
                .ok()
                .zip(unit)
                .and_then(|(number, unit)| number.checked_mul(unit))
        }
        _ => None,
    };
    let bytes = bytes
        .filter(|bytes| *bytes <= 1 << 30)
        .and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is not a size of at most 1Gi"),
            "write it as 500, 64Ki or 1Mi",
        )
    })
}

/// A number over 0, at most a million.
pub(super) fn rate(value: &Value) -> Result<f64, InvalidKey> {
    let number = value.as_f64().filter(|rate| *rate > 0.0 && *rate <= 1e6);
    number.ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is not a rate"),
            "write requests a second, such as 20 or 0.5",
        )
    })
}

/// A number from 0 to a million.
pub(super) fn factor(value: &Value) -> Result<f64, InvalidKey> {
    let number = value.as_f64().filter(|factor| (0.0..=1e6).contains(factor));
    number.ok_or_else(|| {
        InvalidKey::new(
            format!("{value} is not a number of at least 0"),
            "write a number such as 0.5",
        )
    })
}

/// One of `words`.
pub(super) fn keyword<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Value) -> Result<T, InvalidKey> {
    move |value| {
        let text = value.as_str().unwrap_or_default();
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            InvalidKey::new(
                format!("{value} is not a known value"),
                format!("write one of {}", all.join(", ")),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size(&json!("64Ki")), Ok(65_536));
        assert_eq!(size(&json!(500)), Ok(500));
        for wrong in [
            json!("1kB"),
            json!("2Gi"),
            json!(-1),
            json!("Ki"),
            json!(null),
        ] {
            assert!(size(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_keyword_is_reported_with_the_known_ones() {
        let error = keyword(&[("http1", 1), ("http2", 2)])(&json!("h2")).unwrap_err();
        assert_eq!(error.remedy, "write one of http1, http2");
    }
}
