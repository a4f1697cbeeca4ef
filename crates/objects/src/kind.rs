//! A hosted kind: its names, its versions, and the rules that are specific to it.
//!
//! One [`Kind`] per kind, in [`crate::kinds`]. The code that is the same for every kind (verbs, metadata,
//! patches, field ownership, watches, tables, documents) is elsewhere and uses this.

use serde_json::Value;

use crate::{field_error::ApiFieldError, schema::Struct};

/// A kind of object.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The kind, such as `FlowSchema`.
    pub kind: &'static str,
    /// Such as `FlowSchemaList`; empty for a kind that cannot be listed.
    pub list_kind: &'static str,
    /// The resource: plural, lower case.
    pub plural: &'static str,
    /// The singular, lower case.
    pub singular: &'static str,
    /// Short names for kubectl.
    pub short_names: &'static [&'static str],
    /// Categories for kubectl, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `status` subresource.
    pub has_status: bool,
    /// Whether objects are stored.
    pub storage: Storage,
    /// Preferred version first; that is also the one objects are stored in.
    pub versions: &'static [KindVersion],
    /// The validation and the table columns of the kind.
    pub rules: &'static KindRules,
}

/// Whether objects of a kind are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In the store, with all verbs.
    Stored,
    /// Not at all: the response to a `POST` is the result, and there is no other verb.
    CreateOnly,
}

/// A kind in one version.
#[derive(Debug)]
pub struct KindVersion {
    /// The version, such as `v1`.
    pub name: &'static str,
    /// The fields of the kind in this version.
    pub shape: &'static Struct,
    /// If set, clients are warned.
    pub deprecated: Option<Deprecation>,
    /// Fills in the defaults of a canonical object.
    pub default: fn(&mut Value),
    /// Converts an object with defaults from this version to the stored one.
    pub to_storage: fn(&mut Value),
    /// Converts an object from the stored version to this one. Does nothing for the stored version
    /// itself.
    pub from_storage: fn(&mut Value),
}

/// When a version was deprecated and removed.
#[derive(Clone, Copy, Debug)]
pub struct Deprecation {
    /// The release that deprecated it, such as `1.29`.
    pub since: &'static str,
    /// The release that removed it.
    pub removed: &'static str,
}

/// The validation and the table columns of a kind.
#[derive(Debug)]
pub struct KindRules {
    /// The rule for names, which is validated together with the spec; the flag says that the name is only a
    /// prefix (`generateName`). `None`: names only have to be path segments.
    pub name: Option<NameRule>,
    /// Validates the spec of an object in its stored version, with defaults; for an update, with the object
    /// before it.
    pub validate: fn(&Value, Option<&Value>) -> Vec<ApiFieldError>,
    /// Whether that may take long, because it compiles expressions: it is not done on a thread that serves other requests.
    pub slow_validation: bool,
    /// Validates an object on a write to `/status`.
    pub validate_status: fn(&Value) -> Vec<ApiFieldError>,
    /// Warnings for the client that writes a valid object.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Whether an update may omit the resource version.
    pub unconditional_update: bool,
    /// Whether a write to `/status` may change labels, annotations, finalizers and owners.
    pub status_writes_metadata: bool,
    /// The columns of a table, after the name.
    pub columns: &'static [TableColumn],
    /// The sort key of the rows of a table; `None`: the object's key.
    pub row_order: Option<RowOrder>,
}

/// Returns the errors in a name.
pub type NameRule = fn(&str, bool) -> Vec<String>;

/// The sort key of a row.
pub type RowOrder = fn(&Value) -> (i64, String);

/// One column of a table.
#[derive(Debug)]
pub struct TableColumn {
    /// The header of the column.
    pub name: &'static str,
    /// The OpenAPI type of the cells, such as `string` or `integer`.
    pub ty: &'static str,
    /// The description of the column.
    pub doc: &'static str,
    /// The cell of an object in its stored form. The time is given in seconds since 1970.
    pub cell: fn(&Value, i64) -> Value,
}

impl Kind {
    /// Whether both have the same group and plural name.
    pub fn is_same_resource(&self, other: &Self) -> bool {
        self.group == other.group && self.plural == other.plural
    }

    /// The kind's version of this name.
    pub fn version(&self, name: &str) -> Option<&KindVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version that objects are stored in.
    pub fn stored(&self) -> &KindVersion {
        &self.versions[0]
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// The prefix of the keys of all objects in the store: `/<group>/<resource>/`, or `/core/<resource>/`.
    pub fn key_prefix(&self) -> String {
        format!("{}{}/", self.group_prefix(), self.plural)
    }

    /// The prefix of the keys of all kinds of the group: `/<group>/`, or `/core/`.
    pub fn group_prefix(&self) -> String {
        let group = if self.group.is_empty() {
            "core"
        } else {
            self.group
        };
        format!("/{group}/")
    }

    /// `resource.group`, as messages name it.
    pub fn group_resource(&self) -> String {
        dotted(self.plural, self.group)
    }
}

fn dotted(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}
