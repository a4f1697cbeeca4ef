//! The resources of the upstream, for the hosted API, which is there before them.

use std::sync::{Arc, OnceLock};

use fairgate_admission::PolicyParamKind;
use fairgate_apiserver::ParamResources;
use fairgate_cluster::FollowedCluster;

/// The resources of the upstream; none as long as nobody needs to know them.
#[derive(Default)]
pub(super) struct UpstreamResources(OnceLock<Arc<FollowedCluster>>);

impl UpstreamResources {
    /// From now on they are those of this cluster.
    pub(super) fn set(&self, cluster: &Arc<FollowedCluster>) {
        let _ = self.0.set(Arc::clone(cluster));
    }
}

impl ParamResources for UpstreamResources {
    fn resource(&self, api_version: &str, kind: &str) -> Option<String> {
        let kind = PolicyParamKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        self.0.get()?.param_resource(&kind)
    }
}
