//! What a server makes of the body of a write before its policies see it: which metadata it sets itself, and which fields it
//! takes from the body and which from the stored object.
//!
//! Each kind has a *strategy* in the server, and each subresource one of its own. [`strategy`] finds ours, which are tables
//! ([`table`]): what is not in them only the server can tell, by a dry run. The tables are compared with what a real server shows
//! its policies (`corpus/evaluated_objects.jsonl`).
//!
//! Source: Kubernetes `apiserver/pkg/registry/rest/{create,update,meta}.go`, the files `strategy.go` in
//! `kubernetes/pkg/registry` and the ones of `apiextensions-apiserver` and `kube-aggregator`.
//!
//! Not here: defaults (`fairgate_objects::defaults`), fields of features that are off, and what mutating admission changes. Policies
//! with `fidelity: dryRun` see these.

pub(crate) mod autoscalers;
mod changes;
mod creation;
mod derived;
mod ownership;
mod replaced;
mod services;
mod subresource;
mod table;
mod two_names;
mod update;

use fairgate_objects::conversion::ConversionError;
use fairgate_objects::custom::CustomSchema;
use fairgate_objects::schema::built_in_kinds;
use serde_json::{Map, Value, json};

use crate::{request::facts::WriteFacts, request::write_request::WriteVerb};
pub(crate) use creation::Fresh;
use derived::TooManyRequirements;
use ownership::Owner;
use table::{BUILT_IN, CreatedStatus, Posted, ResourceStrategy, Taken};

/// Why it is not known what a server makes of a body. The request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategyError {
    /// The body asks for more than is made of one.
    #[error(transparent)]
    Requirements(#[from] TooManyRequirements),
    /// A client chooses what an autoscaler has in annotations, so no failure policy ignores this.
    #[error("the gateway cannot tell how a server reads this autoscaler: {0}")]
    Autoscaler(#[from] ConversionError),
}

/// How the server makes the object of a write out of its body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteStrategy {
    /// The object itself is written.
    Resource(ResourceStrategy),
    /// A subresource of it, or by one.
    Subresource(Taken),
}

/// The strategy for a write. `has_status` is whether the resource has the subresource `status`, which counts for
/// custom resources alone. `None` if only the server knows what it makes of the body.
pub(crate) fn strategy(facts: &WriteFacts, has_status: bool) -> Option<WriteStrategy> {
    if !is_of_kubernetes(&facts.group) {
        return custom(&facts.subresource, has_status);
    }
    let of = BUILT_IN
        .iter()
        .find(|one| one.group == facts.group && one.resource == facts.resource)?;
    if facts.subresource.is_empty() {
        return Some(WriteStrategy::Resource(*of));
    }
    let mut subresources = of.subresources.iter();
    let (_, taken) = subresources.find(|(name, _)| *name == facts.subresource)?;
    Some(WriteStrategy::Subresource(*taken))
}

/// The subresources of a built-in resource by which its objects are written.
pub(crate) fn subresources(group: &str, resource: &str) -> impl Iterator<Item = &'static str> {
    let of = BUILT_IN
        .iter()
        .find(|one| one.group == group && one.resource == resource);
    let all = of.map_or(&[][..], |of| of.subresources);
    all.iter().map(|(name, _)| *name)
}

/// Whether a group is one of those that kube-apiserver itself has.
pub(crate) fn is_of_kubernetes(group: &str) -> bool {
    const OTHERS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
    OTHERS.contains(&group) || built_in_kinds().iter().any(|one| one.group == group)
}

/// The strategy of custom resources.
fn custom(subresource: &str, has_status: bool) -> Option<WriteStrategy> {
    match subresource {
        "" => Some(WriteStrategy::Resource(ResourceStrategy {
            status: if has_status {
                CreatedStatus::Dropped
            } else {
                CreatedStatus::Ordinary
            },
            ..table::CUSTOM
        })),
        "status" => Some(WriteStrategy::Subresource(table::STATUS_ALONE)),
        "scale" => Some(WriteStrategy::Subresource(Taken::Scale)),
        _ => None,
    }
}

impl WriteStrategy {
    /// Whether the body is a whole object of the resource, which is stored.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Resource(strategy) => strategy.is_stored,
            Self::Subresource(taken) => !matches!(taken, Taken::Scale | Taken::Posted(_)),
        }
    }

    /// Whether a subresource takes nothing but a `POST`. The others take none.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self, Self::Subresource(Taken::Posted(_)))
    }

    /// Whether the object has the stored UID, whatever the body says.
    pub(crate) fn keeps_uid(&self) -> bool {
        matches!(self, Self::Subresource(Taken::Status { stored, .. }) if stored.contains(&"uid"))
    }

    /// Whether what only a server may set is removed from a body before anything else.
    fn wipes(&self, facts: &WriteFacts) -> bool {
        match self {
            Self::Resource(_) => facts.verb == WriteVerb::Create,
            Self::Subresource(taken) => matches!(taken, Taken::Posted(Posted::Wiped)),
        }
    }

    /// Makes the object in the body the one that policies see. `old` is the stored object, if there is one; `owner` owns what the
    /// request changes, if that is to be shown.
    ///
    /// # Errors
    ///
    /// [`StrategyError`].
    pub(crate) fn apply(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        facts: &mut WriteFacts,
        fresh: &Fresh,
        owner: Option<(&str, Option<&CustomSchema>)>,
    ) -> Result<(), StrategyError> {
        two_names::unite(object, &facts.group, &facts.resource);
        autoscalers::read(object, facts)?;
        replaced::replace(object, facts);
        if old.is_none() && self.wipes(facts) {
            creation::wipe(object);
        }
        // What the server adds or keeps belongs to nobody, or to whom it did.
        let noted = owner
            .filter(|(manager, schema)| {
                let owner = Owner {
                    manager,
                    schema: *schema,
                    fresh,
                };
                self.note_owner(object, old, facts, owner)
            })
            .map(|_| ownership::entries(object));
        replaced::add_claim_types(object, facts);
        if matches!(self, Self::Resource(_)) {
            derived::fill(object, old, &facts.group, &facts.resource)?;
            if (&*facts.group, &*facts.resource) == ("", "services") {
                services::fill(object, old);
            }
        }
        match (self, old) {
            (Self::Resource(strategy), None) => strategy.create(object, facts, fresh),
            (Self::Resource(strategy), Some(old)) => strategy.update(object, old, fresh),
            (Self::Subresource(taken), None) => match taken {
                Taken::Posted(posted) => posted.create(object, fresh),
                // Nothing but what the subresource takes is the client's.
                _ => taken.update(object, &json!({}), fresh),
            },
            (Self::Subresource(taken), Some(old)) => taken.update(object, old, fresh),
        }
        autoscalers::keep_annotations(object, old, facts);
        if let Some(noted) = noted {
            ownership::set(object, noted);
        }
        Ok(())
    }
}

/// The metadata of an object, which is made if it is missing; `None` if it is something else.
fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let members = object.as_object_mut()?;
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut()
}

/// Gives a member the value that it has in another object, or none if it has none there.
fn take(members: &mut Map<String, Value>, key: &str, from: Option<&Value>) {
    match from.and_then(|from| from.get(key)) {
        Some(value) => members.insert(key.to_owned(), value.clone()),
        None => members.remove(key),
    };
}
