//! What a hosted kind is: its names, versions, and the rules it does not share with the others.
//!
//! One [`Kind`] per kind, in [`crate::kinds`]. All that is the same for every kind (verbs, metadata,
//! patches, ownership of fields, watches, tables, documents) is elsewhere and reads this.

use serde_json::Value;

use crate::{field_error::ApiFieldError, schema::Struct};

/// A kind of object.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Such as `FlowSchema`.
    pub kind: &'static str,
    /// Such as `FlowSchemaList`; empty for a kind that cannot be listed.
    pub list_kind: &'static str,
    /// The resource: plural, lower case.
    pub plural: &'static str,
    /// The singular, lower case.
    pub singular: &'static str,
    /// Short forms that kubectl knows.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl knows, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `status` subresource.
    pub has_status: bool,
    /// Whether objects are kept, or only answered.
    pub storage: Storage,
    /// Preferred version first; that is also the one objects are stored in.
    pub versions: &'static [KindVersion],
    /// What is checked and shown of it.
    pub rules: &'static KindRules,
}

/// Whether objects of a kind are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In the store, with all verbs.
    Stored,
    /// Not at all: a `POST` is answered at once, and there is no other verb.
    CreateOnly,
}

/// A kind as one version has it.
#[derive(Debug)]
pub struct KindVersion {
    /// Such as `v1`.
    pub name: &'static str,
    /// Its fields.
    pub shape: &'static Struct,
    /// Whether clients are warned off.
    pub deprecated: Option<Deprecation>,
    /// Fills in what nobody gave; the object is canonical.
    pub default: fn(&mut Value),
    /// From this version to the stored one; defaults are filled in.
    pub to_storage: fn(&mut Value),
    /// From the stored version to this one. Of the stored version itself it changes nothing.
    pub from_storage: fn(&mut Value),
}

/// Since when a version is deprecated, and where it ends.
#[derive(Clone, Copy, Debug)]
pub struct Deprecation {
    /// The release that deprecated it, such as `1.29`.
    pub since: &'static str,
    /// The release that removed it.
    pub removed: &'static str,
}

/// What is checked and shown of a kind.
#[derive(Debug)]
pub struct KindRules {
    /// What is wrong with a name; the flag tells that it is but the beginning of one.
    pub name: fn(&str, bool) -> Vec<String>,
    /// What is wrong with spec and status of an object in its stored form, defaults filled in.
    pub validate: fn(&Value) -> Vec<ApiFieldError>,
    /// The same for a write to `/status`.
    pub validate_status: fn(&Value) -> Vec<ApiFieldError>,
    /// What to warn the writer of, though nothing is wrong.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Whether an update may go without a resource version.
    pub unconditional_update: bool,
    /// Whether a write to `/status` may change labels, annotations, finalizers and owners.
    pub status_writes_metadata: bool,
    /// Columns of a table, behind the name.
    pub columns: &'static [TableColumn],
    /// By what the rows of a table are sorted; `None`: by key.
    pub row_order: Option<RowOrder>,
}

/// What the rows of a table are sorted by.
pub type RowOrder = fn(&Value) -> (i64, String);

/// One column of a table.
#[derive(Debug)]
pub struct TableColumn {
    /// Its head.
    pub name: &'static str,
    /// `string`, `integer` …
    pub ty: &'static str,
    /// What it shows.
    pub doc: &'static str,
    /// The cell of an object in its stored form. The time is given in seconds since 1970.
    pub cell: fn(&Value, i64) -> Value,
}

impl Kind {
    /// The kind's version of this name, and its index.
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
