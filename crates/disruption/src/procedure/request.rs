//! The parsed request: which pod to evict, and the options of its deletion.

use fairgate_objects::field_error::ApiFieldError;
use serde_json::{Map, Value, json};

use super::refusal::EvictionRefusal;
use crate::read::{MalformedObject, ObjectField};

/// The values of `propagationPolicy`; the last one appears in the error message only.
const POLICIES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

/// A request to evict a pod, parsed and checked as far as possible without reading other objects.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// `deleteOptions` without `preconditions` and `dryRun`.
    options: Map<String, Value>,
    /// The UID that the pod must have.
    pub(super) uid: Option<String>,
    /// The resource version that the pod must have.
    pub(super) resource_version: Option<String>,
    /// `dryRun` of query and body.
    dry_run: Vec<String>,
}

impl EvictionRequest {
    /// Parses a request: `namespace` and `pod` of the path, the `dryRun` parameters of the query, and the decoded
    /// body.
    ///
    /// # Errors
    ///
    /// The first error, in the API server's order.
    pub fn new(
        namespace: &str,
        pod: &str,
        query_dry_run: &[String],
        body: &Value,
    ) -> Result<Self, EvictionRefusal> {
        let parts = BodyParts::read(body).map_err(|error| EvictionRefusal::CannotHandle {
            kind: "Eviction".to_owned(),
            version: "v1".to_owned(),
            why: error.to_string(),
        })?;
        if !parts.namespace.is_empty() && parts.namespace != namespace {
            return Err(EvictionRefusal::NamespaceMismatch);
        }
        if parts.name != pod {
            return Err(EvictionRefusal::NameMismatch);
        }
        if parts.is_unsafe {
            return Err(EvictionRefusal::UnsafeDeletion {
                pod: pod.to_owned(),
            });
        }
        let dry_run = match (query_dry_run, parts.dry_run) {
            ([], body) => body,
            (query, body) if body.is_empty() || query == body => query.to_vec(),
            (query, body) => {
                let query = query.to_vec();
                return Err(EvictionRefusal::DryRunMismatch { query, body });
            }
        };
        Ok(Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            options: parts.options,
            uid: parts.uid,
            resource_version: parts.resource_version,
            dry_run,
        })
    }

    /// Whether this is a dry run.
    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The `DeleteOptions` of the pod's deletion, with these preconditions.
    pub(super) fn delete_options(&self, uid: Option<&str>, version: Option<&str>) -> Value {
        let mut options = self.options.clone();
        options.insert("kind".to_owned(), json!("DeleteOptions"));
        options.insert("apiVersion".to_owned(), json!("v1"));
        let preconditions = preconditions(uid, version);
        if !preconditions.is_empty() {
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
        }
        if self.is_dry_run() {
            options.insert("dryRun".to_owned(), json!(self.dry_run));
        }
        Value::Object(options)
    }

    /// Validates the options as the server does when it deletes the pod, so that no budget is charged for a deletion
    /// that would fail.
    pub(super) fn check_options(&self) -> Result<(), EvictionRefusal> {
        let mut errors = Vec::new();
        let field = "propagationPolicy";
        if let Some(policy) = self.options.get(field) {
            if self.options.contains_key("orphanDependents") {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(ApiFieldError::invalid(field, policy, detail));
            }
            if !POLICIES[..3].iter().any(|known| policy == known) {
                errors.push(ApiFieldError::unsupported(field, policy, &POLICIES));
            }
        }
        if self.dry_run.iter().any(|value| value != "All") {
            let value = json!(self.dry_run);
            errors.push(ApiFieldError::unsupported("dryRun", &value, &["All"]));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(EvictionRefusal::InvalidOptions(errors))
        }
    }
}

/// The members of `preconditions`; in the `metadata` of a patch they have the same effect.
pub(super) fn preconditions(uid: Option<&str>, version: Option<&str>) -> Map<String, Value> {
    let members = [("uid", uid), ("resourceVersion", version)].into_iter();
    members
        .filter_map(|(name, value)| Some((name.to_owned(), json!(value?))))
        .collect()
}

/// The fields of the body, an `Eviction`.
struct BodyParts {
    name: String,
    namespace: String,
    options: Map<String, Value>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: Vec<String>,
    is_unsafe: bool,
}

impl BodyParts {
    fn read(body: &Value) -> Result<Self, MalformedObject> {
        let root = ObjectField::root(body);
        let metadata = root.get("metadata")?;
        let given = root.get("deleteOptions")?;
        let preconditions = given.get("preconditions")?;
        let text = |name| Ok(preconditions.get(name)?.optional_text()?.map(str::to_owned));
        let dry_run = given.get("dryRun")?;
        let dry_run = dry_run
            .list()?
            .iter()
            .map(|one| ObjectField::root(one).text());
        // Only the types are checked here. The deletion checks the values.
        given.get("gracePeriodSeconds")?.integer()?;
        given.get("orphanDependents")?.flag()?;
        given.get("propagationPolicy")?.optional_text()?;
        let is_unsafe = given.get("ignoreStoreReadErrorWithClusterBreakingPotential")?;
        let mut options = Map::new();
        for name in [
            "gracePeriodSeconds",
            "orphanDependents",
            "propagationPolicy",
        ] {
            let value = given.get(name)?.value();
            if !value.is_null() {
                options.insert(name.to_owned(), value.clone());
            }
        }
        Ok(Self {
            name: metadata.get("name")?.text()?.to_owned(),
            namespace: metadata.get("namespace")?.text()?.to_owned(),
            options,
            uid: text("uid")?,
            resource_version: text("resourceVersion")?,
            dry_run: dry_run
                .map(|one| one.map(str::to_owned))
                .collect::<Result<_, _>>()?,
            is_unsafe: is_unsafe.flag()? == Some(true),
        })
    }
}
