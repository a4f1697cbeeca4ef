//! How values are printed in messages: as by Go's `%v`.

use std::fmt::{self, Write};

use fairgate_gotext::float;

use super::{CelOpaque, CelValue};

/// What values are printed to.
pub(super) trait ValuePrinter: Write {
    /// An opaque value is printed next, of which only it knows how long that takes.
    fn before_opaque(&mut self, value: &dyn CelOpaque) -> fmt::Result;
}

impl ValuePrinter for fmt::Formatter<'_> {
    fn before_opaque(&mut self, _: &dyn CelOpaque) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for CelValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_value(self, f)
    }
}

/// Prints a value. It recurses as deep as the value nests.
pub(super) fn print_value(value: &CelValue<'_>, to: &mut dyn ValuePrinter) -> fmt::Result {
    match value {
        CelValue::Null => to.write_str("0"),
        CelValue::Bool(value) => write!(to, "{value}"),
        CelValue::Int(value) => write!(to, "{value}"),
        CelValue::Uint(value) => write!(to, "{value}"),
        CelValue::Double(value) => to.write_str(&float::shortest(*value)),
        CelValue::String(text) => to.write_str(text),
        CelValue::Bytes(bytes) => {
            to.write_str("[")?;
            for (at, byte) in bytes.iter().enumerate() {
                write!(to, "{}{byte}", if at == 0 { "" } else { " " })?;
            }
            to.write_str("]")
        }
        CelValue::Duration(value) => value.print_units(to),
        CelValue::Timestamp(value) => value.print_with_zone(to),
        CelValue::Type(of) => to.write_str(of.runtime_name()),
        CelValue::Optional(None) => to.write_str("optional.none()"),
        CelValue::Optional(Some(of)) => {
            to.write_str("optional(")?;
            print_value(of.value(), to)?;
            to.write_str(")")
        }
        CelValue::Opaque(value) => {
            to.before_opaque(&**value)?;
            to.write_str(&value.print())
        }
        CelValue::List(list) => {
            to.write_str("[")?;
            for (at, value) in list.iter().enumerate() {
                to.write_str(if at == 0 { "" } else { ", " })?;
                print_value(&value, to)?;
            }
            to.write_str("]")
        }
        CelValue::Map(map) => {
            to.write_str("{")?;
            let mut at = 0;
            while let Some((key, value)) = map.entry_at(at) {
                to.write_str(if at == 0 { "" } else { ", " })?;
                print_value(&key, to)?;
                to.write_str(": ")?;
                print_value(&value, to)?;
                at += 1;
            }
            to.write_str("}")
        }
    }
}
