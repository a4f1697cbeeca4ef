//! The types of single values, each with its notation: durations, sizes, addresses, keywords.
//!
//! Each function parses a value of the file, or returns the problem and the remedy.
//!
//! Not here: which key has a value of which type (`read`), and in which range ([`super::keys`]).

use std::{fmt::Debug, net::SocketAddr, ops::RangeInclusive, time::Duration};

use fairgate_gotext::parse_duration;
use serde_json::Value;

pub(super) use crate::invalid_value::InvalidValue;
use crate::{secret::secrets_of, url::UpstreamUrl};

/// A type of setting.
pub(super) trait Setting: Debug + Sized {
    /// The name of its notation, such as `duration`, for the reference.
    fn notation() -> String;

    /// The setting that `value` stands for.
    fn read(value: &Value) -> Result<Self, InvalidValue>;

    /// Whether it is in `range`. A type without an order is in none.
    fn is_in(&self, _range: &RangeInclusive<Self>) -> bool {
        false
    }

    /// The effective value, by which configurations are compared.
    fn shown(&self) -> String {
        format!("{self:?}")
    }

    /// How the log shows it when it changes. In the file it is `text`, which is empty if the key is absent.
    fn shown_as(&self, text: String) -> String {
        text
    }
}

/// A setting with a fixed set of values.
pub(super) trait Keyword: Copy + Debug + PartialEq + 'static {
    /// Every keyword with its value; case-sensitive.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Keyword> Setting for T {
    fn notation() -> String {
        let words: Vec<_> = T::WORDS
            .iter()
            .map(|(word, _)| format!("`{word}`"))
            .collect();
        words.join(", ")
    }

    fn read(value: &Value) -> Result<Self, InvalidValue> {
        keyword(value)
    }

    fn shown(&self) -> String {
        word(*self).to_owned()
    }
}

/// Settings by type: the notation, the function that reads it, and for those with an order, how a range has it.
macro_rules! settings {
    ($($ty:ty: $notation:literal, $read:path $(, $is_in:expr)?;)*) => {
        $(impl Setting for $ty {
            fn notation() -> String {
                $notation.to_owned()
            }

            fn read(value: &Value) -> Result<Self, InvalidValue> {
                $read(value)
            }

            $(fn is_in(&self, range: &RangeInclusive<Self>) -> bool {
                let is_in: fn(&RangeInclusive<Self>, &Self) -> bool = $is_in;
                is_in(range, self)
            })?
        })*
    };
}
pub(super) use settings;

settings! {
    bool: "`true`, `false`", flag;
    u32: "integer", count, RangeInclusive::contains;
    u64: "size", bytes, RangeInclusive::contains;
    Duration: "duration", duration, RangeInclusive::contains;
    Option<Duration>: "duration", optional_duration, |range, value| value.is_none() || range.contains(value);
    String: "text", text;
    Vec<String>: "list of text", texts;
    SocketAddr: "IP address and port", address;
    Option<SocketAddr>: "IP address and port", optional_address;
    UpstreamUrl: "URL", url;
}

/// How messages show a value: its beginning, without secrets. The contents of lists and mappings are left out.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        // Before it is cut, after which nobody would know it.
        other => match secrets_of("", other).first() {
            Some(secret) => format!("{:?}", secret.shown),
            None => brief(other),
        },
    }
}

/// How the log shows a value: as it is written, without secrets.
pub(super) fn as_written(value: &Value) -> String {
    match value {
        Value::String(text) => match secrets_of("", value).first() {
            Some(secret) => secret.shown.clone(),
            None => text.clone(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(as_written).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<String> = members
                .map(|(key, member)| format!("{key}: {}", as_written(member)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// A value short enough for a message.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// Text; a number is not accepted as text.
pub(super) fn text(value: &Value) -> Result<String, InvalidValue> {
    let remedy = match value {
        Value::Array(_) => "write one value, without brackets or dashes",
        Value::Object(_) => "write one value",
        _ => "put quotes around it",
    };
    let wrong = || InvalidValue::new(format!("{} is not text", shown(value)), remedy);
    value.as_str().map(str::to_owned).ok_or_else(wrong)
}

/// `true` or `false`.
fn flag(value: &Value) -> Result<bool, InvalidValue> {
    value.as_bool().ok_or_else(|| {
        InvalidValue::new(
            format!("{} is neither true nor false", shown(value)),
            "write true or false, without quotes",
        )
    })
}

/// A whole number that fits 32 bits.
fn count(value: &Value) -> Result<u32, InvalidValue> {
    value
        .as_u64()
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| {
            let range = match value {
                Value::Number(_) => format!(" from 0 to {}", u32::MAX),
                _ => String::new(),
            };
            InvalidValue::new(
                format!("{} is not a whole number{range}", shown(value)),
                "write a whole number, without quotes",
            )
        })
}

/// One of the keywords of `T`.
fn keyword<T: Keyword>(value: &Value) -> Result<T, InvalidValue> {
    let found = value
        .as_str()
        .and_then(|text| T::WORDS.iter().find(|(word, _)| *word == text));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let quotes = if value.is_boolean() {
            ", in quotes"
        } else {
            ""
        };
        InvalidValue::new(
            format!("{} is not a known value", shown(value)),
            format!("write one of {}{quotes}", words.join(", ")),
        )
    })
}

/// The keyword of a value.
pub(super) fn word<T: Keyword>(value: T) -> &'static str {
    let found = T::WORDS.iter().find(|(_, meaning)| *meaning == value);
    found.map_or("", |(word, _)| word)
}

/// A list of texts.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, InvalidValue> {
    value
        .as_array()
        .ok_or_else(|| {
            InvalidValue::new(
                format!("{} is not a list", shown(value)),
                "write it as [a, b]",
            )
        })?
        .iter()
        .map(text)
        .collect()
}

/// An IP address and port.
fn address(value: &Value) -> Result<SocketAddr, InvalidValue> {
    text(value)?.parse().map_err(|_| {
        InvalidValue::new(
            format!("{} is not an IP address and port", shown(value)),
            "write it as \"127.0.0.1:8443\" or \"[::]:8443\"",
        )
    })
}

/// An IP address and port; empty text is none.
fn optional_address(value: &Value) -> Result<Option<SocketAddr>, InvalidValue> {
    if text(value)?.is_empty() {
        return Ok(None);
    }
    address(value).map(Some)
}

/// A duration as Kubernetes writes it: `10s`, `1m30s`, `500ms`, `1.5h`.
fn duration(value: &Value) -> Result<Duration, InvalidValue> {
    const REMEDY: &str = "write a number and a unit, as in 500ms, 10s, 1m30s, 4h";
    let wrong = || InvalidValue::new(format!("{} is not a duration", shown(value)), REMEDY);
    let text = value.as_str().ok_or_else(wrong)?;
    // Go takes signs, too; no setting is negative.
    if text.starts_with(['-', '+']) {
        return Err(wrong());
    }
    parse_duration(text.as_bytes()).map_err(|_| wrong())
}

/// A duration; empty text is none.
fn optional_duration(value: &Value) -> Result<Option<Duration>, InvalidValue> {
    if value == "" {
        return Ok(None);
    }
    duration(value).map(Some)
}

/// An address of a server.
fn url(value: &Value) -> Result<UpstreamUrl, InvalidValue> {
    UpstreamUrl::parse(&text(value)?)
}

/// A number of bytes as Kubernetes writes it: `16Mi`, `512Ki`, `1G`, `65536`.
fn bytes(value: &Value) -> Result<u64, InvalidValue> {
    const REMEDY: &str = "write a number and a unit, as in 64Ki, 16Mi, 1Gi";
    let wrong = || InvalidValue::new(format!("{} is not a size", shown(value)), REMEDY);
    if let Some(bytes) = value.as_u64() {
        return Ok(bytes);
    }
    parse_bytes(value.as_str().ok_or_else(wrong)?).ok_or_else(wrong)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit, rest) = number_and_unit(text)?;
    let unit = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    rest.is_empty().then(|| scaled(number, unit))?
}

/// Splits `1.5h30m` into `1.5`, `h` and `30m`.
fn number_and_unit(text: &str) -> Option<(&str, &str, &str)> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let unit_at = text.find(|c| !digits(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(unit_at);
    let end = rest.find(digits).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    (!number.is_empty()).then_some((number, unit, rest))
}

/// `number`, a decimal with up to nine places, times `unit`, rounded down.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let places = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<u64>().ok(),
    };
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(places(fraction)?) * u128::from(unit) / u128::from(scale);
    places(whole)?
        .checked_mul(unit)?
        .checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_value_is_cut_in_messages() {
        assert!(shown(&Value::from("é".repeat(1000))).len() < 100);
    }

    #[test]
    fn durations_are_read_as_kubernetes_writes_them() {
        for (text, millis) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(
                duration(&json!(text)),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_duration_without_unit_or_sense_is_refused() {
        for value in [
            json!(10),
            json!("10"),
            json!("s"),
            json!(""),
            json!("-1s"),
            json!("1d"),
            json!("1.2.3s"),
            json!("10 s"),
            json!("99999999999999999999h"),
            json!("9999999999h"),
            json!(null),
        ] {
            assert!(duration(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        for (value, size) in [
            (json!("16Mi"), 16 << 20),
            (json!("64Ki"), 64 << 10),
            (json!("1.5Ki"), 1536),
            (json!("1G"), 1_000_000_000),
            (json!("65536"), 65536),
            (json!(65536), 65536),
        ] {
            assert_eq!(bytes(&value), Ok(size), "{value}");
        }
        for value in [
            json!("16MB"),
            json!("Mi"),
            json!(-1),
            json!("1Ki1"),
            json!("99999999999Gi"),
        ] {
            assert!(bytes(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn an_address_has_an_ip_and_a_port() {
        assert!(address(&json!("127.0.0.1:1")).is_ok());
        assert!(address(&json!("[::1]:1")).is_ok());
        for value in [
            json!("localhost:1"),
            json!(":1"),
            json!("1.2.3.4"),
            json!(1),
        ] {
            assert!(address(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn texts_are_a_list_of_text_and_nothing_else() {
        assert_eq!(texts(&json!(["a"])), Ok(vec!["a".to_owned()]));
        assert!(texts(&json!("a")).is_err());
        assert!(texts(&json!([1])).is_err());
    }
}
