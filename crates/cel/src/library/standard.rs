//! The standard library: operators, sizes and strings; conversions and times are in `conversions` and `times`.

use super::{
    conversions,
    costs::{product_cost, text_cost},
    re2, times,
};
use crate::declarations::{
    CelDeclarations, CelFunction, CelFunctionDecl, CelLibrary, CelOverload, Metered,
};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue, CelWork};

/// The functions and types that every environment has.
#[derive(Clone, Copy, Debug)]
pub struct StandardLibrary;

impl CelLibrary for StandardLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        declare_types(to);
        declare_logic(to);
        declare_arithmetic(to);
        for name in ["less", "less_equals", "greater", "greater_equals"] {
            to.function(comparison(name));
        }
        declare_collections(to);
        declare_text(to);
        conversions::declare(to);
        times::declare(to);
    }
}

fn declare_types(to: &mut CelDeclarations) {
    let (a, b) = (parameter("A"), parameter("B"));
    for of in [
        CelType::Bool,
        CelType::Bytes,
        CelType::Double,
        CelType::Duration,
        CelType::Int,
        CelType::list(a.clone()),
        CelType::map(a, b),
        CelType::Null,
        CelType::String,
        CelType::Timestamp,
        CelType::Type(None),
        CelType::Uint,
    ] {
        to.type_name(of);
    }
    // Of protocol buffers, only names are there.
    for message in [
        "google.protobuf.Empty",
        "google.protobuf.Struct.FieldsEntry",
    ] {
        to.type_name(CelType::object(message));
    }
    let no_value = "google.protobuf.NullValue.NULL_VALUE";
    to.constant(no_value, CelType::Int, CelValue::Int(0));
}

/// A function that the evaluator implements itself.
fn built_in(name: &str, overloads: &[(&str, &[CelType], CelType)]) -> CelFunctionDecl {
    let mut function = CelFunctionDecl::new(name).singleton();
    for (id, args, result) in overloads {
        function = function.overload(CelOverload::declared(id, *args, result.clone()));
    }
    function
}

fn parameter(name: &str) -> CelType {
    CelType::parameter(name)
}

fn declare_logic(to: &mut CelDeclarations) {
    let (bool, a) = (CelType::Bool, parameter("A"));
    let two = [bool.clone(), bool.clone()];
    let same = [a.clone(), a.clone()];
    to.function(built_in(
        "_?_:_",
        &[(
            "conditional",
            &[bool.clone(), a.clone(), a.clone()],
            a.clone(),
        )],
    ));
    to.function(built_in("_&&_", &[("logical_and", &two, bool.clone())]));
    to.function(built_in("_||_", &[("logical_or", &two, bool.clone())]));
    to.function(built_in("!_", &[("logical_not", &two[..1], bool.clone())]));
    let id = "not_strictly_false";
    to.function(built_in(
        "@not_strictly_false",
        &[(id, &two[..1], bool.clone())],
    ));
    to.function(built_in("_==_", &[("equals", &same, bool.clone())]));
    to.function(built_in("_!=_", &[("not_equals", &same, bool)]));
}

fn declare_arithmetic(to: &mut CelDeclarations) {
    use CelType::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let list = CelType::list(parameter("A"));
    to.function(built_in(
        "_+_",
        &[
            ("add_bytes", &[Bytes, Bytes], Bytes),
            ("add_double", &[Double, Double], Double),
            ("add_duration_duration", &[Duration, Duration], Duration),
            ("add_duration_timestamp", &[Duration, Timestamp], Timestamp),
            ("add_timestamp_duration", &[Timestamp, Duration], Timestamp),
            ("add_int64", &[Int, Int], Int),
            ("add_list", &[list.clone(), list.clone()], list),
            ("add_string", &[String, String], String),
            ("add_uint64", &[Uint, Uint], Uint),
        ],
    ));
    to.function(built_in(
        "_-_",
        &[
            ("subtract_double", &[Double, Double], Double),
            (
                "subtract_duration_duration",
                &[Duration, Duration],
                Duration,
            ),
            ("subtract_int64", &[Int, Int], Int),
            (
                "subtract_timestamp_duration",
                &[Timestamp, Duration],
                Timestamp,
            ),
            (
                "subtract_timestamp_timestamp",
                &[Timestamp, Timestamp],
                Duration,
            ),
            ("subtract_uint64", &[Uint, Uint], Uint),
        ],
    ));
    for (operator, name) in [("_*_", "multiply"), ("_/_", "divide")] {
        to.function(built_in(
            operator,
            &[
                (&format!("{name}_double"), &[Double, Double], Double),
                (&format!("{name}_int64"), &[Int, Int], Int),
                (&format!("{name}_uint64"), &[Uint, Uint], Uint),
            ],
        ));
    }
    to.function(built_in(
        "_%_",
        &[
            ("modulo_int64", &[Int, Int], Int),
            ("modulo_uint64", &[Uint, Uint], Uint),
        ],
    ));
    to.function(built_in(
        "-_",
        &[
            ("negate_double", &[Double], Double),
            ("negate_int64", &[Int], Int),
        ],
    ));
}

/// The comparison `<`, `<=`, `>` or `>=`; `name` is the prefix of its overloads' identifiers.
fn comparison(name: &str) -> CelFunctionDecl {
    use CelType::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let operator = match name {
        "less" => "_<_",
        "less_equals" => "_<=_",
        "greater" => "_>_",
        _ => "_>=_",
    };
    let pairs = [
        ("bool", Bool, Bool),
        ("int64", Int, Int),
        ("int64_double", Int, Double),
        ("int64_uint64", Int, Uint),
        ("uint64", Uint, Uint),
        ("uint64_double", Uint, Double),
        ("uint64_int64", Uint, Int),
        ("double", Double, Double),
        ("double_int64", Double, Int),
        ("double_uint64", Double, Uint),
        ("string", String, String),
        ("bytes", Bytes, Bytes),
        ("timestamp", Timestamp, Timestamp),
        ("duration", Duration, Duration),
    ];
    let mut function = CelFunctionDecl::new(operator).singleton();
    for (of, left, right) in pairs {
        let id = format!("{name}_{of}");
        function = function.overload(CelOverload::declared(&id, [left, right], Bool));
    }
    function
}

fn declare_collections(to: &mut CelDeclarations) {
    let (a, b) = (parameter("A"), parameter("B"));
    let list = CelType::list(a.clone());
    let map = CelType::map(a.clone(), b.clone());
    let int = CelType::Int;
    to.function(built_in(
        "_[_]",
        &[
            ("index_list", &[list.clone(), int.clone()], a.clone()),
            ("index_map", &[map.clone(), a.clone()], b),
        ],
    ));
    to.function(built_in(
        "@in",
        &[
            ("in_list", &[a.clone(), list.clone()], CelType::Bool),
            ("in_map", &[a, map.clone()], CelType::Bool),
        ],
    ));
    let mut size_of = CelFunctionDecl::new("size").singleton();
    for (name, of) in [
        ("bytes", CelType::Bytes),
        ("list", list),
        ("map", map),
        ("string", CelType::String),
    ] {
        let (global, member) = (format!("size_{name}"), format!("{name}_size"));
        size_of = size_of
            .overload(
                CelOverload::global(&global, [of.clone()], int.clone(), Metered(size)).unguarded(),
            )
            .overload(CelOverload::member(&member, [of], int.clone(), Metered(size)).unguarded());
    }
    to.function(size_of);
}

/// Costs 1, but reads a text to its end: so many bytes of it are a step.
const SIZED_IN_A_STEP: usize = 64;

fn size<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    if let CelValue::String(text) = &args[0] {
        work.burn((text.len() / SIZED_IN_A_STEP) as u64)?;
    }
    let size = match &args[0] {
        value @ (CelValue::String(_)
        | CelValue::Bytes(_)
        | CelValue::List(_)
        | CelValue::Map(_)) => value.cost_size(),
        CelValue::Duration(_) | CelValue::Timestamp(_) => return Err(CelError::no_such_overload()),
        _ => return Err(CelError::new("no such overload: size")),
    };
    i64::try_from(size)
        .map(CelValue::Int)
        .map_err(|_| CelError::new("integer overflow"))
}

fn declare_text(to: &mut CelDeclarations) {
    use CelType::{Bool, String};
    let test = |id: &str, function: fn(&str, &str) -> bool| {
        let call = move |args: &[CelValue<'_>]| match (args[0].as_str(), args[1].as_str()) {
            (Some(text), Some(part)) => Ok(CelValue::Bool(function(text, part))),
            _ => Err(CelError::no_such_overload()),
        };
        CelOverload::member(id, [String, String], Bool, TextTest(call)).unguarded()
    };
    to.function(
        CelFunctionDecl::new("contains")
            .overload(test("contains_string", |text, part| text.contains(part)).cost(product_cost)),
    );
    to.function(
        CelFunctionDecl::new("endsWith")
            .overload(test("ends_with_string", |text, part| text.ends_with(part)).cost(text_cost)),
    );
    to.function(
        CelFunctionDecl::new("startsWith").overload(
            test("starts_with_string", |text, part| text.starts_with(part)).cost(text_cost),
        ),
    );
    to.function(
        CelFunctionDecl::new("matches")
            .singleton()
            .overload(
                CelOverload::global("matches", [String, String], Bool, Metered(matches))
                    .unguarded(),
            )
            .overload(
                CelOverload::member("matches_string", [String, String], Bool, Metered(matches))
                    .unguarded()
                    .cost(|args, _| Some(re2::match_cost(&args[0], &args[1]))),
            )
            .prepare(1, re2::prepare_matches),
    );
}

/// A test of two strings, such as `contains`.
struct TextTest<F>(F);

impl<F> CelFunction for TextTest<F>
where
    F: Fn(&[CelValue<'_>]) -> Result<CelValue<'static>, CelError> + Send + Sync,
{
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        (self.0)(args)
    }
}

fn matches<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    match (&args[0], &args[1]) {
        (CelValue::String(text), CelValue::String(pattern)) => {
            re2::is_match(&re2::compile_within(pattern, text, work)?, text, work)
        }
        (CelValue::String(_) | CelValue::Duration(_) | CelValue::Timestamp(_), _) => {
            Err(CelError::no_such_overload())
        }
        _ => Err(CelError::new("no such overload: matches")),
    }
}
