//! Tables: objects as rows, as kubectl prints them.

use serde_json::{Map, Value, json};

use crate::{
    kind::{Kind, KindVersion},
    metadata,
    object::Object,
    schema::{docs, meta_v1::OBJECT_META},
};
use fairgate_gotext::{Quoted, time};

/// What comes with each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The object.
    Object,
}

impl IncludeObject {
    /// Reads the parameter `includeObject`.
    ///
    /// # Errors
    ///
    /// The message of the API server's 400.
    pub fn parse(value: &str) -> Result<Self, String> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be \
                 'Metadata', 'Object', 'None', or empty",
                Quoted(other)
            )),
        }
    }
}

/// The settings of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableLayout {
    /// The kind of its objects.
    pub kind: &'static Kind,
    /// The requested version of the objects.
    pub version: &'static KindVersion,
    /// The version of `meta.k8s.io`.
    pub meta: &'static str,
    /// What comes with each row.
    pub include: IncludeObject,
    /// Now, in seconds since 1970.
    pub now: i64,
}

impl TableLayout {
    /// The table of `objects`; `metadata` is that of the list. `head` is false if the client has
    /// the column definitions already.
    pub fn table(&self, objects: &[std::sync::Arc<Object>], metadata: &Value, head: bool) -> Value {
        let mut sorted: Vec<&Object> = objects.iter().map(AsRef::as_ref).collect();
        if let Some(order) = self.kind.rules.row_order {
            sorted.sort_by_cached_key(|object| order(object.stored()));
        }
        let rows: Vec<Value> = sorted
            .iter()
            .map(|object| self.row(object.stored(), object.value(self.version)))
            .collect();
        self.of_rows(&rows, metadata, head)
    }

    /// The table of one object, given in its stored and in the requested version.
    pub fn single(&self, stored: &Value, value: &Value, head: bool) -> Value {
        let version = metadata::text(value, "resourceVersion");
        let metadata = if version.is_empty() {
            json!({})
        } else {
            json!({"resourceVersion": version})
        };
        let rows = [self.row(stored, value)];
        self.of_rows(&rows, &metadata, head)
    }

    fn of_rows(&self, rows: &[Value], metadata: &Value, head: bool) -> Value {
        let columns = if head { self.head() } else { Value::Null };
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{}", self.meta),
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    fn head(&self) -> Value {
        let doc = OBJECT_META
            .field("name")
            .map_or("", |field| docs::of_field(&OBJECT_META, field));
        let mut columns = vec![column("Name", "string", "name", doc)];
        for one in self.kind.rules.columns {
            columns.push(column(one.name, one.ty, "", one.doc));
        }
        Value::Array(columns)
    }

    /// The row of one object, given in its stored and in the requested version.
    pub fn row(&self, stored: &Value, value: &Value) -> Value {
        let mut cells = vec![json!(metadata::name(stored))];
        for column in self.kind.rules.columns {
            cells.push((column.cell)(stored, self.now));
        }
        // The metadata must be kept if it has the annotation that marks the end of the initial
        // events.
        let marked = metadata::entry(stored, "annotations", "k8s.io/initial-events-end").is_some();
        let object = match self.include {
            IncludeObject::Object => value.clone(),
            IncludeObject::None if !marked => Value::Null,
            IncludeObject::None | IncludeObject::Metadata => partial(stored, self.meta),
        };
        json!({"cells": cells, "object": object})
    }
}

fn column(name: &str, ty: &str, format: &str, doc: &str) -> Value {
    json!({"name": name, "type": ty, "format": format, "description": doc, "priority": 0})
}

/// Only the metadata of an object, as it is stored: annotations that a version adds for the conversion of its
/// spec are useless without the spec.
pub fn partial(stored: &Value, meta: &str) -> Value {
    let metadata = stored
        .get("metadata")
        .cloned()
        .unwrap_or_else(|| Value::Object(Map::new()));
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{meta}"),
        "metadata": metadata,
    })
}

/// The age of an object, as kubectl prints it.
pub fn age(object: &Value, now: i64) -> Value {
    let created = metadata::text(object, "creationTimestamp");
    match time::seconds(created) {
        Some(created) => json!(human_duration(now - created)),
        None => json!("<unknown>"),
    }
}

/// A number of seconds in at most two units.
fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, unit: char, rest: i64, small: char| {
        if rest == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{rest}{small}")
        }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, 'm', s % MINUTE, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, 'h', s / MINUTE % 60, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, 'd', s / HOUR % 24, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, 'y', s / DAY % 365, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_printed_in_at_most_two_units() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 + 20 * 60, "3h20m"),
            (9 * 3600, "9h"),
            (5 * 86400 + 3 * 3600, "5d3h"),
            (100 * 86400, "100d"),
            (2 * 365 * 86400 + 30 * 86400, "2y30d"),
            (9 * 365 * 86400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(seconds), text);
        }
        assert_eq!(age(&json!({}), 0), "<unknown>");
    }
}
