//! `string.format`: prints its arguments, and checks formats that are string literals when an expression is compiled.
//!
//! Source: cel-go `ext/formatting.go`. As in the original, `%f` and `%e` print as in American English, with separated
//! thousands, and the precision of `%e` is used as a width.

use std::fmt::Write;

use fairgate_gotext::{Quoted, QuotedBytes, atoi, float};

use super::go_text::{MOST_BYTES, too_long};
use crate::declarations::CheckedCall;
use crate::syntax::{Expr, ExprId, MacroError};
use crate::types::CelType;
use crate::value::{CelError, CelList, CelMap, CelValue, CelWork, work_of_bytes};

/// The number of digits after the decimal point if a format has no precision.
const PRECISION: usize = 6;

/// The greatest number whose next digit the original reads: it takes a precision with a longer one for no number, and prints
/// an error in place of the double.
const MOST_BEFORE_LAST_DIGIT: usize = 1_000_000;
const NO_VERB: &str = "%!(NOVERB)";

/// The steps of printing a double, and of one digit after its point.
const DOUBLE: u64 = 60;
const DIGIT: u64 = 6;
/// The number of digits after the point with which every double is exact.
const MOST_DIGITS: usize = 1074;

/// The text that a call builds, as long as the work lasts.
struct FormatOutput<'w, 'i> {
    text: String,
    work: &'w mut CelWork<'i>,
}

impl FormatOutput<'_, '_> {
    fn push(&mut self, part: &str) -> Result<(), CelError> {
        self.work.burn(4 + work_of_bytes(part.len()))?;
        if self.text.len() + part.len() > MOST_BYTES {
            return Err(too_long());
        }
        self.text.push_str(part);
        Ok(())
    }

    /// Pushes a text of about as many characters as `from` has bytes, made one by one.
    fn push_each(&mut self, from: usize, text: impl FnOnce() -> String) -> Result<(), CelError> {
        self.work.burn(from as u64)?;
        self.push(&text())
    }
}

/// The verb of a formatting clause, with its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatVerb {
    Text,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormatPiece<'f> {
    Literal(&'f str),
    Clause(FormatVerb),
}

/// Parses a format piece by piece.
pub(crate) struct FormatPieces<'f> {
    rest: &'f str,
    /// The number of clauses that have been returned.
    used: usize,
    /// The number of arguments.
    arguments: usize,
    /// Whether this is the check at compile time, which reports an incomplete clause before a missing argument.
    compiling: bool,
}

impl<'f> FormatPieces<'f> {
    pub(crate) fn new(format: &'f str, arguments: usize, compiling: bool) -> Self {
        Self {
            rest: format,
            used: 0,
            arguments,
            compiling,
        }
    }

    /// The number of arguments that the clauses so far have used.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The next piece; an error if its clause is invalid. The error does not advance the parser.
    pub(crate) fn next(&mut self) -> Option<Result<FormatPiece<'f>, String>> {
        let Some(clause) = self.rest.strip_prefix('%') else {
            if self.rest.is_empty() {
                return None;
            }
            let end = self.rest.find('%').unwrap_or(self.rest.len());
            let (literal, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(Ok(FormatPiece::Literal(literal)));
        };
        if clause.starts_with('%') {
            let (literal, rest) = clause.split_at(1);
            self.rest = rest;
            return Some(Ok(FormatPiece::Literal(literal)));
        }
        Some(self.clause(clause).map(FormatPiece::Clause))
    }

    fn clause(&mut self, text: &'f str) -> Result<FormatVerb, String> {
        let missing = self.used >= self.arguments;
        if text.is_empty() && (self.compiling || !missing) {
            return Err("unexpected end of string".to_owned());
        }
        if missing {
            return Err(format!("index {} out of range", self.used));
        }
        let wrong = |why: String| format!("could not parse formatting clause: {why}");
        let (precision, text) = precision(text).map_err(wrong)?;
        let verb = verb(text, precision.unwrap_or(PRECISION)).map_err(wrong)?;
        self.rest = &text[1..];
        self.used += 1;
        Ok(verb)
    }
}

/// Parses the precision at the start of a clause, if there is one. Returns it with the text after it.
fn precision(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(after) = text.strip_prefix('.') else {
        return Ok((None, text));
    };
    let wrong = |why: &str| Err(format!("error while parsing precision: {why}"));
    let Some(end) = after.find(|c: char| !c.is_ascii_digit()) else {
        return wrong("could not find end of precision specifier");
    };
    let digits = &after[..end];
    let value = match atoi(digits) {
        Ok(value) => value,
        Err(why) => {
            let why = format!("error while converting precision to integer: {why}");
            return wrong(&why);
        }
    };
    let value = usize::try_from(value).unwrap_or(usize::MAX);
    Ok((Some(value), &after[end..]))
}

fn verb(text: &str, precision: usize) -> Result<FormatVerb, String> {
    // The original looks at a single byte, even of a longer character.
    let byte = text.as_bytes().first().copied().unwrap_or_default();
    Ok(match byte {
        b's' => FormatVerb::Text,
        b'd' => FormatVerb::Decimal,
        b'f' => FormatVerb::Fixed(precision),
        b'e' => FormatVerb::Scientific(precision),
        b'b' => FormatVerb::Binary,
        b'x' => FormatVerb::Hex { upper: false },
        b'X' => FormatVerb::Hex { upper: true },
        b'o' => FormatVerb::Octal,
        _ => {
            let c = char::from(byte);
            return Err(format!("unrecognized formatting clause \"{c}\""));
        }
    })
}

impl FormatVerb {
    /// The message about an argument of the type `given`, which the verb does not accept.
    pub(crate) fn refusal(self, given: &str) -> String {
        let takes = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {takes}, was given {given}")
    }

    fn print(self, value: &CelValue<'_>, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
        let refused = || CelError::new(self.refusal(value.type_name()));
        let number = match (self, value) {
            (Self::Text, _) => return print_text(value, out),
            (Self::Fixed(_) | Self::Scientific(_), value) => {
                return self.print_double(double(value).ok_or_else(refused)?, out);
            }
            (Self::Binary, CelValue::Bool(value)) => i128::from(*value),
            (Self::Hex { upper }, CelValue::String(text)) => {
                return print_hex(text.as_bytes(), upper, out);
            }
            (Self::Hex { upper }, CelValue::Bytes(bytes)) => return print_hex(bytes, upper, out),
            (_, CelValue::Int(value)) => i128::from(*value),
            (_, CelValue::Uint(value)) => i128::from(*value),
            _ => return Err(refused()),
        };
        if number < 0 {
            out.push("-")?;
        }
        let number = number.unsigned_abs();
        out.push(&match self {
            Self::Binary => format!("{number:b}"),
            Self::Octal => format!("{number:o}"),
            Self::Hex { upper: false } => format!("{number:x}"),
            Self::Hex { upper: true } => format!("{number:X}"),
            _ => number.to_string(),
        })
    }

    fn print_double(self, value: f64, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
        out.work.burn(DOUBLE)?;
        // Negative zero is printed without its sign.
        let value = if value == 0.0 { 0.0 } else { value };
        match self {
            Self::Scientific(number) | Self::Fixed(number)
                if number / 10 > MOST_BEFORE_LAST_DIGIT =>
            {
                out.push(NO_VERB)
            }
            Self::Scientific(width) => {
                let text = scientific(value);
                // The original keeps the lowest 16 bits of a width.
                let width = width % 0x1_0000;
                out.push(&format!("{text:>width$}"))
            }
            Self::Fixed(precision) => {
                // Large numbers have as many digits again before the point.
                out.work
                    .burn(DIGIT * (precision.min(MOST_DIGITS) as u64 + 300))?;
                out.push(&fixed(value, precision))
            }
            _ => unreachable!("only for verbs of doubles"),
        }
    }
}

/// The number to print: that of a double, or that of a string that names one without a literal, such as `NaN`.
fn double(value: &CelValue<'_>) -> Option<f64> {
    match value {
        CelValue::Double(value) => Some(*value),
        CelValue::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("∞")
    } else if value == f64::NEG_INFINITY {
        Some("-∞")
    } else {
        None
    }
}

/// A double with `precision` digits after the decimal point, and with separated thousands.
fn fixed(value: f64, precision: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let text = fraction(value, precision);
    let (sign, text) = text
        .strip_prefix('-')
        .map_or(("", &*text), |text| ("-", text));
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = String::from(sign);
    for (at, c) in text[..whole].chars().enumerate() {
        if at > 0 && (whole - at) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out.push_str(&text[whole..]);
    out
}

/// A double with the digits after the decimal point that `precision` asks for. The original keeps it twice: 16 bits of it,
/// with a sign, are the most digits, and no limit if they are negative; 8 bits of it are the least.
fn fraction(value: f64, precision: usize) -> String {
    let (most, least) = (precision % 0x1_0000, precision % 256);
    let text = if most < 0x8000 {
        let most = most.min(MOST_DIGITS);
        format!("{value:.most$}")
    } else {
        value.to_string()
    };
    let (whole, digits) = text.split_once('.').unwrap_or((&text, ""));
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() && least == 0 {
        return whole.to_owned();
    }
    format!("{whole}.{digits:0<least$}")
}

fn scientific(value: f64) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let text = format!("{value:.PRECISION$e}");
    let (mantissa, exponent) = text.split_once('e').expect("an exponent is printed");
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |of| ("⁻", of));
    let superscript = |digit: char| {
        let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
        digits[digit.to_digit(10).unwrap_or(0) as usize]
    };
    let exponent: String = format!("{exponent:0>2}").chars().map(superscript).collect();
    format!("{mantissa}×10{sign}{exponent}")
}

fn print_hex(bytes: &[u8], upper: bool, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
    out.push_each(bytes.len() * 8, || {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let written = if upper {
                write!(text, "{byte:02X}")
            } else {
                write!(text, "{byte:02x}")
            };
            written.expect("writing to a string does not fail");
        }
        text
    })
}

/// Prints an argument of `%s`.
fn print_text(value: &CelValue<'_>, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
    match value {
        CelValue::Null => out.push("null"),
        CelValue::Double(value) => {
            out.work.burn(DOUBLE)?;
            out.push(&float::shortest(*value))
        }
        CelValue::String(text) => out.push(text),
        CelValue::Bytes(bytes) => out.push(utf8(bytes)?),
        CelValue::Duration(span) => out.push(&span.to_string()),
        CelValue::Timestamp(time) => out.push(&time.to_string()),
        CelValue::List(_) | CelValue::Map(_) => print_nested(value, out),
        CelValue::Optional(_) | CelValue::Opaque(_) => {
            Err(CelError::new(FormatVerb::Text.refusal(value.type_name())))
        }
        other => out.push(&other.to_string()),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, CelError> {
    std::str::from_utf8(bytes).map_err(|_| {
        CelError::new("error during formatting: could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string")
    })
}

/// Prints a value inside a list or map, as a CEL literal. It recurses as deep as the value nests.
fn print_nested(value: &CelValue<'_>, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
    match value {
        CelValue::Double(value) if value.is_finite() => {
            out.work.burn(DOUBLE + DIGIT * 300)?;
            out.push(&format!("{value:.PRECISION$}"))
        }
        CelValue::Double(value) => out.push(&Quoted(&float::shortest(*value)).to_string()),
        CelValue::String(text) => {
            out.push_each(quoting(text.as_bytes()), || Quoted(text).to_string())
        }
        CelValue::Bytes(bytes) => {
            utf8(bytes)?;
            out.push("b")?;
            out.push_each(quoting(bytes), || QuotedBytes(bytes).to_string())
        }
        CelValue::Timestamp(time) => out.push(&format!("timestamp(\"{time}\")")),
        CelValue::Duration(span) => out.push(&format!("duration(\"{span}\")")),
        CelValue::List(list) => {
            out.push("[")?;
            for (at, element) in list.iter().enumerate() {
                out.push(if at == 0 { "" } else { ", " })?;
                print_nested(&element, out)?;
            }
            out.push("]")
        }
        CelValue::Map(map) => print_map(map, out),
        CelValue::Optional(_) | CelValue::Opaque(_) => Err(CelError::new(format!(
            "error during formatting: no formatting function for {}",
            value.type_name()
        ))),
        other => print_text(other, out),
    }
}

/// Prints a map, sorted by the text of its keys. Only keys are printed apart: values nest, and a text for each level would take time that
/// grows with the square of how deep they do.
fn print_map(map: &CelMap<'_>, out: &mut FormatOutput<'_, '_>) -> Result<(), CelError> {
    let mut pairs = Vec::new();
    let mut at = 0;
    while let Some((key, value)) = map.entry_at(at) {
        let text = match key {
            CelValue::String(_) | CelValue::Bool(_) | CelValue::Int(_) | CelValue::Uint(_) => {
                printed_apart(&key, out)?
            }
            _ => {
                return Err(CelError::new(format!(
                    "error during formatting: no formatting function for map key of type {}",
                    key.type_name()
                )));
            }
        };
        // Sorting compares a key as often as the number of entries has digits.
        let comparisons = u64::from(map.len().ilog2()) + 1;
        out.work
            .burn(comparisons * (4 + work_of_bytes(text.len())))?;
        pairs.push((text, value));
        at += 1;
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    out.push("{")?;
    for (at, (key, value)) in pairs.iter().enumerate() {
        out.push(if at == 0 { "" } else { ", " })?;
        out.push(key)?;
        out.push(":")?;
        print_nested(value, out)?;
    }
    out.push("}")
}

/// The text of a part that is put in its place later.
fn printed_apart(value: &CelValue<'_>, out: &mut FormatOutput<'_, '_>) -> Result<String, CelError> {
    let mut part = FormatOutput {
        text: String::new(),
        work: &mut *out.work,
    };
    print_nested(value, &mut part)?;
    Ok(part.text)
}

/// What quoting a text counts as: whether characters other than ASCII can be printed takes long to find out.
fn quoting(bytes: &[u8]) -> usize {
    let others = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    bytes.len().saturating_add(others.saturating_mul(8))
}

/// The error in a call whose format and list of arguments are literals; empty if there is none.
pub(super) fn validate(call: &CheckedCall<'_>) -> Vec<MacroError> {
    let wrong = |at, message: String| vec![MacroError { at, message }];
    let [target, list] = call.args() else {
        return Vec::new();
    };
    let (Some(CelValue::String(text)), Some(args)) = (call.literal(*target), call.elements(*list))
    else {
        return Vec::new();
    };
    let mut pieces = FormatPieces::new(text, args.len(), true);
    while let Some(piece) = pieces.next() {
        let verb = match piece {
            Ok(FormatPiece::Literal(_)) => continue,
            Ok(FormatPiece::Clause(verb)) => verb,
            Err(why) => return wrong(call.id(), why),
        };
        if let Some(at) = verb.refused(call, args[pieces.used() - 1]) {
            return wrong(at, verb.refusal(call.type_of(at).runtime_name()));
        }
    }
    if args.len() > pieces.used() {
        let (expected, got) = (pieces.used(), args.len());
        let message = format!(
            "too many arguments supplied to string.format (expected {expected}, got {got})"
        );
        return wrong(call.id(), message);
    }
    Vec::new()
}

impl FormatVerb {
    /// The argument, or the part of it, whose type this verb does not accept; `None` if it accepts all.
    fn refused(self, call: &CheckedCall<'_>, arg: ExprId) -> Option<ExprId> {
        if self == Self::Text {
            return not_printable(call, arg);
        }
        let of = call.type_of(arg);
        let taken = match (self, of) {
            (_, CelType::Dyn)
            | (Self::Fixed(_) | Self::Scientific(_), CelType::Double | CelType::String)
            | (Self::Binary, CelType::Bool)
            | (Self::Hex { .. }, CelType::String | CelType::Bytes) => true,
            (Self::Fixed(_) | Self::Scientific(_), _) => false,
            (_, of) => matches!(of, CelType::Int | CelType::Uint),
        };
        (!taken).then_some(arg)
    }
}

/// The first part of an argument of `%s` that cannot be printed; also looks into list and map literals.
fn not_printable(call: &CheckedCall<'_>, at: ExprId) -> Option<ExprId> {
    if matches!(call.type_of(at), CelType::Opaque(..) | CelType::Object(_)) {
        return Some(at);
    }
    match call.ast.expr(at) {
        Expr::List { elements, .. } => elements.iter().find_map(|at| not_printable(call, *at)),
        Expr::Map(entries) => entries.iter().find_map(|entry| {
            not_printable(call, entry.key).or_else(|| not_printable(call, entry.value))
        }),
        _ => None,
    }
}

/// Replaces the clauses of a format by its arguments.
///
/// # Errors
///
/// If a clause is invalid, an argument is missing or of a wrong type, or the result is too long.
pub(super) fn format(
    format: &str,
    values: &CelList<'_>,
    work: &mut CelWork<'_>,
) -> Result<String, CelError> {
    let text = String::new();
    let mut out = FormatOutput { text, work };
    let mut pieces = FormatPieces::new(format, values.len(), false);
    while let Some(piece) = pieces.next() {
        match piece.map_err(CelError::new)? {
            FormatPiece::Literal(text) => out.push(text)?,
            FormatPiece::Clause(verb) => {
                let value = values.get(pieces.used() - 1).unwrap_or(CelValue::Null);
                verb.print(&value, &mut out)?;
            }
        }
    }
    Ok(out.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str, values: Vec<CelValue<'static>>) -> Result<String, String> {
        let values = CelList::new(values).unwrap();
        let mut work = CelWork::new(100_000, None);
        format(text, &values, &mut work).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn doubles_are_printed_as_in_american_english() {
        let print = |text, value: f64| formatted(text, vec![value.into()]).unwrap();
        assert_eq!(print("%f", 1_234_567.891), "1,234,567.891000");
        assert_eq!(print("%.0f", 2.5), "2");
        assert_eq!(print("%f", -1e20), "-100,000,000,000,000,000,000.000000");
        assert_eq!(print("%e", -0.000_12), "-1.200000×10⁻⁰⁴");
        assert_eq!(print("%e", f64::NAN), "   NaN");
        let wide = print("%.70000e", 1.5);
        assert_eq!(wide.chars().count(), 70_000 - 65_536);
        assert!(wide.ends_with(" 1.500000×10⁰⁰"));
        assert_eq!(print("%.2f", f64::NEG_INFINITY), "-∞");
        assert_eq!(print("%.1000000f", 1.5).len(), 66);
        assert_eq!(print("%.256f", 1.5), "1.5");
        assert_eq!(print("%.1f", -0.0), "0.0");
    }

    #[test]
    fn the_error_of_an_invalid_format_says_what_is_wrong() {
        let wrong = |text| formatted(text, vec![CelValue::Int(1)]).unwrap_err();
        assert_eq!(wrong("%"), "unexpected end of string");
        assert_eq!(wrong("%s%s"), "index 1 out of range");
        let clause = "could not parse formatting clause: ";
        assert_eq!(
            wrong("%y"),
            format!("{clause}unrecognized formatting clause \"y\"")
        );
        let precision = "error while parsing precision: could not find end of precision specifier";
        assert_eq!(wrong("%.2"), format!("{clause}{precision}"));
    }

    #[test]
    fn maps_are_sorted_by_the_texts_of_their_keys() {
        let key = |text: &str| CelValue::from(text.to_owned());
        let map = crate::CelMap::new(vec![(key("b"), key("x")), (key("a"), CelValue::Null)]);
        let printed = formatted("%s", vec![CelValue::Map(map.unwrap())]);
        assert_eq!(printed.unwrap(), r#"{"a":null, "b":"x"}"#);
    }
}
