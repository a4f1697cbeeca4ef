//! Values whose inside only a library or the host knows.

use std::any::Any;
use std::fmt::Debug;

/// A value whose inside only a library or the host knows, such as an IP address or an authorizer.
///
/// Expressions can pass it to functions, compare it and ask for its type.
pub trait CelOpaque: Any + Debug + Send + Sync {
    /// The name of the type, as declared with [`CelType::opaque`](crate::CelType::opaque).
    fn type_name(&self) -> &str;

    /// Itself, for [`CelValue::as_opaque`](crate::CelValue::as_opaque).
    fn as_any(&self) -> &dyn Any;

    /// Whether it equals `other`, which may be of any type.
    fn equals(&self, other: &dyn CelOpaque) -> bool;

    /// Whether values of the type can be compared; for others `==` has no overload.
    fn has_equality(&self) -> bool {
        true
    }

    /// The size as cost counts it.
    fn cost_size(&self) -> u64 {
        1
    }

    /// What comparing it costs; `None` counts as for all other values.
    fn equality_cost(&self) -> Option<u64> {
        Some(1)
    }

    /// Whether `optional.ofNonZeroValue` takes it for absent.
    fn is_zero(&self) -> bool {
        false
    }

    /// How it prints inside of messages.
    fn print(&self) -> String {
        format!("{self:?}")
    }
}
