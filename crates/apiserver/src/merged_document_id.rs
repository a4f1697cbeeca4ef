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
    /// Aggregated discovery of the named groups.
    Aggregated(AggregatedVersion),
    /// OpenAPI v2.
    OpenApiV2,
    /// The index of the OpenAPI v3 documents.
    OpenApiV3Index,
}

impl MergedDocumentId {
    /// The number of these documents.
    pub(super) const COUNT: usize = 5;

    /// A number below [`COUNT`](Self::COUNT).
    pub(super) fn index(self) -> usize {
        match self {
            Self::Groups => 0,
            Self::Aggregated(AggregatedVersion::V2) => 1,
            Self::Aggregated(AggregatedVersion::V2Beta1) => 2,
            Self::OpenApiV2 => 3,
            Self::OpenApiV3Index => 4,
        }
    }

    /// Merges `own`, the gateway's part, into the document of the upstream.
    pub(super) fn merge(self, upstream: Value, own: Value) -> Value {
        match self {
            Self::Groups => discovery::merge_group_list(upstream, own),
            Self::Aggregated(form) => {
                let mut merged = discovery::merge_aggregated(upstream, own);
                // Both versions differ in their name only, and the upstream may have the other one.
                merged["apiVersion"] = form.api_version().into();
                merged
            }
            Self::OpenApiV2 => openapi::merge_v2(upstream, own),
            Self::OpenApiV3Index => openapi::merge_v3_index(upstream, own),
        }
    }
}
