//! How a server owns and merges the values of a custom resource, as the schema of its definition says it.
//!
//! The server makes types of structured-merge-diff out of the schema. Objects are owned member by member, unless they have
//! `x-kubernetes-map-type: atomic`; lists as a whole, unless `x-kubernetes-list-type` says that their items are owned one by one (`map` by
//! their keys, `set` by themselves). The metadata of the object and of embedded resources has the type that all metadata has. Of what the
//! schema does not know, objects are owned member by member, and lists as a whole.
//!
//! Source: Kubernetes `kube-openapi/pkg/schemaconv`, and `apiextensions-apiserver/pkg/controller/openapi/builder`.
//!
//! Not here: what is done with these types ([`crate::ssa`]).

use serde_json::Value;

use super::{CustomSchema, OtherMembers, RESOURCE_MEMBERS, SchemaDefault, SchemaNode};
use crate::schema::{Type, meta_v1::OBJECT_META};

/// The type by which a value of a custom resource is owned.
#[derive(Clone, Copy, Debug)]
pub struct CustomType<'a>(TypeSource<'a>);

#[derive(Clone, Copy, Debug)]
enum TypeSource<'a> {
    Schema(&'a SchemaNode),
    /// There is no schema, but the value is a resource: its metadata is known.
    Resource,
    /// Nothing is known: an object is owned member by member, anything else as a whole.
    Unknown,
    /// Nothing is known, and everything is owned as a whole: items of a list.
    Whole,
}

/// What values a schema allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum ValueForm {
    #[default]
    Any,
    Object,
    List,
    Scalar(Type),
}

impl ValueForm {
    fn of(schema: &Value) -> Self {
        let has_format = schema["format"]
            .as_str()
            .is_some_and(|format| !["", "byte"].contains(&format));
        match schema["type"].as_str().unwrap_or_default() {
            "object" => Self::Object,
            "array" => Self::List,
            "integer" | "number" => Self::Scalar(Type::Int64),
            "boolean" => Self::Scalar(Type::Flag),
            // The original checks no such string further: a format such as `int-or-string` allows numbers.
            "string" if has_format => Self::Scalar(ANY_SCALAR),
            "string" => Self::Scalar(Type::Text),
            _ => Self::Any,
        }
    }
}

/// The type of a table to which any scalar fits.
const ANY_SCALAR: Type = Type::IntOrString;

/// How the parts of a list are owned.
#[derive(Debug, Default)]
enum ListParts {
    /// There are none.
    #[default]
    Whole,
    /// Each item is its own key.
    Items,
    /// By these of their members.
    Keys(Box<[Box<str>]>),
}

/// What a schema says about owners.
#[derive(Debug, Default)]
pub(super) struct OwnedParts {
    form: ValueForm,
    list: ListParts,
    /// Whether an object is owned as a whole.
    is_atomic: bool,
    /// Whether an object may have members that its schema does not know, since it or one around it keeps them.
    pub(super) is_open: bool,
}

impl OwnedParts {
    /// Costs time linear in the number of keys.
    pub(super) fn of(schema: &Value, is_open: bool) -> Self {
        let keys = || {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            keys.map(Box::from).collect()
        };
        Self {
            form: ValueForm::of(schema),
            list: match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListParts::Items,
                Some("map") => ListParts::Keys(keys()),
                _ => ListParts::Whole,
            },
            is_atomic: schema["x-kubernetes-map-type"] == "atomic",
            is_open,
        }
    }
}

/// The parts of a value that have owners of their own.
#[derive(Clone, Copy)]
pub(crate) enum CustomParts<'a> {
    /// None.
    Whole,
    /// Its members.
    Members,
    /// Its items.
    Items(CustomList<'a>),
}

/// A list whose items are owned one by one.
#[derive(Clone, Copy)]
pub(crate) struct CustomList<'a> {
    /// The type of each.
    pub(crate) item: CustomType<'a>,
    /// The members by which they are told apart; none if each is its own key.
    pub(crate) keys: &'a [Box<str>],
}

/// What a member of an object is.
#[derive(Clone, Copy)]
pub(crate) enum CustomMember<'a> {
    /// The schema names it.
    Declared(MemberType<'a>),
    /// The schema allows members of this type, of any name.
    Other(CustomType<'a>),
}

/// The type of a member that the schema names.
#[derive(Clone, Copy)]
pub(crate) enum MemberType<'a> {
    Custom(CustomType<'a>),
    /// As in all kinds: `apiVersion`, `kind` and `metadata`.
    Table(Type),
}

/// What becomes of paths into a value that were stored by another schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredPaths {
    /// They stay as they are.
    Stay,
    /// They are shortened to the value, which is owned as a whole.
    Shortened,
    /// It depends on where they lead.
    Followed,
}

impl CustomSchema {
    /// The type of the objects of a version of the same definition; `None` if there is no such version.
    pub fn object_type(&self, version: &str) -> Option<CustomType<'_>> {
        let definition = &*self.definition;
        let mut versions = definition.versions.iter();
        let version = versions.find(|one| *one.name == *version)?;
        Some(CustomType(if definition.keeps_all {
            TypeSource::Resource
        } else if version.has_schema {
            TypeSource::Schema(&version.root)
        } else {
            TypeSource::Unknown
        }))
    }
}

impl<'a> CustomType<'a> {
    /// The type of resources without a definition.
    pub const RESOURCE: CustomType<'static> = CustomType(TypeSource::Resource);

    const UNKNOWN: Self = Self(TypeSource::Unknown);

    /// How this value of the type is owned.
    pub(crate) fn parts(self, value: Option<&Value>) -> CustomParts<'a> {
        let is_scalar = value.is_some_and(|value| {
            matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
        });
        match self.0 {
            TypeSource::Whole => CustomParts::Whole,
            TypeSource::Unknown if is_scalar || value.is_some_and(Value::is_array) => {
                CustomParts::Whole
            }
            TypeSource::Resource | TypeSource::Unknown => CustomParts::Members,
            TypeSource::Schema(node) => match node.parts.form {
                ValueForm::Scalar(_) => CustomParts::Whole,
                ValueForm::List => node.list_parts(),
                ValueForm::Any if value.is_some_and(Value::is_array) => node.list_parts(),
                ValueForm::Any if is_scalar => CustomParts::Whole,
                _ if node.parts.is_atomic => CustomParts::Whole,
                _ => CustomParts::Members,
            },
        }
    }

    /// A member of an object of the type; `None` if there may be none of this name.
    pub(crate) fn member(self, name: &str) -> Option<CustomMember<'a>> {
        let (is_resource, node) = match self.0 {
            TypeSource::Schema(node) => (node.is_resource, Some(node)),
            TypeSource::Resource => (true, None),
            TypeSource::Unknown => (false, None),
            TypeSource::Whole => return None,
        };
        if is_resource && RESOURCE_MEMBERS.contains(&name) {
            let ty = match name {
                "metadata" => Type::Object(&OBJECT_META),
                _ => Type::Text,
            };
            return Some(CustomMember::Declared(MemberType::Table(ty)));
        }
        let Some(node) = node else {
            return Some(CustomMember::Other(Self::UNKNOWN));
        };
        if let Some(member) = node.members.get(name) {
            let ty = Self(TypeSource::Schema(member));
            return Some(CustomMember::Declared(MemberType::Custom(ty)));
        }
        let other = match &node.others {
            OtherMembers::Of(schema) => Self(TypeSource::Schema(schema)),
            OtherMembers::Any => Self::UNKNOWN,
            OtherMembers::Unknown if node.is_open() => Self::UNKNOWN,
            OtherMembers::Unknown => return None,
        };
        Some(CustomMember::Other(other))
    }

    /// The type of the items of a list of the type.
    pub(crate) fn item(self) -> Self {
        match self.0 {
            TypeSource::Schema(node) => node.item(),
            _ => Self(TypeSource::Whole),
        }
    }

    /// The default of a member of an object of the type.
    pub(crate) fn default_of(self, name: &str) -> Option<&'a SchemaDefault> {
        let TypeSource::Schema(node) = self.0 else {
            return None;
        };
        node.members.get(name)?.default.as_ref()
    }

    /// The type of a table to which a value of this type has to fit; `None` if the type allows lists or objects.
    pub(crate) fn scalar(self) -> Option<Type> {
        match self.0 {
            TypeSource::Schema(node) => match node.parts.form {
                ValueForm::Scalar(ty) => Some(ty),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether every value fits to the type, whatever is in it.
    pub(crate) fn allows_all(self) -> bool {
        matches!(self.0, TypeSource::Unknown | TypeSource::Whole)
    }

    /// Whether an object (else a list) may be of the type.
    pub(crate) fn allows(self, is_object: bool) -> bool {
        match self.0 {
            TypeSource::Schema(node) => match node.parts.form {
                ValueForm::Any => true,
                ValueForm::Object => is_object,
                ValueForm::List => !is_object,
                ValueForm::Scalar(_) => false,
            },
            TypeSource::Resource => is_object,
            TypeSource::Unknown | TypeSource::Whole => true,
        }
    }

    /// Whether a value that is neither an object nor a list may be of the type, if that is not that of a table.
    pub(crate) fn allows_scalars(self) -> bool {
        match self.0 {
            TypeSource::Schema(node) => matches!(node.parts.form, ValueForm::Any),
            TypeSource::Resource => false,
            TypeSource::Unknown | TypeSource::Whole => true,
        }
    }

    /// What becomes of stored paths into a value of the type.
    pub(crate) fn stored_paths(self) -> StoredPaths {
        match self.0 {
            TypeSource::Unknown => StoredPaths::Stay,
            TypeSource::Whole => StoredPaths::Shortened,
            TypeSource::Resource => StoredPaths::Followed,
            TypeSource::Schema(node) => match (node.parts.form, &node.parts.list) {
                // Nothing is below a scalar that could have become a part of it.
                (ValueForm::Scalar(_), _) => StoredPaths::Stay,
                (ValueForm::List, ListParts::Whole) => StoredPaths::Shortened,
                (ValueForm::List, _) => StoredPaths::Followed,
                _ if node.has_untyped_members() => StoredPaths::Stay,
                _ if node.parts.is_atomic => StoredPaths::Shortened,
                _ => StoredPaths::Followed,
            },
        }
    }
}

impl SchemaNode {
    /// Whether an object may have members that the schema does not know. If it knows none, all may be there.
    fn is_open(&self) -> bool {
        self.parts.is_open || self.members.is_empty() && !self.is_resource
    }

    /// Whether it knows no member of an object by name, and nothing of the others.
    fn has_untyped_members(&self) -> bool {
        let is_untyped = match &self.others {
            OtherMembers::Unknown => self.is_open(),
            OtherMembers::Any => true,
            OtherMembers::Of(schema) => matches!(
                schema.parts.form,
                ValueForm::Any | ValueForm::Scalar(Type::IntOrString)
            ),
        };
        is_untyped && self.members.is_empty() && !self.is_resource
    }

    fn item(&self) -> CustomType<'_> {
        let items = self.items.as_deref().map(TypeSource::Schema);
        CustomType(items.unwrap_or(TypeSource::Whole))
    }

    fn list_parts(&self) -> CustomParts<'_> {
        let keys: &[Box<str>] = match &self.parts.list {
            ListParts::Whole => return CustomParts::Whole,
            ListParts::Items => &[],
            ListParts::Keys(keys) => keys,
        };
        let item = self.item();
        CustomParts::Items(CustomList { item, keys })
    }
}
