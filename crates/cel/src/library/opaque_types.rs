//! What the libraries of opaque values share: reading such a value from the arguments, and functions that compare two.

use std::cmp::Ordering;

use super::go_text::fixed;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelValue};

/// The argument number `at`, from 0, if it is an opaque value of type `T`; otherwise `no such overload`.
pub(super) fn opaque<'v, T: CelOpaque + 'static>(
    args: &'v [CelValue<'_>],
    at: usize,
) -> Result<&'v T, CelError> {
    let value = args.get(at).and_then(CelValue::as_opaque);
    value.ok_or_else(CelError::no_such_overload)
}

/// Declares `isGreaterThan`, `isLessThan` and `compareTo` for two values of the CEL type `of`, which are of the Rust
/// type `T`. The identifiers of the overloads begin with `prefix`.
pub(super) fn declare_order<T: CelOpaque + 'static>(
    to: &mut CelDeclarations,
    prefix: &str,
    of: &CelType,
    order: fn(&T, &T) -> Ordering,
) {
    let compare = move |args: &[CelValue<'_>]| Ok(order(opaque(args, 0)?, opaque(args, 1)?));
    let pair = || [of.clone(), of.clone()];
    for (name, id, wanted) in [
        ("isGreaterThan", "is_greater_than", Ordering::Greater),
        ("isLessThan", "is_less_than", Ordering::Less),
    ] {
        to.function(CelFunctionDecl::new(name).overload(CelOverload::member(
            &format!("{prefix}_{id}"),
            pair(),
            CelType::Bool,
            fixed(move |args| Ok((compare(args)? == wanted).into())),
        )));
    }
    to.function(
        CelFunctionDecl::new("compareTo").overload(CelOverload::member(
            &format!("{prefix}_compare_to"),
            pair(),
            CelType::Int,
            fixed(move |args| Ok((compare(args)? as i64).into())),
        )),
    );
}

/// The error of the original for a value whose type in Go is `go_type`, and which it cannot make a value of CEL again.
pub(super) fn unconvertible(go_type: &str, value: &dyn CelOpaque) -> String {
    let text = value.print();
    format!("unsupported conversion to ref.Val: ({go_type}){text}")
}
