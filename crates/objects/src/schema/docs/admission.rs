//! Texts of `admissionregistration`: policies and their bindings.

use super::TypeTexts;

const PACKAGE: &str = "admissionregistration";

pub(super) static TEXTS: &[TypeTexts] = &[
    (
        PACKAGE,
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicy describes which writes are valid, by expressions in CEL. It takes effect through bindings.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The rules of the policy."),
            ("status", "What the type checker found in its expressions."),
        ],
    ),
    (
        PACKAGE,
        "ValidatingAdmissionPolicySpec",
        "ValidatingAdmissionPolicySpec is the rules of a policy.",
        &[
            (
                "paramKind",
                "The kind of the objects that parameterize the policy. Absent: there are none, and expressions cannot use params.",
            ),
            (
                "matchConstraints",
                "Which writes the policy applies to. Required.",
            ),
            (
                "validations",
                "Expressions that must be true. There must be at least one validation or audit annotation.",
            ),
            (
                "failurePolicy",
                "What happens when an expression cannot be evaluated or the policy is misconfigured: Fail (the default) or Ignore.",
            ),
            (
                "auditAnnotations",
                "Annotations for the audit event of a write. There must be at least one validation or audit annotation.",
            ),
            (
                "matchConditions",
                "Expressions that must all be true for the policy to be evaluated; at most 64.",
            ),
            (
                "variables",
                "Named expressions for use in other expressions. Each sees those before it.",
            ),
        ],
    ),
    (
        PACKAGE,
        "ValidatingAdmissionPolicyStatus",
        "ValidatingAdmissionPolicyStatus is what was observed of a policy.",
        &[
            (
                "observedGeneration",
                "The generation of the policy that the status was computed from.",
            ),
            (
                "typeChecking",
                "The result of the type checker. Present once the policy has been checked.",
            ),
            ("conditions", "Conditions of the policy."),
        ],
    ),
    (
        PACKAGE,
        "TypeChecking",
        "TypeChecking is what the type checker found in the expressions of a policy.",
        &[(
            "expressionWarnings",
            "One entry for each expression with an error.",
        )],
    ),
    (
        PACKAGE,
        "ExpressionWarning",
        "ExpressionWarning is the error that the type checker found in one expression.",
        &[
            ("fieldRef", "The path of the field with the expression."),
            ("warning", "The error, for each kind of object that has it."),
        ],
    ),
    (
        PACKAGE,
        "Validation",
        "Validation is an expression that must be true.",
        &[
            (
                "expression",
                "An expression in CEL of type bool. It sees object, oldObject, request, params, namespaceObject, variables and authorizer.",
            ),
            (
                "message",
                "The message when the expression is false. It must have one line.",
            ),
            (
                "reason",
                "The reason in the response that refuses the write: Forbidden, Invalid (the default) or RequestEntityTooLarge.",
            ),
            (
                "messageExpression",
                "An expression in CEL of type string that makes the message. If it fails or is blank, message is used.",
            ),
        ],
    ),
    (
        PACKAGE,
        "AuditAnnotation",
        "AuditAnnotation is an annotation of the audit event of a write.",
        &[
            (
                "key",
                "The key; that of the annotation is the name of the policy, a slash and this.",
            ),
            (
                "valueExpression",
                "An expression in CEL of type string or null that makes the value. Without value there is no annotation.",
            ),
        ],
    ),
    (
        PACKAGE,
        "MatchCondition",
        "MatchCondition is an expression that must be true for a policy to be evaluated.",
        &[
            ("name", "The name of the condition, unique in its list."),
            (
                "expression",
                "An expression in CEL of type bool. It sees object, oldObject, request, params and authorizer.",
            ),
        ],
    ),
    (
        PACKAGE,
        "Variable",
        "Variable is a named expression.",
        &[
            (
                "name",
                "The name, an identifier of CEL that is unique in its list; used as variables.name.",
            ),
            (
                "expression",
                "An expression in CEL. It is evaluated when the variable is first used.",
            ),
        ],
    ),
    (
        PACKAGE,
        "ParamKind",
        "ParamKind is a kind of objects that parameterize policies.",
        &[
            ("apiVersion", "Group and version, such as v1 or apps/v1."),
            ("kind", "The kind, such as ConfigMap."),
        ],
    ),
    (
        PACKAGE,
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicyBinding puts a policy in force: for which writes, with which params, and what happens to invalid ones.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The desired behavior of the binding."),
        ],
    ),
    (
        PACKAGE,
        "ValidatingAdmissionPolicyBindingSpec",
        "ValidatingAdmissionPolicyBindingSpec is the desired behavior of a binding.",
        &[
            (
                "policyName",
                "The name of the policy. While there is none, the binding has no effect. Required.",
            ),
            (
                "paramRef",
                "Which objects parameterize the policy. Absent: params is null.",
            ),
            (
                "matchResources",
                "To which of the policy's writes the binding applies. Absent: to all.",
            ),
            (
                "validationActions",
                "What happens when a validation fails: Deny, Warn and Audit; not Deny and Warn together. Required.",
            ),
        ],
    ),
    (
        PACKAGE,
        "ParamRef",
        "ParamRef says which objects parameterize a policy, by name or by labels.",
        &[
            ("name", "The name of the object. Excludes selector."),
            (
                "namespace",
                "The namespace of the objects. Empty: that of the written object. Only for kinds with namespaces.",
            ),
            (
                "selector",
                "Selects the objects by their labels. The policy is evaluated once with each. Excludes name.",
            ),
            (
                "parameterNotFoundAction",
                "What happens when there is no such object: Allow (the policy is not evaluated) or Deny (the failure policy applies). Required.",
            ),
        ],
    ),
    (
        PACKAGE,
        "MatchResources",
        "MatchResources says to which writes a policy or a binding applies.",
        &[
            (
                "namespaceSelector",
                "Selects writes by the labels of their namespace. Writes to objects without namespace are selected always.",
            ),
            (
                "objectSelector",
                "Selects writes by the labels of the object before or after it.",
            ),
            ("resourceRules", "Rules of which at least one must match."),
            ("excludeResourceRules", "Rules of which none may match."),
            (
                "matchPolicy",
                "Whether writes through other versions of a resource match, too: Equivalent (the default) or Exact.",
            ),
        ],
    ),
    (
        PACKAGE,
        "NamedRuleWithOperations",
        "NamedRuleWithOperations matches operations on resources, and optionally on certain names.",
        &[
            ("resourceNames", "Names of objects. Empty: all."),
            ("operations", OPERATIONS),
            ("apiGroups", GROUPS),
            ("apiVersions", VERSIONS),
            ("resources", RESOURCES),
            ("scope", SCOPE),
        ],
    ),
    (
        PACKAGE,
        "RuleWithOperations",
        "RuleWithOperations matches operations on resources.",
        &[
            ("operations", OPERATIONS),
            ("apiGroups", GROUPS),
            ("apiVersions", VERSIONS),
            ("resources", RESOURCES),
            ("scope", SCOPE),
        ],
    ),
    (
        PACKAGE,
        "Rule",
        "Rule matches resources.",
        &[
            ("apiGroups", GROUPS),
            ("apiVersions", VERSIONS),
            ("resources", RESOURCES),
            ("scope", SCOPE),
        ],
    ),
];

const OPERATIONS: &str = "CREATE, UPDATE, DELETE and CONNECT, or * alone for all. Required.";
const GROUPS: &str = "API groups, or * alone for all. The empty one is the core group. Required.";
const VERSIONS: &str = "API versions, or * alone for all. Required.";
const RESOURCES: &str = "Resources and subresources, such as pods, pods/status, pods/*, */scale; * for all resources, */* for all subresources, too. Required.";
const SCOPE: &str = "Namespaced, Cluster, or * (the default) for both.";
