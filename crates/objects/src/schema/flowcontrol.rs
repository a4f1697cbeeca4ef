//! The types of `flowcontrol.apiserver.k8s.io`.
//!
//! `v1` and `v1beta3` share all but one type: the shares of a limited level, which are a pointer in
//! `v1` and a plain number in `v1beta3`.

use super::{
    Field, List, PatchStrategy, Struct, Type, TypePackage, field,
    meta::{OBJECT_META, TEXT_SET},
};

const fn object(name: &'static str, doc: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::GroupVersion, doc, fields)
}

const METADATA: Field = field(
    "metadata",
    1,
    Type::Object(&OBJECT_META),
    "Standard object metadata.",
)
.always();

/// `FlowSchema` of both versions.
pub static FLOW_SCHEMA: Struct = object(
    "FlowSchema",
    "FlowSchema says which requests form a flow, and which priority level they belong to.",
    &[
        METADATA,
        field(
            "spec",
            2,
            Type::Object(&FLOW_SCHEMA_SPEC),
            "What is wanted.",
        )
        .always(),
        field(
            "status",
            3,
            Type::Object(&FLOW_SCHEMA_STATUS),
            "What was found.",
        )
        .always(),
    ],
);

static FLOW_SCHEMA_SPEC: Struct = object(
    "FlowSchemaSpec",
    "FlowSchemaSpec says which requests a schema catches, and what becomes of them.",
    &[
        field(
            "priorityLevelConfiguration",
            1,
            Type::Object(&REFERENCE),
            "The priority level of the requests. If there is no such level, the schema is ignored.",
        )
        .always()
        .required(),
        field(
            "matchingPrecedence",
            2,
            Type::Int32,
            "Among the schemas that match a request the one with the lowest number catches it; of \
             equal ones, the first by name. From 1 to 10000; 1000 if not given.",
        )
        .always(),
        field(
            "distinguisherMethod",
            3,
            Type::Object(&DISTINGUISHER_METHOD),
            "How the schema's requests are split into flows; if absent, they form one.",
        )
        .pointer(),
        field(
            "rules",
            4,
            Type::List(&RULES),
            "Which requests the schema matches: those that match at least one rule.",
        ),
    ],
);

static REFERENCE: Struct = object(
    "PriorityLevelConfigurationReference",
    "PriorityLevelConfigurationReference names a priority level.",
    &[field("name", 1, Type::Text, "Name of the priority level.")
        .always()
        .required()],
);

static DISTINGUISHER_METHOD: Struct = object(
    "FlowDistinguisherMethod",
    "FlowDistinguisherMethod says what tells the flows of one schema apart.",
    &[field(
        "type",
        1,
        Type::Text,
        "ByUser: a flow for each user. ByNamespace: one for each namespace of the objects asked for.",
    )
    .always()
    .required()],
);

static RULES: List = List::atomic(Type::Object(&RULE));

static RULE: Struct = object(
    "PolicyRulesWithSubjects",
    "PolicyRulesWithSubjects matches a request if a subject matches who asks and a rule what is \
     asked for.",
    &[
        field("subjects", 1, Type::List(&SUBJECTS), "Who asks.")
            .always()
            .required(),
        field(
            "resourceRules",
            2,
            Type::List(&RESOURCE_RULES),
            "What is asked for, if it is a resource.",
        ),
        field(
            "nonResourceRules",
            3,
            Type::List(&NON_RESOURCE_RULES),
            "What is asked for, if it is not a resource.",
        ),
    ],
);

static SUBJECTS: List = List::atomic(Type::Object(&SUBJECT));
static RESOURCE_RULES: List = List::atomic(Type::Object(&RESOURCE_RULE));
static NON_RESOURCE_RULES: List = List::atomic(Type::Object(&NON_RESOURCE_RULE));

static SUBJECT: Struct = object(
    "Subject",
    "Subject is a user, a group or a service account. The one that kind says must be given.",
    &[
        field("kind", 1, Type::Text, "User, Group or ServiceAccount.")
            .always()
            .required(),
        field("user", 2, Type::Object(&USER), "A user, by name.").pointer(),
        field("group", 3, Type::Object(&GROUP), "A group, by name.").pointer(),
        field(
            "serviceAccount",
            4,
            Type::Object(&SERVICE_ACCOUNT),
            "A service account.",
        )
        .pointer(),
    ],
);

static USER: Struct = object(
    "UserSubject",
    "UserSubject names a user.",
    &[field(
        "name",
        1,
        Type::Text,
        "Name of the user, or * for all of them.",
    )
    .always()
    .required()],
);

static GROUP: Struct = object(
    "GroupSubject",
    "GroupSubject names a group.",
    &[field(
        "name",
        1,
        Type::Text,
        "Name of the group, or * for all of them.",
    )
    .always()
    .required()],
);

static SERVICE_ACCOUNT: Struct = object(
    "ServiceAccountSubject",
    "ServiceAccountSubject names a service account.",
    &[
        field("namespace", 1, Type::Text, "Namespace of the account.")
            .always()
            .required(),
        field(
            "name",
            2,
            Type::Text,
            "Name of the account, or * for all of the namespace.",
        )
        .always()
        .required(),
    ],
);

static RESOURCE_RULE: Struct = object(
    "ResourcePolicyRule",
    "ResourcePolicyRule matches requests for resources. A request must match every field.",
    &[
        field(
            "verbs",
            1,
            Type::List(&TEXT_SET),
            "Verbs, or * for all of them.",
        )
        .always()
        .required(),
        field(
            "apiGroups",
            2,
            Type::List(&TEXT_SET),
            "API groups, or * for all of them; the core group is the empty string.",
        )
        .always()
        .required(),
        field(
            "resources",
            3,
            Type::List(&TEXT_SET),
            "Resources in lower case and plural, with the subresource behind a slash if one is \
             meant, or * for all of them.",
        )
        .always()
        .required(),
        field(
            "clusterScope",
            4,
            Type::Flag,
            "Whether requests without a namespace match.",
        ),
        field(
            "namespaces",
            5,
            Type::List(&TEXT_SET),
            "Namespaces, or * for all of them. May be empty only if clusterScope is true.",
        )
        .always(),
    ],
);

static NON_RESOURCE_RULE: Struct = object(
    "NonResourcePolicyRule",
    "NonResourcePolicyRule matches requests for paths that are no resources.",
    &[
        field(
            "verbs",
            1,
            Type::List(&TEXT_SET),
            "HTTP methods in lower case, or * for all of them.",
        )
        .always()
        .required(),
        field(
            "nonResourceURLs",
            6,
            Type::List(&TEXT_SET),
            "Paths, such as /healthz, /healthz/* for all below it, or * for all paths.",
        )
        .always()
        .required(),
    ],
);

static FLOW_SCHEMA_STATUS: Struct = object(
    "FlowSchemaStatus",
    "FlowSchemaStatus is what was found about a schema.",
    &[field(
        "conditions",
        1,
        Type::List(&FLOW_SCHEMA_CONDITIONS),
        "What was found, one condition of a type.",
    )
    .patched(PatchStrategy::MergeBy("type"))],
);

static FLOW_SCHEMA_CONDITIONS: List = List::map(Type::Object(&FLOW_SCHEMA_CONDITION), &["type"]);

const CONDITION_FIELDS: &[Field] = &[
    field("type", 1, Type::Text, "What is told of."),
    field("status", 2, Type::Text, "True, False or Unknown."),
    field(
        "lastTransitionTime",
        3,
        Type::Time,
        "When the status last changed.",
    )
    .always(),
    field("reason", 4, Type::Text, "Why, in one word."),
    field("message", 5, Type::Text, "Why, for people."),
];

static FLOW_SCHEMA_CONDITION: Struct = object(
    "FlowSchemaCondition",
    "FlowSchemaCondition is one thing that was found about a schema.",
    CONDITION_FIELDS,
);

/// `PriorityLevelConfiguration` of `v1`.
pub static PRIORITY_LEVEL: Struct = object(
    "PriorityLevelConfiguration",
    PRIORITY_LEVEL_DOC,
    &[
        METADATA,
        field(
            "spec",
            2,
            Type::Object(&PRIORITY_LEVEL_SPEC),
            "What is wanted.",
        )
        .always(),
        PRIORITY_LEVEL_STATUS_FIELD,
    ],
);

/// `PriorityLevelConfiguration` of `v1beta3`.
pub static PRIORITY_LEVEL_V1BETA3: Struct = object(
    "PriorityLevelConfiguration",
    PRIORITY_LEVEL_DOC,
    &[
        METADATA,
        field(
            "spec",
            2,
            Type::Object(&PRIORITY_LEVEL_SPEC_V1BETA3),
            "What is wanted.",
        )
        .always(),
        PRIORITY_LEVEL_STATUS_FIELD,
    ],
);

const PRIORITY_LEVEL_DOC: &str =
    "PriorityLevelConfiguration is a priority level: a share of the server's seats.";

const PRIORITY_LEVEL_STATUS_FIELD: Field = field(
    "status",
    3,
    Type::Object(&PRIORITY_LEVEL_STATUS),
    "What was found.",
)
.always();

const LEVEL_TYPE: Field = field(
    "type",
    1,
    Type::Text,
    "Exempt: its requests never wait. Limited: they get seats by fair queuing.",
)
.always()
.required();

const LEVEL_EXEMPT: Field = field(
    "exempt",
    3,
    Type::Object(&EXEMPT),
    "Settings of an exempt level; absent for a limited one.",
)
.pointer();

const LIMITED_DOC: &str = "Settings of a limited level; absent for an exempt one.";

static PRIORITY_LEVEL_SPEC: Struct = object(
    "PriorityLevelConfigurationSpec",
    PRIORITY_LEVEL_SPEC_DOC,
    &[
        LEVEL_TYPE,
        field("limited", 2, Type::Object(&LIMITED), LIMITED_DOC).pointer(),
        LEVEL_EXEMPT,
    ],
);

static PRIORITY_LEVEL_SPEC_V1BETA3: Struct = object(
    "PriorityLevelConfigurationSpec",
    PRIORITY_LEVEL_SPEC_DOC,
    &[
        LEVEL_TYPE,
        field("limited", 2, Type::Object(&LIMITED_V1BETA3), LIMITED_DOC).pointer(),
        LEVEL_EXEMPT,
    ],
);

const PRIORITY_LEVEL_SPEC_DOC: &str = "PriorityLevelConfigurationSpec says how many requests of a level may execute, and what becomes \
     of the others.";

const SHARES: Field = field(
    "nominalConcurrencyShares",
    1,
    Type::Int32,
    "The level's share of the server's seats, in proportion to the sum of all shares; 30 if not \
     given.",
);
const LIMIT_RESPONSE_FIELD: Field = field(
    "limitResponse",
    2,
    Type::Object(&LIMIT_RESPONSE),
    "What becomes of requests that find no seat.",
)
.always();
const LENDABLE: Field = field(
    "lendablePercent",
    3,
    Type::Int32,
    "How much of its nominal seats other levels may borrow, in percent, from 0 to 100; 0 if not \
     given.",
)
.pointer();
const BORROWING_LIMIT: Field = field(
    "borrowingLimitPercent",
    4,
    Type::Int32,
    "How much it may borrow of others, in percent of its nominal seats; without limit if not given.",
)
.pointer();

const LIMITED_TYPE_DOC: &str =
    "LimitedPriorityLevelConfiguration says how a level's requests are limited.";

static LIMITED: Struct = object(
    "LimitedPriorityLevelConfiguration",
    LIMITED_TYPE_DOC,
    &[
        // A pointer, but one without `omitempty`: null where nobody defaulted it.
        SHARES.pointer(),
        LIMIT_RESPONSE_FIELD,
        LENDABLE,
        BORROWING_LIMIT,
    ],
);

static LIMITED_V1BETA3: Struct = object(
    "LimitedPriorityLevelConfiguration",
    LIMITED_TYPE_DOC,
    &[
        SHARES.always(),
        LIMIT_RESPONSE_FIELD,
        LENDABLE,
        BORROWING_LIMIT,
    ],
);

static LIMIT_RESPONSE: Struct = object(
    "LimitResponse",
    "LimitResponse says what becomes of requests that find no seat.",
    &[
        field(
            "type",
            1,
            Type::Text,
            "Queue: they wait, as long as there is room. Reject: they are turned away.",
        )
        .always()
        .required(),
        field(
            "queuing",
            2,
            Type::Object(&QUEUING),
            "How they wait; absent unless the type is Queue.",
        )
        .pointer(),
    ],
);

static QUEUING: Struct = object(
    "QueuingConfiguration",
    "QueuingConfiguration says how requests wait.",
    &[
        field(
            "queues",
            1,
            Type::Int32,
            "How many queues the level has; 64 if not given.",
        )
        .always(),
        field(
            "handSize",
            2,
            Type::Int32,
            "How many queues a flow may use; not more than queues. 8 if not given.",
        )
        .always(),
        field(
            "queueLengthLimit",
            3,
            Type::Int32,
            "How many requests may wait in one queue; 50 if not given.",
        )
        .always(),
    ],
);

static EXEMPT: Struct = object(
    "ExemptPriorityLevelConfiguration",
    "ExemptPriorityLevelConfiguration says what an exempt level lends. Its requests are not limited.",
    &[
        field(
            "nominalConcurrencyShares",
            1,
            Type::Int32,
            "The level's share of the server's seats; 0 if not given.",
        )
        .pointer(),
        field(
            "lendablePercent",
            2,
            Type::Int32,
            "How much of its nominal seats other levels may borrow, in percent; 0 if not given.",
        )
        .pointer(),
    ],
);

static PRIORITY_LEVEL_STATUS: Struct = object(
    "PriorityLevelConfigurationStatus",
    "PriorityLevelConfigurationStatus is what was found about a level.",
    &[field(
        "conditions",
        1,
        Type::List(&PRIORITY_LEVEL_CONDITIONS),
        "What was found, one condition of a type.",
    )
    .patched(PatchStrategy::MergeBy("type"))],
);

static PRIORITY_LEVEL_CONDITIONS: List =
    List::map(Type::Object(&PRIORITY_LEVEL_CONDITION), &["type"]);

static PRIORITY_LEVEL_CONDITION: Struct = object(
    "PriorityLevelConfigurationCondition",
    "PriorityLevelConfigurationCondition is one thing that was found about a level.",
    CONDITION_FIELDS,
);
