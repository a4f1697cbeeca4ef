//! Texts of `authentication.k8s.io` and `authorization.k8s.io`: reviews of the requesting user.

use super::TypeTexts;

pub(super) static TEXTS: &[TypeTexts] = &[
    (
        "authentication",
        "SelfSubjectReview",
        "SelfSubjectReview requests the attributes of the requesting user.",
        &[
            ("metadata", "Standard metadata; not used."),
            ("status", "Who it is."),
        ],
    ),
    (
        "authentication",
        "SelfSubjectReviewStatus",
        "SelfSubjectReviewStatus has the attributes of the requesting user.",
        &[("userInfo", "The user.")],
    ),
    (
        "authentication",
        "UserInfo",
        "UserInfo is what is known of a user.",
        &[
            ("username", "The name."),
            (
                "uid",
                "Distinguishes this user from others with the same name.",
            ),
            ("groups", "The groups."),
            ("extra", "Additional information about the user."),
        ],
    ),
    (
        "authorization",
        "SelfSubjectAccessReview",
        "SelfSubjectAccessReview requests whether the requesting user may do something.",
        &[
            ("metadata", "Standard metadata; not used."),
            ("spec", "What is to be done."),
            ("status", "Whether it may be done."),
        ],
    ),
    (
        "authorization",
        "SelfSubjectAccessReviewSpec",
        "SelfSubjectAccessReviewSpec is what is to be done.",
        &[
            ("resourceAttributes", "Something with a resource."),
            ("nonResourceAttributes", "Something with a path."),
        ],
    ),
    (
        "authorization",
        "ResourceAttributes",
        "ResourceAttributes is something to be done with a resource.",
        &[
            ("namespace", "The namespace; empty for the cluster."),
            ("verb", "The verb, or * for all of them."),
            ("group", "The API group, or * for all of them."),
            ("version", "The API version, or * for all of them."),
            ("resource", "The resource, or * for all of them."),
            ("subresource", "The subresource; empty for none."),
            ("name", "The object's name; empty for all of them."),
            (
                "fieldSelector",
                "Which objects, by their fields; empty for all of them.",
            ),
            (
                "labelSelector",
                "Which objects, by their labels; empty for all of them.",
            ),
        ],
    ),
    (
        "authorization",
        "NonResourceAttributes",
        "NonResourceAttributes is something to be done with a path.",
        &[
            ("path", "The path."),
            ("verb", "The method, in lower case."),
        ],
    ),
    (
        "authorization",
        "SubjectAccessReviewStatus",
        "SubjectAccessReviewStatus says whether the request is allowed.",
        &[
            ("allowed", "Whether it may be done."),
            ("denied", "Whether it was forbidden for good."),
            ("reason", "Why."),
            ("evaluationError", "What could not be found out."),
        ],
    ),
    (
        "authorization",
        "SelfSubjectRulesReview",
        "SelfSubjectRulesReview requests what the requesting user may do in a namespace.",
        &[
            ("metadata", "Standard metadata; not used."),
            ("spec", "Where."),
            ("status", "What may be done."),
        ],
    ),
    (
        "authorization",
        "SelfSubjectRulesReviewSpec",
        "SelfSubjectRulesReviewSpec is where something is to be done.",
        &[("namespace", "The namespace.")],
    ),
    (
        "authorization",
        "SubjectRulesReviewStatus",
        "SubjectRulesReviewStatus is what may be done.",
        &[
            ("resourceRules", "What may be done with resources."),
            ("nonResourceRules", "What may be done with paths."),
            ("incomplete", "Whether there may be more."),
            ("evaluationError", "What could not be found out."),
        ],
    ),
    (
        "authorization",
        "ResourceRule",
        "ResourceRule is something that may be done with resources.",
        &[
            ("verbs", "Verbs."),
            ("apiGroups", "API groups."),
            ("resources", "Resources."),
            ("resourceNames", "Names."),
        ],
    ),
    (
        "authorization",
        "NonResourceRule",
        "NonResourceRule is something that may be done with paths.",
        &[
            ("verbs", "Methods, in lower case."),
            ("nonResourceURLs", "Paths."),
        ],
    ),
    (
        "authorization",
        "FieldSelectorAttributes",
        "FieldSelectorAttributes is a selection of objects by their fields.",
        &[
            ("rawSelector", "The selection as it is in a query."),
            (
                "requirements",
                "The selection, taken apart: all must be met.",
            ),
        ],
    ),
    (
        "authorization",
        "LabelSelectorAttributes",
        "LabelSelectorAttributes is a selection of objects by their labels.",
        &[
            ("rawSelector", "The selection as it is in a query."),
            (
                "requirements",
                "The selection, taken apart: all must be met.",
            ),
        ],
    ),
];
