//! How values are printed in messages: as by Go's `%v`.

use std::fmt;

use super::{CelValue, go_float};

impl fmt::Display for CelValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL_VALUE"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&go_float(*value)),
            Self::String(text) => f.write_str(text),
            Self::Bytes(bytes) => {
                let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
                write!(f, "[{}]", numbers.join(" "))
            }
            Self::Duration(value) => write!(f, "{value}"),
            Self::Timestamp(value) => write!(f, "{value}"),
            Self::Type(of) => f.write_str(of.runtime_name()),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Optional(Some(of)) => write!(f, "optional({})", of.value()),
            Self::Opaque(value) => f.write_str(&value.print()),
            Self::List(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(map) => {
                f.write_str("{")?;
                let mut at = 0;
                while let Some((key, value)) = map.entry_at(at) {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    write!(f, "{key}: {value}")?;
                    at += 1;
                }
                f.write_str("}")
            }
        }
    }
}
