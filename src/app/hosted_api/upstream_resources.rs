//! The resources of the upstream, for the hosted API.

use std::sync::Arc;

use fairgate_admission::PolicyParamKind;
use fairgate_admission_cluster::FollowedCluster;
use fairgate_apiserver::ParamResources;

/// The resources of the upstream.
pub(crate) struct UpstreamResources(pub(crate) Arc<FollowedCluster>);

impl ParamResources for UpstreamResources {
    fn resource(&self, api_version: &str, kind: &str) -> Option<String> {
        let kind = PolicyParamKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        self.0.param_resource(&kind)
    }
}
