//! Texts of `meta/v1`: what all objects have, discovery documents and selectors.

use super::TypeTexts;

pub(super) static TEXTS: &[TypeTexts] = &[
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
                "Distinguishes this object from all others with its name, at any time. Set by the server.",
            ),
            (
                "resourceVersion",
                "The version of the object, for optimistic locking and watches. Set by the server.",
            ),
            (
                "generation",
                "Counts the changes of the desired state. Set by the server.",
            ),
            (
                "creationTimestamp",
                "When the object was created. Set by the server.",
            ),
            (
                "deletionTimestamp",
                "When deletion was requested, while finalizers delay it. Set by the server.",
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
                "What must be done before the object is deleted; each entry is removed by the component that did it.",
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
        "ManagedFieldsEntry lists the fields that one manager has set by one kind of operation.",
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
                "The version of the whole list, from which a watch can continue.",
            ),
            (
                "continue",
                "A token that returns the rest of the list; empty at its end.",
            ),
            (
                "remainingItemCount",
                "How many items follow, if that is known.",
            ),
            (
                "shardInfo",
                "Which part of the whole list this is, if only a part was requested.",
            ),
        ],
    ),
    (
        "meta",
        "Status",
        "Status is the response to calls that do not return an object.",
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
            ("retryAfterSeconds", "Seconds after which to retry."),
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
        "DeleteOptions says how an object is to be deleted.",
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
        "APIResource describes a resource.",
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
        "ShardInfo says which part of a list this is.",
        &[("selector", "What the part was selected by.")],
    ),
    (
        "meta",
        "FieldSelectorRequirement",
        "FieldSelectorRequirement is one condition of a selection by fields.",
        &[
            ("key", "The field that the requirement applies to."),
            ("operator", "In, NotIn, Exists or DoesNotExist."),
            ("values", "The values to compare with, for In and NotIn."),
        ],
    ),
    (
        "meta",
        "LabelSelectorRequirement",
        "LabelSelectorRequirement is one condition of a selection by labels.",
        &[
            ("key", "The label that the requirement applies to."),
            ("operator", "In, NotIn, Exists or DoesNotExist."),
            ("values", "The values to compare with, for In and NotIn."),
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
                "The generation of the object that the condition was computed from.",
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
