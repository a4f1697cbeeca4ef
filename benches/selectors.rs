//! What do label and field selectors of requests cost?
//!
//! Each selector is parsed, and compared with the labels of one object. The baseline is splitting the longest of them
//! at its commas into strings. `--instructions` counts instructions too.

mod support;

use std::hint::black_box;

use fairgate_objects::selector::{FieldSelector, LabelSelector};
use serde_json::{Map, Value, json};
use support::{Case, measure};

const LABELS: [&str; 7] = [
    "",
    "app=web",
    "app.kubernetes.io/name!=web",
    "tier in (front, back,cache)",
    "tier notin (front,back)",
    "app,!legacy",
    "app=web,tier in (front,back),!legacy,release>5,team!=red",
];

const FIELDS: [&str; 2] = [
    "metadata.name=one",
    "spec.nodeName=node-1,status.phase!=Failed",
];

fn labels() -> Map<String, Value> {
    let labels = json!({"app": "web", "app.kubernetes.io/name": "shop", "tier": "back", "release": "7", "team": "blue"});
    labels.as_object().cloned().unwrap_or_default()
}

fn main() {
    let longest = LABELS[6];
    let mut cases = vec![Case::new("split at commas", move || {
        move || {
            let parts: Vec<String> = black_box(longest).split(',').map(str::to_owned).collect();
            black_box(parts);
        }
    })];
    for text in LABELS {
        cases.push(Case::new(format!("labels, parse: {text}"), move || {
            move || {
                black_box(LabelSelector::parse(black_box(text)).is_ok());
            }
        }));
        cases.push(Case::new(format!("labels, match: {text}"), move || {
            let selector = LabelSelector::parse(text).expect("it is a selector");
            let labels = labels();
            assert_eq!(
                selector.matches(&labels),
                !matches!(text, "tier notin (front,back)")
            );
            move || {
                black_box(selector.matches(black_box(&labels)));
            }
        }));
    }
    for text in FIELDS {
        cases.push(Case::new(format!("fields, parse: {text}"), move || {
            move || {
                black_box(FieldSelector::parse(black_box(text)).is_ok());
            }
        }));
    }
    measure("One selector.", cases);
}
