//! Named formats: `format.named`, `format.dns1123Label()` and so on, and `validate`.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/format.go`, and the rules of `apimachinery/pkg/util/validation` and
//! `kube-openapi/pkg/validation/strfmt`.

use std::any::Any;

use fairgate_gotext::names;

use super::go_text::{fixed, matching, text};
use super::opaque_types::opaque;
use super::url_syntax::check_request_uri;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelOpaque, CelResult, CelValue};

/// The name of the CEL type of named formats.
const NAMED_FORMAT: &str = "kubernetes.NamedFormat";

/// The functions of named formats.
#[derive(Clone, Copy, Debug)]
pub struct FormatLibrary;

/// Returns the errors in a text; none if it has the format.
type Check = fn(&str) -> Vec<String>;

/// A named format.
#[derive(Debug)]
struct NamedFormat {
    /// The name in expressions: `format.<name>()`.
    name: &'static str,
    /// The original's name of the format, by which values are compared and printed.
    title: &'static str,
    check: Check,
    /// The length, in characters, of the regular expression by which the original estimates the cost of `validate`.
    pattern: u64,
}

const fn named(name: &'static str, title: &'static str, check: Check, pattern: u64) -> NamedFormat {
    NamedFormat {
        name,
        title,
        check,
        pattern,
    }
}

static FORMATS: [NamedFormat; 13] = [
    named("dns1123Label", "DNS1123Label", names::label, 30),
    named("dns1123Subdomain", "DNS1123Subdomain", names::subdomain, 60),
    named("dns1035Label", "DNS1035Label", names::service_label, 30),
    named("qualifiedName", "QualifiedName", names::qualified, 60),
    named(
        "dns1123LabelPrefix",
        "DNS1123LabelPrefix",
        |of| names::label(&names::of_prefix(of)),
        30,
    ),
    named(
        "dns1123SubdomainPrefix",
        "DNS1123SubdomainPrefix",
        |of| names::subdomain(&names::of_prefix(of)),
        60,
    ),
    named(
        "dns1035LabelPrefix",
        "DNS1035LabelPrefix",
        |of| names::service_label(&names::of_prefix(of)),
        30,
    ),
    named("labelValue", "LabelValue", names::label_value, 40),
    named(
        "uri",
        "URI",
        |of| check_request_uri(of).err().into_iter().collect(),
        1103,
    ),
    named(
        "uuid",
        "uuid",
        |of| unless(is_uuid(of), "does not match the UUID format"),
        70,
    ),
    named(
        "byte",
        "byte",
        |of| unless(is_base64(of), "invalid base64"),
        84,
    ),
    named("date", "date", |of| unless(is_date(of), "invalid date"), 71),
    named(
        "datetime",
        "datetime",
        |of| unless(is_date_time(of), "invalid datetime"),
        71,
    ),
];

/// A named format as a value of expressions.
#[derive(Debug)]
struct FormatValue(&'static NamedFormat);

impl CelOpaque for FormatValue {
    fn type_name(&self) -> &str {
        NAMED_FORMAT
    }

    fn go_type(&self) -> &'static str {
        "cel.Format"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        let other = other.as_any().downcast_ref::<Self>()?;
        Some(self.0.title == other.0.title)
    }

    fn print(&self) -> String {
        self.0.title.to_owned()
    }
}

impl CelLibrary for FormatLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let of = || CelType::object(NAMED_FORMAT);
        to.function(
            CelFunctionDecl::new("format.named").overload(CelOverload::global(
                "format-named",
                [CelType::String],
                CelType::optional(of()),
                by_name,
            )),
        );
        let problems = CelType::optional(CelType::list(CelType::String));
        to.function(
            CelFunctionDecl::new("validate")
                .cost(validate_cost)
                .overload(CelOverload::member(
                    "format-validate",
                    [of(), CelType::String],
                    problems,
                    validate,
                )),
        );
        for format in &FORMATS {
            let name = format!("format.{}", format.name);
            to.function(CelFunctionDecl::new(&name).overload(CelOverload::global(
                &name,
                [],
                of(),
                fixed(move |_| Ok(CelValue::opaque(FormatValue(format)))),
            )));
        }
    }
}

fn by_name<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let name = text(args, 0)?;
    let found = FORMATS.iter().find(|format| format.name == name);
    found.map_or(Ok(CelValue::Optional(None)), |format| {
        CelValue::some(CelValue::opaque(FormatValue(format)))
    })
}

fn validate_cost(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    let format = args[0].as_opaque::<FormatValue>()?;
    Some(matching(args[1].cost_size(), format.0.pattern))
}

fn validate<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let format: &FormatValue = opaque(args, 0)?;
    let problems = (format.0.check)(text(args, 1)?);
    if problems.is_empty() {
        return Ok(CelValue::Optional(None));
    }
    let problems = problems.into_iter().map(CelValue::from).collect();
    CelValue::some(CelValue::list(problems)?)
}

fn unless(right: bool, problem: &str) -> Vec<String> {
    if right {
        Vec::new()
    } else {
        vec![problem.to_owned()]
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            // Dashes are optional in the original's pattern, each by itself.
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(digits) = rest.get(..length) else {
            return false;
        };
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = &rest[length..];
    }
    rest.is_empty()
}

/// Whether the text is base64 with the standard alphabet and padding, and not empty.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && digits.bytes().all(right)
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let (Some(year), Some(month), Some(day)) =
        (number(&text[..4]), number(&text[5..7]), number(&text[8..]))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Whether the text is a date, `t`, a time of day and an offset. Hours go up to 23, minutes and seconds up to 59. As in
/// the original, text after a second `t` is ignored.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    if !is_date(date) || !time.is_char_boundary(8) || time.len() < 9 {
        return false;
    }
    let (clock, rest) = time.split_at(8);
    let bytes = clock.as_bytes();
    if !clock.is_ascii() || bytes[2] != b':' || bytes[5] != b':' {
        return false;
    }
    let (hours, minutes, seconds) = (
        number(&clock[..2]),
        number(&clock[3..5]),
        number(&clock[6..]),
    );
    let right = |value: Option<u32>, most| value.is_some_and(|value| value <= most);
    if !right(hours, 23) || !right(minutes, 59) || !right(seconds, 59) {
        return false;
    }
    is_offset(rest) || is_offset(without_fraction(rest))
}

/// The text after the fraction. As in the original's pattern, any character but a line feed may begin the fraction.
fn without_fraction(text: &str) -> &str {
    let mut chars = text.chars();
    if chars.next().is_none_or(|c| c == '\n') {
        return text;
    }
    let rest = chars.as_str();
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if after.len() == rest.len() {
        text
    } else {
        after
    }
}

fn is_offset(text: &str) -> bool {
    let bytes = text.as_bytes();
    text == "z"
        || text.is_ascii()
            && bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && number(&text[1..3]).is_some()
            && number(&text[4..]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_in_ascii_before_its_dash() {
        for format in FORMATS.iter().filter(|of| of.name.ends_with("Prefix")) {
            for (prefix, problems) in [("a-", 0), ("--", 0), ("-", 1), ("é-", 1), ("aé-", 1)] {
                assert_eq!((format.check)(prefix).len(), problems, "{prefix}");
            }
        }
    }
}
