//! Label and field selectors.
//!
//! Properties: the hosted API and classification accept the same selectors; a selector read twice is the same selector;
//! `matches` holds for labels built to match.

use std::fmt::Write as _;

use fairgate_core::digest::RequestInfo;
use fairgate_objects::selector::{FieldSelector, LabelSelector};

use crate::{Outcome, Target};

/// The target `selectors`.
pub const TARGET: Target = Target {
    name: "selectors",
    run,
    dictionary: &[
        "=",
        "==",
        "!=",
        ",",
        "!",
        " in (",
        " notin (",
        ")",
        "a",
        "b",
        "metadata.name=",
        "metadata.namespace=",
        "\\,",
        "\\=",
        "\\\\",
        ">",
        "<",
        "1",
        "-1",
        "9223372036854775807",
        "example.com/",
        "()",
        "(,)",
        "in",
        "notin",
        "exists",
        " ",
        "é",
        "_",
        "..",
        "/",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let fields = FieldSelector::parse(&text);
    let labels = LabelSelector::parse(&text);
    assert_eq!(fields, FieldSelector::parse(&text));
    assert_eq!(labels, LabelSelector::parse(&text));

    let info = RequestInfo::from_target(
        "GET",
        &format!("/api/v1/pods?fieldSelector={}", escaped(&text)),
    );
    let list = info
        .expect("the target is well-formed")
        .list
        .expect("it is a list");
    assert_eq!(
        list.decodes,
        fields.is_ok(),
        "field selectors of the hosted API and of classification"
    );
    let info = RequestInfo::from_target(
        "GET",
        &format!("/api/v1/pods?labelSelector={}", escaped(&text)),
    );
    let list = info
        .expect("the target is well-formed")
        .list
        .expect("it is a list");
    assert_eq!(
        list.decodes,
        labels.is_ok(),
        "label selectors of the hosted API and of classification: {labels:?}"
    );

    if let Ok(fields) = &fields {
        assert!(fields.terms().len() <= data.len(), "bounded by the text");
        let fitting = |path: &str| fields.required(path);
        let only_required = fields.terms().iter().all(|term| term.equal);
        let is_consistent = fields
            .terms()
            .iter()
            .all(|term| fitting(&term.path) == Some(&*term.value));
        if only_required && is_consistent {
            assert!(fields.matches(fitting), "{fields:?}");
        }
        assert!(!fields.is_everything() || fields.matches(|_| None));
    }
    if let Ok(labels) = &labels {
        assert!(!labels.is_everything() || labels.matches_by(|_| None));
    }
    Outcome::of((
        fields
            .as_ref()
            .map(|fields| (fields.terms().len().min(4), fields.check_fields().is_ok()))
            .map_err(|error| words(&error.to_string())),
        labels
            .as_ref()
            .map(|labels| {
                (
                    labels.is_everything(),
                    labels.matches_by(|_| None),
                    labels.matches_by(|_| Some("a")),
                )
            })
            .map_err(|error| words(&error.to_string())),
    ))
}

/// Percent-encodes everything but letters.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02x}");
        out
    })
}

/// The first words of an error, which identify its kind.
fn words(error: &str) -> String {
    let plain = error.split(['\'', '"', '`']).next().unwrap_or_default();
    plain.chars().take(60).collect()
}
