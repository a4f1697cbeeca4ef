//! What the types and fields of hosted kinds are, for `kubectl explain`: texts of our own, by the package
//! and name of the type.
//!
//! The generated tables have no texts. A new hosted kind needs an entry here for each of its types.
//!
//! Not here: types that no hosted kind has.

use super::{Field, Struct, TypePackage};

/// The texts of one type: its package, name, text, and a text for each field.
type TypeTexts = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// What a type is; empty if nobody said.
pub fn of_struct(shape: &Struct) -> &'static str {
    texts(shape).map_or("", |&(_, _, text, _)| text)
}

/// What a field of a type is; empty if nobody said.
pub fn of_field(shape: &Struct, field: &Field) -> &'static str {
    let fields = texts(shape).map_or(&[][..], |&(_, _, _, fields)| fields);
    let found = fields.iter().find(|(name, _)| *name == field.name);
    found.map_or("", |(_, text)| text)
}

fn texts(shape: &Struct) -> Option<&'static TypeTexts> {
    let wanted = match shape.home {
        TypePackage::Meta => "meta",
        TypePackage::Api { package, .. } => package,
        TypePackage::GroupVersion => return None,
    };
    TEXTS
        .iter()
        .find(|(package, name, ..)| (*package, *name) == (wanted, shape.name))
}

static TEXTS: &[TypeTexts] = &[
    (
        "meta",
        "ObjectMeta",
        "ObjectMeta is the metadata that every persisted object has.",
        &[
            (
                "name",
                "Unique among objects of its kind and namespace. Cannot be changed.",
            ),
            (
                "generateName",
                "A prefix from which the server makes a unique name, if name is empty.",
            ),
            (
                "namespace",
                "The space within which the name is unique; empty for objects of the whole cluster.",
            ),
            ("selfLink", "Deprecated: no longer filled in by the server."),
            (
                "uid",
                "Tells this object from all others of its name, in time and space. Set by the server.",
            ),
            (
                "resourceVersion",
                "The version of the object, for optimistic locking and watches. Set by the server.",
            ),
            (
                "generation",
                "Counts the changes of what is wanted. Set by the server.",
            ),
            (
                "creationTimestamp",
                "When the object was made. Set by the server.",
            ),
            (
                "deletionTimestamp",
                "When deletion was asked for, while finalizers keep the object. Set by the server.",
            ),
            (
                "deletionGracePeriodSeconds",
                "Seconds the object had to end by itself. Set by the server.",
            ),
            ("labels", "Keys and values that objects are selected by."),
            (
                "annotations",
                "Keys and values that tools keep with the object.",
            ),
            ("ownerReferences", "Objects that this one belongs to."),
            (
                "finalizers",
                "What must be done before the object goes; each is removed by whoever did it.",
            ),
            (
                "managedFields",
                "Who manages which fields, kept by the server.",
            ),
        ],
    ),
    (
        "meta",
        "OwnerReference",
        "OwnerReference names an object that another belongs to.",
        &[
            ("apiVersion", "API version of the owner."),
            ("kind", "Kind of the owner."),
            ("name", "Name of the owner."),
            ("uid", "UID of the owner."),
            (
                "controller",
                "Whether the owner is the controller of the object.",
            ),
            (
                "blockOwnerDeletion",
                "Whether the owner cannot go before this object, if deleted in the foreground.",
            ),
        ],
    ),
    (
        "meta",
        "ManagedFieldsEntry",
        "ManagedFieldsEntry tells which fields one manager has set by one kind of operation.",
        &[
            ("manager", "Name of the manager."),
            ("operation", "Apply or Update."),
            (
                "apiVersion",
                "The version of the object that the fields are named by.",
            ),
            ("time", "When the entry last changed."),
            ("fieldsType", "FieldsV1."),
            ("fieldsV1", "The fields, as a trie in JSON."),
            (
                "subresource",
                "The subresource that the fields were set by; empty for the object itself.",
            ),
        ],
    ),
    (
        "meta",
        "ListMeta",
        "ListMeta is the metadata that every list has.",
        &[
            ("selfLink", "Deprecated: no longer filled in by the server."),
            (
                "resourceVersion",
                "The version of the whole list, from which a watch can go on.",
            ),
            (
                "continue",
                "A token that brings the rest of the list; empty at its end.",
            ),
            (
                "remainingItemCount",
                "How many items follow, if that is known.",
            ),
            (
                "shardInfo",
                "Which part of the whole list this is, if only a part was asked for.",
            ),
        ],
    ),
    (
        "meta",
        "Status",
        "Status is the answer to calls that do not answer with an object.",
        &[
            ("metadata", "List metadata."),
            ("status", "Success or Failure."),
            ("message", "What happened, for people."),
            ("reason", "What happened, for programs."),
            ("details", "More about the reason."),
            ("code", "The HTTP status code."),
        ],
    ),
    (
        "meta",
        "StatusDetails",
        "StatusDetails is what programs may want to know besides the reason.",
        &[
            ("name", "Name of the object concerned."),
            ("group", "Its group."),
            ("kind", "Its kind or resource."),
            ("uid", "Its UID."),
            ("causes", "All that is wrong."),
            ("retryAfterSeconds", "Seconds after which to try again."),
        ],
    ),
    (
        "meta",
        "StatusCause",
        "StatusCause is one thing that is wrong.",
        &[
            ("reason", "What is wrong, for programs."),
            ("message", "What is wrong, for people."),
            ("field", "The field that it is wrong with."),
        ],
    ),
    (
        "meta",
        "DeleteOptions",
        "DeleteOptions tells how an object is to be deleted.",
        &[
            ("kind", "DeleteOptions."),
            ("apiVersion", "Version of the options."),
            (
                "gracePeriodSeconds",
                "Seconds the object has to end by itself.",
            ),
            ("preconditions", "What must be true of the object."),
            ("orphanDependents", "Deprecated: use propagationPolicy."),
            (
                "propagationPolicy",
                "What happens to dependents: Orphan, Background or Foreground.",
            ),
            ("dryRun", "All: nothing is really deleted."),
            (
                "ignoreStoreReadErrorWithClusterBreakingPotential",
                "Not supported.",
            ),
        ],
    ),
    (
        "meta",
        "Preconditions",
        "Preconditions must be true of an object before something is done to it.",
        &[
            ("uid", "The UID it must have."),
            ("resourceVersion", "The resource version it must have."),
        ],
    ),
    (
        "meta",
        "PartialObjectMetadata",
        "PartialObjectMetadata is the metadata of any object.",
        &[("metadata", "Standard metadata.")],
    ),
    (
        "meta",
        "APIVersions",
        "APIVersions lists the versions of the core API.",
        &[
            ("versions", "The versions."),
            (
                "serverAddressByClientCIDRs",
                "Where clients reach the server, by the network that they are in.",
            ),
        ],
    ),
    (
        "meta",
        "APIGroupList",
        "APIGroupList lists the API groups.",
        &[("groups", "The groups.")],
    ),
    (
        "meta",
        "APIGroup",
        "APIGroup lists the versions of an API group.",
        &[
            ("name", "Name of the group."),
            ("versions", "Its versions."),
            ("preferredVersion", "The version that the server prefers."),
            (
                "serverAddressByClientCIDRs",
                "Where clients reach the server, by the network that they are in.",
            ),
        ],
    ),
    (
        "meta",
        "GroupVersionForDiscovery",
        "GroupVersionForDiscovery names a version of a group.",
        &[
            ("groupVersion", "Group and version."),
            ("version", "The version alone."),
        ],
    ),
    (
        "meta",
        "ServerAddressByClientCIDR",
        "ServerAddressByClientCIDR is the address of the server for clients of one network.",
        &[
            ("clientCIDR", "The network that clients are in."),
            ("serverAddress", "Host or host:port."),
        ],
    ),
    (
        "meta",
        "APIResourceList",
        "APIResourceList lists the resources of an API version.",
        &[
            ("groupVersion", "Group and version."),
            ("resources", "The resources."),
        ],
    ),
    (
        "meta",
        "APIResource",
        "APIResource tells of a resource.",
        &[
            (
                "name",
                "The plural name; for a subresource followed by a slash and its name.",
            ),
            ("singularName", "Its name in the singular."),
            ("namespaced", "Whether objects live in namespaces."),
            (
                "group",
                "Group of the kind, if it is another than that of the list.",
            ),
            (
                "version",
                "Version of the kind, if it is another than that of the list.",
            ),
            ("kind", "Kind of its objects."),
            ("verbs", "The supported verbs."),
            ("shortNames", "Short forms of its name."),
            (
                "categories",
                "Groups of resources that it belongs to, such as all.",
            ),
            (
                "storageVersionHash",
                "Changes whenever objects are stored in another version.",
            ),
        ],
    ),
    (
        "meta",
        "ShardInfo",
        "ShardInfo tells which part of a list is in it.",
        &[("selector", "What the part was selected by.")],
    ),
    (
        "authentication",
        "SelfSubjectReview",
        "SelfSubjectReview asks who it is that asks.",
        &[
            ("metadata", "Standard metadata; not used."),
            ("status", "Who it is."),
        ],
    ),
    (
        "authentication",
        "SelfSubjectReviewStatus",
        "SelfSubjectReviewStatus is who asks.",
        &[("userInfo", "The user.")],
    ),
    (
        "authentication",
        "UserInfo",
        "UserInfo is what is known of a user.",
        &[
            ("username", "The name."),
            ("uid", "What tells this user from others of the name."),
            ("groups", "The groups."),
            ("extra", "What else was told of the user."),
        ],
    ),
    (
        "authorization",
        "SelfSubjectAccessReview",
        "SelfSubjectAccessReview asks whether whoever asks may do something.",
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
        "SubjectAccessReviewStatus tells whether something may be done.",
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
        "SelfSubjectRulesReview asks what whoever asks may do in a namespace.",
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
        "flowcontrol",
        "FlowSchema",
        "FlowSchema says which requests form a flow, and which priority level they belong to.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "What is wanted."),
            ("status", "What was found."),
        ],
    ),
    (
        "flowcontrol",
        "FlowSchemaSpec",
        "FlowSchemaSpec says which requests a schema catches, and what becomes of them.",
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
        "FlowDistinguisherMethod says what tells the flows of one schema apart.",
        &[(
            "type",
            "ByUser: a flow for each user. ByNamespace: one for each namespace of the objects asked for.",
        )],
    ),
    (
        "flowcontrol",
        "PolicyRulesWithSubjects",
        "PolicyRulesWithSubjects matches a request if a subject matches who asks and a rule what is asked for.",
        &[
            ("subjects", "Who asks."),
            ("resourceRules", "What is asked for, if it is a resource."),
            (
                "nonResourceRules",
                "What is asked for, if it is not a resource.",
            ),
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
                "Resources in lower case and plural, with the subresource behind a slash if one is meant, or * for all of them.",
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
        "NonResourcePolicyRule matches requests for paths that are no resources.",
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
        "FlowSchemaStatus is what was found about a schema.",
        &[("conditions", "What was found, one condition of a type.")],
    ),
    (
        "flowcontrol",
        "FlowSchemaCondition",
        "FlowSchemaCondition is one thing that was found about a schema.",
        &[
            ("type", "What is told of."),
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
            ("spec", "What is wanted."),
            ("status", "What was found."),
        ],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationSpec",
        "PriorityLevelConfigurationSpec says how many requests of a level may execute, and what becomes of the others.",
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
                "What becomes of requests that find no seat.",
            ),
            (
                "lendablePercent",
                "How much of its nominal seats other levels may borrow, in percent, from 0 to 100; 0 if not given.",
            ),
            (
                "borrowingLimitPercent",
                "How much it may borrow of others, in percent of its nominal seats; without limit if not given.",
            ),
        ],
    ),
    (
        "flowcontrol",
        "LimitResponse",
        "LimitResponse says what becomes of requests that find no seat.",
        &[
            (
                "type",
                "Queue: they wait, as long as there is room. Reject: they are turned away.",
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
        "PriorityLevelConfigurationStatus is what was found about a level.",
        &[("conditions", "What was found, one condition of a type.")],
    ),
    (
        "flowcontrol",
        "PriorityLevelConfigurationCondition",
        "PriorityLevelConfigurationCondition is one thing that was found about a level.",
        &[
            ("type", "What is told of."),
            ("status", "True, False or Unknown."),
            ("lastTransitionTime", "When the status last changed."),
            ("reason", "Why, in one word."),
            ("message", "Why, for people."),
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
        "meta",
        "FieldSelectorRequirement",
        "FieldSelectorRequirement is one condition of a selection by fields.",
        &[
            ("key", "The field that it is about."),
            ("operator", "In, NotIn, Exists or DoesNotExist."),
            ("values", "The values to compare with, for In and NotIn."),
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
    (
        "meta",
        "LabelSelectorRequirement",
        "LabelSelectorRequirement is one condition of a selection by labels.",
        &[
            ("key", "The label that it is about."),
            ("operator", "In, NotIn, Exists or DoesNotExist."),
            ("values", "The values to compare with, for In and NotIn."),
        ],
    ),
    (
        "policy",
        "PodDisruptionBudget",
        "PodDisruptionBudget limits how many pods of a set may be disrupted at once.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The desired budget."),
            ("status", "The most recently observed state."),
        ],
    ),
    (
        "policy",
        "PodDisruptionBudgetSpec",
        "PodDisruptionBudgetSpec describes a budget.",
        &[
            (
                "minAvailable",
                "How many of the selected pods, as a number or a percentage, must stay available after an eviction.",
            ),
            (
                "selector",
                "Selects the pods of the budget. A null selector selects no pods, an empty one ({}) all pods of the namespace.",
            ),
            (
                "maxUnavailable",
                "How many of the selected pods, as a number or a percentage, may be unavailable after an eviction.",
            ),
            (
                "unhealthyPodEvictionPolicy",
                "When running pods that are not ready may be evicted: IfHealthyBudget or AlwaysAllow.",
            ),
        ],
    ),
    (
        "policy",
        "PodDisruptionBudgetStatus",
        "PodDisruptionBudgetStatus is the observed state of a budget.",
        &[
            (
                "observedGeneration",
                "The generation of the budget that the status is about.",
            ),
            (
                "disruptedPods",
                "Pods whose eviction was granted but that were not yet observed as deleted.",
            ),
            (
                "disruptionsAllowed",
                "Number of pods that may be disrupted now.",
            ),
            ("currentHealthy", "Number of healthy pods."),
            ("desiredHealthy", "Minimum desired number of healthy pods."),
            (
                "expectedPods",
                "Total number of pods that the budget counts.",
            ),
            ("conditions", "Conditions of the budget."),
        ],
    ),
    (
        "meta",
        "LabelSelector",
        "LabelSelector selects objects by their labels. All its requirements must be met.",
        &[
            ("matchLabels", "Labels that an object must have."),
            ("matchExpressions", "Requirements on labels."),
        ],
    ),
    (
        "meta",
        "Condition",
        "Condition is one aspect of the state of an object.",
        &[
            ("type", "The type of the condition."),
            ("status", "True, False or Unknown."),
            (
                "observedGeneration",
                "The generation of the object that the condition is about.",
            ),
            (
                "lastTransitionTime",
                "The last time the status of the condition changed.",
            ),
            ("reason", "The reason of the last change, in CamelCase."),
            ("message", "Details of the last change, for people."),
        ],
    ),
];
