//! How Go names the types of a table, for the texts of errors.

use crate::schema::{Struct, Type, TypePackage};

/// The Go name of `ty`, its package being `version` unless it is one of `meta/v1`.
pub(super) fn type_name(ty: &Type, version: &str) -> String {
    match ty {
        Type::Text => "string".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Flag => "bool".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Raw => "v1.FieldsV1".to_owned(),
        Type::RawExtension => "runtime.RawExtension".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::Object(shape) => struct_name(shape, version),
        Type::List(list) => format!("[]{}", type_name(&list.item, version)),
        Type::Map(map) => format!("map[string]{}", type_name(&map.value, version)),
    }
}

fn struct_name(shape: &Struct, version: &str) -> String {
    match shape.home {
        TypePackage::GroupVersion => format!("{version}.{}", shape.name),
        TypePackage::Meta => format!("v1.{}", shape.name),
        TypePackage::Api { version, .. } => format!("{version}.{}", shape.name),
    }
}

/// The Go name of the type `ty` of a field, or of what is in it.
pub(super) fn field_name(ty: &Type, owner: &str, field: &str, version: &str) -> String {
    match ty {
        Type::Text => text_name(owner, field, version),
        Type::List(list) if matches!(list.item, Type::Text) => {
            format!("[]{}", text_name(owner, field, version))
        }
        _ => type_name(ty, version),
    }
}

/// Adds a field to a path, after the structs in which it is embedded.
pub(super) fn push_path(mut shape: &Struct, field: &str, path: &mut String) {
    let is_embedded = |shape: &Struct| {
        let known = shape.fields.iter().find(|one| one.name == field);
        known.is_some_and(|known| known.number == 0)
    };
    while is_embedded(shape) {
        let mut parts = shape.inline.iter().map(|part| part.shape);
        let Some(part) = parts.find(|part| part.fields.iter().any(|one| one.name == field)) else {
            break;
        };
        path.push('.');
        path.push_str(part.name);
        shape = part;
    }
    path.push('.');
    path.push_str(field);
}

/// The Go name of a text field: many have a type of their own.
fn text_name(owner: &str, field: &str, version: &str) -> String {
    let name = match (owner, field) {
        (_, "uid") => return "types.UID".to_owned(),
        ("ManagedFieldsEntry", "operation") => return "v1.ManagedFieldsOperationType".to_owned(),
        ("DeleteOptions", "propagationPolicy") => return "v1.DeletionPropagation".to_owned(),
        ("LabelSelectorRequirement", "operator") => return "v1.LabelSelectorOperator".to_owned(),
        ("Condition", "status") => return "v1.ConditionStatus".to_owned(),
        ("Validation", "reason") => return "v1.StatusReason".to_owned(),
        ("ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec", "failurePolicy") => {
            "FailurePolicyType"
        }
        ("MatchResources", "matchPolicy") => "MatchPolicyType",
        ("NamedRuleWithOperations" | "RuleWithOperations", "operations") => "OperationType",
        ("NamedRuleWithOperations" | "RuleWithOperations" | "Rule", "scope") => "ScopeType",
        ("ParamRef", "parameterNotFoundAction") => "ParameterNotFoundActionType",
        ("ValidatingAdmissionPolicyBindingSpec", "validationActions") => "ValidationAction",
        ("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy") => {
            "UnhealthyPodEvictionPolicyType"
        }
        ("FlowDistinguisherMethod", "type") => "FlowDistinguisherMethodType",
        ("Subject", "kind") => "SubjectKind",
        ("LimitResponse", "type") => "LimitResponseType",
        ("PriorityLevelConfigurationSpec", "type") => "PriorityLevelEnablement",
        ("FlowSchemaCondition", "type") => "FlowSchemaConditionType",
        ("PriorityLevelConfigurationCondition", "type") => {
            "PriorityLevelConfigurationConditionType"
        }
        ("FlowSchemaCondition" | "PriorityLevelConfigurationCondition", "status") => {
            "ConditionStatus"
        }
        _ => return "string".to_owned(),
    };
    format!("{version}.{name}")
}
