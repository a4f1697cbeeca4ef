//! Optional values: their functions, macros and syntax.

#![expect(
    clippy::unnecessary_wraps,
    reason = "functions of libraries have one signature"
)]

use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::syntax::{CelMacro, ExprId, FoldParts, MacroError, MacroExpansion};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue, CelWork};

/// cel-go's optional types: `optional.of`, `optional.none`, `a.?b`, `orValue`, `optMap` and so on.
#[derive(Clone, Copy, Debug)]
pub struct OptionalTypes;

impl CelLibrary for OptionalTypes {
    fn declare(&self, to: &mut CelDeclarations) {
        let value = CelType::parameter("V");
        let optional = CelType::optional(value.clone());
        let list = CelType::list(value.clone());
        to.enable_optional_syntax();
        to.type_name(CelType::opaque("optional_type"));
        to.macro_call(CelMacro::member("optMap", 2, |e, t, a| {
            opt_map(e, t, a, true)
        }));
        to.macro_call(CelMacro::member("optFlatMap", 2, |e, t, a| {
            opt_map(e, t, a, false)
        }));
        let global = |name: &str, id: &str, args: &[CelType], result: &CelType, function: Plain| {
            CelFunctionDecl::new(name).overload(CelOverload::global(
                id,
                args,
                result.clone(),
                function,
            ))
        };
        let member = |name: &str, id: &str, of: &CelType, result: &CelType, function: Plain| {
            let args = [of.clone()];
            CelFunctionDecl::new(name).overload(CelOverload::member(
                id,
                args,
                result.clone(),
                function,
            ))
        };
        let one = std::slice::from_ref(&value);
        to.function(global("optional.of", "optional_of", one, &optional, of));
        let id = "optional_ofNonZeroValue";
        to.function(global(
            "optional.ofNonZeroValue",
            id,
            one,
            &optional,
            of_non_zero,
        ));
        to.function(global(
            "optional.none",
            "optional_none",
            &[],
            &optional,
            |_| Ok(CelValue::Optional(None)),
        ));
        to.function(member("value", "optional_value", &optional, &value, unwrap));
        let id = "optional_hasValue";
        to.function(member("hasValue", id, &optional, &CelType::Bool, has_value));
        declare_lists(to, &list, &optional);
        declare_built_in(to);
    }
}

type Plain = for<'a> fn(&[CelValue<'a>]) -> CelResult<'a>;

/// Declares `first`, `last`, `optional.unwrap` and `unwrapOpt`.
fn declare_lists(to: &mut CelDeclarations, list: &CelType, optional: &CelType) {
    let end: [(&str, &str, Plain); 2] = [
        ("first", "list_first", |args| end_of(args, true)),
        ("last", "list_last", |args| end_of(args, false)),
    ];
    for (name, id, function) in end {
        let overload = CelOverload::member(id, [list.clone()], optional.clone(), function);
        to.function(CelFunctionDecl::new(name).overload(overload));
    }
    let args = [CelType::list(optional.clone())];
    let id = "optional_unwrap";
    let unwrap = CelOverload::global(id, args.clone(), list.clone(), Metered(unwrap_all));
    to.function(CelFunctionDecl::new("optional.unwrap").overload(unwrap));
    let unwrap = CelOverload::member(
        "optional_unwrapOpt",
        args,
        list.clone(),
        Metered(unwrap_all),
    );
    to.function(CelFunctionDecl::new("unwrapOpt").overload(unwrap));
}

/// Declares the functions and operators that the evaluator implements itself.
fn declare_built_in(to: &mut CelDeclarations) {
    let (key, value) = (CelType::parameter("K"), CelType::parameter("V"));
    let optional = CelType::optional(value.clone());
    let list = CelType::list(value.clone());
    let map = CelType::map(key.clone(), value.clone());
    let declared = |id: &str, args: [&CelType; 2], result: &CelType| {
        CelOverload::declared(id, args.map(Clone::clone), result.clone())
    };
    let mut or = declared("optional_or_optional", [&optional, &optional], &optional);
    or.member = true;
    to.function(CelFunctionDecl::new("or").overload(or));
    let mut or_value = declared("optional_orValue_value", [&optional, &value], &value);
    or_value.member = true;
    to.function(CelFunctionDecl::new("orValue").overload(or_value));
    let (of_list, of_map) = (
        CelType::optional(list.clone()),
        CelType::optional(map.clone()),
    );
    let int = CelType::Int;
    to.function(
        CelFunctionDecl::new("_[?_]")
            .overload(declared(
                "list_optindex_optional_int",
                [&list, &int],
                &optional,
            ))
            .overload(declared(
                "optional_list_optindex_optional_int",
                [&of_list, &int],
                &optional,
            ))
            .overload(declared(
                "map_optindex_optional_value",
                [&map, &key],
                &optional,
            ))
            .overload(declared(
                "optional_map_optindex_optional_value",
                [&of_map, &key],
                &optional,
            )),
    );
    to.function(
        CelFunctionDecl::new("_[_]")
            .overload(declared(
                "optional_list_index_int",
                [&of_list, &int],
                &optional,
            ))
            .overload(declared(
                "optional_map_index_value",
                [&of_map, &key],
                &optional,
            )),
    );
}

fn of<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    CelValue::some(args[0].clone())
}

fn of_non_zero<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    if args[0].is_zero() {
        return Ok(CelValue::Optional(None));
    }
    of(args)
}

fn unwrap<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    match &args[0] {
        CelValue::Optional(Some(of)) => Ok(of.value().clone()),
        CelValue::Optional(None) => Err(CelError::new("optional.none() dereference")),
        _ => Err(CelError::no_such_overload()),
    }
}

fn has_value<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(CelValue::Bool(matches!(
        args[0],
        CelValue::Optional(Some(_))
    )))
}

fn end_of<'a>(args: &[CelValue<'a>], first: bool) -> CelResult<'a> {
    let CelValue::List(list) = &args[0] else {
        return Err(CelError::no_such_overload());
    };
    let at = if first {
        0
    } else {
        list.len().saturating_sub(1)
    };
    match list.get(at) {
        Some(value) => CelValue::some(value),
        None => Ok(CelValue::Optional(None)),
    }
}

fn unwrap_all<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let CelValue::List(list) = &args[0] else {
        return Err(CelError::no_such_overload());
    };
    let mut values = Vec::new();
    for value in list {
        work.burn(1)?;
        match value {
            CelValue::Optional(None) => {}
            CelValue::Optional(Some(of)) => values.push(of.value().clone()),
            other => return Err(work.error(&[("value ", &other)], " is not optional")),
        }
    }
    CelValue::list(values)
}

/// Expands to `target.hasValue() ? optional.of(body) : optional.none()`, with the variable bound to `target.value()` in
/// the body. Without `wrap`, the body itself is the optional value.
fn opt_map(
    e: &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
    wrap: bool,
) -> Result<Option<ExprId>, MacroError> {
    let name = if wrap { "optMap" } else { "optFlatMap" };
    let Some(variable) = e.identifier(args[0]).map(str::to_owned) else {
        let message = format!("{name}() variable name must be a simple identifier");
        return Err(e.error(args[0], message));
    };
    let Some(target) = target else {
        return Ok(None);
    };
    let present = e.member_call("hasValue", target, &[]);
    let copy = e.copy(target);
    let init = e.member_call("value", copy, &[]);
    let parts = FoldParts {
        range: e.list(&[]),
        variable: "#unused",
        second_variable: None,
        accumulator: &variable,
        init,
        condition: e.literal(CelValue::Bool(false)),
        step: e.ident(&variable),
        result: args[1],
    };
    let mut mapped = e.fold(&parts);
    if wrap {
        mapped = e.call("optional.of", &[mapped]);
    }
    let none = e.call("optional.none", &[]);
    Ok(Some(e.call("_?_:_", &[present, mapped, none])))
}
