//! Label and field selectors.
//!
//! Properties: the hosted API and classification accept the same selectors; a selector read twice is the same selector;
//! `matches` holds for labels built to match.

use std::fmt::Write as _;

use fairgate_core::digest::{RequestInfo, field_terms};
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
        let fitting = |path: &str| fields.required(path);
        let mut terms = terms_of(&text);
        let fits = |(path, value): (String, String)| fitting(&path) == Some(&*value);
        if terms.all(|(term, equal)| equal && fits(term)) {
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
            .map(|fields| {
                (
                    terms_of(&text).count().min(4),
                    fields.check_fields().is_ok(),
                )
            })
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

/// The field and the value of each term of a field selector, and whether they have to be equal.
fn terms_of(selector: &str) -> impl Iterator<Item = ((String, String), bool)> {
    let terms = field_terms(selector.as_bytes()).filter_map(Result::ok);
    let terms = terms.filter(|term| !term.field.is_empty() || !term.value.is_empty());
    terms.map(|term| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ((text(term.field), text(&term.value)), term.equal)
    })
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
