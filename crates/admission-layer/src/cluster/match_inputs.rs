//! The inputs for finding the policies that may match, before a body is read. Nothing that this asks for allocates.

use std::{cell::OnceCell, sync::Arc};

use fairgate_admission::{
    AdmissionInputs, AdmissionObjects, ClusterInputs, ClusterObjects, ConversionFailure,
    EquivalentResource, GroupVersionKind, GroupVersionResource, InputFailure, KnownAnswers,
    ParamScope, PolicyParamKind, SharedObject,
};
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};

/// The namespace of a request and its equivalent resources.
pub(crate) struct MatchInputs<'a> {
    cluster: &'a dyn ClusterObjects,
    equivalents: &'a [EquivalentResource<'a>],
    /// A request has one namespace.
    namespace: OnceCell<Option<SharedObject>>,
}

impl<'a> MatchInputs<'a> {
    pub(crate) fn new(
        cluster: &'a dyn ClusterObjects,
        equivalents: &'a [EquivalentResource<'a>],
    ) -> Self {
        Self {
            cluster,
            equivalents,
            namespace: OnceCell::new(),
        }
    }
}

impl AdmissionInputs for MatchInputs<'_> {
    fn objects(&self, _: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        Ok(AdmissionObjects::default())
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        self.equivalents
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        self
    }

    /// Never asked for: no expression is evaluated.
    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        Arc::<KnownAnswers>::default()
    }
}

impl ClusterInputs for MatchInputs<'_> {
    fn namespace(&self, name: &str) -> Result<&CelJson<'_>, InputFailure> {
        let found = self.namespace.get_or_init(|| self.cluster.namespace(name));
        let found = found.as_ref().map(|found| &**found);
        // It may exist. Either way the policy may match.
        found.ok_or(InputFailure::NotFound)
    }

    fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
        Err(String::new())
    }

    fn params_known(&self, _: &PolicyParamKind) -> bool {
        false
    }

    fn params(&self, _: &PolicyParamKind, _: &str) -> Vec<&CelJson<'_>> {
        Vec::new()
    }
}
