//! Types of literals, and the checks of literals that need the types of the whole expression.

use super::{Checker, Expr, ExprId, Reference};
use crate::declarations::{CelFunctionDecl, CheckedCall};
use crate::types::CelType;
use crate::value::{CelDuration, CelError, CelErrorKind, CelTimestamp, CelValue};

pub(super) fn type_of_literal(value: &CelValue<'_>) -> CelType {
    match value {
        CelValue::Null => CelType::Null,
        CelValue::Bool(_) => CelType::Bool,
        CelValue::Int(_) => CelType::Int,
        CelValue::Uint(_) => CelType::Uint,
        CelValue::Double(_) => CelType::Double,
        CelValue::String(_) => CelType::String,
        CelValue::Bytes(_) => CelType::Bytes,
        _ => CelType::Dyn,
    }
}

/// Reports literals that would fail at run time, and list and map literals of mixed types, if the environment asks for
/// these checks.
pub(super) fn validate(checker: &mut Checker<'_>) {
    // Calls after their arguments, as the original has them: errors at the same position stay in this order.
    for (id, exempt) in outer_first(checker).into_iter().rev() {
        match checker.ast.expr(id) {
            Expr::Call { function, args, .. } if checker.scope.literal_validators => {
                validate_call(checker, id, function.trim_start_matches('.'), args);
                validate_by_function(checker, id);
            }
            Expr::List { elements, optional } if checker.scope.homogeneous_literals && !exempt => {
                validate_list(checker, elements, optional);
            }
            Expr::Map(_) if checker.scope.homogeneous_literals && !exempt => {
                validate_map(checker, id);
            }
            _ => {}
        }
    }
}

/// The nodes of the expression, with whether they are in a call in which literals may be of mixed types.
fn outer_first(checker: &Checker<'_>) -> Vec<(ExprId, bool)> {
    let mut all = Vec::new();
    let mut reachable = vec![(checker.ast.root, false)];
    while let Some((id, exempt)) = reachable.pop() {
        all.push((id, exempt));
        let exempt = exempt || declared(checker, id).is_some_and(|call| call.0.mixed_literals);
        crate::syntax::children(checker.ast.expr(id), |child| {
            reachable.push((child, exempt));
        });
    }
    all
}

/// The function that a node calls, and whether its target is part of the name.
fn declared<'c>(checker: &Checker<'c>, id: ExprId) -> Option<(&'c CelFunctionDecl, bool)> {
    match checker.references.get(&id)? {
        Reference::Call {
            function,
            namespaced,
            ..
        } => {
            let declared = checker.scope.declarations.functions.get(function)?;
            Some((declared, *namespaced))
        }
        _ => None,
    }
}

/// Reports the errors that the function of a call finds in it.
fn validate_by_function(checker: &mut Checker<'_>, id: ExprId) {
    let Some((function, namespaced)) = declared(checker, id) else {
        return;
    };
    let Some(validate) = function.validate else {
        return;
    };
    let mut args = Vec::new();
    if let Expr::Call {
        target, args: all, ..
    } = checker.ast.expr(id)
    {
        args.extend(target.iter().filter(|_| !namespaced));
        args.extend(all.iter());
    }
    let types = |id: ExprId| checker.substitutions.substitute(&checker.type_of(id), true);
    let issues = validate(&CheckedCall {
        ast: checker.ast,
        types: &types,
        id,
        args: &args,
    });
    for issue in issues {
        checker.report(issue.at, issue.message);
    }
}

fn validate_call(checker: &mut Checker<'_>, id: ExprId, function: &str, args: &[ExprId]) {
    let Some(arg) = args.first() else {
        return;
    };
    let Expr::Literal(value) = checker.ast.expr(*arg) else {
        return;
    };
    let valid = match (function, value) {
        ("duration", CelValue::String(text)) => CelDuration::parse(text).is_some(),
        ("duration", CelValue::Int(_)) | ("duration" | "timestamp", CelValue::Null) => false,
        ("timestamp", CelValue::String(text)) => {
            CelTimestamp::parse(text).is_some_and(|of| of.is_ok())
        }
        ("timestamp", CelValue::Int(seconds)) => CelTimestamp::new(*seconds, 0).is_ok(),
        ("matches", _) => prepares(checker, id, value),
        _ => true,
    };
    if !valid {
        checker.report(*arg, format!("invalid {function} argument"));
    }
}

/// Whether the function that a call refers to accepts the constant. That it takes more than a limit of ours allows is found again, and
/// told as such, when the expression is compiled.
fn prepares(checker: &mut Checker<'_>, id: ExprId, value: &CelValue<'_>) -> bool {
    let prepare = declared(checker, id).and_then(|(function, _)| function.prepare);
    let Some((_, prepare)) = prepare else {
        return true;
    };
    let accepts = |error: &CelError| error.kind() == CelErrorKind::OwnLimit;
    prepare(value, checker.budget)
        .as_ref()
        .err()
        .is_none_or(accepts)
}

/// The type of a node, without type variables; for an optional entry, the type inside.
fn settled(checker: &Checker<'_>, id: ExprId, optional: bool) -> CelType {
    let of = checker.substitutions.substitute(&checker.type_of(id), true);
    match of.optional_of() {
        Some(inside) if optional => inside.clone(),
        _ => of,
    }
}

fn validate_list(checker: &mut Checker<'_>, elements: &[ExprId], optional: &[bool]) {
    let mut first: Option<CelType> = None;
    for (at, element) in elements.iter().enumerate() {
        let of = settled(checker, *element, optional.get(at) == Some(&true));
        match &first {
            None => first = Some(of),
            Some(first) if *first != of => {
                checker.mismatch(*element, first, &of);
                return;
            }
            Some(_) => {}
        }
    }
}

fn validate_map(checker: &mut Checker<'_>, id: ExprId) {
    let Expr::Map(entries) = checker.ast.expr(id) else {
        return;
    };
    let mut first: Option<(CelType, CelType)> = None;
    for entry in entries {
        let key = settled(checker, entry.key, false);
        let value = settled(checker, entry.value, entry.optional);
        let Some((first_key, first_value)) = &first else {
            first = Some((key, value));
            continue;
        };
        if *first_key != key {
            checker.mismatch(entry.key, first_key, &key);
        }
        if *first_value != value {
            checker.mismatch(entry.value, first_value, &value);
        }
    }
}
