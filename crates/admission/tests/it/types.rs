//! What the type checker says, compared with Kubernetes' own.
//!
//! `tests/cluster/admissiontypes` writes the cases, and has the `OpenAPI` document of the custom kinds.

use std::sync::Arc;

use fairgate_admission::{
    CheckedKind, KindSchema, OpenApiDocument, PolicyKinds, expression_warnings,
    kinds::ADMISSION_KINDS,
};
use fairgate_objects::{kind::Kind, kinds::KINDS};
use serde_json::Value;

const CASES: &str = include_str!("../corpus/types.jsonl");
const DOCUMENT: &str = include_str!("../../../../tests/cluster/admissiontypes/openapi.json");
const CUSTOM: [(&str, &str, &str); 8] = [
    ("v1", "Gadget", "gadgets"),
    ("v1", "Sparse", "sparses"),
    ("v1", "Untyped", "untypeds"),
    ("v1", "Loop", "loops"),
    ("v1", "Broken", "brokens"),
    ("v1", "Flat", "flats"),
    ("v1", "Undeclared", "undeclareds"),
    ("v2", "Gadget", "gadgets"),
];

/// The kinds of the gateway, and custom ones.
struct Kinds {
    built_in: Vec<&'static Kind>,
    document: OpenApiDocument<'static>,
}

impl PolicyKinds for Kinds {
    fn named(&self, group: &str, version: &str, resource: &str) -> Vec<CheckedKind> {
        let mut found = self.built_in.named(group, version, resource);
        let resource = resource.to_lowercase();
        let custom = CUSTOM.iter().filter(|(of, kind, plural)| {
            (group.is_empty() || group == "example.com")
                && *of == version
                && (*plural == resource || kind.to_lowercase() == resource)
        });
        found.extend(custom.map(|(version, kind, _)| CheckedKind {
            group: "example.com".to_owned(),
            version: (*version).to_owned(),
            kind: (*kind).to_owned(),
        }));
        found
    }

    fn schema(&self, kind: &CheckedKind) -> Option<KindSchema> {
        self.built_in.schema(kind).or_else(|| {
            let declared = self.document.declared(kind).ok()??;
            Some(KindSchema::Declared(Arc::new(declared)))
        })
    }
}

#[test]
fn expressions_have_the_same_warnings_as_in_the_original() {
    let kinds = Kinds {
        built_in: KINDS.into_iter().chain(ADMISSION_KINDS).collect(),
        document: OpenApiDocument::parse(DOCUMENT.as_bytes()).unwrap(),
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut found = expression_warnings(&case["policy"], &kinds);
        for warning in &mut found {
            let text = warning["warning"].as_str().unwrap();
            warning["warning"] = without_numbers(text, &kinds.built_in).into();
        }
        let expected = case["warnings"].as_array().unwrap();
        count += expected.len();
        if found != *expected {
            let both = found.iter().zip(expected).filter(|(a, b)| a != b);
            wrong.push(format!(
                "{}: {} for {}: {both:#?}",
                case["name"],
                found.len(),
                expected.len(),
                both = both.collect::<Vec<_>>()
            ));
        }
    }
    assert!(count >= 150, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Types have numbers, which are others in the original.
fn without_numbers(text: &str, kinds: &[&Kind]) -> String {
    let mut text = text.to_owned();
    let built_in = kinds.iter().map(|kind| kind.kind);
    for kind in built_in.chain(CUSTOM.iter().map(|(_, kind, _)| *kind)) {
        for number in [1, 2] {
            text = text.replace(&format!("{kind}{number}"), kind);
        }
    }
    text
}
