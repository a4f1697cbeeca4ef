//! The scale of an owner: from the watched controllers, otherwise from the scale subresource of the owner.

use std::{collections::BTreeMap, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_disruption::{
    controller::scale::{
        ControllerScale, DiscoveredResource, ScaleLookup, ScaleQuestion, ScaleResponse, ScaleResult,
    },
    pod::ControllerRef,
};
use serde_json::Value;

use crate::{
    calls::{Calls, api_path, group_path, object_path},
    watches::FollowedObjects,
};

/// How long a discovery document is used.
const DISCOVERY_TTL: Duration = Duration::from_secs(30);
/// How long a discovery document is used that lacks a kind, which may just have been defined.
const SHORT_TTL: Duration = Duration::from_secs(1);
/// The maximum number of cached documents of each type. When it is reached, all are dropped.
const MAX_DOCUMENTS: usize = 256;

/// Begins a lookup: answers its questions about watched objects.
pub(crate) fn begin(known: &FollowedObjects, namespace: &str, owner: ControllerRef) -> ScaleLookup {
    let mut lookup = ScaleLookup::new(owner);
    while let Ok(ScaleQuestion::Object(kind, name)) = lookup.question() {
        lookup.object(known.scaled(kind, namespace, &name));
    }
    lookup
}

/// Discovery documents of the upstream, by group and version.
#[derive(Debug)]
pub(crate) struct Discovery {
    clock: Clock,
    documents: Mutex<BTreeMap<Box<str>, DiscoveryDocument>>,
    /// The versions of each group.
    groups: Mutex<BTreeMap<Box<str>, GroupDocument>>,
}

/// The resources of a group and version; empty if the server does not have it.
#[derive(Clone, Debug)]
struct DiscoveryDocument {
    resources: Vec<DiscoveredResource>,
    read: Time,
}

/// The versions of a group; empty if the server does not have it.
#[derive(Clone, Debug)]
struct GroupDocument {
    versions: Vec<String>,
    read: Time,
}

impl Discovery {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            documents: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Completes a lookup with requests to the upstream.
    pub(crate) async fn finish(
        &self,
        calls: &Calls,
        namespace: &str,
        mut lookup: ScaleLookup,
    ) -> ScaleResult {
        loop {
            match lookup.question() {
                Err(result) => return result.clone(),
                // `begin` has answered all questions about watched objects.
                Ok(ScaleQuestion::Object(..)) => lookup.object(None),
                Ok(ScaleQuestion::Scale(owner)) => {
                    let response = self.scale(calls, namespace, &owner).await;
                    lookup.scale(response);
                }
                Ok(ScaleQuestion::Discovery(api_version)) => {
                    let listed = self.resources(calls, &api_version, DISCOVERY_TTL).await;
                    lookup.discovery(listed.as_deref().map_err(Clone::clone));
                }
            }
        }
    }

    async fn scale(&self, calls: &Calls, namespace: &str, owner: &ControllerRef) -> ScaleResponse {
        let plural = match self.plural(calls, owner).await {
            Ok(plural) => plural,
            Err(text) => return ScaleResponse::Failed(text),
        };
        let api_version = match self.preferred_version(calls, owner, &plural).await {
            Ok(api_version) => api_version,
            Err(text) => return ScaleResponse::Failed(text),
        };
        let object = object_path(&api_path(&api_version), namespace, &plural, &owner.name);
        match calls.get(&format!("{object}/scale")).await {
            Ok(scale) => match ControllerScale::from_value(&scale) {
                Ok(scale) => ScaleResponse::Found(scale),
                Err(error) => ScaleResponse::Failed(error.to_string()),
            },
            Err(error) if error.code() == Some(404) => ScaleResponse::NotFound {
                resource: match owner.group() {
                    "" => plural,
                    group => format!("{plural}.{group}"),
                },
            },
            Err(error) => ScaleResponse::Failed(error.to_string()),
        }
    }

    /// The plural name of the owner's kind, from discovery.
    async fn plural(&self, calls: &Calls, owner: &ControllerRef) -> Result<String, String> {
        let find = |resources: Vec<DiscoveredResource>| {
            let is_owner =
                |one: &DiscoveredResource| *one.kind == *owner.kind && !one.name.contains('/');
            resources.into_iter().find(is_owner).map(|one| one.name)
        };
        if let Some(plural) = find(
            self.resources(calls, &owner.api_version, DISCOVERY_TTL)
                .await?,
        ) {
            return Ok(plural);
        }
        let plural = find(self.resources(calls, &owner.api_version, SHORT_TTL).await?);
        plural.ok_or_else(|| {
            format!(
                "no matches for kind \"{}\" in version \"{}\"",
                owner.kind, owner.api_version
            )
        })
    }

    /// The group and version in which the scale of an owner is read: the first version that has the resource, beginning
    /// with the preferred version of the group. It may differ from the version in the owner reference, which is used
    /// for the core group, and if no version has the resource.
    async fn preferred_version(
        &self,
        calls: &Calls,
        owner: &ControllerRef,
        plural: &str,
    ) -> Result<String, String> {
        if owner.group().is_empty() {
            return Ok(owner.api_version.to_string());
        }
        for version in self.versions(calls, owner.group()).await? {
            let resources = self.resources(calls, &version, DISCOVERY_TTL).await?;
            if resources.iter().any(|resource| resource.name == plural) {
                return Ok(version);
            }
        }
        Ok(owner.api_version.to_string())
    }

    /// The versions of a group as `group/version`, the preferred one first; none if the server does not have it.
    async fn versions(&self, calls: &Calls, group: &str) -> Result<Vec<String>, String> {
        let known = lock(&self.groups).get(group).cloned();
        if let Some(known) = known
            && self.clock.now().since(known.read) < DISCOVERY_TTL
        {
            return Ok(known.versions);
        }
        let versions = match calls.get(&group_path(group)).await {
            Ok(document) => versions_of(&document),
            Err(error) if error.code() == Some(404) => Vec::new(),
            Err(error) => return Err(error.to_string()),
        };
        let mut groups = lock(&self.groups);
        if groups.len() >= MAX_DOCUMENTS {
            groups.clear();
        }
        let document = GroupDocument {
            versions: versions.clone(),
            read: self.clock.now(),
        };
        groups.insert(group.into(), document);
        Ok(versions)
    }

    /// The resources of a group and version, from a discovery document that is at most `age` old.
    async fn resources(
        &self,
        calls: &Calls,
        api_version: &str,
        age: Duration,
    ) -> Result<Vec<DiscoveredResource>, String> {
        let known = lock(&self.documents).get(api_version).cloned();
        if let Some(known) = known
            && self.clock.now().since(known.read) < age
        {
            return Ok(known.resources);
        }
        let resources = match calls.get(&api_path(api_version)).await {
            Ok(document) => read(&document)?,
            Err(error) if error.code() == Some(404) => Vec::new(),
            Err(error) => return Err(error.to_string()),
        };
        let document = DiscoveryDocument {
            resources: resources.clone(),
            read: self.clock.now(),
        };
        let mut documents = lock(&self.documents);
        if documents.len() >= MAX_DOCUMENTS {
            documents.clear();
        }
        documents.insert(api_version.into(), document);
        Ok(resources)
    }
}

/// The versions of an `APIGroup`, the preferred one first.
fn versions_of(group: &Value) -> Vec<String> {
    let name = |version: &Value| version["groupVersion"].as_str().map(str::to_owned);
    let preferred = name(&group["preferredVersion"]);
    let listed = group["versions"].as_array().into_iter().flatten();
    let others = listed
        .filter_map(name)
        .filter(|version| Some(version) != preferred.as_ref());
    preferred.iter().cloned().chain(others).collect()
}

fn read(document: &Value) -> Result<Vec<DiscoveredResource>, String> {
    DiscoveredResource::from_list(document).map_err(|error| error.to_string())
}
