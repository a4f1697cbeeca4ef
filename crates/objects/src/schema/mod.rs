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
//! Not here: defaults and validation ([`crate::kind`]), reading and writing bytes ([`crate::codec`]).

pub mod canonical;
pub mod flowcontrol;
pub mod meta;
pub mod reviews;

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
    /// A point in time, RFC 3339, whole seconds; the zero time is null or absent.
    Time,
    /// JSON of any shape, kept as it is (`FieldsV1`).
    Raw,
    /// A 32-bit number or a string.
    IntOrString,
    /// An object with known fields.
    Object(&'static Struct),
    /// A list.
    List(&'static List),
    /// An object with any keys, and values of one type.
    Map(&'static Type),
}

/// An object's fields.
#[derive(Debug)]
pub struct Struct {
    /// Its Go name, such as `FlowSchemaSpec`; decoding errors and OpenAPI show it.
    pub name: &'static str,
    /// Where the type is defined.
    pub home: TypePackage,
    /// What it is, for `kubectl explain`.
    pub doc: &'static str,
    /// In the order in which they are written.
    pub fields: &'static [Field],
    /// Whether server-side apply takes it as a whole.
    pub atomic: bool,
}

/// Where a type is defined; OpenAPI names begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypePackage {
    /// In the group version that uses it.
    GroupVersion,
    /// In `meta/v1`.
    Meta,
}

/// A list's items, and how server-side apply tells them apart.
#[derive(Debug)]
pub struct List {
    /// Type of each item.
    pub item: Type,
    /// What identifies an item.
    pub topology: Topology,
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
    /// What it may hold.
    pub ty: Type,
    /// Whether it is there when nobody gave it.
    pub presence: Presence,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// How a strategic merge patch merges it.
    pub patch: PatchStrategy,
    /// What it is, for `kubectl explain`.
    pub doc: &'static str,
}

/// Whether a field is there when nobody gave it, and what its absence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Always there: a zero value, an empty object, or null for a list.
    Always,
    /// Left out when zero or empty; absence and zero mean the same.
    NonZero,
    /// A pointer: left out when absent, and zero is a value of its own.
    Pointer,
}

/// How a strategic merge patch merges a list or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    /// The kind's own way: objects and maps are merged key by key, lists are replaced.
    Plain,
    /// A list whose items with an equal value of this field are merged.
    MergeBy(&'static str),
    /// A list of plain values that is merged as a set.
    MergeSet,
    /// An object that is replaced as a whole.
    Replace,
}

impl Struct {
    /// The field of this JSON name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// A table entry.
    pub const fn new(
        name: &'static str,
        home: TypePackage,
        doc: &'static str,
        fields: &'static [Field],
    ) -> Self {
        Self {
            name,
            home,
            doc,
            fields,
            atomic: false,
        }
    }

    /// The same, taken as a whole by server-side apply.
    #[must_use]
    pub const fn atomic(mut self) -> Self {
        self.atomic = true;
        self
    }
}

impl List {
    /// A list that is owned as a whole.
    pub const fn atomic(item: Type) -> Self {
        Self {
            item,
            topology: Topology::Atomic,
        }
    }

    /// A list of plain values, each owned for itself.
    pub const fn set(item: Type) -> Self {
        Self {
            item,
            topology: Topology::Set,
        }
    }

    /// A list whose items are told apart by the values of `keys`.
    pub const fn map(item: Type, keys: &'static [&'static str]) -> Self {
        Self {
            item,
            topology: Topology::Map(keys),
        }
    }
}

/// A field that is left out when empty.
pub const fn field(name: &'static str, number: u32, ty: Type, doc: &'static str) -> Field {
    Field {
        name,
        number,
        ty,
        presence: Presence::NonZero,
        required: false,
        patch: PatchStrategy::Plain,
        doc,
    }
}

impl Field {
    /// The same, always there.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.presence = Presence::Always;
        self
    }

    /// The same, with an absence that differs from zero.
    #[must_use]
    pub const fn pointer(mut self) -> Self {
        self.presence = Presence::Pointer;
        self
    }

    /// The same, listed as required by OpenAPI.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The same, merged otherwise by a strategic merge patch.
    #[must_use]
    pub const fn patched(mut self, patch: PatchStrategy) -> Self {
        self.patch = patch;
        self
    }
}
