//! The types of objects as a server declares them in its `OpenAPI` documents, for checking the types of expressions.
//!
//! Documents come from the upstream, which anybody may extend who may define resources. So what is made of them is bounded: a type that
//! refers to others is as large as all of these together.
//!
//! Source: Kubernetes `apiserver/pkg/cel/common/schemas.go`, `apiserver/pkg/cel/escaping.go` and
//! `apiserver/pkg/cel/openapi/resolver/refs.go`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use fairgate_cel::{CelObjectType, CelType};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::environment::RESERVED;

/// How many fields, elements and values a kind may have.
const MAX_TYPES: usize = 50_000;
/// How many bytes the names of all its types may have together. The name of each begins with those of the types around it, so that a long
/// name of a field counts once for each type within.
const MAX_NAMES: usize = 16 << 20;
/// How deep types may be nested.
const MAX_DEPTH: usize = 100;
/// What references begin with.
const COMPONENTS: &str = "#/components/schemas/";

/// A kind in a version, against whose type expressions are checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckedKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A type as a server declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the language")]
pub enum DeclaredType {
    /// Of any type.
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Box<DeclaredType>),
    /// By names.
    Map(Box<DeclaredType>),
    /// With these fields, which are escaped as expressions name them.
    Object(Vec<(Box<str>, DeclaredType)>),
}

impl DeclaredType {
    /// The number of types within, itself included.
    pub fn size(&self) -> usize {
        1 + match self {
            Self::List(of) | Self::Map(of) => of.size(),
            Self::Object(fields) => fields.iter().map(|(_, of)| of.size()).sum(),
            _ => 0,
        }
    }

    /// The type with this name. Adds the types of objects within, whose names begin with it.
    pub(crate) fn named(&self, name: &str, types: &mut Vec<CelObjectType>) -> CelType {
        match self {
            Self::Dyn => CelType::Dyn,
            Self::Bool => CelType::Bool,
            Self::Int => CelType::Int,
            Self::Double => CelType::Double,
            Self::String => CelType::String,
            Self::Bytes => CelType::Bytes,
            Self::Timestamp => CelType::Timestamp,
            Self::Duration => CelType::Duration,
            Self::List(item) => CelType::list(item.named(&format!("{name}.@idx"), types)),
            Self::Map(value) => {
                let value = value.named(&format!("{name}.@elem"), types);
                CelType::map(CelType::String, value)
            }
            Self::Object(fields) => {
                let mut object = CelObjectType::new(name);
                for (field, of) in fields {
                    let of = of.named(&format!("{name}.{field}"), types);
                    if let Some(word) = reserved(field) {
                        object = object.field(word, of.clone());
                    }
                    object = object.field(field, of);
                }
                types.push(object);
                CelType::object(name)
            }
        }
    }
}

/// The reserved word of which this is the escaped form.
fn reserved(field: &str) -> Option<&str> {
    let word = field.strip_prefix("__")?.strip_suffix("__")?;
    RESERVED.contains(&word).then_some(word)
}

/// Why no type can be made of a schema.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredTypeError {
    /// The document is no `OpenAPI` document.
    #[error("the OpenAPI document is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The document lacks a schema that another one refers to. Nothing is checked against such a kind, as in the original.
    #[error("the OpenAPI document has no schema {0:?}")]
    Absent(String),
    /// It is larger than what is checked.
    #[error(
        "the schema has more than {MAX_TYPES} fields, is nested more than {MAX_DEPTH} levels deep, or has names that are too long"
    )]
    TooLarge,
}

/// An `OpenAPI` document of version 3 about the kinds of a group in one version. Its schemas are parsed only when they are needed.
#[derive(Debug)]
pub struct OpenApiDocument<'d> {
    schemas: BTreeMap<Cow<'d, str>, &'d RawValue>,
    /// The schema of each kind.
    kinds: HashMap<CheckedKind, Cow<'d, str>>,
}

#[derive(Deserialize)]
struct Document<'d> {
    #[serde(borrow, default)]
    components: Components<'d>,
}

#[derive(Deserialize, Default)]
struct Components<'d> {
    #[serde(borrow, default)]
    schemas: BTreeMap<Cow<'d, str>, &'d RawValue>,
}

#[derive(Deserialize)]
struct SchemaKinds {
    #[serde(rename = "x-kubernetes-group-version-kind", default)]
    kinds: Vec<SchemaKind>,
}

#[derive(Deserialize)]
struct SchemaKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

impl<'d> OpenApiDocument<'d> {
    /// Finds the schemas in a document.
    ///
    /// # Errors
    ///
    /// [`DeclaredTypeError::Malformed`].
    pub fn parse(document: &'d [u8]) -> Result<Self, DeclaredTypeError> {
        let document: Document<'d> = serde_json::from_slice(document)?;
        let schemas = document.components.schemas;
        let mut kinds = HashMap::new();
        for (name, schema) in &schemas {
            // One that is malformed keeps nobody from the others: its kinds are as if they were not served.
            let Ok(of) = serde_json::from_str::<SchemaKinds>(schema.get()) else {
                continue;
            };
            for SchemaKind {
                group,
                version,
                kind,
            } in of.kinds
            {
                let kind = CheckedKind {
                    group,
                    version,
                    kind,
                };
                kinds.insert(kind, name.clone());
            }
        }
        Ok(Self { schemas, kinds })
    }

    /// The type of the objects of a kind; `None` if the document does not have it.
    ///
    /// # Errors
    ///
    /// [`DeclaredTypeError`].
    pub fn declared(&self, kind: &CheckedKind) -> Result<Option<DeclaredType>, DeclaredTypeError> {
        let Some(name) = self.kinds.get(kind) else {
            return Ok(None);
        };
        let mut builder = TypeBuilder {
            schemas: &self.schemas,
            parsed: HashMap::new(),
            // The original does not count the kind itself, as it is not named by a reference.
            visited: Vec::new(),
            left: MAX_TYPES,
            path: 0,
            names_left: MAX_NAMES,
        };
        let schema = builder.component(name)?;
        let declared = builder.declared(&schema, true, 0)?;
        Ok(Some(declared.unwrap_or(DeclaredType::Dyn)))
    }
}

/// Makes types of the schemas of one document.
struct TypeBuilder<'d, 'a> {
    schemas: &'a BTreeMap<Cow<'d, str>, &'d RawValue>,
    parsed: HashMap<String, Rc<Value>>,
    /// The schemas that are referred to on the way.
    visited: Vec<String>,
    /// How many types there may be more.
    left: usize,
    /// The length of the name of the present type.
    path: usize,
    /// How many bytes the names of further types may have.
    names_left: usize,
}

impl TypeBuilder<'_, '_> {
    fn component(&mut self, name: &str) -> Result<Rc<Value>, DeclaredTypeError> {
        if let Some(parsed) = self.parsed.get(name) {
            return Ok(parsed.clone());
        }
        let absent = || DeclaredTypeError::Absent(name.to_owned());
        let schema = self.schemas.get(name).ok_or_else(absent)?;
        let parsed = Rc::new(serde_json::from_str::<Value>(schema.get())?);
        self.parsed.insert(name.to_owned(), parsed.clone());
        Ok(parsed)
    }

    /// The type of a part of an object; `None` if expressions cannot name it.
    fn within(
        &mut self,
        schema: &Value,
        depth: usize,
    ) -> Result<Option<DeclaredType>, DeclaredTypeError> {
        let Some(name) = reference(schema) else {
            return self.declared(schema, is(schema, "x-kubernetes-embedded-resource"), depth);
        };
        let name = name.strip_prefix(COMPONENTS).unwrap_or(name);
        if self.visited.iter().any(|visited| visited == name) {
            return Ok(Some(DeclaredType::Object(Vec::new())));
        }
        let schema = self.component(name)?;
        self.visited.push(name.to_owned());
        let is_resource = is(&schema, "x-kubernetes-embedded-resource");
        let declared = self.declared(&schema, is_resource, depth);
        self.visited.pop();
        declared
    }

    fn declared(
        &mut self,
        schema: &Value,
        is_resource: bool,
        depth: usize,
    ) -> Result<Option<DeclaredType>, DeclaredTypeError> {
        if depth > MAX_DEPTH || self.left == 0 {
            return Err(DeclaredTypeError::TooLarge);
        }
        self.left -= 1;
        let names_left = self.names_left.checked_sub(self.path);
        self.names_left = names_left.ok_or(DeclaredTypeError::TooLarge)?;
        if schema["format"] == "int-or-string" || is(schema, "x-kubernetes-int-or-string") {
            return Ok(Some(DeclaredType::Dyn));
        }
        Ok(match first_type(schema) {
            "array" if schema["items"].is_object() => {
                let item = self.within(&schema["items"], depth + 1)?;
                item.map(|item| DeclaredType::List(Box::new(item)))
            }
            "object" if schema["additionalProperties"].is_object() => {
                let value = self.within(&schema["additionalProperties"], depth + 1)?;
                value.map(|value| DeclaredType::Map(Box::new(value)))
            }
            "object" => Some(self.object(schema, is_resource, depth)?),
            "string" => Some(match schema["format"].as_str() {
                Some("byte") => DeclaredType::Bytes,
                Some("duration") => DeclaredType::Duration,
                Some("date" | "date-time") => DeclaredType::Timestamp,
                _ => DeclaredType::String,
            }),
            "boolean" => Some(DeclaredType::Bool),
            "number" => Some(DeclaredType::Double),
            "integer" => Some(DeclaredType::Int),
            _ => None,
        })
    }

    fn object(
        &mut self,
        schema: &Value,
        is_resource: bool,
        depth: usize,
    ) -> Result<DeclaredType, DeclaredTypeError> {
        const OF_RESOURCES: [&str; 3] = ["apiVersion", "kind", "metadata"];
        let mut fields = Vec::new();
        let is_incomplete = is_resource && !self.has_metadata(schema)?;
        if is_incomplete {
            let name = |name: &str| (name.into(), DeclaredType::String);
            let metadata = DeclaredType::Object(vec![name("generateName"), name("name")]);
            fields.extend([
                name("apiVersion"),
                name("kind"),
                ("metadata".into(), metadata),
            ]);
        }
        for (name, of) in schema["properties"].as_object().into_iter().flatten() {
            if is_incomplete && OF_RESOURCES.contains(&name.as_str()) {
                continue;
            }
            let name = escaped(name);
            let longer = name.as_ref().map_or(0, |name| name.len() + 1);
            self.path += longer;
            let of = self.within(of, depth + 1)?;
            self.path -= longer;
            if let (Some(name), Some(of)) = (name, of) {
                fields.push((name.into(), of));
            }
        }
        Ok(DeclaredType::Object(fields))
    }

    /// Whether a schema has what every resource has.
    fn has_metadata(&mut self, schema: &Value) -> Result<bool, DeclaredTypeError> {
        let properties = &schema["properties"];
        if !has_type(&properties["kind"], "string")
            || !has_type(&properties["apiVersion"], "string")
        {
            return Ok(false);
        }
        let metadata = &properties["metadata"];
        let referred = match reference(metadata) {
            Some(name) => {
                let name = name.strip_prefix(COMPONENTS).unwrap_or(name);
                Some(self.component(name)?)
            }
            None => None,
        };
        let metadata = referred.as_deref().unwrap_or(metadata);
        let names = &metadata["properties"];
        Ok(has_type(metadata, "object")
            && has_type(&names["name"], "string")
            && has_type(&names["generateName"], "string"))
    }
}

/// What a schema refers to, if anything. To have a description, too, the reference may be within `allOf`.
fn reference(schema: &Value) -> Option<&str> {
    if let Some(name) = schema["$ref"].as_str() {
        return Some(name);
    }
    let mut within = schema["allOf"].as_array().into_iter().flatten();
    within.find_map(reference)
}

fn is(schema: &Value, extension: &str) -> bool {
    schema[extension] == true
}

fn has_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::Array(names) => names.iter().any(|one| one == name),
        one => one == name,
    }
}

fn first_type(schema: &Value) -> &str {
    let of = &schema["type"];
    let first = of.get(0).unwrap_or(of);
    first.as_str().unwrap_or_default()
}

/// The name of a field as expressions name it; `None` if they cannot.
fn escaped(name: &str) -> Option<String> {
    let first = name.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (text, length) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[length..];
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    fn kind() -> CheckedKind {
        CheckedKind {
            group: "x.io".to_owned(),
            version: "v1".to_owned(),
            kind: "X".to_owned(),
        }
    }

    /// What a document says about the kind whose schema this is, beside others.
    fn declared(schema: &str, others: &str) -> Result<Option<DeclaredType>, DeclaredTypeError> {
        let of =
            r#""x-kubernetes-group-version-kind":[{"group":"x.io","version":"v1","kind":"X"}]"#;
        let document = format!(
            r#"{{"components":{{"schemas":{{"x":{{"type":"object",{of},{schema}}}{others}}}}}}}"#
        );
        OpenApiDocument::parse(document.as_bytes())?.declared(&kind())
    }

    #[test]
    fn schemas_that_double_with_each_reference_are_refused() {
        let two = |name: &str| {
            let of = json!({"$ref": format!("#/components/schemas/{name}")});
            json!({"a": of, "b": of})
        };
        let mut others = String::new();
        for number in 0..90 {
            let schema = json!({"type": "object", "properties": two(&format!("n{}", number + 1))});
            write!(others, r#","n{number}":{schema}"#).unwrap();
        }
        others.push_str(r#","n90":{"type":"string"}"#);
        let found = declared(&format!(r#""properties":{}"#, two("n0")), &others);
        assert!(
            matches!(found, Err(DeclaredTypeError::TooLarge)),
            "{found:?}"
        );
    }

    #[test]
    fn a_long_chain_of_references_is_refused() {
        let of = |name: usize| json!({"a": {"$ref": format!("#/components/schemas/n{name}")}});
        let mut others = String::new();
        for number in 0..200_000 {
            let schema = json!({"type": "object", "properties": of(number + 1)});
            write!(others, r#","n{number}":{schema}"#).unwrap();
        }
        others.push_str(r#","n200000":{"type":"string"}"#);
        let found = declared(&format!(r#""properties":{}"#, of(0)), &others);
        assert!(
            matches!(found, Err(DeclaredTypeError::TooLarge)),
            "{found:?}"
        );
    }

    /// Each type of an object has a name that begins with those around it.
    #[test]
    fn a_long_name_around_many_objects_is_refused() {
        let of = |length: usize| {
            let many = (0..20_000).map(|number| (format!("o{number}"), json!({"type": "object"})));
            let many: serde_json::Map<String, Value> = many.collect();
            let outer = json!({"type": "object", "properties": many});
            let mut properties = serde_json::Map::new();
            properties.insert("a".repeat(length), outer);
            declared(
                &format!(r#""properties":{}"#, Value::Object(properties)),
                "",
            )
        };
        assert!(matches!(of(10), Ok(Some(DeclaredType::Object(_)))));
        let found = of(100_000);
        assert!(
            matches!(found, Err(DeclaredTypeError::TooLarge)),
            "{found:?}"
        );
    }

    #[test]
    fn a_malformed_schema_keeps_nobody_from_others() {
        let malformed = r#","bad":{"x-kubernetes-group-version-kind":[{"group":null}]}"#;
        let found = declared(r#""properties":{"a":{"type":"string"}}"#, malformed);
        assert!(
            matches!(found, Ok(Some(DeclaredType::Object(_)))),
            "{found:?}"
        );
    }

    #[test]
    fn strange_documents_give_no_types() {
        for text in ["", "{\"components\":5}"] {
            assert!(OpenApiDocument::parse(text.as_bytes()).is_err(), "{text}");
        }
        for text in [
            "{}",
            r#"{"components":{}}"#,
            r#"{"components":{"schemas":{"x":{}}}}"#,
            r#"{"components":{"schemas":{"x":5}}}"#,
        ] {
            let document = OpenApiDocument::parse(text.as_bytes()).unwrap();
            assert_eq!(document.declared(&kind()).unwrap(), None, "{text}");
        }
        let deep = "{\"a\":".repeat(200) + "5" + &"}".repeat(200);
        assert!(declared(&format!("\"properties\":{deep}"), "").is_err());
        let odd = r#""properties":{"a":5,"b":null,"c":{"type":5},"d":{"type":[]},"e":{"type":"array","items":5},"f":{"type":"string","format":5}}"#;
        let found = declared(odd, "").unwrap().unwrap();
        let DeclaredType::Object(fields) = found else {
            panic!("{found:?}");
        };
        let names: Vec<&str> = fields.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["apiVersion", "kind", "metadata", "f"]);
    }

    #[test]
    fn the_size_counts_all_types_within() {
        let properties = r#""properties":{"a":{"type":"array","items":{"type":"string"}},"b":{"type":"boolean"}}"#;
        let found = declared(properties, "").unwrap().unwrap();
        // With apiVersion, kind and metadata, which has two fields.
        assert_eq!(found.size(), 9);
    }
}
