//! The shape of hosted objects: one table per kind that everything else is made from.
//!
//! A [`Struct`] lists its [`Field`]s with their JSON name, protobuf number, type, and how a list or
//! an object is merged. Strict decoding, canonical encoding, protobuf, strategic merge patch,
//! server-side apply and the OpenAPI documents all read these tables and know no kind by name; so a
//! new kind is a new table.
//!
//! An object in memory is a [`serde_json::Value`] in *canonical form* for its table: unknown keys and
//! nulls are gone, what is empty and may be left out is left out, what is always there is there. Two
//! objects mean the same if their canonical forms are equal.
//!
//! The tables of Kubernetes' own kinds are generated from its Go types, for all built-in kinds in all
//! versions. They are in a module for each package, such as [`policy_v1`]; [`built_in`] finds the
//! table of a kind by name.
//!
//! Not here: defaults and validation ([`crate::kind`]), reading and writing bytes ([`crate::codec`]).

pub mod canonical;
pub mod docs;
#[rustfmt::skip]
mod generated;
mod nulls;
#[cfg(test)]
mod tests;
mod unread_parts;

pub use generated::*;
pub use nulls::add_nulls;
pub(crate) use nulls::null_places;
pub use unread_parts::UnreadParts;

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A string.
    Text,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A boolean.
    Flag,
    /// Bytes: base64 in JSON.
    Bytes,
    /// A point in time, RFC 3339, whole seconds; the zero time is null or absent.
    Time,
    /// The same in microseconds, with all six digits of the fraction.
    MicroTime,
    /// JSON of any shape, kept as it is (`FieldsV1`).
    Raw,
    /// An object of any kind, as JSON of any shape (`RawExtension`).
    RawExtension,
    /// A 32-bit number or a string.
    IntOrString,
    /// An amount with a unit, such as `1500m`: a string, or a number, which is read as one.
    Quantity,
    /// An object with known fields.
    Object(&'static Struct),
    /// A list.
    List(&'static List),
    /// An object with any keys, and values of one type.
    Map(&'static MapType),
}

/// An object's fields.
#[derive(Debug)]
pub struct Struct {
    /// The Go name of the type, such as `FlowSchemaSpec`; decoding errors and OpenAPI show it.
    pub name: &'static str,
    /// Where the type is defined.
    pub home: TypePackage,
    /// In the order in which they are written.
    pub fields: &'static [Field],
    /// Those of its `fields` that are in messages of their own in protobuf.
    pub inline: &'static [Inline],
    /// Whether server-side apply takes it as a whole.
    pub atomic: bool,
}

/// A struct that is spread over another in JSON: protobuf has a message for it.
#[derive(Clone, Copy, Debug)]
pub struct Inline {
    /// The protobuf number of the message.
    pub number: u32,
    /// The fields in it. The outer struct has them, too, without their numbers.
    pub shape: &'static Struct,
}

/// A built-in kind in one version.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInKind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version, such as `v1`.
    pub version: &'static str,
    /// The kind, such as `Pod` or `PodList`.
    pub kind: &'static str,
    /// The field table of the kind.
    pub shape: &'static Struct,
}

/// All built-in kinds of Kubernetes in all versions, lists and subresources among them, in the order of
/// group, version and kind.
pub fn built_in_kinds() -> &'static [BuiltInKind] {
    generated::KINDS
}

/// The table of a built-in kind.
///
/// Costs time logarithmic in the number of kinds.
pub fn built_in(group: &str, version: &str, kind: &str) -> Option<&'static Struct> {
    let kinds = generated::KINDS;
    let wanted = (group, version, kind);
    let index = kinds.binary_search_by(|one| (one.group, one.version, one.kind).cmp(&wanted));
    index.ok().map(|index| kinds[index].shape)
}

/// Where a type is defined; OpenAPI names begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypePackage {
    /// In the group version that uses it.
    GroupVersion,
    /// In `meta/v1`.
    Meta,
    /// In a package of API types, such as `core` and `v1`.
    Api {
        /// The package, named after the group.
        package: &'static str,
        /// The version, such as `v1`.
        version: &'static str,
    },
}

/// A list's items, and how server-side apply identifies them.
#[derive(Debug)]
pub struct List {
    /// Type of each item.
    pub item: Type,
    /// What identifies an item.
    pub topology: Topology,
    /// Whether protobuf has a message for it, with the items in its field 1.
    pub message: bool,
}

/// A map's values, and whether server-side apply takes the map apart.
#[derive(Debug)]
pub struct MapType {
    /// Type of each value.
    pub value: Type,
    /// Whether the map is owned as a whole.
    pub atomic: bool,
}

/// What identifies an item of a list for server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Nothing: the list is owned as a whole.
    Atomic,
    /// The item is its own identity.
    Set,
    /// The values of these fields.
    Map(&'static [&'static str]),
}

/// One field of a [`Struct`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// The protobuf number; 0 for a field that protobuf does not carry.
    pub number: u32,
    /// The type of the value.
    pub ty: Type,
    /// Whether the field is written if it was not given.
    pub presence: Presence,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// How a strategic merge patch merges it.
    pub patch: PatchStrategy,
    /// The default that the published schema has, in JSON, if it is not the zero value.
    pub default: Option<&'static str>,
}

/// Whether a field is present if it was not given, and what its absence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Always there: a zero value, an empty object, or null for a list.
    Always,
    /// Left out when zero or empty; absence and zero mean the same.
    NonZero,
    /// A pointer: left out when absent, and zero is a value of its own.
    Pointer,
    /// The same, but written as null when absent. In canonical form it is absent all the same.
    Nullable,
}

impl Presence {
    /// Whether absence differs from zero.
    pub(crate) const fn is_pointer(self) -> bool {
        matches!(self, Self::Pointer | Self::Nullable)
    }
}

/// How a strategic merge patch merges a list or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    /// The kind's own way: objects and maps are merged key by key, lists are replaced.
    Plain,
    /// A list whose items with an equal value of this field are merged.
    MergeBy(&'static str),
    /// The same; clients may also list the fields that an item keeps.
    MergeByRetainingKeys(&'static str),
    /// A list of plain values that is merged as a set.
    MergeSet,
    /// An object that is replaced as a whole.
    Replace,
    /// An object that is merged; clients may also list the fields that it keeps.
    RetainKeys,
}

impl Struct {
    /// The field of this JSON name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        // Linear, since the tables are constants in the order of writing, and most structs have less than twenty fields.
        self.fields.iter().find(|field| field.name == name)
    }

    /// A table entry.
    pub const fn new(name: &'static str, home: TypePackage, fields: &'static [Field]) -> Self {
        Self {
            name,
            home,
            fields,
            inline: &[],
            atomic: false,
        }
    }

    /// The same type, which server-side apply treats as atomic.
    #[must_use]
    pub const fn atomic(mut self) -> Self {
        self.atomic = true;
        self
    }
}

impl MapType {
    /// A map of which each value has owners of its own.
    pub const fn of(value: Type) -> Self {
        Self {
            value,
            atomic: false,
        }
    }
}

impl List {
    /// A list that is owned as a whole.
    pub const fn atomic(item: Type) -> Self {
        Self {
            item,
            topology: Topology::Atomic,
            message: false,
        }
    }

    /// A list of plain values, each of which has owners of its own.
    pub const fn set(item: Type) -> Self {
        Self {
            item,
            topology: Topology::Set,
            message: false,
        }
    }

    /// A list whose items are identified by the values of `keys`.
    pub const fn map(item: Type, keys: &'static [&'static str]) -> Self {
        Self {
            item,
            topology: Topology::Map(keys),
            message: false,
        }
    }
}

/// A field that is left out when empty.
pub const fn field(name: &'static str, number: u32, ty: Type) -> Field {
    Field {
        name,
        number,
        ty,
        presence: Presence::NonZero,
        required: false,
        patch: PatchStrategy::Plain,
        default: None,
    }
}

impl Field {
    /// The same field, with [`Presence::Always`].
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.presence = Presence::Always;
        self
    }

    /// The same field, with [`Presence::Pointer`].
    #[must_use]
    pub const fn pointer(mut self) -> Self {
        self.presence = Presence::Pointer;
        self
    }

    /// The same field, with [`Presence::Nullable`].
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.presence = Presence::Nullable;
        self
    }

    /// The same field, which OpenAPI lists as required.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The same field, with a default, given as JSON.
    #[must_use]
    pub const fn defaulted(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// The same field, merged by a strategic merge patch as `patch` says.
    #[must_use]
    pub const fn patched(mut self, patch: PatchStrategy) -> Self {
        self.patch = patch;
        self
    }
}
