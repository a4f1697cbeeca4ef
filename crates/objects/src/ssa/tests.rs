//! Sequences of writes to a real server, and their results.
//!
//! `goldens.json` was recorded from kube-apiserver 1.36, without what the server sets in metadata.
//! The n-th time that shows is n seconds after the start of 2026. Each step starts from what the step
//! before left, unless it says otherwise (the server has controllers of its own).

mod custom;
mod library;
mod memory;
mod properties;
mod tables;
mod versions;

use serde_json::{Value, json};

use self::tables::Served;
use super::{ApplyError, WriteContext, apply, keep_times_if_unchanged, track_update};
use crate::schema::canonical;

const GOLDENS: &str = include_str!("goldens.json");

#[test]
fn every_write_leaves_the_entries_that_a_real_server_leaves() {
    let sequences: Value = serde_json::from_str(GOLDENS).unwrap();
    let mut steps = 0;
    for sequence in sequences.as_array().unwrap() {
        let kinds = Served::of_kind(sequence["kind"].as_str().unwrap());
        let mut stored = Value::Null;
        for (number, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
            if let Some(live) = step.get("live") {
                stored = live.clone();
            }
            let live = Some(&stored).filter(|stored| !stored.is_null());
            let replay = Replay {
                kinds: &kinds,
                live,
                step,
            };
            let title = format!("{}, step {number}: {step}", sequence["title"]);
            if step["do"] == "apply" {
                replay.apply(&title);
            } else {
                replay.update(&title);
            }
            if let Some(result) = step.get("result") {
                stored = result.clone();
            }
            steps += 1;
        }
    }
    assert_eq!(steps, 225);
}

struct Replay<'a> {
    kinds: &'a Served,
    live: Option<&'a Value>,
    step: &'a Value,
}

impl Replay<'_> {
    fn actor(&self) -> WriteContext<'_> {
        let text = |name| self.step[name].as_str().unwrap_or("");
        WriteContext {
            manager: text("by"),
            subresource: text("subresource"),
            api_version: self.kinds.newest(),
            now: text("now"),
        }
    }

    fn update(&self, title: &str) {
        let Some(result) = self.step.get("result") else {
            return;
        };
        let mut new = result.clone();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        let sent = match &self.step["sent"] {
            Value::String(sent) if sent == "none" => None,
            Value::String(_) => self
                .live
                .map(|live| live["metadata"]["managedFields"].clone()),
            sent => Some(sent.clone()),
        };
        if let Some(sent) = sent {
            metadata.insert("managedFields".to_owned(), sent);
        }
        track_update(self.kinds, self.live, &mut new, &self.actor());
        assert_eq!(pretty(&new), pretty(result), "{title}");
    }

    fn apply(&self, title: &str) {
        let force = self.step["force"].as_bool().unwrap_or(false);
        let config = &self.step["config"];
        let outcome = apply(self.kinds, self.live, config, &self.actor(), force);
        match (outcome, self.step.get("result")) {
            (Ok(merged), Some(result)) => {
                assert_eq!(pretty(&self.finished(&merged)), pretty(result), "{title}");
            }
            // Refused by validation, which comes after.
            (Ok(_), None) => assert_eq!(self.step["error"]["code"], 422, "{title}"),
            (Err(error), _) => assert_eq!(
                pretty(&status(&error)),
                pretty(&self.step["error"]),
                "{title}"
            ),
        }
    }

    /// What the server does to an object after it was merged.
    fn finished(&self, merged: &Value) -> Value {
        let shape = self.kinds.shape_of(self.kinds.newest());
        let mut object = canonical::decode(shape, merged).unwrap().value;
        self.kinds.set_defaults(&mut object);
        for name in self
            .kinds
            .ignored(self.step["subresource"].as_str().unwrap_or(""))
        {
            let entries = object["metadata"]["managedFields"].clone();
            object[name] = match self.live {
                Some(live) => live[name].clone(),
                None => json!({}),
            };
            object["metadata"]["managedFields"] = entries;
        }
        let set_by_server = [
            "uid",
            "generation",
            "creationTimestamp",
            "resourceVersion",
            "selfLink",
        ];
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, _| !set_by_server.contains(&name.as_str()));
        if let Some(live) = self.live {
            keep_times_if_unchanged(live, &mut object);
        }
        canonical::complete(shape, object.as_object_mut().unwrap());
        object
    }
}

fn status(error: &ApplyError) -> Value {
    let (code, reason) = match error {
        ApplyError::BadRequest(_) => (400, Some("BadRequest")),
        ApplyError::Internal(_) => (500, None),
        ApplyError::Conflicts(_) => (409, Some("Conflict")),
    };
    let mut status = json!({"code": code, "reason": reason, "message": error.to_string()});
    if let ApplyError::Conflicts(conflicts) = error {
        let cause = |conflict: &super::Conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": conflict.message(),
                "field": conflict.path,
            })
        };
        status["causes"] = conflicts.listed.iter().map(cause).collect();
    }
    status
}

/// Text that shows where two objects differ.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(&sorted(value)).unwrap()
}

/// Kubernetes reports the causes of several managers, and misfits of several fields, in any order.
fn sorted(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(Value::Array(causes)) = value.get_mut("causes") {
        causes.sort_by_key(ToString::to_string);
    }
    if let Some(Value::String(message)) = value.get_mut("message")
        && let Some((start, lines)) = message.split_once("errors:\n")
    {
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        *message = format!("{start}errors:\n{}", lines.join("\n"));
    }
    value
}
