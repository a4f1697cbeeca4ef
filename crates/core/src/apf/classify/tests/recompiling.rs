//! A policy recompiled from the previous one is the same as one compiled from scratch.

use std::collections::BTreeMap;

use super::{
    random::{a_request, a_rule},
    *,
};
use crate::{
    apf::{objects::ParsedDocument, policy::Compiled},
    finding::Finding,
};

fn document(schema: FlowSchema) -> ParsedDocument {
    ParsedDocument::parse("test", serde_json::to_value(schema).unwrap())
}

fn compile(before: Option<&Policy>, documents: &BTreeMap<u8, ParsedDocument>) -> Compiled {
    let objects = ObjectSet::of(documents.values());
    let compiled = match before {
        None => Policy::compile(&objects, &SETTINGS),
        Some(before) => before.recompile(&objects, &SETTINGS),
    };
    compiled.unwrap_or_else(|findings| panic!("{findings:#?}"))
}

/// What is compared of two compilations, besides classification.
fn facts(compiled: &Compiled) -> (String, &[Finding], &[Arc<str>]) {
    let schemas = format!("{:?}", compiled.policy.schemas());
    (schemas, &compiled.findings, &compiled.dangling)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_recompiled_policy_is_the_same_as_one_compiled_from_scratch(
        changes in prop::collection::vec(
            (0..12_u8, prop::option::weighted(0.8, (2..12, prop::collection::vec(a_rule(), 0..3)))),
            1..30,
        ),
        requests in prop::collection::vec(a_request(), 20),
    ) {
        let mut documents = BTreeMap::new();
        let mut before: Option<Policy> = None;
        for (number, changed) in changes {
            match changed {
                None => documents.remove(&number),
                Some((precedence, rules)) => {
                    let schema = schema(&format!("s{number}"), precedence, rules);
                    documents.insert(number, document(schema))
                }
            };
            let continued = compile(before.as_ref(), &documents);
            let fresh = compile(None, &documents);
            prop_assert_eq!(facts(&continued), facts(&fresh));
            for request in &requests {
                prop_assert_eq!(
                    continued.policy.classify(request),
                    fresh.policy.classify(request),
                    "{:?}", request
                );
            }
            before = Some(continued.policy);
        }
    }
}

#[test]
fn names_of_removed_rules_do_not_accumulate() {
    let named = |name: &str| document(schema("only", 5, vec![all_of(user(name))]));
    let mut documents = BTreeMap::from([(0, named("first"))]);
    let mut policy = compile(None, &documents).policy;
    let in_use = policy.classifier().numbering.len();
    let mut most = 0;
    for change in 0..5_000 {
        documents.insert(0, named(&format!("user {change}")));
        policy = compile(Some(&policy), &documents).policy;
        most = most.max(policy.classifier().numbering.len());
    }
    assert!(most > 10 * in_use, "names are kept for a while: {most}");
    assert!(
        most < 2_000,
        "{most} names, {in_use} of them in use at first"
    );
}

#[test]
fn recompiling_with_another_hash_key_changes_the_flow_hashes() {
    let documents = BTreeMap::from([(0, document(schema("only", 5, vec![all_of(user("a"))])))]);
    let policy = compile(None, &documents).policy;
    let settings = PolicySettings {
        hash_key: [43; 16],
        ..SETTINGS
    };
    let objects = ObjectSet::of(documents.values());
    let continued = policy.recompile(&objects, &settings).unwrap().policy;
    let fresh = Policy::compile(&objects, &settings).unwrap().policy;
    let request = digest("a", &[], "GET", "/api/v1/pods");
    assert_eq!(continued.classify(&request), fresh.classify(&request));
    assert_ne!(
        continued.classify(&request).hash,
        policy.classify(&request).hash
    );
}
