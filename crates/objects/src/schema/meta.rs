//! The types of `meta/v1` that objects and options are made of.

use super::{Field, List, PatchStrategy, Struct, Type, TypePackage, field};

const fn meta(name: &'static str, doc: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::Meta, doc, fields)
}

/// A map of strings: labels, annotations.
pub(crate) static TEXT: Type = Type::Text;
/// A list of strings, owned as a whole.
pub static TEXTS: List = List::atomic(Type::Text);
/// A list of strings, each owned for itself.
pub(crate) static TEXT_SET: List = List::set(Type::Text);

/// Metadata of every object.
pub static OBJECT_META: Struct = meta(
    "ObjectMeta",
    "ObjectMeta is the metadata that every persisted object has.",
    &[
        field(
            "name",
            1,
            Type::Text,
            "Unique among objects of its kind and namespace. Cannot be changed.",
        ),
        field(
            "generateName",
            2,
            Type::Text,
            "A prefix from which the server makes a unique name, if name is empty.",
        ),
        field(
            "namespace",
            3,
            Type::Text,
            "The space within which the name is unique; empty for objects of the whole cluster.",
        ),
        field(
            "selfLink",
            4,
            Type::Text,
            "Deprecated: no longer filled in by the server.",
        ),
        field(
            "uid",
            5,
            Type::Text,
            "Tells this object from all others of its name, in time and space. Set by the server.",
        ),
        field(
            "resourceVersion",
            6,
            Type::Text,
            "The version of the object, for optimistic locking and watches. Set by the server.",
        ),
        field(
            "generation",
            7,
            Type::Int64,
            "Counts the changes of what is wanted. Set by the server.",
        ),
        field(
            "creationTimestamp",
            8,
            Type::Time,
            "When the object was made. Set by the server.",
        ),
        field(
            "deletionTimestamp",
            9,
            Type::Time,
            "When deletion was asked for, while finalizers keep the object. Set by the server.",
        )
        .pointer(),
        field(
            "deletionGracePeriodSeconds",
            10,
            Type::Int64,
            "Seconds the object had to end by itself. Set by the server.",
        )
        .pointer(),
        field(
            "labels",
            11,
            Type::Map(&TEXT),
            "Keys and values that objects are selected by.",
        ),
        field(
            "annotations",
            12,
            Type::Map(&TEXT),
            "Keys and values that tools keep with the object.",
        ),
        field(
            "ownerReferences",
            13,
            Type::List(&OWNER_REFERENCES),
            "Objects that this one belongs to.",
        )
        .patched(PatchStrategy::MergeBy("uid")),
        field(
            "finalizers",
            14,
            Type::List(&TEXT_SET),
            "What must be done before the object goes; each is removed by whoever did it.",
        )
        .patched(PatchStrategy::MergeSet),
        field(
            "managedFields",
            17,
            Type::List(&MANAGED_FIELDS),
            "Who manages which fields, kept by the server.",
        ),
    ],
);

static OWNER_REFERENCES: List = List::map(Type::Object(&OWNER_REFERENCE), &["uid"]);

/// One entry of `metadata.ownerReferences`.
pub(crate) static OWNER_REFERENCE: Struct = meta(
    "OwnerReference",
    "OwnerReference names an object that another belongs to.",
    &[
        field("apiVersion", 5, Type::Text, "API version of the owner.")
            .always()
            .required(),
        field("kind", 1, Type::Text, "Kind of the owner.")
            .always()
            .required(),
        field("name", 3, Type::Text, "Name of the owner.")
            .always()
            .required(),
        field("uid", 4, Type::Text, "UID of the owner.")
            .always()
            .required(),
        field(
            "controller",
            6,
            Type::Flag,
            "Whether the owner is the controller of the object.",
        )
        .pointer(),
        field(
            "blockOwnerDeletion",
            7,
            Type::Flag,
            "Whether the owner cannot go before this object, if deleted in the foreground.",
        )
        .pointer(),
    ],
)
.atomic();

static MANAGED_FIELDS: List = List::atomic(Type::Object(&MANAGED_FIELDS_ENTRY));

/// One entry of `metadata.managedFields`.
pub(crate) static MANAGED_FIELDS_ENTRY: Struct = meta(
    "ManagedFieldsEntry",
    "ManagedFieldsEntry tells which fields one manager has set by one kind of operation.",
    &[
        field("manager", 1, Type::Text, "Name of the manager."),
        field("operation", 2, Type::Text, "Apply or Update."),
        field(
            "apiVersion",
            3,
            Type::Text,
            "The version of the object that the fields are named by.",
        ),
        field("time", 4, Type::Time, "When the entry last changed.").pointer(),
        field("fieldsType", 6, Type::Text, "FieldsV1."),
        field("fieldsV1", 7, Type::Raw, "The fields, as a trie in JSON.").pointer(),
        field(
            "subresource",
            8,
            Type::Text,
            "The subresource that the fields were set by; empty for the object itself.",
        ),
    ],
);

/// Metadata of lists.
pub static LIST_META: Struct = meta(
    "ListMeta",
    "ListMeta is the metadata that every list has.",
    &[
        field(
            "selfLink",
            1,
            Type::Text,
            "Deprecated: no longer filled in by the server.",
        ),
        field(
            "resourceVersion",
            2,
            Type::Text,
            "The version of the whole list, from which a watch can go on.",
        ),
        field(
            "continue",
            3,
            Type::Text,
            "A token that brings the rest of the list; empty at its end.",
        ),
        field(
            "remainingItemCount",
            4,
            Type::Int64,
            "How many items follow, if that is known.",
        )
        .pointer(),
    ],
);

/// The answer to what has no other answer.
pub static STATUS: Struct = meta(
    "Status",
    "Status is the answer to calls that do not answer with an object.",
    &[
        field("metadata", 1, Type::Object(&LIST_META), "List metadata.").always(),
        field("status", 2, Type::Text, "Success or Failure."),
        field("message", 3, Type::Text, "What happened, for people."),
        field("reason", 4, Type::Text, "What happened, for programs."),
        field(
            "details",
            5,
            Type::Object(&STATUS_DETAILS),
            "More about the reason.",
        )
        .pointer(),
        field("code", 6, Type::Int32, "The HTTP status code."),
    ],
);

static STATUS_DETAILS: Struct = meta(
    "StatusDetails",
    "StatusDetails is what programs may want to know besides the reason.",
    &[
        field("name", 1, Type::Text, "Name of the object concerned."),
        field("group", 2, Type::Text, "Its group."),
        field("kind", 3, Type::Text, "Its kind or resource."),
        field("uid", 6, Type::Text, "Its UID."),
        field(
            "causes",
            4,
            Type::List(&STATUS_CAUSES),
            "All that is wrong.",
        ),
        field(
            "retryAfterSeconds",
            5,
            Type::Int32,
            "Seconds after which to try again.",
        ),
    ],
);

static STATUS_CAUSES: List = List::atomic(Type::Object(&STATUS_CAUSE));

static STATUS_CAUSE: Struct = meta(
    "StatusCause",
    "StatusCause is one thing that is wrong.",
    &[
        field("reason", 1, Type::Text, "What is wrong, for programs."),
        field("message", 2, Type::Text, "What is wrong, for people."),
        field("field", 3, Type::Text, "The field that it is wrong with."),
    ],
);

/// What a deletion may be told.
pub static DELETE_OPTIONS: Struct = meta(
    "DeleteOptions",
    "DeleteOptions tells how an object is to be deleted.",
    &[
        field("kind", 0, Type::Text, "DeleteOptions."),
        field("apiVersion", 0, Type::Text, "Version of the options."),
        field(
            "gracePeriodSeconds",
            1,
            Type::Int64,
            "Seconds the object has to end by itself.",
        )
        .pointer(),
        field(
            "preconditions",
            2,
            Type::Object(&PRECONDITIONS),
            "What must be true of the object.",
        )
        .pointer(),
        field(
            "orphanDependents",
            3,
            Type::Flag,
            "Deprecated: use propagationPolicy.",
        )
        .pointer(),
        field(
            "propagationPolicy",
            4,
            Type::Text,
            "What happens to dependents: Orphan, Background or Foreground.",
        )
        .pointer(),
        field(
            "dryRun",
            5,
            Type::List(&TEXTS),
            "All: nothing is really deleted.",
        ),
        field(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            6,
            Type::Flag,
            "Not supported.",
        )
        .pointer(),
    ],
);

static PRECONDITIONS: Struct = meta(
    "Preconditions",
    "Preconditions must be true of an object before something is done to it.",
    &[
        field("uid", 1, Type::Text, "The UID it must have.").pointer(),
        field(
            "resourceVersion",
            2,
            Type::Text,
            "The resource version it must have.",
        )
        .pointer(),
    ],
);

/// An object's metadata alone.
pub static PARTIAL_OBJECT_METADATA: Struct = meta(
    "PartialObjectMetadata",
    "PartialObjectMetadata is the metadata of any object.",
    &[field(
        "metadata",
        1,
        Type::Object(&OBJECT_META),
        "Standard metadata.",
    )
    .always()],
);
