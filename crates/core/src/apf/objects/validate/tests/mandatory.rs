//! Rules for the mandatory objects.

use super::*;

#[test]
fn mandatory_schemas_are_fixed() {
    for name in ["exempt", "catch-all"] {
        let fixed = bootstrap::flow_schema(name).unwrap();
        assert_eq!(flow_schema(fixed), []);

        let mut same = fixed.clone();
        for rule in same
            .spec
            .iter_mut()
            .flat_map(|spec| spec.rules.iter_mut().flatten())
        {
            for part in rule.resource_rules.iter_mut().flatten() {
                part.cluster_scope = Some(true);
            }
        }
        assert_eq!(flow_schema(&same), []);

        let mut changed = fixed.clone();
        if let Some(spec) = &mut changed.spec {
            spec.distinguisher_method =
                Some(k8s_openapi::api::flowcontrol::v1::FlowDistinguisherMethod {
                    type_: "ByNamespace".to_owned(),
                });
        }
        let errors = flow_schema(&changed);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "spec");
        assert_eq!(
            errors[0].detail,
            format!("spec of '{name}' must equal the fixed value")
        );
    }
}

#[test]
fn an_absent_list_of_a_mandatory_schema_is_an_empty_one() {
    let mut probes_like = bootstrap::flow_schema("probes").unwrap().spec.clone();
    let original = probes_like.clone();
    for rule in probes_like
        .iter_mut()
        .flat_map(|spec| spec.rules.iter_mut().flatten())
    {
        rule.resource_rules = Some(Vec::new());
    }
    assert_ne!(probes_like, original);
    assert!(same_schema_spec(probes_like.as_ref(), original.as_ref()));
}

#[test]
fn only_the_two_tunables_of_the_exempt_level_may_change() {
    let tuned = json!({
        "type": "Exempt",
        "exempt": { "nominalConcurrencyShares": 10, "lendablePercent": 50 },
    });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", tuned),
        nothing()
    );
    let without = json!({ "type": "Exempt" });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", without),
        nothing()
    );
    let bad = json!({
        "type": "Exempt",
        "exempt": { "nominalConcurrencyShares": -1, "lendablePercent": 101 },
    });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", bad),
        [
            "spec.exempt.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.exempt.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
        ]
    );
    let limited = json!({
        "type": "Limited",
        "limited": { "limitResponse": { "type": "Reject" } },
    });
    let found = mistakes("PriorityLevelConfiguration", "exempt", limited);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("spec.type: Invalid value: \"Limited\""));
    assert!(
        found[1].ends_with(
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        )
    );
}

#[test]
fn the_catch_all_level_is_fixed() {
    let of = |shares: i32| {
        let spec = json!({
            "type": "Limited",
            "limited": { "nominalConcurrencyShares": shares, "limitResponse": { "type": "Reject" } },
        });
        mistakes("PriorityLevelConfiguration", "catch-all", spec)
    };
    assert_eq!(of(5), nothing(), "the fixed value, after defaulting");
    let found = of(6);
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with("spec of 'catch-all' must equal the fixed value"));
}
