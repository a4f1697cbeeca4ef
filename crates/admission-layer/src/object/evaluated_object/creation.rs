//! New objects, and bodies that are posted and not stored.

use std::hash::{BuildHasher as _, RandomState};

use fairgate_core::digest::User;
use fairgate_objects::schema::{Presence, Type, built_in, canonical};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    changes::{Spec, first_template_generation},
    metadata_mut,
    table::{CreatedStatus, Posted, ResourceStrategy},
};
use crate::request::facts::WriteFacts;

/// The label of a namespace that always has its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// What kube-apiserver adds to the finalizers of a namespace.
const FINALIZER: &str = "kubernetes";

/// What only the server sets in a new object. The object will have another UID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) uid: Uuid,
    /// Seconds since 1970.
    pub(crate) seconds: u64,
}

impl Fresh {
    /// A new UID, which no client can guess, at a time in seconds since 1970.
    pub(crate) fn new(seconds: u64) -> Self {
        // A `RandomState` has secret keys that the system has drawn, and other ones each time.
        let half = || RandomState::new().hash_one(seconds).to_be_bytes();
        let [one, other] = [half(), half()];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&one);
        bytes[8..].copy_from_slice(&other);
        Self {
            uid: uuid::Builder::from_random_bytes(bytes).into_uuid(),
            seconds,
        }
    }

    fn fill(self, metadata: &mut Map<String, Value>) {
        metadata.insert("uid".to_owned(), json!(self.uid.to_string()));
        metadata.insert("creationTimestamp".to_owned(), json!(self.time()));
    }

    /// When the object is created: RFC 3339.
    pub(crate) fn time(self) -> String {
        let seconds = i64::try_from(self.seconds).unwrap_or_default();
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        time.to_string()
    }
}

/// Removes what only a server may set.
pub(super) fn wipe(object: &mut Value) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(key);
    }
}

impl ResourceStrategy {
    /// The object of a POST, or of a PUT or patch that creates it.
    pub(super) fn create(&self, object: &mut Value, facts: &WriteFacts, fresh: &Fresh) {
        let Some(metadata) = metadata_mut(object) else {
            return;
        };
        if self.is_stored {
            fresh.fill(metadata);
        }
        if self.begins_at_one() {
            metadata.insert("generation".to_owned(), json!(1));
        }
        self.create_status(object, facts, fresh);
        match (self.group, self.resource) {
            ("", "namespaces") => namespace(object),
            ("", "serviceaccounts") => secret_names(object),
            ("", "limitranges") => name_of_limits(object, fresh),
            ("certificates.k8s.io", "certificatesigningrequests") => {
                requested_by(object, &facts.user);
            }
            ("apps", "daemonsets") => first_template_generation(object),
            ("batch", "jobs") => select_own_pods(object, fresh),
            ("apiextensions.k8s.io", "customresourcedefinitions") => definition_status(object),
            ("apiregistration.k8s.io", "apiservices") => api_service_status(object, fresh),
            _ => {}
        }
    }

    /// Whether a new object has the generation 1.
    fn begins_at_one(&self) -> bool {
        let counted = self.counted;
        counted.is_some_and(|spec| !matches!(spec, Spec::OnUpdate))
    }

    fn create_status(&self, object: &mut Value, facts: &WriteFacts, fresh: &Fresh) {
        let Some(members) = object.as_object_mut() else {
            return;
        };
        match self.status {
            CreatedStatus::Ordinary | CreatedStatus::Sent => {}
            CreatedStatus::Dropped => {
                members.remove("status");
                members.extend(empty_status(facts).map(|empty| ("status".to_owned(), empty)));
            }
            CreatedStatus::Phase(phase) => {
                let mut status = json!({"phase": phase});
                if self.resource == "persistentvolumes" {
                    status["lastPhaseTransitionTime"] = json!(fresh.time());
                }
                members.insert("status".to_owned(), status);
            }
        }
    }
}

/// The status that an object without one is written with: some numbers in it are always there. `None` if there is none.
fn empty_status(facts: &WriteFacts) -> Option<Value> {
    let kind = facts.group_version_kind();
    let shape = built_in(kind.group, kind.version, kind.kind)?;
    let status = shape.fields.iter().find(|field| field.name == "status")?;
    let Type::Object(shape) = status.ty else {
        return None;
    };
    let empty = canonical::decode(shape, &json!({})).ok()?;
    (status.presence == Presence::Always).then_some(empty.value)
}

impl Posted {
    /// A body that is posted to a subresource.
    pub(super) fn create(self, object: &mut Value, fresh: &Fresh) {
        match self {
            Self::Wiped | Self::Kept => {}
            Self::Token => {
                if let Some(metadata) = metadata_mut(object) {
                    // The one of the service account, if that is known.
                    let known = metadata.remove("uid").filter(|uid| *uid != "");
                    fresh.fill(metadata);
                    metadata.extend(known.map(|uid| ("uid".to_owned(), uid)));
                }
                if let Some(members) = object.as_object_mut() {
                    // Go encodes an empty time that is no pointer as null.
                    let empty = json!({"token": "", "expirationTimestamp": null});
                    members.insert("status".to_owned(), empty);
                }
            }
        }
    }
}

/// Gives a namespace the label and, if it is new, the finalizer that each has.
fn namespace(object: &mut Value) {
    named(object);
    let spec = object.as_object_mut().map(|members| {
        let spec = members.entry("spec").or_insert_with(|| json!({}));
        if spec.is_null() {
            *spec = json!({});
        }
        spec
    });
    let Some(Value::Object(spec)) = spec else {
        return;
    };
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Value::Array(all) = finalizers
        && all.iter().all(|one| one != FINALIZER)
    {
        all.push(json!(FINALIZER));
    }
}

/// Gives a namespace the label with its name, if it has a name yet.
pub(super) fn named(object: &mut Value) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let Some(name) = metadata.get("name").filter(|name| *name != "").cloned() else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if labels.is_null() {
        *labels = json!({});
    }
    if let Value::Object(labels) = labels {
        labels.insert(NAME_LABEL.to_owned(), name);
    }
}

/// A job selects its pods by its UID, unless it says that its selector is its own.
fn select_own_pods(job: &mut Value, fresh: &Fresh) {
    const CONTROLLER: &str = "batch.kubernetes.io/controller-uid";
    if job.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let (name, uid) = (
        job["metadata"]["name"].clone(),
        json!(fresh.uid.to_string()),
    );
    let Some(spec) = job.get_mut("spec") else {
        return;
    };
    let mut add = |path: &[&str], labels: &[(&str, &Value)]| {
        let members = path.iter().try_fold(&mut *spec, |at, key| {
            let next = at.as_object_mut()?.entry(*key).or_insert(Value::Null);
            if next.is_null() {
                *next = json!({});
            }
            Some(next)
        });
        if let Some(Value::Object(members)) = members {
            for (label, value) in labels {
                members.entry(*label).or_insert_with(|| (*value).clone());
            }
        }
    };
    let labels = [
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        (CONTROLLER, &uid),
    ];
    add(&["template", "metadata", "labels"], &labels);
    add(&["selector", "matchLabels"], &[(CONTROLLER, &uid)]);
}

/// The status that a new definition of custom resources is written with: the version in which its objects are stored.
fn definition_status(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let mut versions = versions.into_iter().flatten();
    let stored = versions.find(|version| version["storage"] == true);
    let stored = stored.map_or(Value::Null, |version| json!([version["name"]]));
    if let Some(members) = object.as_object_mut() {
        let status = json!({
            "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored,
        });
        members.insert("status".to_owned(), status);
    }
}

/// The status that a new `APIService` is written with: one that the server itself serves is available.
fn api_service_status(object: &mut Value, fresh: &Fresh) {
    let is_local = object.pointer("/spec/service").is_none_or(Value::is_null);
    let conditions = json!([{
        "type": "Available", "status": "True", "lastTransitionTime": fresh.time(),
        "reason": "Local", "message": "Local APIServices are always available",
    }]);
    if let Some(members) = object.as_object_mut() {
        let status = if is_local {
            json!({"conditions": conditions})
        } else {
            json!({})
        };
        members.insert("status".to_owned(), status);
    }
}

/// Leaves only the names of the secrets of a service account.
pub(super) fn secret_names(object: &mut Value) {
    let secrets = object.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten() {
        if let Value::Object(secret) = secret {
            secret.retain(|key, _| key == "name");
        }
    }
}

/// Limits without a name get one that nobody can guess.
fn name_of_limits(object: &mut Value, fresh: &Fresh) {
    if let Some(metadata) = metadata_mut(object)
        && metadata
            .get("name")
            .is_none_or(|name| name == "" || name.is_null())
    {
        let another = Fresh::new(fresh.seconds).uid;
        metadata.insert("name".to_owned(), json!(another.to_string()));
    }
}

/// Who requests a certificate, which a body may not say.
fn requested_by(object: &mut Value, user: &User) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    for (key, value) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ] {
        let is_empty = value == "" || value == json!([]) || value == json!({});
        if is_empty {
            spec.remove(key);
        } else {
            spec.insert(key.to_owned(), value);
        }
    }
}
