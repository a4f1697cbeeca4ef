//! Random writes, and their results in the original's library.
//!
//! `library.json` was recorded from structured-merge-diff v6.3: sequences of six writes by a few
//! managers to an object with maps, sets and lists of two keys, some with repeated items. The library
//! has no identities, times or unowned fields, so these tests call the functions below those.

use serde_json::{Value, json};

use super::{
    super::{
        WriteContext,
        conflict::ConflictSet,
        field_set::field_set,
        fields_v1,
        managers::{ManagerEntry, ManagerKey, ManagerOperation, Managers},
        merge::merge,
        prune::prune,
        updater::Updater,
        validate::DuplicateItems,
        versioned_object::VersionedObject,
    },
    tables::Served,
};

const VERSION: &str = "example.com/v2";
const RECORDED: &str = include_str!("library.json");

#[test]
fn random_writes_have_the_results_of_the_library() {
    let sequences: Vec<Vec<Value>> = serde_json::from_str(RECORDED).unwrap();
    assert_eq!(sequences.len(), 40);
    let kinds = Served::of_kind("Widget");
    for steps in sequences {
        let mut state = State {
            kinds: &kinds,
            live: json!({"metadata": {}, "spec": {}}),
            managers: Managers::default(),
        };
        for step in steps {
            let before = format!("{} owned by {}: {step}", state.live, owned(&state.managers));
            let outcome = if step["do"] == "update" {
                state.update(&step);
                Ok(())
            } else {
                state.apply(&step)
            };
            match outcome {
                Ok(()) => assert_eq!(owned(&state.managers), step["managers"], "{before}"),
                Err(conflict_set) => {
                    assert_eq!(reported(&conflict_set), step["conflicts"], "{before}");
                }
            }
            if let Some(result) = step.get("result") {
                assert_eq!(state.live, *result, "{before}");
            }
        }
    }
}

struct State<'a> {
    kinds: &'a Served,
    live: Value,
    managers: Managers,
}

impl<'a> State<'a> {
    fn body(&self, value: &Value) -> VersionedObject<'a> {
        let mut object = value.clone();
        object["apiVersion"] = json!(VERSION);
        VersionedObject::of(self.kinds, &object, VERSION).unwrap()
    }

    fn update(&mut self, step: &Value) {
        let actor = actor(step);
        let request = Updater {
            kinds: self.kinds,
            context: &actor,
        };
        let (live, new) = (self.body(&self.live), self.body(&step["new"]));
        let change = request
            .settle(&live, &new, &mut self.managers, None, true)
            .unwrap();
        let identity = ManagerKey::new(actor.manager, ManagerOperation::Update, VERSION, "");
        let mut set = change.set;
        if let Some(earlier) = self.managers.remove(&identity) {
            set.unite(earlier.set);
        }
        if !set.is_empty() {
            self.managers.insert(identity, entry(set));
        }
        self.live = step["new"].clone();
    }

    fn apply(&mut self, step: &Value) -> Result<(), ConflictSet> {
        let actor = actor(step);
        let request = Updater {
            kinds: self.kinds,
            context: &actor,
        };
        let (live, config) = (self.body(&self.live), self.body(&step["config"]));
        config.validate(DuplicateItems::Refused).unwrap();
        let identity = ManagerKey::new(actor.manager, ManagerOperation::Apply, VERSION, "");
        let mut managers = self.managers.clone();
        let last = managers.remove(&identity);
        let claim = field_set(config.ty(), config.value());
        managers.insert(identity.clone(), entry(claim));
        let merged = live.with(merge(live.ty(), live.value(), config.value()));
        let new = match last {
            Some(last) => prune(self.kinds, merged, &managers, &last),
            None => merged,
        };
        let force = step["force"] == true;
        request.settle(&live, &new, &mut managers, Some(&identity), force)?;
        self.live = new.value().clone();
        self.managers = managers;
        Ok(())
    }
}

fn actor(step: &Value) -> WriteContext<'_> {
    WriteContext {
        manager: step["by"].as_str().unwrap(),
        subresource: "",
        api_version: VERSION,
        now: "",
    }
}

fn entry(set: super::super::path_set::PathSet) -> ManagerEntry {
    ManagerEntry {
        version: VERSION.to_owned(),
        set,
        time: None,
    }
}

fn owned(managers: &Managers) -> Value {
    let entry = |(identity, entry): (&ManagerKey, &ManagerEntry)| {
        let fields = fields_v1::encode(&entry.set);
        (identity.manager().to_owned(), fields)
    };
    managers.iter().map(entry).collect()
}

fn reported(conflict_set: &ConflictSet) -> Value {
    let conflicts = conflict_set.describe();
    let mut reported: Vec<_> = conflicts
        .listed
        .iter()
        .map(|conflict| format!("{}{}", conflict.manager, conflict.path))
        .collect();
    reported.sort();
    json!(reported)
}
