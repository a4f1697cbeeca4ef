//! An object in one version, without the fields that no manager owns: `apiVersion`, `kind` and
//! `managedFields`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    compare::{self, Comparison},
    context::ManagedKind,
    path_set::PathSet,
    shape::{self, ObjectType, ValueType},
    validate,
};

/// An object in one version.
#[derive(Clone)]
pub(super) struct VersionedObject<'a> {
    version: String,
    shape: ObjectType<'a>,
    value: Value,
}

impl<'a> VersionedObject<'a> {
    /// The object in a version, or `None` if that is not served. A value that is not an object has
    /// no fields.
    pub(super) fn of(kinds: &'a dyn ManagedKind, object: &Value, version: &str) -> Option<Self> {
        Self::with_entries(kinds, object, version).map(Self::without_entries)
    }

    /// The same, with `managedFields` still in it.
    pub(super) fn with_entries(
        kinds: &'a dyn ManagedKind,
        object: &Value,
        version: &str,
    ) -> Option<Self> {
        let shape = kinds.object_type(version)?;
        let mut value = if !object.is_object() {
            Value::Object(Map::new())
        } else if object["apiVersion"] == version {
            object.clone()
        } else {
            kinds.convert(object, version)?
        };
        if let Value::Object(fields) = &mut value {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        Some(Self {
            version: version.to_owned(),
            shape,
            value,
        })
    }

    /// The same object without `managedFields`.
    pub(super) fn without_entries(mut self) -> Self {
        if let Some(Value::Object(metadata)) = self.value.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        self
    }

    /// The object without any field that a manager set.
    pub(super) fn zero(kinds: &'a dyn ManagedKind, version: &str) -> Option<Self> {
        let shape = kinds.object_type(version)?;
        Some(Self {
            version: version.to_owned(),
            shape,
            value: shape.zero(),
        })
    }

    /// The same object in a version, or `None` if that is not served.
    pub(super) fn to(&self, kinds: &'a dyn ManagedKind, version: &str) -> Option<Cow<'_, Self>> {
        if self.version == version {
            Some(Cow::Borrowed(self))
        } else {
            Self::of(kinds, &self.object(), version).map(Cow::Owned)
        }
    }

    /// Another object of the same version.
    pub(super) fn with(&self, value: Value) -> Self {
        Self {
            version: self.version.clone(),
            shape: self.shape,
            value,
        }
    }

    /// The object with its version and kind.
    pub(super) fn object(&self) -> Value {
        let mut fields = match &self.value {
            Value::Object(fields) => fields.clone(),
            _ => Map::new(),
        };
        fields.insert("apiVersion".to_owned(), self.version.clone().into());
        fields.insert("kind".to_owned(), self.shape.kind().into());
        Value::Object(fields)
    }

    /// The version it is in.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The type of the object.
    pub(super) fn ty(&self) -> ValueType<'a> {
        self.shape.root()
    }

    /// Whether it is a custom resource.
    pub(super) fn is_custom(&self) -> bool {
        matches!(self.shape, ObjectType::Custom { .. })
    }

    /// The object as JSON.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Checks it against its table.
    ///
    /// # Errors
    ///
    /// All errors.
    pub(super) fn validate(
        &self,
        duplicates: validate::DuplicateItems,
    ) -> Result<(), validate::SchemaErrors> {
        validate::validate(self.ty(), &self.value, duplicates)
    }

    /// What changed from this object to another one of the same version.
    pub(super) fn compare(&self, new: &Self) -> Comparison {
        compare::compare(self.ty(), &self.value, &new.value)
    }

    /// A set with all struct fields added that have members below them.
    pub(super) fn with_struct_fields(&self, set: &PathSet) -> PathSet {
        shape::with_struct_fields(set, Some(self.ty()))
    }
}
