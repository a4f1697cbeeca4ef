//! Conversions between types.

#![expect(
    clippy::unnecessary_wraps,
    reason = "functions of libraries have one signature"
)]

use fairgate_gotext::float;

use super::doubles::parse_double;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelOverload};
use crate::types::CelType;
use crate::value::{CelBytes, CelDuration, CelError, CelResult, CelTimestamp, CelValue};

pub(super) fn declare(to: &mut CelDeclarations) {
    use CelType::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let a = CelType::parameter("A");
    let type_of_a = CelType::type_of(a.clone());
    to.function(
        CelFunctionDecl::new("type")
            .singleton()
            .overload(CelOverload::global("type", [a.clone()], type_of_a, type_of)),
    );
    to.function(
        CelFunctionDecl::new("dyn")
            .singleton()
            .overload(CelOverload::global("to_dyn", [a], CelType::Dyn, identity)),
    );
    function(
        to,
        "bool",
        &Bool,
        to_bool,
        &[("bool_to_bool", Bool), ("string_to_bool", String)],
    );
    function(
        to,
        "bytes",
        &Bytes,
        to_bytes,
        &[("bytes_to_bytes", Bytes), ("string_to_bytes", String)],
    );
    let numbers = [
        ("double_to_double", Double),
        ("int64_to_double", Int),
        ("string_to_double", String),
        ("uint64_to_double", Uint),
    ];
    function(to, "double", &Double, to_double, &numbers);
    let spans = [
        ("duration_to_duration", Duration),
        ("int64_to_duration", Int),
        ("string_to_duration", String),
    ];
    function(to, "duration", &Duration, to_duration, &spans);
    let integers = [
        ("int64_to_int64", Int),
        ("double_to_int64", Double),
        ("duration_to_int64", Duration),
        ("string_to_int64", String),
        ("timestamp_to_int64", Timestamp),
        ("uint64_to_int64", Uint),
    ];
    function(to, "int", &Int, to_int, &integers);
    declare_more(to);
}

/// The conversions to strings, timestamps and unsigned integers.
fn declare_more(to: &mut CelDeclarations) {
    use CelType::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let texts = [
        ("string_to_string", String),
        ("bool_to_string", Bool),
        ("bytes_to_string", Bytes),
        ("double_to_string", Double),
        ("duration_to_string", Duration),
        ("int64_to_string", Int),
        ("timestamp_to_string", Timestamp),
        ("uint64_to_string", Uint),
    ];
    function(to, "string", &String, to_string, &texts);
    let times = [
        ("timestamp_to_timestamp", Timestamp),
        ("int64_to_timestamp", Int),
        ("string_to_timestamp", String),
    ];
    function(to, "timestamp", &Timestamp, to_timestamp, &times);
    let unsigned = [
        ("uint64_to_uint64", Uint),
        ("double_to_uint64", Double),
        ("int64_to_uint64", Int),
        ("string_to_uint64", String),
    ];
    function(to, "uint", &Uint, to_uint, &unsigned);
}

/// Declares a conversion from several types.
fn function(
    to: &mut CelDeclarations,
    name: &str,
    result: &CelType,
    convert: for<'a> fn(&[CelValue<'a>]) -> CelResult<'a>,
    from: &[(&str, CelType)],
) {
    let mut function = CelFunctionDecl::new(name);
    for (id, of) in from {
        let overload = CelOverload::global(id, [of.clone()], result.clone(), convert);
        function = function.overload(match *id {
            "string_to_bytes" | "bytes_to_string" => overload.cost(super::costs::text_cost),
            _ => overload,
        });
    }
    to.function(function);
}

fn identity<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(args[0].clone())
}

fn type_of<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let of = match &args[0] {
        CelValue::Null => CelType::Null,
        CelValue::Bool(_) => CelType::Bool,
        CelValue::Int(_) => CelType::Int,
        CelValue::Uint(_) => CelType::Uint,
        CelValue::Double(_) => CelType::Double,
        CelValue::String(_) => CelType::String,
        CelValue::Bytes(_) => CelType::Bytes,
        CelValue::Duration(_) => CelType::Duration,
        CelValue::Timestamp(_) => CelType::Timestamp,
        CelValue::List(_) => CelType::list(CelType::Dyn),
        CelValue::Map(_) if args[0].type_name() == "map" => {
            CelType::map(CelType::Dyn, CelType::Dyn)
        }
        CelValue::Map(_) => CelType::object(args[0].type_name()),
        CelValue::Type(_) => CelType::Type(None),
        CelValue::Optional(_) => CelType::optional(CelType::Dyn),
        CelValue::Opaque(value) => CelType::opaque(value.type_name()),
    };
    Ok(CelValue::type_value(of))
}

/// The error for a value that cannot be converted to the type `to`.
fn failed<'a>(from: &CelValue<'_>, to: &str) -> CelResult<'a> {
    let from = from.type_name();
    Err(CelError::new(format!(
        "type conversion error from '{from}' to '{to}'"
    )))
}

fn to_bool<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Bool(value) => Ok(CelValue::Bool(*value)),
        CelValue::String(text) => match &**text {
            // What Go's `ParseBool` takes.
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(CelValue::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(CelValue::Bool(false)),
            _ => failed(&args[0], "bool"),
        },
        other => failed(other, "bool"),
    }
}

fn to_bytes<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Bytes(bytes) => Ok(CelValue::Bytes(bytes.clone())),
        CelValue::String(text) => Ok(CelValue::Bytes(CelBytes::from(text.as_bytes().to_vec()))),
        other => failed(other, "bytes"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the language says so")]
fn to_double<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Double(value) => Ok(CelValue::Double(*value)),
        CelValue::Int(value) => Ok(CelValue::Double(*value as f64)),
        CelValue::Uint(value) => Ok(CelValue::Double(*value as f64)),
        CelValue::String(text) => match parse_double(text) {
            Some(value) => Ok(CelValue::Double(value)),
            None => failed(&args[0], "double"),
        },
        other => failed(other, "double"),
    }
}

fn to_duration<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Duration(value) => Ok(CelValue::Duration(*value)),
        CelValue::String(text) => match CelDuration::parse(text) {
            Some(value) => Ok(CelValue::Duration(value)),
            None => failed(&args[0], "google.protobuf.Duration"),
        },
        other => failed(other, "google.protobuf.Duration"),
    }
}

fn int_range() -> CelError {
    CelError::new("integer overflow")
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_int<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let value = match &args[0] {
        CelValue::Int(value) => *value,
        CelValue::Uint(value) => i64::try_from(*value).map_err(|_| int_range())?,
        CelValue::Double(value) => {
            let limit = 9_223_372_036_854_775_808.0;
            // As cel-go, which refuses −2⁶³, too, although it fits.
            if value.is_nan() || *value <= -limit || *value >= limit {
                return Err(int_range());
            }
            *value as i64
        }
        CelValue::Duration(value) => value.nanoseconds(),
        CelValue::Timestamp(value) => value.seconds(),
        CelValue::String(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => return failed(&args[0], "int"),
        },
        other => return failed(other, "int"),
    };
    Ok(CelValue::Int(value))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn to_uint<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let overflow = || CelError::new("unsigned integer overflow");
    let value = match &args[0] {
        CelValue::Uint(value) => *value,
        CelValue::Int(value) => u64::try_from(*value).map_err(|_| overflow())?,
        CelValue::Double(value) => {
            let limit = 18_446_744_073_709_551_616.0;
            if value.is_nan() || *value < 0.0 || *value >= limit {
                return Err(overflow());
            }
            *value as u64
        }
        CelValue::String(text) => match text.parse() {
            // Go's `ParseUint` takes no sign.
            Ok(value) if !text.starts_with('+') => value,
            _ => return failed(&args[0], "uint"),
        },
        other => return failed(other, "uint"),
    };
    Ok(CelValue::Uint(value))
}

fn to_string<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let text = match &args[0] {
        CelValue::String(text) => return Ok(CelValue::String(text.clone())),
        CelValue::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| CelError::new("invalid UTF-8 in bytes, cannot convert to string"))?;
            text.to_owned()
        }
        CelValue::Double(value) => float::shortest(*value),
        CelValue::Duration(span) => span.to_string(),
        CelValue::Timestamp(time) => time.to_string(),
        CelValue::Bool(_) | CelValue::Int(_) | CelValue::Uint(_) => args[0].to_string(),
        other => return failed(other, "string"),
    };
    Ok(CelValue::from(text))
}

fn to_timestamp<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Timestamp(value) => Ok(CelValue::Timestamp(*value)),
        CelValue::Int(seconds) => CelTimestamp::new(*seconds, 0).map(CelValue::Timestamp),
        CelValue::String(text) => match CelTimestamp::parse(text) {
            Some(value) => value.map(CelValue::Timestamp),
            None => failed(&args[0], "google.protobuf.Timestamp"),
        },
        other => failed(other, "google.protobuf.Timestamp"),
    }
}
