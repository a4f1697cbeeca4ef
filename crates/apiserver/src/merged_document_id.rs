//! Which documents are merged with those of the upstream, and how.

use serde_json::Value;

use crate::{
    discovery::{self, AggregatedVersion},
    openapi,
};

/// A document of which the upstream has one part and the gateway the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergedDocumentId {
    /// The list of groups.
    Groups,
    /// All of discovery but the core group.
    Aggregated(AggregatedVersion),
    /// OpenAPI v2.
    OpenApiV2,
    /// Which documents of OpenAPI v3 there are.
    OpenApiV3Index,
}

impl MergedDocumentId {
    /// How many there are.
    pub(super) const COUNT: usize = 5;

    /// Its index among all, below [`COUNT`](Self::COUNT).
    pub(super) fn index(self) -> usize {
        match self {
            Self::Groups => 0,
            Self::Aggregated(AggregatedVersion::V2) => 1,
            Self::Aggregated(AggregatedVersion::V2Beta1) => 2,
            Self::OpenApiV2 => 3,
            Self::OpenApiV3Index => 4,
        }
    }

    /// The document of the upstream with ours merged into it.
    pub(super) fn merge(self, theirs: Value, ours: Value) -> Value {
        match self {
            Self::Groups => discovery::merge_group_list(theirs, ours),
            Self::Aggregated(form) => {
                let mut merged = discovery::merge_aggregated(theirs, ours);
                // The versions are the same but for the name, and the server may have the other.
                merged["apiVersion"] = form.api_version().into();
                merged
            }
            Self::OpenApiV2 => openapi::merge_v2(theirs, ours),
            Self::OpenApiV3Index => openapi::merge_v3_index(theirs, ours),
        }
    }
}
