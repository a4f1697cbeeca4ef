//! Keeps the built-in objects in the store.
//!
//! The rules are those of kube-apiserver (KEP-1040, "Default Behavior"). Mandatory objects always have
//! their built-in spec. Suggested objects have it until a user edits them. An annotation on each object
//! says whether it is maintained automatically. Several gateways may run this at the same time: those that come later
//! find nothing to change.

use std::sync::{Arc, LazyLock};

use http::Method;
use serde_json::{Value, json};

use super::{
    Hosted, ReconcileError,
    changes::{ChangedObject, ChangedObjects},
    path,
};
use fairgate_core::apf::objects::{
    Bootstrap,
    bootstrap::{self, AUTOUPDATE, SpecOwner},
};
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
    metadata,
    object::Object,
    schema::canonical,
};

/// The query of all writes. It names the field manager, as kube-apiserver does.
const QUERY: &str = "fieldManager=api-priority-and-fairness-config-producer-v1";

/// Creates, updates and cleans up the built-in objects of a hosted API.
#[derive(Debug)]
pub struct Bootstrapper {
    hosted: Arc<Hosted>,
    which: Bootstrap,
    changed: ChangedObjects,
}

/// A built-in object in its canonical form.
struct BuiltIn {
    kind: &'static Kind,
    name: String,
    mandatory: bool,
    object: Value,
}

/// The write that reconciles a built-in object.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create(Value),
    Update(Value),
}

impl Bootstrapper {
    /// Maintains the set of objects that `which` selects.
    pub fn new(hosted: Arc<Hosted>, which: Bootstrap) -> Self {
        let store = Arc::clone(&hosted.state.store);
        Self {
            hosted,
            which,
            changed: ChangedObjects::new(store, vec![&FLOW_SCHEMA, &PRIORITY_LEVEL]),
        }
    }

    /// Reconciles every built-in object, and deletes objects that are annotated as maintained but are
    /// not built in. Stops at the first failure; the caller retries then. Reads the built-in objects
    /// and those that have changed since the last call.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`].
    pub async fn ensure(&mut self) -> Result<(), ReconcileError> {
        self.changed.collect().await?;
        let (mandatory, suggested): (Vec<_>, Vec<_>) =
            BUILT_IN.iter().partition(|object| object.mandatory);
        let suggested = suggested
            .into_iter()
            .filter(|_| self.which == Bootstrap::Suggested);
        for object in suggested.chain(mandatory) {
            self.ensure_one(object).await?;
        }
        while let Some(object) = self.changed.next(None).await? {
            self.delete_if_obsolete(&object).await?;
            self.changed.done(&object);
        }
        Ok(())
    }

    async fn ensure_one(&self, built_in: &BuiltIn) -> Result<(), ReconcileError> {
        let kind = built_in.kind;
        let live = self.hosted.cached_object(kind, &built_in.name).await?;
        let live = live.as_ref().map(|object| object.stored());
        let written = match action(built_in, live) {
            Action::Nothing => return Ok(()),
            Action::Create(object) => {
                self.send(Method::POST, &path(kind, ""), Some(&object))
                    .await
            }
            Action::Update(object) => {
                self.send(Method::PUT, &path(kind, &built_in.name), Some(&object))
                    .await
            }
        };
        written.or_else(|error| if error.is_race() { Ok(()) } else { Err(error) })
    }

    /// Deletes an object that is annotated as maintained but is not built in, such as a built-in object
    /// of an earlier version.
    async fn delete_if_obsolete(&self, changed: &ChangedObject) -> Result<(), ReconcileError> {
        let ChangedObject { kind, name, .. } = changed;
        let Some(object) = changed.object.as_ref().map(Object::stored) else {
            return Ok(());
        };
        let annotation = metadata::entry(object, "annotations", AUTOUPDATE);
        let maintained = annotation.and_then(bootstrap::parse_bool) == Some(true);
        let is_built_in = BUILT_IN
            .iter()
            .any(|one| one.kind.plural == kind.plural && one.name == *name);
        if !maintained || is_built_in {
            return Ok(());
        }
        // The annotation may have changed since the object was read.
        let options = json!({"preconditions": {
            "uid": metadata::text(object, "uid"),
            "resourceVersion": metadata::text(object, "resourceVersion"),
        }});
        match self
            .send(Method::DELETE, &path(kind, name), Some(&options))
            .await
        {
            Ok(()) => tracing::warn!(
                kind = kind.kind,
                name,
                annotation = AUTOUPDATE,
                "deleted an object that is annotated as maintained, but is not built in"
            ),
            Err(error) if error.is_race() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), ReconcileError> {
        self.hosted
            .call(method, path, QUERY, "application/json", body)
            .await
    }
}

/// All built-in objects, levels first.
static BUILT_IN: LazyLock<Vec<BuiltIn>> = LazyLock::new(|| {
    let levels = bootstrap::priority_levels().iter();
    let levels = levels.map(|level| entry(&PRIORITY_LEVEL, serde_json::to_value(level)));
    let schemas = bootstrap::flow_schemas().iter();
    let schemas = schemas.map(|schema| entry(&FLOW_SCHEMA, serde_json::to_value(schema)));
    levels.chain(schemas).collect()
});

fn entry(kind: &'static Kind, object: Result<Value, serde_json::Error>) -> BuiltIn {
    let raw = object.expect("built-in objects are plain data");
    let version = kind.stored();
    let mut object = canonical::decode(version.shape, &raw)
        .expect("built-in objects fit their table")
        .value;
    (version.default)(&mut object);
    let name = metadata::name(&object).to_owned();
    metadata::of_mut(&mut object).insert("annotations".to_owned(), json!({AUTOUPDATE: "true"}));
    metadata::of_mut(&mut object).remove("uid");
    BuiltIn {
        kind,
        mandatory: bootstrap::is_mandatory(&name),
        name,
        object,
    }
}

/// Compares `live` with the built-in object, and returns the write that reconciles it.
fn action(built_in: &BuiltIn, live: Option<&Value>) -> Action {
    let Some(live) = live else {
        return Action::Create(built_in.object.clone());
    };
    let annotation = metadata::entry(live, "annotations", AUTOUPDATE);
    let annotated = annotation.and_then(bootstrap::parse_bool);
    let maintained = built_in.mandatory
        || bootstrap::spec_owner(annotation, Some(metadata::generation(live)))
            == SpecOwner::BuiltIn;
    let update_spec = maintained && !same_spec(built_in, live);
    // The annotation of a mandatory object is always "true". On any other object a valid value stays.
    let update_annotation = if built_in.mandatory {
        annotated != Some(true)
    } else {
        annotated.is_none()
    };
    if !update_spec && !update_annotation {
        return Action::Nothing;
    }
    let mut object = live.clone();
    if update_spec {
        object["spec"] = built_in.object["spec"].clone();
    }
    if update_annotation {
        let annotations = metadata::of_mut(&mut object)
            .entry("annotations")
            .or_insert_with(|| json!({}));
        annotations[AUTOUPDATE] = json!(maintained.to_string());
    }
    Action::Update(object)
}

/// Whether the spec equals the built-in one. `spec.exempt` of the level `exempt` is ignored: users may
/// tune it.
fn same_spec(built_in: &BuiltIn, live: &Value) -> bool {
    let (mut expected, mut found) = (built_in.object["spec"].clone(), live["spec"].clone());
    let is_exempt =
        built_in.kind.plural == PRIORITY_LEVEL.plural && built_in.name == bootstrap::EXEMPT;
    if is_exempt && found["exempt"].is_object() {
        expected["exempt"] = Value::Null;
        found["exempt"] = Value::Null;
    }
    expected == found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> &'static BuiltIn {
        BUILT_IN
            .iter()
            .find(|object| object.name == name && object.kind.plural == PRIORITY_LEVEL.plural)
            .unwrap()
    }

    fn live(name: &str, annotation: Option<&str>, generation: i64, edited: bool) -> Value {
        let mut object = of(name).object.clone();
        metadata::set(&mut object, "generation", json!(generation));
        match annotation {
            Some(value) => object["metadata"]["annotations"][AUTOUPDATE] = json!(value),
            None => metadata::set(&mut object, "annotations", Value::Null),
        }
        if edited {
            object["spec"]["limited"]["nominalConcurrencyShares"] = json!(7);
        }
        object
    }

    #[test]
    fn the_annotation_decides_who_maintains_a_suggested_object() {
        // (annotation, generation, edited) -> (annotation after, shares after), or nothing.
        let cases = [
            ((Some("true"), 5, false), None),
            ((Some("true"), 5, true), Some(("true", 100))),
            ((Some("false"), 1, true), None),
            ((None, 1, false), Some(("true", 100))),
            ((None, 1, true), Some(("true", 100))),
            ((Some("maybe"), 2, true), Some(("false", 7))),
            ((None, 2, false), Some(("false", 100))),
        ];
        for ((annotation, generation, edited), expected) in cases {
            let live = live("workload-low", annotation, generation, edited);
            let found = match action(of("workload-low"), Some(&live)) {
                Action::Nothing => None,
                Action::Update(object) => Some(object),
                Action::Create(_) => panic!("it is there"),
            };
            let found = found.map(|object| {
                let said = metadata::entry(&object, "annotations", AUTOUPDATE);
                let shares = &object["spec"]["limited"]["nominalConcurrencyShares"];
                (said.unwrap().to_owned(), shares.as_i64().unwrap())
            });
            let expected = expected.map(|(said, shares)| (said.to_owned(), shares));
            assert_eq!(found, expected, "{annotation:?} {generation} {edited}");
        }
    }

    #[test]
    fn a_mandatory_object_is_restored_whatever_its_annotation_says() {
        let wrong = live("catch-all", Some("false"), 3, true);
        let Action::Update(object) = action(of("catch-all"), Some(&wrong)) else {
            panic!("it is wrong");
        };
        assert_eq!(
            metadata::entry(&object, "annotations", AUTOUPDATE),
            Some("true")
        );
        assert_eq!(object["spec"], of("catch-all").object["spec"]);
        assert_eq!(
            action(of("catch-all"), None),
            Action::Create(of("catch-all").object.clone())
        );
    }

    #[test]
    fn users_may_change_what_the_exempt_level_lends() {
        let mut tuned = live("exempt", Some("true"), 3, false);
        tuned["spec"]["exempt"]["lendablePercent"] = json!(50);
        assert_eq!(action(of("exempt"), Some(&tuned)), Action::Nothing);
    }
}
