//! What is known of the cluster behind the gateway.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use fairgate_admission::{
    ClusterObjects, InputFailure, KnownFuture, ListFuture, LookupFuture, LookupLack, ParamScope,
    PolicyParamKind, SharedObject, unknown_param_kind,
};
use fairgate_admission_layer::{ClusterState, ResourcesRead, ServedResource, WorkerPool};
use fairgate_base::{
    clock::Clock,
    tasks::{self, AbortOnDrop},
};
use fairgate_objects::kind::Kind;
use fairgate_upstream::{
    client::ApiClient,
    informer::{ApiResource, GroupVersionKind, WatchHealth},
};
use tokio::runtime::Handle;

use crate::{
    discovery::ResourceDiscovery,
    follower::{FollowSettings, FollowedKind, Follower, USUAL},
    kind_schemas::KindSchemas,
    live_reads::LiveReads,
};

/// The longest time for reading a param, and for waiting until all of a kind are known, as in kube-apiserver.
const PARAM_LIMIT: Duration = Duration::from_secs(1);
/// The longest time for reading a namespace.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(5);

/// What an [`FollowedCluster`] needs.
#[derive(Clone)]
pub struct ClusterSettings {
    /// Sends short requests in the gateway's own name.
    pub client: ApiClient,
    /// The same, with a connection for each request.
    pub streams: ApiClient,
    /// The runtime of all requests.
    pub control: Handle,
    /// The clock.
    pub clock: Clock,
    /// The threads that decode long responses for which requests wait.
    pub workers: Arc<WorkerPool>,
    /// Whether namespaces and params are read for each request that needs them, instead of taken from what watches have
    /// delivered.
    pub reads_now: bool,
}

/// What policies need to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNeeds {
    /// Whether they need the namespaces.
    pub namespaces: bool,
    /// The kinds of params.
    pub params: BTreeSet<PolicyParamKind>,
}

impl ClusterNeeds {
    /// What either of them needs.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            namespaces: self.namespaces || other.namespaces,
            params: self.params.union(&other.params).cloned().collect(),
        }
    }
}

type ParamFollowers = BTreeMap<PolicyParamKind, Arc<Follower<SharedObject>>>;

/// What is known of an upstream, kept up to date by watches of what policies need.
pub struct FollowedCluster {
    following: FollowSettings,
    /// Sends short requests.
    client: ApiClient,
    reads: LiveReads,
    reads_now: bool,
    namespaces: ArcSwapOption<Follower<SharedObject>>,
    params: ArcSwap<ParamFollowers>,
    _discovering: AbortOnDrop,
}

impl fmt::Debug for FollowedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowedCluster")
            .field("namespaces", &self.namespaces.load())
            .field("params", &self.params.load())
            .finish_non_exhaustive()
    }
}

impl FollowedCluster {
    /// Starts to read which resources the upstream has; follows nothing else yet.
    pub fn start(settings: ClusterSettings) -> Arc<Self> {
        let ClusterSettings {
            client,
            streams,
            control,
            clock,
            workers,
            reads_now,
        } = settings;
        let discovery = Arc::new(ResourceDiscovery::new(client.clone(), clock.clone()));
        let discovering = AbortOnDrop::new(tasks::spawn(&control, Arc::clone(&discovery).run()));
        Arc::new(Self {
            client: client.clone(),
            reads: LiveReads::new(client, control.clone(), clock.clone(), workers),
            reads_now,
            following: FollowSettings {
                streams,
                control,
                clock,
                discovery,
                informer: USUAL,
            },
            namespaces: ArcSwapOption::empty(),
            params: ArcSwap::default(),
            _discovering: discovering,
        })
    }

    /// The kinds of this upstream with their fields; `own` are kinds that the gateway has itself.
    pub fn kind_schemas(&self, own: Vec<&'static Kind>) -> KindSchemas {
        let following = &self.following;
        KindSchemas::with_discovery(
            Arc::clone(&following.discovery),
            self.client.clone(),
            following.clock.clone(),
            &following.control,
            own,
        )
    }

    pub(crate) fn following(&self) -> &FollowSettings {
        &self.following
    }

    /// Follows what `needs` names, and nothing else any more. To be called by one task.
    pub fn follow(&self, needs: &ClusterNeeds) {
        let settings = &self.following;
        if !needs.namespaces {
            self.namespaces.store(None);
        } else if self.namespaces.load().is_none() {
            let kind = FollowedKind::Known(namespace_resource());
            let follower = Follower::start(settings, kind, "namespaces");
            self.namespaces.store(Some(Arc::new(follower)));
        }
        let known = self.params.load();
        let wanted = needs.params.iter().map(|kind| {
            let follower = known.get(kind).cloned().unwrap_or_else(|| {
                let wanted = FollowedKind::Params(kind.clone());
                Arc::new(Follower::start(settings, wanted, "params"))
            });
            (kind.clone(), follower)
        });
        let wanted: ParamFollowers = wanted.collect();
        self.params.store(Arc::new(wanted));
    }

    /// The resource, in the plural, whose objects are of this kind, if it is known.
    pub fn param_resource(&self, kind: &PolicyParamKind) -> Option<String> {
        let discovery = &self.following.discovery;
        let table = discovery.table();
        let found = table
            .of_kind(kind)
            .map(|(resource, _)| resource.plural.clone());
        if found.is_none() {
            discovery.miss();
        }
        found
    }

    /// The resource of a kind of params, and where its objects are; what was last known of it while policies need it.
    fn param_kind(&self, kind: &PolicyParamKind) -> Option<(ApiResource, ParamScope)> {
        let discovery = &self.following.discovery;
        if let Some(found) = discovery.of_params(kind) {
            return Some(found);
        }
        discovery.miss();
        let served = self.params.load().get(kind)?.served()?;
        Some((*served).clone())
    }

    /// Waits until the namespaces have been listed, if they are followed.
    pub(crate) async fn namespaces_listed(&self) {
        let follower = self.namespaces.load_full();
        if let Some(follower) = follower {
            follower.listed().await;
        }
    }

    /// Waits until all params that are followed have been listed.
    pub(crate) async fn params_listed(&self) {
        let followers = self.params.load_full();
        for follower in followers.values() {
            follower.listed().await;
        }
    }

    /// Why something is not up to date; `None` if everything is that policies need.
    pub fn problem(&self) -> Option<String> {
        let namespaces = self.namespaces.load_full();
        let namespaces = namespaces.and_then(|follower| follower.health.problem());
        let params = self.params.load_full();
        let mut params = params.iter().filter_map(|(kind, follower)| {
            let problem = follower.health.problem()?;
            Some(format!("{} {}: {problem}", kind.api_version, kind.kind))
        });
        namespaces
            .or_else(|| params.next())
            .or_else(|| self.following.discovery.problem())
    }
}

/// The resource of namespaces.
fn namespace_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("", "v1", "Namespace");
    ApiResource::from_gvk_with_plural(&kind, "namespaces")
}

impl ClusterState for FollowedCluster {
    fn resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<Arc<ServedResource>> {
        let discovery = &self.following.discovery;
        let table = discovery.table();
        let found = table.resource(group, version, resource, subresource);
        if found.is_none() {
            discovery.miss();
        }
        found.cloned()
    }

    fn are_resources_known(&self) -> bool {
        self.following.discovery.is_read()
    }

    fn resources_read(&self) -> ResourcesRead<'_> {
        Box::pin(self.following.discovery.read_again())
    }
}

impl ClusterObjects for FollowedCluster {
    fn namespace(&self, name: &str) -> Option<SharedObject> {
        if self.reads_now {
            return None;
        }
        let follower = self.namespaces.load();
        follower.as_ref()?.objects.get("", name)
    }

    fn read_namespace<'a>(&'a self, user: &'a str, name: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            let resource = namespace_resource();
            if self.reads_now {
                return self.reads.read_now(user, (&resource, true), "", name).await;
            }
            let limit = NAMESPACE_LIMIT;
            self.reads
                .read(user, (&resource, true), "", name, limit)
                .await
        })
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        // Without a copy of the resource, for every request.
        if let Some((_, scope)) = self.following.discovery.table().of_kind(kind) {
            return Ok(*scope);
        }
        let found = self.param_kind(kind).map(|(_, scope)| scope);
        found.ok_or_else(|| unknown_param_kind(kind))
    }

    fn are_params_known(&self, kind: &PolicyParamKind) -> bool {
        if self.reads_now {
            return true;
        }
        let params = self.params.load();
        params
            .get(kind)
            .is_some_and(|follower| follower.objects.is_listed())
    }

    fn params_known<'a>(&'a self, kind: &'a PolicyParamKind) -> KnownFuture<'a> {
        let follower = self.params.load().get(kind).cloned();
        Box::pin(async move {
            // A kind that is not followed any more has become unknown: the policies have changed.
            let Some(follower) = follower else {
                return Ok(());
            };
            let listed = tokio::time::timeout(PARAM_LIMIT, follower.listed()).await;
            if listed.is_ok() {
                return Ok(());
            }
            // A kind that does not exist, or may not be read, is an error of the policy.
            lack(&follower.health).map_or(Ok(()), Err)
        })
    }

    fn param(&self, kind: &PolicyParamKind, namespace: &str, name: &str) -> Option<SharedObject> {
        if self.reads_now {
            return None;
        }
        let params = self.params.load();
        params.get(kind)?.objects.get(namespace, name)
    }

    fn read_param<'a>(
        &'a self,
        user: &'a str,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
        name: &'a str,
    ) -> LookupFuture<'a> {
        Box::pin(async move {
            let Some((resource, _)) = self.param_kind(kind) else {
                let why = unknown_param_kind(kind);
                return Err(if self.reads_now {
                    InputFailure::Lacking(LookupLack::Server(why))
                } else {
                    InputFailure::Failed(why)
                });
            };
            // Discovery has been read, and does not have the kind any more if it comes from the params that were followed.
            let is_served = self.following.discovery.of_params(kind).is_some();
            let resource = (&resource, is_served);
            if self.reads_now {
                let reading = self.reads.read_now(user, resource, namespace, name);
                return reading.await;
            }
            self.reads
                .read(user, resource, namespace, name, PARAM_LIMIT)
                .await
        })
    }

    fn lists_params(&self, _: &PolicyParamKind) -> bool {
        self.reads_now
    }

    fn list_params<'a>(
        &'a self,
        user: &'a str,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
    ) -> ListFuture<'a> {
        Box::pin(async move {
            let Some((resource, _)) = self.param_kind(kind) else {
                return Err(LookupLack::Server(unknown_param_kind(kind)));
            };
            self.reads.list_now(user, &resource, namespace).await
        })
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<SharedObject> {
        let params = self.params.load();
        let follower = params.get(kind);
        follower.map_or_else(Vec::new, |follower| follower.objects.all(namespace))
    }
}

/// What is lacking to list the objects; `None` if nothing is, but they do not exist, or may not be read.
fn lack(health: &WatchHealth) -> Option<LookupLack> {
    match health.failure() {
        None => Some(LookupLack::Time),
        Some((_, true)) => None,
        Some((why, false)) => Some(LookupLack::Server(format!("{}: {why}", health.what()))),
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::time::Time;

    use super::*;

    #[test]
    fn only_what_can_change_by_itself_is_lacking() {
        let health = WatchHealth::new(Clock::manual(Time::ZERO), "namespaces", "for admission");
        assert_eq!(lack(&health), Some(LookupLack::Time));
        health.failed("Namespace", "too many".to_owned(), false);
        let server = LookupLack::Server("namespaces: too many".to_owned());
        assert_eq!(lack(&health), Some(server));
        health.failed("Namespace", "refused".to_owned(), true);
        assert_eq!(lack(&health), None);
    }
}
