//! Rules for priority levels.

use super::*;

fn queuing(queuing: Value) -> Value {
    json!({
        "type": "Limited",
        "limited": { "limitResponse": { "type": "Queue", "queuing": queuing } },
    })
}

#[test]
fn a_level_is_limited_unless_it_is_the_exempt_one() {
    let only = "must be 'Exempt' if and only if `name` is 'exempt'";
    assert_eq!(
        of_level(json!({ "type": "Exempt", "limited": {} })),
        [
            format!("spec.type: Invalid value: \"Exempt\": {only}"),
            "spec.limited: Forbidden: must be nil if the type is not Limited".to_owned(),
        ]
    );
    assert_eq!(
        of_level(json!({ "type": "Limited", "exempt": {} })),
        [
            "spec.exempt: Forbidden: must be nil if the type is Limited",
            "spec.limited: Required value: must not be empty when type is Limited",
        ]
    );
    assert_eq!(of_level(json!({})), ["spec.type: Required value"]);
    assert_eq!(
        of_level(json!({ "type": "Other" })),
        ["spec.type: Unsupported value: \"Other\": supported values: \"Exempt\", \"Limited\""]
    );
}

#[test]
fn the_remedy_of_a_wrong_type_is_another_type() {
    for (name, kind, remedy) in [
        (
            "exempt",
            "Limited",
            "set it to Exempt, or give the level another name",
        ),
        (
            "mine",
            "Exempt",
            "set it to Limited, or send its requests to the level exempt",
        ),
        ("mine", "", "set it to Limited"),
    ] {
        let level = json!({"metadata": {"name": name}, "spec": {"type": kind}});
        let level = serde_json::from_value(level).unwrap();
        let remedies = priority_level(&level).into_iter().map(|error| error.remedy);
        assert!(
            remedies.collect::<Vec<_>>().contains(&remedy.to_owned()),
            "{name} {kind}"
        );
    }
}

#[test]
fn shares_and_percentages_out_of_range_are_refused() {
    let found = of_level(json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": -1,
            "lendablePercent": 101,
            "borrowingLimitPercent": -1,
            "limitResponse": { "type": "Reject" },
        },
    }));
    assert_eq!(
        found,
        [
            "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a \
             non-negative integer",
        ]
    );
    let edges = json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 100,
            "borrowingLimitPercent": 500,
            "limitResponse": { "type": "Reject" },
        },
    });
    assert_eq!(of_level(edges), nothing());
}

#[test]
fn a_limit_response_queues_or_rejects() {
    let of = |response: Value| {
        of_level(json!({ "type": "Limited", "limited": { "limitResponse": response } }))
    };
    let at = "spec.limited.limitResponse";
    assert_eq!(of(json!({})), [format!("{at}.type: Required value")]);
    assert_eq!(
        of(json!({ "type": "Drop" })),
        [format!(
            "{at}.type: Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\""
        )]
    );
    assert_eq!(
        of(json!({ "type": "Reject", "queuing": {} })),
        [format!(
            "{at}.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"
        )]
    );
    assert_eq!(
        of(json!({ "type": "Queue" })),
        [format!(
            "{at}.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"
        )]
    );
    assert_eq!(
        of(json!({ "type": "Queue", "queuing": {} })),
        nothing(),
        "defaults"
    );
}

#[test]
fn queues_and_hands_out_of_range_are_refused() {
    let at = "spec.limited.limitResponse.queuing";
    assert_eq!(
        of_level(queuing(
            json!({ "queues": -1, "handSize": -1, "queueLengthLimit": -1 })
        )),
        [
            format!("{at}.queueLengthLimit: Invalid value: -1: must be positive"),
            format!("{at}.queues: Invalid value: -1: must be positive"),
            format!("{at}.handSize: Invalid value: -1: must be positive"),
        ]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 10_000_001, "handSize": 1 }))),
        [format!(
            "{at}.queues: Invalid value: 10000001: must not be greater than 10000000"
        )]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 4 }))),
        [format!(
            "{at}.handSize: Invalid value: 8: should not be greater than queues (4)"
        )],
        "the default hand is 8"
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 512, "handSize": 8 }))),
        [format!(
            "{at}.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 \
             should not be greater than 60"
        )]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 1024, "handSize": 6 }))),
        nothing()
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 10_000_000, "handSize": 2 }))),
        nothing()
    );
}
