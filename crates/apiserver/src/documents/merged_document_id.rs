//! Which documents are merged with those of the upstream, and how.

use serde_json::value::RawValue;

use crate::{
    discovery::{self, AggregatedVersion},
    openapi,
    ownership::OwnedResources,
    raw_json::{Raw, RawMembers, raw},
};

/// A document of which the upstream has one part and the gateway the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MergedDocumentId {
    /// The list of groups.
    Groups,
    /// A group.
    Group(String),
    /// The resources of a group version. The core group has no name.
    Resources(String, String),
    /// Aggregated discovery of the named groups.
    Aggregated(AggregatedVersion),
    /// Aggregated discovery of the core group.
    AggregatedCore(AggregatedVersion),
    /// OpenAPI v2.
    OpenApiV2,
    /// The index of the OpenAPI v3 documents.
    OpenApiV3Index,
    /// The OpenAPI v3 document of a group version.
    OpenApiV3(String, String),
}

impl MergedDocumentId {
    /// The path of the document.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Groups | Self::Aggregated(_) => "/apis".to_owned(),
            Self::Group(group) => format!("/apis/{group}"),
            Self::Resources(group, version) if group.is_empty() => format!("/api/{version}"),
            Self::Resources(group, version) => format!("/apis/{group}/{version}"),
            Self::AggregatedCore(_) => "/api".to_owned(),
            Self::OpenApiV2 => "/openapi/v2".to_owned(),
            Self::OpenApiV3Index => "/openapi/v3".to_owned(),
            Self::OpenApiV3(group, version) => format!("/openapi/v3/apis/{group}/{version}"),
        }
    }

    /// Whether the text ends with a newline unless it is indented, as that of kube-apiserver does.
    pub(crate) fn ends_with_newline(&self) -> bool {
        !matches!(
            self,
            Self::OpenApiV2 | Self::OpenApiV3Index | Self::OpenApiV3(..)
        )
    }

    /// Merges `own`, the gateway's part, into the document of the upstream.
    pub(crate) fn merge(&self, upstream: &RawValue, own: &RawValue, owned: &OwnedResources) -> Raw {
        match self {
            Self::Groups => discovery::merge_group_list(upstream, own),
            Self::Group(_) => discovery::merge_group(upstream, own),
            Self::Resources(group, _) => {
                discovery::merge_resource_list(upstream, own, group, owned)
            }
            Self::Aggregated(form) | Self::AggregatedCore(form) => {
                let merged = discovery::merge_aggregated(upstream, own, owned);
                // Both versions differ in their name only, and the upstream may have the other one.
                let mut merged = RawMembers::parse(&merged).unwrap_or_default();
                merged.set("apiVersion", raw(form.api_version()));
                merged.raw()
            }
            Self::OpenApiV2 => openapi::merge_v2(upstream, own, owned),
            Self::OpenApiV3Index => openapi::merge_v3_index(upstream, own),
            Self::OpenApiV3(..) => openapi::merge_v3(upstream, own, owned),
        }
    }
}
