//! Texts of `flowcontrol.apiserver.k8s.io`: FlowSchemas and PriorityLevelConfigurations.

use super::TypeTexts;

pub(super) static TEXTS: &[TypeTexts] = &[
    (
        "flowcontrol",
        "FlowSchema",
        "FlowSchema says which requests form a flow, and which priority level they belong to.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The desired state."),
            ("status", "The observed state."),
        ],
    ),
    (
        "flowcontrol",
        "FlowSchemaSpec",
        "FlowSchemaSpec says which requests a schema catches, and how they are handled.",
        &[
            (
                "priorityLevelConfiguration",
                "The priority level of the requests. If there is no such level, the schema is ignored.",
            ),
            (
                "matchingPrecedence",
                "Among the schemas that match a request the one with the lowest number catches it; of equal ones, the first by name. From 1 to 10000; 1000 if not given.",
            ),
            (
                "distinguisherMethod",
                "How the schema's requests are split into flows; if absent, they form one.",
            ),
            (
                "rules",
                "Which requests the schema matches: those that match at least one rule.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationReference",
        "PriorityLevelConfigurationReference names a priority level.",
        &[("name", "Name of the priority level.")],
    ),
    (
        "flowcontrol",
        "FlowDistinguisherMethod",
        "FlowDistinguisherMethod says how the requests of one schema are divided into flows.",
        &[(
            "type",
            "ByUser: a flow for each user. ByNamespace: one for each namespace of the requested objects.",
        )],
    ),
    (
        "flowcontrol",
        "PolicyRulesWithSubjects",
        "PolicyRulesWithSubjects matches a request if one of its subjects matches the user and one of its rules matches the verb and the resource or path.",
        &[
            (
                "subjects",
                "The users, groups and service accounts whose requests match.",
            ),
            ("resourceRules", "Rules for requests of resources."),
            ("nonResourceRules", "Rules for requests of other paths."),
        ],
    ),
    (
        "flowcontrol",
        "Subject",
        "Subject is a user, a group or a service account. The one that kind says must be given.",
        &[
            ("kind", "User, Group or ServiceAccount."),
            ("user", "A user, by name."),
            ("group", "A group, by name."),
            ("serviceAccount", "A service account."),
        ],
    ),
    (
        "flowcontrol",
        "UserSubject",
        "UserSubject names a user.",
        &[("name", "Name of the user, or * for all of them.")],
    ),
    (
        "flowcontrol",
        "GroupSubject",
        "GroupSubject names a group.",
        &[("name", "Name of the group, or * for all of them.")],
    ),
    (
        "flowcontrol",
        "ServiceAccountSubject",
        "ServiceAccountSubject names a service account.",
        &[
            ("namespace", "Namespace of the account."),
            (
                "name",
                "Name of the account, or * for all of the namespace.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "ResourcePolicyRule",
        "ResourcePolicyRule matches requests for resources. A request must match every field.",
        &[
            ("verbs", "Verbs, or * for all of them."),
            (
                "apiGroups",
                "API groups, or * for all of them; the core group is the empty string.",
            ),
            (
                "resources",
                "Resources in lower case and plural, followed by a slash and the subresource for a subresource, or * for all of them.",
            ),
            (
                "clusterScope",
                "Whether requests without a namespace match.",
            ),
            (
                "namespaces",
                "Namespaces, or * for all of them. May be empty only if clusterScope is true.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "NonResourcePolicyRule",
        "NonResourcePolicyRule matches requests for paths that are not resources.",
        &[
            ("verbs", "HTTP methods in lower case, or * for all of them."),
            (
                "nonResourceURLs",
                "Paths, such as /healthz, /healthz/* for all below it, or * for all paths.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "FlowSchemaStatus",
        "FlowSchemaStatus is the observed state of a schema.",
        &[(
            "conditions",
            "The observed conditions, at most one of each type.",
        )],
    ),
    (
        "flowcontrol",
        "FlowSchemaCondition",
        "FlowSchemaCondition is one condition of a schema.",
        &[
            ("type", "The type of the condition."),
            ("status", "True, False or Unknown."),
            ("lastTransitionTime", "When the status last changed."),
            ("reason", "Why, in one word."),
            ("message", "Why, for people."),
        ],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfiguration",
        "PriorityLevelConfiguration is a priority level: a share of the server's seats.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The desired state."),
            ("status", "The observed state."),
        ],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationSpec",
        "PriorityLevelConfigurationSpec says how many requests of a level may execute, and what happens to the others.",
        &[
            (
                "type",
                "Exempt: its requests never wait. Limited: they get seats by fair queuing.",
            ),
            (
                "limited",
                "Settings of a limited level; absent for an exempt one.",
            ),
            (
                "exempt",
                "Settings of an exempt level; absent for a limited one.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "LimitedPriorityLevelConfiguration",
        "LimitedPriorityLevelConfiguration says how a level's requests are limited.",
        &[
            (
                "nominalConcurrencyShares",
                "The level's share of the server's seats, in proportion to the sum of all shares; 30 if not given.",
            ),
            (
                "limitResponse",
                "What happens to requests that find no free seat.",
            ),
            (
                "lendablePercent",
                "How much of its nominal seats other levels may borrow, in percent, from 0 to 100; 0 if not given.",
            ),
            (
                "borrowingLimitPercent",
                "How much it may borrow from other levels, in percent of its nominal seats; without limit if not given.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "LimitResponse",
        "LimitResponse says what happens to requests that find no free seat.",
        &[
            (
                "type",
                "Queue: they wait, as long as there is room. Reject: they are rejected.",
            ),
            ("queuing", "How they wait; absent unless the type is Queue."),
        ],
    ),
    (
        "flowcontrol",
        "QueuingConfiguration",
        "QueuingConfiguration says how requests wait.",
        &[
            ("queues", "How many queues the level has; 64 if not given."),
            (
                "handSize",
                "How many queues a flow may use; not more than queues. 8 if not given.",
            ),
            (
                "queueLengthLimit",
                "How many requests may wait in one queue; 50 if not given.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "ExemptPriorityLevelConfiguration",
        "ExemptPriorityLevelConfiguration says what an exempt level lends. Its requests are not limited.",
        &[
            (
                "nominalConcurrencyShares",
                "The level's share of the server's seats; 0 if not given.",
            ),
            (
                "lendablePercent",
                "How much of its nominal seats other levels may borrow, in percent; 0 if not given.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationStatus",
        "PriorityLevelConfigurationStatus is the observed state of a level.",
        &[(
            "conditions",
            "The observed conditions, at most one of each type.",
        )],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationCondition",
        "PriorityLevelConfigurationCondition is one condition of a level.",
        &[
            ("type", "The type of the condition."),
            ("status", "True, False or Unknown."),
            ("lastTransitionTime", "When the status last changed."),
            ("reason", "Why, in one word."),
            ("message", "Why, for people."),
        ],
    ),
];
