//! The type checker: what is wrong with the expressions of a policy if the objects have the types that their kinds
//! declare.
//!
//! Expressions are evaluated without types, so this finds mistakes that compiling does not. It changes nothing but the
//! status of the policy.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/validating/typechecking.go` and
//! `apiserver/pkg/cel/common/schemas.go`.

use std::{collections::BTreeSet, sync::Arc};

use fairgate_cel::{CelCompileError, CelEnvironment, CelObjectType, CelType, PatternBudget};
use serde_json::{Value, json};

use crate::declared_type::{CheckedKind, DeclaredType};
use crate::environment::{self, RESERVED, TypedValues};
use crate::pattern_limits;
use fairgate_objects::{
    kind::Kind,
    schema::{Struct, Type},
};

/// Kinds of one rule that are checked at most.
const MAX_KINDS: usize = 10;
/// How many resources of a policy are looked up at most: a rule is about all combinations of its groups, versions and names.
const MAX_LOOKUPS: usize = 10_000;

/// The fields of the objects of a kind.
#[derive(Clone, Debug)]
pub enum KindSchema {
    /// A table of a built-in kind.
    Table(&'static Struct),
    /// What the server declares in its `OpenAPI` documents.
    Declared(Arc<DeclaredType>),
}

/// The kinds that a server has.
pub trait PolicyKinds: Send + Sync {
    /// The kinds of a resource, whose name may be in the plural or singular, and in any case. An empty group counts as any.
    ///
    /// Source: Kubernetes `apimachinery/pkg/api/meta/restmapper.go`, `KindsFor`.
    fn named(&self, group: &str, version: &str, resource: &str) -> Vec<CheckedKind>;

    /// The fields of a kind; `None` if the server tells none, so that nothing is checked against it.
    fn schema(&self, kind: &CheckedKind) -> Option<KindSchema>;
}

/// The kinds in these tables.
impl PolicyKinds for Vec<&'static Kind> {
    fn named(&self, group: &str, version: &str, resource: &str) -> Vec<CheckedKind> {
        let resource = resource.to_lowercase();
        let named = self.iter().filter(|kind| {
            (group.is_empty() || kind.group == group)
                && (kind.plural == resource || kind.singular == resource)
        });
        let in_version = named.filter(|kind| kind.version(version).is_some());
        in_version
            .map(|kind| CheckedKind {
                group: kind.group.to_owned(),
                version: version.to_owned(),
                kind: kind.kind.to_owned(),
            })
            .collect()
    }

    fn schema(&self, kind: &CheckedKind) -> Option<KindSchema> {
        let mut named = self
            .iter()
            .filter(|one| one.group == kind.group && one.kind == kind.kind);
        let version = named.find_map(|one| one.version(&kind.version))?;
        Some(KindSchema::Table(version.shape))
    }
}

/// The `status.typeChecking.expressionWarnings` of a policy: for each validation and messageExpression with errors its
/// field and the errors, by kind.
///
/// Rules with wildcards and subresources are not checked, nor are kinds that `kinds` does not have. It costs about a millisecond for each
/// kind.
pub fn expression_warnings(policy: &Value, kinds: &dyn PolicyKinds) -> Vec<Value> {
    let mut expressions = Vec::new();
    for (index, validation) in items(&policy["spec"]["validations"]).enumerate() {
        for member in ["expression", "messageExpression"] {
            let expression = text(&validation[member]);
            if !expression.is_empty() || member == "expression" {
                let field = format!("spec.validations[{index}].{member}");
                expressions.push((field, expression));
            }
        }
    }
    warnings_of(policy, kinds, expressions)
}

/// The same of the expressions that a server does not check: variables, match conditions and audit annotations.
pub fn further_expression_warnings(policy: &Value, kinds: &dyn PolicyKinds) -> Vec<Value> {
    let mut expressions = Vec::new();
    for (list, member) in [
        ("variables", "expression"),
        ("matchConditions", "expression"),
        ("auditAnnotations", "valueExpression"),
    ] {
        for (index, one) in items(&policy["spec"][list]).enumerate() {
            let field = format!("spec.{list}[{index}].{member}");
            expressions.push((field, text(&one[member])));
        }
    }
    warnings_of(policy, kinds, expressions)
}

/// What is wrong with the types of expressions, which are given with their fields.
fn warnings_of(
    policy: &Value,
    kinds: &dyn PolicyKinds,
    expressions: Vec<(String, &str)>,
) -> Vec<Value> {
    let spec = &policy["spec"];
    let params = ParamsType::of(spec, kinds);
    let environments: Vec<(String, CelEnvironment)> = object_kinds(policy, kinds)
        .iter()
        .filter_map(|kind| {
            let title = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
            let object = kinds.schema(kind)?;
            let object = (kind.kind.as_str(), object);
            Some((title, environment(&object, &params, &spec["variables"])))
        })
        .collect();
    let mut warnings = Vec::new();
    let mut patterns = PatternBudget::new(pattern_limits::OF_POLICY);
    for (field, expression) in expressions {
        let found: Vec<String> = environments
            .iter()
            .filter_map(|(title, environment)| {
                match environment.compile_within(expression, &mut patterns) {
                    Err(CelCompileError::Issues(issues)) => Some(format!("{title}: {issues}\n")),
                    // The type checker stops before there is a program.
                    Ok(_) | Err(CelCompileError::Program(_)) => None,
                }
            })
            .collect();
        if !found.is_empty() {
            warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
        }
    }
    warnings
}

/// The kinds of objects that the rules of a policy name, in order.
pub fn object_kinds(policy: &Value, kinds: &dyn PolicyKinds) -> BTreeSet<CheckedKind> {
    let mut found = BTreeSet::new();
    let mut lookups = 0;
    for rule in items(&policy["spec"]["matchConstraints"]["resourceRules"]) {
        let sorted = |member: &str| -> BTreeSet<&str> { items(&rule[member]).map(text).collect() };
        let (groups, versions) = (sorted("apiGroups"), sorted("apiVersions"));
        if groups
            .iter()
            .chain(&versions)
            .any(|name| name.contains('*'))
        {
            continue;
        }
        let mut resources = sorted("resources");
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut count = 0;
        for group in groups {
            for version in &versions {
                for resource in &resources {
                    lookups += 1;
                    if lookups > MAX_LOOKUPS {
                        return found;
                    }
                    for kind in kinds.named(group, version, resource) {
                        found.insert(kind);
                        count += 1;
                        if count == MAX_KINDS {
                            return found;
                        }
                    }
                }
            }
        }
    }
    found
}

/// The kind of the params of a policy; `None` if it has none, or names none.
pub fn params_kind(policy: &Value) -> Option<CheckedKind> {
    let kind = &policy["spec"]["paramKind"];
    let whole = text(&kind["apiVersion"]);
    if kind.is_null() || whole.matches('/').count() > 1 {
        return None;
    }
    let (group, version) = whole.split_once('/').unwrap_or(("", whole));
    Some(CheckedKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&kind["kind"]).to_owned(),
    })
}

/// What a policy says about params.
enum ParamsType {
    /// There are none.
    Absent,
    /// Of a kind that is not known.
    Unknown,
    /// Of this kind.
    Known(String, KindSchema),
}

impl ParamsType {
    fn of(spec: &Value, kinds: &dyn PolicyKinds) -> Self {
        let Some(kind) = params_kind(&json!({"spec": {"paramKind": spec["paramKind"]}})) else {
            return Self::Absent;
        };
        let schema = kinds.schema(&kind);
        schema.map_or(Self::Unknown, |schema| Self::Known(kind.kind, schema))
    }
}

fn environment(
    (kind, object): &(&str, KindSchema),
    params: &ParamsType,
    variables: &Value,
) -> CelEnvironment {
    let mut types = Vec::new();
    let object = object.root_type(&format!("{kind}1"), &mut types);
    let params = match params {
        ParamsType::Absent => None,
        ParamsType::Unknown => Some(CelType::Dyn),
        // The object may be of the same kind. The original gives each type a number of its own.
        ParamsType::Known(kind, schema) => Some(schema.root_type(&format!("{kind}2"), &mut types)),
    };
    let mut environment = environment::typed(TypedValues {
        object,
        params,
        types,
    });
    for variable in items(variables) {
        let compiled = environment.compile(text(&variable["expression"]));
        let of = compiled
            .as_ref()
            .map_or(&CelType::Dyn, |program| program.result_type());
        environment::declare_variable(&mut environment, text(&variable["name"]), of);
    }
    environment
}

impl KindSchema {
    /// The type of the objects, which gets this name. Adds the types of the objects within.
    fn root_type(&self, name: &str, types: &mut Vec<CelObjectType>) -> CelType {
        match self {
            Self::Table(shape) => root_type(name, shape, types),
            Self::Declared(declared) => declared.named(name, types),
        }
    }
}

/// The type of objects of a kind: the fields of its table, and those that say what it is.
fn root_type(name: &str, shape: &'static Struct, types: &mut Vec<CelObjectType>) -> CelType {
    let object = fields(name, shape, types)
        .field("apiVersion", CelType::String)
        .field("kind", CelType::String);
    types.push(object);
    CelType::object(name)
}

fn fields(name: &str, shape: &'static Struct, types: &mut Vec<CelObjectType>) -> CelObjectType {
    let mut object = CelObjectType::new(name);
    for field in shape.fields {
        let Some(of) = value_type(&format!("{name}.{}", field.name), &field.ty, types) else {
            continue;
        };
        if RESERVED.contains(&field.name) {
            object = object.field(&format!("__{}__", field.name), of.clone());
        }
        object = object.field(field.name, of);
    }
    object
}

/// The type of a value, as the `OpenAPI` document declares it; `None` if expressions cannot name it. Adds the types of the
/// objects within.
fn value_type(name: &str, of: &Type, types: &mut Vec<CelObjectType>) -> Option<CelType> {
    Some(match of {
        Type::Text => CelType::String,
        Type::Int32 | Type::Int64 => CelType::Int,
        Type::Flag => CelType::Bool,
        Type::Bytes => CelType::Bytes,
        Type::Time | Type::MicroTime => CelType::Timestamp,
        Type::IntOrString => CelType::Dyn,
        // The document has two types for it, of which the original knows neither.
        Type::Quantity => return None,
        Type::Raw | Type::RawExtension => {
            types.push(CelObjectType::new(name));
            CelType::object(name)
        }
        Type::Object(shape) => {
            let object = fields(name, shape, types);
            types.push(object);
            CelType::object(name)
        }
        Type::List(list) => CelType::list(value_type(&format!("{name}.@idx"), &list.item, types)?),
        Type::Map(map) => {
            let value = value_type(&format!("{name}.@elem"), &map.value, types)?;
            CelType::map(CelType::String, value)
        }
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
