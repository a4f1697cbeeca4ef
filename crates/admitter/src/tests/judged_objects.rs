//! Completed objects beside those that a real server shows its policies for the same requests
//! (`corpus/judged_objects.jsonl`; tests/cluster/README.md says how it is recorded).
//!
//! They must be the same, but for what only a server can know.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_core::digest::{RequestInfo, User};
use fairgate_objects::codec::BodyFormat;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    body_object::{BodyObject, BodyReading},
    facts::WriteFacts,
    judged_object::{self, Fresh},
    object_name::NameSource,
    objects,
    write_request::Subject,
};

const CORPUS: &str = include_str!("../../corpus/judged_objects.jsonl");

/// Custom kinds without the subresource `status`.
const WITHOUT_STATUS: [&str; 2] = ["limits", "ceilings"];

/// What differs: a part of the path of the request, the place, and why.
const KNOWN: [(&str, &str, &str); 19] = [
    (
        "/certificatesigningrequests/",
        "/status/conditions/",
        "times that the server adds",
    ),
    (
        "/apiservices",
        "/status/conditions/",
        "one of the server's own happens to have a value of the body",
    ),
    ("/volumeattributesclasses", "/metadata/finalizers/", PLUGIN),
    ("/persistentvolumeclaims", "/metadata/finalizers/", PLUGIN),
    ("/nodes", "/spec/taints/", PLUGIN),
    ("/pods", "/spec/preemptionPolicy", PLUGIN),
    ("/pods", "/spec/tolerations/", PLUGIN),
    ("/services", "/spec/ipFamilies/", ALLOCATED),
    ("/services", "/spec/ipFamilyPolicy", ALLOCATED),
    ("/pods", "/status/qosClass", DERIVED),
    ("/jobs", "/spec/selector/", DERIVED),
    ("/jobs", "/spec/template/metadata/labels/", DERIVED),
    (
        "/customresourcedefinitions",
        "/status/storedVersions/",
        DERIVED,
    ),
    ("/daemonsets", "/metadata/annotations/deprecated", CONVERTED),
    (
        "autoscaling/v1/",
        "/spec/targetCPUUtilizationPercentage",
        CONVERTED,
    ),
    ("/things", "/spec/replicas", SCHEMA),
    ("/things", "/spec/size", SCHEMA),
    ("/persistentvolumes", "/metadata/finalizers/", PLUGIN),
    (
        "/persistentvolumes",
        "/status/lastPhaseTransitionTime",
        DERIVED,
    ),
];
const PLUGIN: &str = "an admission plugin sets it";
const ALLOCATED: &str = "the server allocates it";
const DERIVED: &str = "the server derives it from the object";
const CONVERTED: &str = "it comes from the form in which the server has the object";
const SCHEMA: &str = "a default of the definition, which is not read here";

fn user(line: &Value) -> User {
    let of = &line["user"];
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let extra = of["extra"].as_object().into_iter().flatten();
    User {
        name: of["username"].as_str().unwrap_or("u").to_owned(),
        uid: of["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&of["groups"]),
        extra: extra.map(|(key, all)| (key.clone(), texts(all))).collect(),
    }
}

/// The object that policies would see for a line.
fn completed(line: &Value) -> Result<Value, String> {
    let text = |key: &str| line[key].as_str().unwrap();
    let info = RequestInfo::from_target(text("method"), text("path")).unwrap();
    let Subject::Write(write) = Subject::of(&info) else {
        return Err("no write".to_owned());
    };
    let mut facts = WriteFacts::new(&write, &Arc::new(user(line)), None);
    let sent: Value = serde_json::from_str(text("body")).unwrap();
    let stored = Some(&line["stored"]).filter(|stored| stored.is_object());
    facts.set_kind_by(match stored {
        Some(stored) => stored,
        None => &sent,
    });
    let has_status = !WITHOUT_STATUS.contains(&&*facts.resource);
    let strategy = judged_object::strategy(&facts, has_status).ok_or("no strategy")?;
    let reading = match text("method") {
        "PATCH" => BodyReading::Patch(objects::patch_format(text("contentType")).unwrap()),
        _ => BodyReading::Object(BodyFormat::Json),
    };
    let body = BodyObject {
        bytes: Bytes::from(text("body").to_owned()),
        reading,
        fidelity: Fidelity::Completed,
        strategy: Some(strategy),
        schema: None,
        fresh: Fresh {
            uid: Uuid::nil(),
            seconds: 1_767_225_600,
        },
        is_new: text("method") == "POST",
        name: NameSource::Client,
        has_defaults: true,
    };
    let object = body.read(&mut facts, stored);
    object.map_err(|error| format!("{error:?}"))
}

/// The values of an object that are no objects or lists, by their place. What is empty is absent, as in the server's types.
fn leaves(value: &Value, place: &str, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                leaves(value, &format!("{place}/{key}"), into);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(value, &format!("{place}/{index}"), into);
            }
        }
        Value::Null => {}
        value if value == "" || value == 0 || value == false => {}
        // Who owns which fields is not recorded.
        _ if place.starts_with("/metadata/managedFields") => {}
        value => {
            into.insert(place.to_owned(), value.clone());
        }
    }
}

fn leaves_of(value: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    leaves(value, "", &mut found);
    found
}

/// Places at which the objects differ, with both values.
fn differences(line: &Value, ours: &Value) -> Vec<(String, String)> {
    let is_new = line["operation"] == "CREATE";
    let [theirs, ours] = [&line["object"], ours].map(leaves_of);
    let body: Value = serde_json::from_str(line["body"].as_str().unwrap()).unwrap();
    let given = leaves_of(&body);
    let is_fresh =
        |place: &str| is_new && ["/metadata/uid", "/metadata/creationTimestamp"].contains(&place);
    let mut found = Vec::new();
    for (place, value) in &ours {
        let is_same = match theirs.get(place) {
            Some(theirs) if is_fresh(place) && given.get(place) != Some(theirs) => {
                given.get(place) != Some(value)
            }
            theirs => theirs == Some(value),
        };
        if !is_same {
            found.push((
                place.clone(),
                format!("{value}, server {:?}", theirs.get(place)),
            ));
        }
    }
    for (place, value) in &theirs {
        if !ours.contains_key(place) {
            found.push((place.clone(), format!("missing, server {value}")));
        }
    }
    found
}

#[test]
fn completed_objects_are_those_that_a_server_shows_its_policies() {
    let mut report = BTreeMap::<String, (usize, String)>::new();
    let (mut lines, mut used) = (0, [false; KNOWN.len()]);
    for line in CORPUS.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (path, body) = (
            line["path"].as_str().unwrap(),
            line["body"].as_str().unwrap(),
        );
        lines += 1;
        let found = match completed(&line) {
            Ok(object) => differences(&line, &object),
            Err(why) => vec![(String::new(), why)],
        };
        for (place, what) in found {
            // What is added here, or has another value, is never on purpose, but for times.
            let is_known = |(part, at, why): &(&str, &str, &str)| {
                let is_missing = what.starts_with("missing, ");
                (is_missing || why.contains("server adds") || why.contains("server's own"))
                    && path.contains(part)
                    && place.starts_with(at)
            };
            if let Some(known) = KNOWN.iter().position(is_known) {
                used[known] = true;
                continue;
            }
            let about = format!("{} {} {place}", line["session"], line["method"]);
            let one = report.entry(about).or_default();
            one.0 += 1;
            if one.0 == 1 {
                let body: String = body.chars().take(300).collect();
                one.1 = format!("{path}\n  {what}\n  {body}");
            }
        }
    }
    let mut text = String::new();
    for (about, (count, example)) in &report {
        let _ = writeln!(text, "{about}: {count} times, first at {example}");
    }
    assert!(lines > 1000, "{lines}");
    assert!(
        report.is_empty(),
        "{} differences in {lines} objects\n{text}",
        report.len()
    );
    assert!(
        used.iter().all(|used| *used),
        "a known difference no longer occurs: {used:?}"
    );
}
