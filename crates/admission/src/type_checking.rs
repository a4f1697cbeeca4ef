//! The type checker: what is wrong with the expressions of a policy if the objects have the types that their kinds
//! declare.
//!
//! Expressions are evaluated without types, so this finds mistakes that compiling does not. It changes nothing but the
//! status of the policy.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/validating/typechecking.go` and
//! `apiserver/pkg/cel/common/schemas.go`.

use std::collections::BTreeSet;

use fairgate_cel::{CelCompileError, CelEnvironment, CelObjectType, CelType, PatternBudget};
use serde_json::{Value, json};

use crate::environment::{self, RESERVED, TypedValues};
use crate::pattern_limits;
use fairgate_objects::{
    kind::{Kind, KindVersion},
    schema::{Struct, Type},
};

/// Kinds of one rule that are checked at most.
const MAX_KINDS: usize = 10;

/// The `status.typeChecking.expressionWarnings` of a policy: for each validation and messageExpression with errors its
/// field and the errors, by kind.
///
/// `kinds` are those that the server has. Rules with wildcards and subresources are not checked, nor are other kinds.
/// It costs about a millisecond for each kind.
pub fn expression_warnings(policy: &Value, kinds: &[&'static Kind]) -> Vec<Value> {
    let spec = &policy["spec"];
    let params = ParamsType::of(&spec["paramKind"], kinds);
    let environments: Vec<(String, CelEnvironment)> = kinds_to_check(spec, kinds)
        .into_iter()
        .map(|(group, version, kind)| {
            let title = format!("{group}/{version}, Kind={kind}");
            let object = declared(kinds, group, version, kind);
            (title, environment(object, &params, &spec["variables"]))
        })
        .collect();
    let mut warnings = Vec::new();
    let mut patterns = PatternBudget::new(pattern_limits::OF_POLICY);
    for (index, validation) in items(&spec["validations"]).enumerate() {
        for member in ["expression", "messageExpression"] {
            let expression = text(&validation[member]);
            if expression.is_empty() && member == "messageExpression" {
                continue;
            }
            let found: Vec<String> = environments
                .iter()
                .filter_map(|(title, environment)| {
                    match environment.compile_within(expression, &mut patterns) {
                        Err(CelCompileError::Issues(issues)) => {
                            Some(format!("{title}: {issues}\n"))
                        }
                        // The type checker stops before there is a program.
                        Ok(_) | Err(CelCompileError::Program(_)) => None,
                    }
                })
                .collect();
            if !found.is_empty() {
                let field = format!("spec.validations[{index}].{member}");
                warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// Group, version and kind.
type KindName = (&'static str, &'static str, &'static str);

/// The kinds that the rules name, in order.
fn kinds_to_check(spec: &Value, kinds: &[&'static Kind]) -> BTreeSet<KindName> {
    let mut found = BTreeSet::new();
    for rule in items(&spec["matchConstraints"]["resourceRules"]) {
        let sorted = |member: &str| -> BTreeSet<&str> { items(&rule[member]).map(text).collect() };
        let (groups, versions) = (sorted("apiGroups"), sorted("apiVersions"));
        if groups
            .iter()
            .chain(&versions)
            .any(|name| name.contains('*'))
        {
            continue;
        }
        let mut count = 0;
        for group in groups {
            for version in &versions {
                for resource in sorted("resources") {
                    if resource.contains(['*', '/']) {
                        continue;
                    }
                    for name in named(kinds, group, version, resource) {
                        found.insert(name);
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

/// The kinds of a resource. The core group counts as any, as in the original.
fn named<'k>(
    kinds: &'k [&'static Kind],
    group: &'k str,
    version: &'k str,
    resource: &str,
) -> impl Iterator<Item = KindName> + 'k {
    let resource = resource.to_lowercase();
    let named = kinds.iter().filter(move |kind| {
        (group.is_empty() || kind.group == group)
            && (kind.plural == resource || kind.singular == resource)
    });
    named.filter_map(move |kind| Some((kind.group, kind.version(version)?.name, kind.kind)))
}

/// The version of a kind, if the server has it.
fn declared(
    kinds: &[&'static Kind],
    group: &str,
    version: &str,
    kind: &str,
) -> Option<(&'static Kind, &'static KindVersion)> {
    let mut named = kinds
        .iter()
        .filter(|one| one.group == group && one.kind == kind);
    named.find_map(|one| Some((*one, one.version(version)?)))
}

/// What a policy says about params.
enum ParamsType {
    /// There are none.
    Absent,
    /// Of a kind that is not known.
    Unknown,
    /// Of this kind.
    Known(&'static Kind, &'static KindVersion),
}

impl ParamsType {
    fn of(kind: &Value, kinds: &[&'static Kind]) -> Self {
        let whole = text(&kind["apiVersion"]);
        if kind.is_null() || whole.matches('/').count() > 1 {
            return Self::Absent;
        }
        let (group, version) = whole.split_once('/').unwrap_or(("", whole));
        declared(kinds, group, version, text(&kind["kind"]))
            .map_or(Self::Unknown, |(kind, version)| Self::Known(kind, version))
    }
}

fn environment(
    object: Option<(&'static Kind, &'static KindVersion)>,
    params: &ParamsType,
    variables: &Value,
) -> CelEnvironment {
    let mut values = TypedValues {
        object: CelType::Dyn,
        params: None,
        types: Vec::new(),
    };
    if let Some((kind, version)) = object {
        let name = format!("{}1", kind.kind);
        values.object = root_type(&name, version.shape, &mut values.types);
    }
    values.params = match params {
        ParamsType::Absent => None,
        ParamsType::Unknown => Some(CelType::Dyn),
        ParamsType::Known(kind, version) => {
            // The object may be of the same kind. The original gives each type a number of its own.
            let name = format!("{}2", kind.kind);
            Some(root_type(&name, version.shape, &mut values.types))
        }
    };
    let mut environment = environment::typed(values);
    for variable in items(variables) {
        let compiled = environment.compile(text(&variable["expression"]));
        let of = compiled
            .as_ref()
            .map_or(&CelType::Dyn, |program| program.result_type());
        environment::declare_variable(&mut environment, text(&variable["name"]), of);
    }
    environment
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
