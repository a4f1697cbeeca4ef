//! What holds for any object.

use proptest::{collection::btree_map, option, prelude::*, sample::subsequence};
use serde_json::{Map, Value, json};

use super::{
    super::{WriteContext, apply, keep_times_if_unchanged, track_update},
    tables::Served,
};
use crate::schema::canonical;

const V2: &str = "example.com/v2";

fn actor(manager: &'static str, now: &'static str) -> WriteContext<'static> {
    WriteContext {
        manager,
        subresource: "",
        api_version: V2,
        now,
    }
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("")), Just(json!("x")), Just(json!("y"))]
}

/// A field that may be absent, null or empty.
fn field(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        5 => value.prop_map(Some),
    ]
}

fn map(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    btree_map("[a-c]", values, 0..4).prop_map(|map| map.into_iter().collect())
}

fn ports() -> impl Strategy<Value = Value> {
    let port = ("[TU]", 1..3, option::of("[xy]")).prop_map(|(protocol, port, name)| {
        let mut item = json!({"protocol": protocol, "port": port});
        if let Some(name) = name {
            item["name"] = json!(name);
        }
        item
    });
    prop::collection::vec(port, 0..5).prop_map(|ports| {
        let mut unique: Vec<Value> = Vec::new();
        for port in ports {
            let is_new = |known: &Value| {
                known["protocol"] != port["protocol"] || known["port"] != port["port"]
            };
            if unique.iter().all(is_new) {
                unique.push(port);
            }
        }
        json!(unique)
    })
}

fn numbers() -> impl Strategy<Value = Value> {
    subsequence(vec![1, 2, 3, 4, 5], 0..5)
        .prop_shuffle()
        .prop_map(|numbers| json!(numbers))
}

/// What a client may apply.
fn config() -> impl Strategy<Value = Value> {
    let group = map(field(text()).prop_map(|value| value.unwrap_or(Value::Null)))
        .prop_filter("only known fields", |group| group.get("c").is_none());
    let parts = (
        field(map(text())),
        field((0..3).prop_map(|size| json!(size))),
        field(ports()),
        field(numbers()),
        field(map(prop_oneof![9 => group, 1 => Just(Value::Null)])),
    );
    parts.prop_map(|(labels, size, ports, numbers, groups)| {
        let fields = |fields: Vec<(&str, Option<Value>)>| -> Map<String, Value> {
            let given = fields.into_iter();
            given
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        };
        json!({
            "apiVersion": V2,
            "kind": "Widget",
            "metadata": fields(vec![("name", Some(json!("w"))), ("labels", labels)]),
            "spec": fields(vec![
                ("size", size), ("ports", ports), ("numbers", numbers), ("groups", groups),
            ]),
        })
    })
}

fn stored(kinds: &Served, object: &Value) -> Value {
    canonical::decode(kinds.shape_of(V2), object).unwrap().value
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3).prop_map(Value::from),
        Just(json!(0.5)),
        "[a-c]".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("a"),
        Just("metadata"),
        Just("spec"),
        Just("labels"),
        Just("ports"),
        Just("port"),
        Just("numbers"),
        Just("managedFields"),
        Just("annotations"),
        Just("f:spec"),
        Just("."),
        Just("f:ports"),
        Just("f:numbers"),
        Just("v:1"),
        Just("k:{\"port\":1}"),
        Just("groups"),
    ]
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(key.clone(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn an_apply_without_other_managers_changes_nothing_the_second_time(config in config()) {
        let kinds = Served::of_kind("Widget");
        let first = apply(&kinds, None, &config, &actor("a", "2026-01-01T00:00:01Z"), false).unwrap();
        let first = stored(&kinds, &first);
        let again = actor("a", "2026-01-01T00:00:02Z");
        let second = apply(&kinds, Some(&first), &config, &again, false).unwrap();
        let mut second = stored(&kinds, &second);
        keep_times_if_unchanged(&first, &mut second);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn applying_the_live_object_changes_no_field(created in config(), changed in config()) {
        let kinds = Served::of_kind("Widget");
        let mut live = stored(&kinds, &created);
        track_update(&kinds, None, &mut live, &actor("u", "2026-01-01T00:00:01Z"));
        let now = actor("a", "2026-01-01T00:00:02Z");
        let live = stored(&kinds, &apply(&kinds, Some(&live), &changed, &now, true).unwrap());

        let mut config = live.clone();
        config["metadata"].as_object_mut().unwrap().remove("managedFields");
        let now = actor("b", "2026-01-01T00:00:03Z");
        let mut after = stored(&kinds, &apply(&kinds, Some(&live), &config, &now, false).unwrap());

        let entries = live["metadata"].get("managedFields").cloned().unwrap_or(json!([]));
        let before: Vec<_> = entries.as_array().unwrap().clone();
        let entries = after["metadata"].as_object_mut().unwrap().remove("managedFields");
        let entries: Vec<_> = entries.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        prop_assert_eq!(after, config);
        prop_assert!(before.iter().all(|entry| entries.contains(entry)));
    }

    #[test]
    fn fields_given_up_by_one_manager_are_removed_unless_another_owns_them(
        mine in config(), theirs in config()
    ) {
        let kinds = Served::of_kind("Widget");
        let by = |manager, live: Option<&Value>, config: &Value| {
            let now = actor(manager, "2026-01-01T00:00:01Z");
            stored(&kinds, &apply(&kinds, live, config, &now, true).unwrap())
        };
        let alone = by("theirs", None, &theirs);
        let both = by("theirs", Some(&by("mine", None, &mine)), &theirs);
        let nothing = json!({"apiVersion": V2, "kind": "Widget", "metadata": {"name": "w"}});
        let mut left = by("mine", Some(&both), &nothing);
        // Which of the two came first shows in the order of lists.
        let mut alone = alone;
        for object in [&mut left, &mut alone] {
            for list in ["ports", "numbers"] {
                if let Some(items) = object["spec"][list].as_array_mut() {
                    items.sort_by_key(ToString::to_string);
                }
            }
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
        }
        let shape = kinds.shape_of(V2);
        for object in [&mut left, &mut alone] {
            canonical::complete(shape, object.as_object_mut().unwrap());
        }
        prop_assert_eq!(left, alone);
    }

    #[test]
    fn no_json_object_makes_an_apply_panic(config in json(), live in json(), entries in json()) {
        let kinds = Served::of_kind("Widget");
        let named = |mut value: Value| {
            if let Some(fields) = value.as_object_mut() {
                fields.insert("apiVersion".to_owned(), json!(V2));
                fields.insert("kind".to_owned(), json!("Widget"));
            }
            value
        };
        let (config, mut live) = (named(config), named(live));
        if let Some(Value::Object(metadata)) = live.get_mut("metadata") {
            metadata.insert("managedFields".to_owned(), json!([{
                "manager": "m", "operation": "Apply", "apiVersion": V2, "fieldsType": "FieldsV1",
                "fieldsV1": entries,
            }]));
        }
        let now = actor("m", "2026-01-01T00:00:01Z");
        for live in [None, Some(&live)] {
            for force in [false, true] {
                let _ = apply(&kinds, live, &config, &now, force);
            }
            let mut new = config.clone();
            track_update(&kinds, live, &mut new, &now);
        }
    }
}
