//! The lookup of the scale of a pod's owner: the number of pods that its controller wants.
//!
//! Percentages and `maxUnavailable` refer to the number of pods that *should* exist. It is the scale of the
//! pods' controllers: a `ReplicationController`, a `ReplicaSet` or the Deployment that owns it, a
//! `StatefulSet`, or anything with a scale subresource. A [`ScaleLookup`] requests the objects it needs,
//! one at a time; the caller answers from its caches or from the API.

use std::fmt;

use serde_json::Value;

use crate::{
    pod::ControllerRef,
    read::{MalformedObject, ObjectField},
};

/// The scale of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerScale {
    /// The UID of the controller. For the `ReplicaSet` of a Deployment, it is that of the Deployment.
    pub uid: Box<str>,
    /// The `spec.replicas` of the controller.
    pub replicas: i32,
}

/// Why the scale of a controller cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The resource, such as `widgets.example.com`, has no scale subresource.
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
    /// A request of the caller failed, with this message.
    #[error("{0}")]
    Failed(String),
}

/// The result of a lookup: the scale; `None` if no such controller exists; or an error.
pub type ScaleResult = Result<Option<ControllerScale>, ScaleError>;

/// The next question of a lookup. All objects are in the namespace of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleQuestion {
    /// A built-in object, by kind and name: answer with [`ScaleLookup::object`].
    Object(ScaledKind, Box<str>),
    /// A GET of the scale subresource of this owner; the caller finds the resource of the owner's kind. Answer with
    /// [`ScaleLookup::scale`].
    Scale(ControllerRef),
    /// The resources that discovery lists for this group and version, that of the owner: answer with
    /// [`ScaleLookup::discovery`].
    Discovery(Box<str>),
}

/// The kinds whose scale is read from the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScaledKind {
    /// `ReplicationController`, core group.
    ReplicationController,
    /// `ReplicaSet` of `apps`.
    ReplicaSet,
    /// `Deployment` of `apps`.
    Deployment,
    /// `StatefulSet` of `apps`.
    StatefulSet,
}

/// The fields of a built-in object that a lookup needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledObject {
    /// The UID of the object.
    pub uid: Box<str>,
    /// The `spec.replicas` of the object.
    pub replicas: i32,
    /// The controller of the object itself, if it has one.
    pub controller: Option<ControllerRef>,
}

impl ScaledObject {
    /// Reads a `ReplicationController`, `ReplicaSet`, `Deployment` or `StatefulSet`.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if it has a field of a wrong type.
    pub fn from_value(object: &Value) -> Result<Self, MalformedObject> {
        let root = ObjectField::root(object);
        let spec = root.get("spec")?;
        let replicas = spec.get("replicas")?;
        Ok(Self {
            uid: root.get("metadata")?.get("uid")?.text()?.into(),
            // The default in the API.
            replicas: if replicas.value().is_null() {
                1
            } else {
                replicas.counter()?
            },
            controller: ControllerRef::from_value(object)?,
        })
    }
}

impl ControllerScale {
    /// Reads a `Scale`.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if it has a field of a wrong type.
    pub fn from_value(scale: &Value) -> Result<Self, MalformedObject> {
        let root = ObjectField::root(scale);
        Ok(Self {
            uid: root.get("metadata")?.get("uid")?.text()?.into(),
            replicas: root.get("spec")?.get("replicas")?.counter()?,
        })
    }
}

impl DiscoveredResource {
    /// Reads an `APIResourceList`.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if it has a field of a wrong type.
    pub fn from_list(list: &Value) -> Result<Vec<Self>, MalformedObject> {
        let root = ObjectField::root(list);
        let resources = root.get("resources")?.list()?.iter().map(|resource| {
            let resource = ObjectField::root(resource);
            Ok(Self {
                name: resource.get("name")?.text()?.to_owned(),
                group: resource.get("group")?.text()?.to_owned(),
                kind: resource.get("kind")?.text()?.to_owned(),
            })
        });
        resources.collect()
    }
}

/// The response to a GET of a scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleResponse {
    /// The UID of the owner, and `spec.replicas` of the `Scale`.
    Found(ControllerScale),
    /// The status was 404.
    NotFound {
        /// The plural name and the group of the resource, such as `widgets.example.com`.
        resource: String,
    },
    /// Any other failure, with its message. It may also be that the kind maps to no resource.
    Failed(String),
}

/// A resource as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// The name of the resource or subresource, such as `deployments/scale`.
    pub name: String,
    /// The group of the kind; empty if it is that of the list.
    pub group: String,
    /// The kind, such as `Scale`.
    pub kind: String,
}

/// The lookup of the scale of one owner.
///
/// The finders are tried in a fixed order: `ReplicationController`, Deployment of a `ReplicaSet`,
/// `ReplicaSet` without Deployment, `StatefulSet`, scale subresource. The first one that
/// finds a scale wins. An object that is absent, or has a different UID than the owner reference, counts as
/// not found, and the next finder is tried.
#[derive(Clone, Debug)]
pub struct ScaleLookup {
    owner: ControllerRef,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Reading the owner itself, whose kind is built in.
    Owner(ScaledKind),
    Deployment(ControllerRef),
    Scale,
    Discovery {
        resource: String,
    },
    Done(ScaleResult),
}

/// The groups whose kind `Scale` is supported: the current one and its predecessors.
const SCALE_GROUPS: [&str; 3] = ["autoscaling", "extensions", "apps"];

fn is_apps(group: &str) -> bool {
    group == "apps" || group == "extensions"
}

impl ScaleLookup {
    /// Starts the lookup of the scale of `owner`.
    pub fn new(owner: ControllerRef) -> Self {
        let kind = match (&*owner.kind, owner.group()) {
            ("ReplicationController", "") => Some(ScaledKind::ReplicationController),
            ("ReplicaSet", group) if is_apps(group) => Some(ScaledKind::ReplicaSet),
            ("StatefulSet", "apps") => Some(ScaledKind::StatefulSet),
            _ => None,
        };
        Self {
            owner,
            state: kind.map_or(State::Scale, State::Owner),
        }
    }

    /// The next question.
    ///
    /// # Errors
    ///
    /// The result of the lookup, once it is known.
    pub fn question(&self) -> Result<ScaleQuestion, &ScaleResult> {
        Ok(match &self.state {
            State::Owner(kind) => ScaleQuestion::Object(*kind, self.owner.name.clone()),
            State::Deployment(owner) => {
                ScaleQuestion::Object(ScaledKind::Deployment, owner.name.clone())
            }
            State::Scale => ScaleQuestion::Scale(self.owner.clone()),
            State::Discovery { .. } => ScaleQuestion::Discovery(self.owner.api_version.clone()),
            State::Done(result) => return Err(result),
        })
    }

    /// Answers [`ScaleQuestion::Object`]: the object; `None` if it does not exist.
    pub fn object(&mut self, object: Option<&ScaledObject>) {
        let found = |owner: &ControllerRef| object.filter(|object| object.uid == owner.uid);
        self.state = match &self.state {
            State::Owner(kind) => match found(&self.owner) {
                Some(object) => Self::after_owner(*kind, object),
                None => State::Scale,
            },
            State::Deployment(owner) => found(owner).map_or(State::Scale, State::found),
            _ => return,
        };
    }

    fn after_owner(kind: ScaledKind, object: &ScaledObject) -> State {
        match &object.controller {
            Some(above) if kind == ScaledKind::ReplicaSet && &*above.kind == "Deployment" => {
                if is_apps(above.group()) {
                    State::Deployment(above.clone())
                } else {
                    State::Scale
                }
            }
            _ => State::found(object),
        }
    }

    /// Answers [`ScaleQuestion::Scale`].
    pub fn scale(&mut self, response: ScaleResponse) {
        if !matches!(self.state, State::Scale) {
            return;
        }
        self.state = match response {
            ScaleResponse::Found(scale) if scale.uid != self.owner.uid => State::Done(Ok(None)),
            ScaleResponse::Found(scale) => State::Done(Ok(Some(scale))),
            ScaleResponse::NotFound { resource } => State::Discovery { resource },
            ScaleResponse::Failed(text) => State::Done(Err(ScaleError::Failed(text))),
        };
    }

    /// Answers [`ScaleQuestion::Discovery`]. If the resource has a scale subresource, the 404 means that the owner does
    /// not exist.
    pub fn discovery(&mut self, listed: Result<&[DiscoveredResource], String>) {
        let State::Discovery { resource } = &self.state else {
            return;
        };
        let plural = resource.split('.').next().unwrap_or_default();
        let subresource = format!("{plural}/scale");
        let is_scale = |one: &DiscoveredResource| {
            one.name == subresource
                && one.kind == "Scale"
                && SCALE_GROUPS.contains(&one.group.as_str())
        };
        self.state = State::Done(match listed {
            Ok(listed) if listed.iter().any(is_scale) => Ok(None),
            Ok(_) => Err(ScaleError::NoScale(resource.clone())),
            Err(text) => Err(ScaleError::Failed(text)),
        });
    }
}

impl State {
    fn found(object: &ScaledObject) -> Self {
        Self::Done(Ok(Some(ControllerScale {
            uid: object.uid.clone(),
            replicas: object.replicas,
        })))
    }
}

impl fmt::Display for ControllerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.api_version, self.kind, self.name)
    }
}
