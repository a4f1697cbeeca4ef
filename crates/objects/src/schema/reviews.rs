//! The types of the reviews that a client makes of itself.

use super::{
    Field, List, Struct, Type, TypePackage, field,
    meta::{OBJECT_META, TEXTS},
};

const fn object(name: &'static str, doc: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::GroupVersion, doc, fields)
}

const METADATA: Field = field(
    "metadata",
    1,
    Type::Object(&OBJECT_META),
    "Standard metadata; not used.",
)
.always();

/// Whether the user may do something.
pub static SELF_SUBJECT_ACCESS_REVIEW: Struct = object(
    "SelfSubjectAccessReview",
    "SelfSubjectAccessReview asks whether whoever asks may do something.",
    &[
        METADATA,
        field("spec", 2, Type::Object(&ACCESS_SPEC), "What is to be done.")
            .always()
            .required(),
        field(
            "status",
            3,
            Type::Object(&ACCESS_STATUS),
            "Whether it may be done.",
        )
        .always(),
    ],
);

static ACCESS_SPEC: Struct = object(
    "SelfSubjectAccessReviewSpec",
    "SelfSubjectAccessReviewSpec is what is to be done.",
    &[
        field(
            "resourceAttributes",
            1,
            Type::Object(&RESOURCE_ATTRIBUTES),
            "Something with a resource.",
        )
        .pointer(),
        field(
            "nonResourceAttributes",
            2,
            Type::Object(&NON_RESOURCE_ATTRIBUTES),
            "Something with a path.",
        )
        .pointer(),
    ],
);

static RESOURCE_ATTRIBUTES: Struct = object(
    "ResourceAttributes",
    "ResourceAttributes is something to be done with a resource.",
    &[
        field(
            "namespace",
            1,
            Type::Text,
            "The namespace; empty for the cluster.",
        ),
        field("verb", 2, Type::Text, "The verb, or * for all of them."),
        field(
            "group",
            3,
            Type::Text,
            "The API group, or * for all of them.",
        ),
        field(
            "version",
            4,
            Type::Text,
            "The API version, or * for all of them.",
        ),
        field(
            "resource",
            5,
            Type::Text,
            "The resource, or * for all of them.",
        ),
        field(
            "subresource",
            6,
            Type::Text,
            "The subresource; empty for none.",
        ),
        field(
            "name",
            7,
            Type::Text,
            "The object's name; empty for all of them.",
        ),
    ],
);

static NON_RESOURCE_ATTRIBUTES: Struct = object(
    "NonResourceAttributes",
    "NonResourceAttributes is something to be done with a path.",
    &[
        field("path", 1, Type::Text, "The path."),
        field("verb", 2, Type::Text, "The method, in lower case."),
    ],
);

static ACCESS_STATUS: Struct = object(
    "SubjectAccessReviewStatus",
    "SubjectAccessReviewStatus tells whether something may be done.",
    &[
        field("allowed", 1, Type::Flag, "Whether it may be done.")
            .always()
            .required(),
        field(
            "denied",
            4,
            Type::Flag,
            "Whether it was forbidden for good.",
        ),
        field("reason", 2, Type::Text, "Why."),
        field(
            "evaluationError",
            3,
            Type::Text,
            "What could not be found out.",
        ),
    ],
);

/// What the user may do.
pub static SELF_SUBJECT_RULES_REVIEW: Struct = object(
    "SelfSubjectRulesReview",
    "SelfSubjectRulesReview asks what whoever asks may do in a namespace.",
    &[
        METADATA,
        field("spec", 2, Type::Object(&RULES_SPEC), "Where.")
            .always()
            .required(),
        field(
            "status",
            3,
            Type::Object(&RULES_STATUS),
            "What may be done.",
        )
        .always(),
    ],
);

static RULES_SPEC: Struct = object(
    "SelfSubjectRulesReviewSpec",
    "SelfSubjectRulesReviewSpec is where something is to be done.",
    &[field("namespace", 1, Type::Text, "The namespace.")],
);

static RULES_STATUS: Struct = object(
    "SubjectRulesReviewStatus",
    "SubjectRulesReviewStatus is what may be done.",
    &[
        field(
            "resourceRules",
            1,
            Type::List(&RESOURCE_RULES),
            "What may be done with resources.",
        )
        .always()
        .required(),
        field(
            "nonResourceRules",
            2,
            Type::List(&NON_RESOURCE_RULES),
            "What may be done with paths.",
        )
        .always()
        .required(),
        field("incomplete", 3, Type::Flag, "Whether there may be more.")
            .always()
            .required(),
        field(
            "evaluationError",
            4,
            Type::Text,
            "What could not be found out.",
        ),
    ],
);

static RESOURCE_RULES: List = List::atomic(Type::Object(&RESOURCE_RULE));
static NON_RESOURCE_RULES: List = List::atomic(Type::Object(&NON_RESOURCE_RULE));

static RESOURCE_RULE: Struct = object(
    "ResourceRule",
    "ResourceRule is something that may be done with resources.",
    &[
        field("verbs", 1, Type::List(&TEXTS), "Verbs.")
            .always()
            .required(),
        field("apiGroups", 2, Type::List(&TEXTS), "API groups."),
        field("resources", 3, Type::List(&TEXTS), "Resources."),
        field("resourceNames", 4, Type::List(&TEXTS), "Names."),
    ],
);

static NON_RESOURCE_RULE: Struct = object(
    "NonResourceRule",
    "NonResourceRule is something that may be done with paths.",
    &[
        field("verbs", 1, Type::List(&TEXTS), "Methods, in lower case.")
            .always()
            .required(),
        field("nonResourceURLs", 2, Type::List(&TEXTS), "Paths."),
    ],
);

/// Who the user is.
pub static SELF_SUBJECT_REVIEW: Struct = object(
    "SelfSubjectReview",
    "SelfSubjectReview asks who it is that asks.",
    &[
        METADATA,
        field("status", 2, Type::Object(&SELF_STATUS), "Who it is.").always(),
    ],
);

static SELF_STATUS: Struct = object(
    "SelfSubjectReviewStatus",
    "SelfSubjectReviewStatus is who asks.",
    &[field("userInfo", 1, Type::Object(&USER_INFO), "The user.").always()],
);

static USER_INFO: Struct = object(
    "UserInfo",
    "UserInfo is what is known of a user.",
    &[
        field("username", 1, Type::Text, "The name."),
        field(
            "uid",
            2,
            Type::Text,
            "What tells this user from others of the name.",
        ),
        field("groups", 3, Type::List(&TEXTS), "The groups."),
        field(
            "extra",
            4,
            Type::Map(&EXTRA),
            "What else was told of the user.",
        ),
    ],
);

static EXTRA: Type = Type::List(&TEXTS);
