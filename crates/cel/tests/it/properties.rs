//! Properties that hold for all inputs.

use std::cmp::Ordering;

use fairgate_cel::{CelEnvironment, CelJson, CelMap, CelType, CelValue, EvaluationLimits};
use proptest::prelude::*;

use crate::values::json_of;

fn environment() -> CelEnvironment {
    CelEnvironment::builder()
        .variable("a", CelType::Int)
        .variable("b", CelType::Int)
        .variable("x", CelType::Dyn)
        .variable("y", CelType::Dyn)
        .build()
}

/// Any JSON value.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        // Exactly representable numbers: without its feature float_roundtrip, serde_json rounds others differently.
        (-1_000_000..1_000_000_i32).prop_map(|of| (f64::from(of) / 4.0).into()),
        ".{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Into::into),
            prop::collection::btree_map("[a-z]{0,3}", inner, 0..20)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A number of any type.
fn number() -> impl Strategy<Value = CelValue<'static>> {
    prop_oneof![
        any::<i64>().prop_map(CelValue::Int),
        (-5_i64..5).prop_map(CelValue::Int),
        any::<u64>().prop_map(CelValue::Uint),
        (0_u64..5).prop_map(CelValue::Uint),
        any::<f64>().prop_map(CelValue::Double),
        (-5_i32..5).prop_map(|of| CelValue::Double(f64::from(of))),
    ]
}

proptest! {
    #[test]
    fn any_text_compiles_or_is_refused(text in ".{0,80}") {
        let compiled = environment().compile(&text);
        prop_assert!(compiled.is_ok() || !compiled.unwrap_err().to_string().is_empty());
    }

    #[test]
    fn text_of_tokens_compiles_or_is_refused(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "x", ".f", "[", "]", "(", ")", "{", "}", ":", "?", ",", "+", "-", "*", "!", "&&",
                "||", "==", "<", " in ", "1", "'s'", ".map(i, ", ".all(i, ", "has(", "size(", "dyn(",
            ]),
            0..30,
        ),
    ) {
        let environment = environment();
        if let Ok(program) = environment.compile(&tokens.concat()) {
            let bindings = environment.bindings().with("a", CelValue::Int(1));
            let evaluation = program.evaluate(&bindings);
            let again = program.evaluate(&bindings);
            prop_assert_eq!(evaluation.cost, again.cost);
            let limits = EvaluationLimits { cost: evaluation.cost, ..EvaluationLimits::default() };
            let exact = program.evaluate_within(&bindings, &limits);
            prop_assert_eq!(evaluation.result.is_ok(), exact.result.is_ok());
        }
    }

    #[test]
    fn integers_are_computed_exactly_or_overflow(a: i64, b: i64) {
        let environment = environment();
        let bindings = environment.bindings().with("a", a.into()).with("b", b.into());
        for (operator, expected) in [
            ("+", a.checked_add(b)),
            ("-", a.checked_sub(b)),
            ("*", a.checked_mul(b)),
            ("/", a.checked_div(b)),
            ("%", a.checked_rem(b)),
        ] {
            let program = environment.compile(&format!("a {operator} b")).unwrap();
            let found = program.evaluate(&bindings).result.ok();
            prop_assert_eq!(found, expected.map(CelValue::Int));
        }
    }

    #[test]
    fn documents_are_equal_whether_read_from_text_or_from_a_json_value(document in json()) {
        let text = document.to_string();
        let from_text: CelJson<'_> = serde_json::from_str(&text).unwrap();
        let from_value: CelJson<'_> = serde::Deserialize::deserialize(&document).unwrap();
        let (a, b) = (CelValue::json(&from_text), CelValue::json(&from_value));
        prop_assert_eq!(json_of(&a), json_of(&b));
        let owned = a.clone().into_owned().unwrap();
        prop_assert!(owned.equals(&b));
        let environment = environment();
        let program = environment.compile("x == y && !(x != y) && [x] == [y] && x in [1, y]").unwrap();
        let bindings = environment.bindings().with("x", a).with("y", owned);
        prop_assert_eq!(program.evaluate(&bindings).result, Ok(CelValue::Bool(true)));
    }

    #[test]
    fn comparing_numbers_is_antisymmetric_and_agrees_with_equality(a in number(), b in number()) {
        let (forward, backward) = (a.compare(&b), b.compare(&a));
        prop_assert_eq!(forward.clone().ok(), backward.ok().map(Ordering::reverse));
        prop_assert_eq!(a.equals(&b), forward == Ok(Ordering::Equal));
    }

    #[test]
    fn a_map_finds_every_key_but_nan(keys in prop::collection::vec(number(), 0..30)) {
        let entries = keys.iter().enumerate();
        let entries = entries.map(|(at, key)| (key.clone(), CelValue::Uint(at as u64)));
        let map = CelMap::new(entries.collect()).unwrap();
        for key in &keys {
            let is_nan = matches!(key, CelValue::Double(of) if of.is_nan());
            prop_assert_eq!(map.get(key).is_some(), !is_nan);
        }
    }
}
