//! The objects that the controller watches: pods, their controllers, and budgets.
//!
//! Each kind is listed in pages and then watched, by an [`Informer`]; known objects stay until a new list is complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fairgate_base::clock::Clock;
use fairgate_disruption::{
    budget::DisruptionBudget,
    controller::{
        DisruptionController, ObjectKey,
        scale::{ScaledKind, ScaledObject},
    },
    pod::Pod,
};
use fairgate_upstream::{
    client::ApiClient,
    informer::{
        ApiResource, Event, GroupVersionKind, Informer, InformerSettings, KeptFields, WatchError,
        WatchHealth, WatchedObject, Whole,
    },
};
use futures_util::{
    Stream, StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use serde_json::Value;

use crate::{budget_feed::BudgetEvents, outline::Outline};

/// A kind of objects that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchedKind {
    Pods,
    Budgets,
    Scaled(ScaledKind),
}

impl WatchedKind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Pods,
        Self::Budgets,
        Self::Scaled(ScaledKind::ReplicationController),
        Self::Scaled(ScaledKind::ReplicaSet),
        Self::Scaled(ScaledKind::Deployment),
        Self::Scaled(ScaledKind::StatefulSet),
    ];

    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Pods => ("", "v1", "Pod", "pods"),
            Self::Budgets => (
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
            ),
            Self::Scaled(ScaledKind::ReplicationController) => {
                ("", "v1", "ReplicationController", "replicationcontrollers")
            }
            Self::Scaled(ScaledKind::ReplicaSet) => ("apps", "v1", "ReplicaSet", "replicasets"),
            Self::Scaled(ScaledKind::Deployment) => ("apps", "v1", "Deployment", "deployments"),
            Self::Scaled(ScaledKind::StatefulSet) => ("apps", "v1", "StatefulSet", "statefulsets"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Budgets => "poddisruptionbudgets",
            Self::Scaled(ScaledKind::ReplicationController) => "replicationcontrollers",
            Self::Scaled(ScaledKind::ReplicaSet) => "replicasets",
            Self::Scaled(ScaledKind::Deployment) => "deployments",
            Self::Scaled(ScaledKind::StatefulSet) => "statefulsets",
        }
    }
}

/// An event of a watch, with the needed fields of the object.
pub(crate) type WatchUpdate = (WatchedKind, Result<Event<Value>, WatchError>);

/// Lists and watches all kinds, and tells how that goes. The budgets come from `budgets`, if it is given, otherwise from the
/// upstream, which is asked through `streams`, a client with a connection for each request. The updates never end.
pub(crate) fn watches(
    streams: &ApiClient,
    clock: &Clock,
    mut budgets: Option<BudgetEvents>,
) -> (
    SelectAll<BoxStream<'static, WatchUpdate>>,
    Vec<Arc<WatchHealth>>,
) {
    let (mut updates, mut healths) = (SelectAll::new(), Vec::new());
    for kind in WatchedKind::ALL {
        let purpose = "for the disruption controller";
        let health = WatchHealth::new(clock.clone(), kind.plural(), purpose);
        healths.push(Arc::clone(&health));
        let hosted = budgets.take_if(|_| kind == WatchedKind::Budgets);
        updates.push(match (kind, hosted) {
            (_, Some(hosted)) => observed(hosted, health)
                .map(move |event| (kind, event))
                .boxed(),
            // Budgets are kept whole because their status is written back; of the others most fields are skipped while parsing.
            (WatchedKind::Budgets, None) => follow::<Whole>(streams, clock, kind, health),
            _ => follow::<Outline>(streams, clock, kind, health),
        });
    }
    (updates, healths)
}

/// Notes what a feed of the gateway itself says about itself.
fn observed(
    events: BudgetEvents,
    health: Arc<WatchHealth>,
) -> impl Stream<Item = Result<Event<Value>, WatchError>> + Send {
    events.map(move |event| match event {
        Ok(event) => {
            health.recovered();
            Ok(event)
        }
        Err(why) => {
            health.failed("PodDisruptionBudget", why.clone(), false);
            Err(WatchError::Broken(why))
        }
    })
}

fn follow<K: KeptFields>(
    streams: &ApiClient,
    clock: &Clock,
    kind: WatchedKind,
    health: Arc<WatchHealth>,
) -> BoxStream<'static, WatchUpdate> {
    let (streams, clock) = (streams.clone(), clock.clone());
    let settings = InformerSettings::default();
    let informer = Informer::<K>::new(streams, clock, kind.resource(), settings, health);
    let events = informer.into_stream();
    events
        .map(move |event| (kind, event.map(into_value)))
        .boxed()
}

fn into_value<K>(event: Event<WatchedObject<K>>) -> Event<Value> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.object),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(object.object),
        Event::Delete(object) => Event::Delete(object.object),
    }
}

/// The objects from the watches: the controller with its pods and budgets, and the scales of owners.
#[derive(Debug, Default)]
pub(crate) struct FollowedObjects {
    pub(crate) controller: DisruptionController,
    scaled: BTreeMap<(ScaledKind, ObjectKey), ScaledObject>,
    /// The kinds that have been listed completely at least once, or that the server does not serve.
    listed: BTreeSet<WatchedKind>,
    /// The keys of the lists that are being received.
    incoming: BTreeMap<WatchedKind, BTreeSet<ObjectKey>>,
}

impl FollowedObjects {
    /// No objects yet. The selectors of a namespace may have so many requirements and values together.
    pub(crate) fn new(selector_terms: u64) -> Self {
        Self {
            controller: DisruptionController::new(selector_terms),
            ..Self::default()
        }
    }

    /// Whether all kinds have been listed. Objects that are not known then do not exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() == WatchedKind::ALL.len()
    }

    /// The owner of a built-in kind with this name, if it exists.
    pub(crate) fn scaled(
        &self,
        kind: ScaledKind,
        namespace: &str,
        name: &str,
    ) -> Option<&ScaledObject> {
        self.scaled.get(&(kind, ObjectKey::new(namespace, name)))
    }

    /// The server does not serve this kind. If it is a kind of owners, it counts as listed without objects.
    pub(crate) fn absent(&mut self, kind: WatchedKind) {
        if matches!(kind, WatchedKind::Scaled(_)) {
            self.listed.insert(kind);
        }
    }

    /// Applies an event. An object that cannot be read is dropped, and the error says why. This is safe: unknown pods
    /// do not count as healthy, and unknown budgets get no status.
    pub(crate) fn take(&mut self, kind: WatchedKind, event: Event<Value>) -> Result<(), String> {
        match event {
            Event::Init => {
                self.incoming.insert(kind, BTreeSet::new());
            }
            Event::InitApply(object) => {
                if let Some(incoming) = self.incoming.get_mut(&kind) {
                    incoming.insert(key(&object));
                }
                // At once, since an object of a new list is never older than the known one; only removals wait for the end of the list.
                return self.apply(kind, object);
            }
            Event::InitDone => {
                self.remove_others(kind);
                self.listed.insert(kind);
            }
            Event::Apply(object) => return self.apply(kind, object),
            Event::Delete(object) => self.delete(kind, &key(&object)),
        }
        Ok(())
    }

    fn apply(&mut self, kind: WatchedKind, object: Value) -> Result<(), String> {
        let key = key(&object);
        let applied = match kind {
            WatchedKind::Pods => Pod::from_value(&object).map(|pod| self.controller.apply_pod(pod)),
            WatchedKind::Budgets => DisruptionBudget::from_value(object)
                .map(|budget| self.controller.apply_budget(budget)),
            WatchedKind::Scaled(scaled) => ScaledObject::from_value(&object).map(|object| {
                self.scaled.insert((scaled, key.clone()), object);
            }),
        };
        applied.map_err(|error| {
            self.delete(kind, &key);
            format!("{} {}/{}: {error}", kind.plural(), key.namespace, key.name)
        })
    }

    fn delete(&mut self, kind: WatchedKind, key: &ObjectKey) {
        match kind {
            WatchedKind::Pods => self.controller.delete_pod(key),
            WatchedKind::Budgets => self.controller.delete_budget(key),
            WatchedKind::Scaled(scaled) => {
                self.scaled.remove(&(scaled, key.clone()));
            }
        }
    }

    /// Removes the objects that are not in the complete list.
    fn remove_others(&mut self, kind: WatchedKind) {
        let incoming = self.incoming.remove(&kind).unwrap_or_default();
        let gone = |known: &&ObjectKey| !incoming.contains(*known);
        let gone: Vec<ObjectKey> = match kind {
            WatchedKind::Pods => self.controller.pods().filter(gone).cloned().collect(),
            WatchedKind::Budgets => self.controller.budgets().filter(gone).cloned().collect(),
            WatchedKind::Scaled(scaled) => {
                let of_kind = self.scaled.keys().filter(|(kind, _)| *kind == scaled);
                of_kind.map(|(_, key)| key).filter(gone).cloned().collect()
            }
        };
        for key in gone {
            self.delete(kind, &key);
        }
    }
}

fn key(object: &Value) -> ObjectKey {
    let text = |field| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "1"}})
    }

    #[test]
    fn a_new_list_replaces_the_known_objects_when_it_is_complete() {
        let mut known = FollowedObjects::default();
        let mut take = |event| {
            known
                .take(WatchedKind::Pods, event)
                .map(|()| known.controller.counts().pods)
        };
        assert_eq!(take(Event::Init), Ok(0));
        assert_eq!(take(Event::InitApply(pod("a"))), Ok(1));
        assert_eq!(take(Event::InitApply(pod("b"))), Ok(2));
        assert_eq!(take(Event::InitDone), Ok(2));
        assert_eq!(take(Event::Init), Ok(2));
        assert_eq!(take(Event::InitApply(pod("c"))), Ok(3));
        // The list is interrupted and begins again.
        assert_eq!(take(Event::Init), Ok(3));
        assert_eq!(take(Event::InitApply(pod("b"))), Ok(3));
        assert_eq!(take(Event::InitDone), Ok(1));
        assert_eq!(take(Event::Delete(pod("b"))), Ok(0));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_left_out_with_a_reason() {
        let mut known = FollowedObjects::default();
        known
            .take(WatchedKind::Pods, Event::Apply(pod("a")))
            .unwrap();
        let mut odd = pod("a");
        odd["metadata"]["labels"] = json!({"x": 5});
        let error = known.take(WatchedKind::Pods, Event::Apply(odd));
        assert_eq!(
            error.unwrap_err(),
            "pods ns/a: metadata.labels[x] is not a string"
        );
        assert_eq!(known.controller.counts().pods, 0);
    }

    #[test]
    fn only_kinds_of_owners_may_be_absent() {
        let mut known = FollowedObjects::default();
        for kind in WatchedKind::ALL {
            known.absent(kind);
        }
        assert!(!known.is_complete());
        for kind in [WatchedKind::Pods, WatchedKind::Budgets] {
            known.take(kind, Event::Init).unwrap();
            known.take(kind, Event::InitDone).unwrap();
        }
        assert!(known.is_complete());
        let scaled = WatchedKind::Scaled(ScaledKind::StatefulSet);
        let object = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"}, "spec": {"replicas": 3}});
        known.take(scaled, Event::Apply(object)).unwrap();
        let replicas =
            |known: &FollowedObjects, kind| known.scaled(kind, "ns", "s").map(|one| one.replicas);
        assert_eq!(replicas(&known, ScaledKind::StatefulSet), Some(3));
        assert_eq!(replicas(&known, ScaledKind::ReplicaSet), None);
    }
}
