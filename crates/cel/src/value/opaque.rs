//! Values of types that a library or the host defines.

use std::any::Any;
use std::fmt::Debug;

/// A value of a type that a library or the host defines, such as an IP address or an authorizer.
///
/// Expressions can pass it to functions, compare it and ask for its type.
pub trait CelOpaque: Any + Debug + Send + Sync {
    /// The name of the type, as declared with [`CelType::opaque`](crate::CelType::opaque).
    fn type_name(&self) -> &str;

    /// The name of the original's Go type, which some of its messages show.
    fn go_type(&self) -> &'static str {
        "opaque value"
    }

    /// This value as `dyn Any`, which [`CelValue::as_opaque`](crate::CelValue::as_opaque) downcasts.
    fn as_any(&self) -> &dyn Any;

    /// Whether this value equals `other`, which has the same [`type_name`](Self::type_name). `None` if the two cannot be
    /// compared: `==` fails with `no such overload`.
    fn equals(&self, other: &dyn CelOpaque) -> Option<bool>;

    /// The size that costs are computed from; see [`CelValue::cost_size`](crate::CelValue::cost_size).
    fn cost_size(&self) -> u64 {
        1
    }

    /// The cost of `==` with this value on the left. `None`: a tenth of the smaller size, as for other values.
    fn equality_cost(&self) -> Option<u64> {
        Some(1)
    }

    /// About how many steps of a few nanoseconds reading the whole of it takes: comparing it, printing it, calling a
    /// function with it. What its cost does not count is bounded by this ([`CelWork`](crate::CelWork)).
    fn work(&self) -> u64 {
        4
    }

    /// Whether `optional.ofNonZeroValue` treats this value as absent.
    fn is_zero(&self) -> bool {
        false
    }

    /// The error of an optional value that holds this one and passes through a variable or a conditional, if it is one:
    /// the original converts this value to its own there, and knows no way back for some types.
    fn conversion_error(&self) -> Option<String> {
        None
    }

    /// The text of this value in messages.
    fn print(&self) -> String {
        format!("{self:?}")
    }
}
