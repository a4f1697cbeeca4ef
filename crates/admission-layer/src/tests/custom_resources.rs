//! Custom resources: policies see what the server makes of nulls and of members that no schema has.

use bytes::Bytes;
use fairgate_admission::{AdmissionDecision, AdmissionMode};
use serde_json::{Value, json};

use super::world::{World, policy};

const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.x.io";

fn widget(labels: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "labels": labels}, "spec": spec})
}

fn definition(version: &str, spec: &Value) -> Value {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    json!({"metadata": {"uid": "u", "resourceVersion": version}, "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
}

/// A policy whose errors are ignored.
fn ignoring(expression: &str) -> Value {
    let mut one = policy("p", "x.io widgets", expression);
    one["spec"]["failurePolicy"] = json!("Ignore");
    one
}

#[test]
fn a_null_in_the_metadata_does_not_break_the_expressions_of_a_policy() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[ignoring(
            "object.metadata.?labels.orValue({}).all(l, object.metadata.labels[l].startsWith('x')) && false",
        )]);
        for labels in [json!(null), json!({"l": null}), json!({})] {
            let got = world
                .json("POST", WIDGETS, &widget(&labels, &json!({})))
                .await;
            assert_eq!(got.code, 422, "{labels}: {got:?}");
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn nulls_and_unknown_members_are_evaluated_as_the_schema_has_them() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.store(
            DEFINITION,
            definition("1", &json!({"step": {"type": "string"}})),
        );
        world.enforce(&[ignoring(
            "(has(object.spec.step) && object.spec.step.startsWith('x')) || has(object.spec.exempt)",
        )]);
        for spec in [json!({"step": null}), json!({"exempt": true}), json!({})] {
            let got = world
                .json("POST", WIDGETS, &widget(&json!({}), &spec))
                .await;
            assert_eq!(got.code, 422, "{spec}: {got:?}");
        }
        // The same in patches of what is stored.
        let path = format!("{WIDGETS}/w");
        world.store(&path, widget(&json!({}), &json!({"step": "x"})));
        for patch in [json!({"spec": {"step": null, "exempt": true}})] {
            let got = world.json("PATCH", &path, &patch).await;
            assert_eq!(got.code, 422, "{patch}: {got:?}");
        }
        assert!(world.sent().is_empty());
        // Another definition counts from the next write on.
        let exempt = json!({"step": {"type": "string"}, "exempt": {"type": "boolean"}});
        world.store(DEFINITION, definition("2", &exempt));
        let got = world
            .json(
                "POST",
                WIDGETS,
                &widget(&json!({}), &json!({"exempt": true})),
            )
            .await;
        assert_eq!(got.code, 200, "{got:?}");
    });
}

#[test]
fn a_status_counts_as_the_definition_has_it_whatever_discovery_knows() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[ignoring("has(object.status)")]);
        let with = |version: &str, subresources: Value| {
            let mut definition = definition(version, &json!({}));
            let of = &mut definition["spec"]["versions"][0];
            of["schema"]["openAPIV3Schema"]["properties"]["status"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            of["subresources"] = subresources;
            definition
        };
        let mut forged = widget(&json!({}), &json!({}));
        forged["status"] = json!({"phase": "Exempt"});
        for (version, subresources, code) in [
            ("1", json!(null), 200),
            ("2", json!({"status": {}}), 422),
            ("3", json!({"scale": {}}), 200),
        ] {
            world.store(DEFINITION, with(version, subresources));
            let got = world.json("POST", WIDGETS, &forged).await;
            assert_eq!(got.code, code, "{version}: {got:?}");
        }
    });
}

#[test]
fn a_status_is_that_of_the_stored_object_whatever_kind_its_body_names() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut with_status = definition("1", &json!({}));
        let version = &mut with_status["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["status"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        version["subresources"] = json!({"status": {}});
        world.store(DEFINITION, with_status);
        let mut stored = widget(&json!({}), &json!({}));
        stored["metadata"]["resourceVersion"] = json!("7");
        for path in ["w", "w/status"] {
            world.store(&format!("{WIDGETS}/{path}"), stored.clone());
        }
        for expression in [
            "object.kind == 'Widget' && object.status.phase != 'evil'",
            "object.kind != 'Widget' || object.status.phase != 'evil'",
        ] {
            world.enforce(&[policy("p", "x.io widgets/status", expression)]);
            for (kind, phase, code) in [
                ("Widget", "good", 200),
                ("Other", "good", 200),
                ("Widget", "evil", 422),
                ("Other", "evil", 422),
            ] {
                let mut body = stored.clone();
                body["kind"] = json!(kind);
                body["status"] = json!({"phase": phase});
                let path = format!("{WIDGETS}/w/status");
                let got = world.json("PUT", &path, &body).await;
                assert_eq!(got.code, code, "{expression} {kind} {phase}: {got:?}");
                assert!(
                    code == 200 || got.message().contains("denied request"),
                    "{got:?}"
                );
            }
        }
        // Of the object itself, a server finds out first that the kind is another one.
        world.enforce(&[policy("p", "x.io widgets", "false")]);
        let mut other = stored;
        other["kind"] = json!("Other");
        let got = world.json("PUT", &format!("{WIDGETS}/w"), &other).await;
        assert!(got.message().contains("must be Widget"), "{got:?}");
    });
}

#[test]
fn a_definition_that_cannot_be_read_lets_nothing_through() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[ignoring("true")]);
        for code in [403, 500, 503] {
            world.fail(
                DEFINITION,
                code,
                &json!({"kind": "Status", "message": "no"}),
            );
            let got = world
                .json("POST", WIDGETS, &widget(&json!({}), &json!({})))
                .await;
            assert_eq!(got.code, 500, "{got:?}");
            assert!(
                got.message().contains("definition of the custom resource"),
                "{got:?}"
            );
        }
        let wrong = widget(&json!({"l": 1}), &json!({}));
        world.store(DEFINITION, definition("1", &json!({})));
        assert_eq!(world.json("POST", WIDGETS, &wrong).await.code, 400);
        assert!(world.sent().is_empty());
    });
}

#[test]
fn nobody_owns_a_resource_that_has_only_a_name() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[ignoring("!has(object.metadata.managedFields)")]);
        world.store(DEFINITION, definition("1", &json!({})));
        let mut named = widget(&json!({}), &json!({}));
        named
            .as_object_mut()
            .unwrap()
            .retain(|key, _| ["apiVersion", "kind"].contains(&&**key));
        for (metadata, code) in [
            (json!({"name": "w"}), 200),
            (json!({"name": "w", "managedFields": null}), 200),
            (json!({"name": "w", "managedFields": [{}]}), 200),
            (json!({"name": "w", "managedFields": "x"}), 400),
            (json!({"name": "w", "labels": {"a": "b"}}), 422),
            (json!("x"), 400),
            (json!([]), 400),
        ] {
            named["metadata"] = metadata;
            let got = world.json("POST", WIDGETS, &named).await;
            assert_eq!(got.code, code, "{named}: {got:?}");
        }
    });
}

/// A PUT and a patch that change one part of two, in a version that another manager's entry may not be of.
#[test]
fn who_changes_a_custom_resource_owns_what_it_changed_unless_a_webhook_converts_the_owners() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let text = json!({"type": "string"});
        let spec = json!({"tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}, "map": {"type": "object", "additionalProperties": text}});
        let mut one = policy("p", "x.io widgets", "false");
        one["spec"]["validations"][0]["messageExpression"] = json!(
            "object.metadata.managedFields.map(m, m.manager + ' ' + m.fieldsV1['f:spec'].map(k, k + '=' + m.fieldsV1['f:spec'][k].map(p, p).join('+')).join(',')).join(' ')"
        );
        world.enforce(&[one]);
        let path = format!("{WIDGETS}/w");
        let object = |version: &str, tags: Value| {
            let mut object = widget(&json!({}), &json!({"tags": tags, "map": {"k": "v"}}));
            object["metadata"]["resourceVersion"] = json!("7");
            object["metadata"]["managedFields"] = json!([{
                "manager": "first", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:map": {"f:k": {}}, "f:tags": {r#"v:"x""#: {}, r#"v:"y""#: {}}}},
            }]);
            object
        };
        let kept = r#"first f:map=f:k,f:tags=v:"x"+v:"y""#;
        let changed = r#"first f:map=f:k,f:tags=v:"x" somebody f:tags=v:"z""#;
        for (owner, strategy, seen) in [
            ("x.io/v1", "None", changed),
            ("x.io/v2", "None", changed),
            ("x.io/v1", "Webhook", changed),
            ("x.io/v2", "Webhook", kept),
        ] {
            let mut definition = definition(&format!("{owner} {strategy}"), &spec);
            definition["spec"]["conversion"] = json!({"strategy": strategy});
            let versions = definition["spec"]["versions"].as_array_mut().unwrap();
            let mut other = versions[0].clone();
            other["name"] = json!("v2");
            versions.push(other);
            world.store(DEFINITION, definition);
            world.store(&path, object(owner, json!(["x", "y"])));
            let mut sent = object(owner, json!(["x", "z"]));
            sent["metadata"]["managedFields"].take();
            let patch = json!({"spec": {"tags": ["x", "z"]}});
            for (method, body) in [("PUT", &sent), ("PATCH", &patch)] {
                let target = format!("{path}?fieldManager=somebody");
                let got = world.json(method, &target, body).await;
                assert!(
                    got.message().contains(&format!("denied request: {seen}")),
                    "{method} {owner} {strategy}: {got:?}"
                );
            }
        }
    });
}

/// A policy that denies what changes an object, and skips what does not.
fn against_changes(resource: &str) -> Value {
    let mut one = policy("p", resource, "false");
    let changed = "object.metadata.generation != oldObject.metadata.generation";
    one["spec"]["matchConditions"] = json!([{"name": "changed", "expression": changed}]);
    one
}

#[test]
fn an_empty_member_that_comes_or_goes_is_a_change_of_a_custom_resource() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let (text, object) = (json!({"type": "string"}), json!({"type": "object"}));
        let nullable = json!({"type": "string", "nullable": true});
        let spec = json!({"tenant": text, "allowAll": object, "egress": {"type": "array", "items": text},
            "note": nullable, "mode": {"type": "string", "default": "safe"}});
        world.store(DEFINITION, definition("1", &spec));
        world.enforce(&[against_changes("x.io widgets")]);
        let path = format!("{WIDGETS}/w");
        let stored = |spec: &Value| {
            let mut stored = widget(&json!({}), spec);
            stored["metadata"]["generation"] = json!(3);
            stored["metadata"]["resourceVersion"] = json!("5");
            stored
        };
        let plain = json!({"tenant": "a", "mode": "safe"});
        let with = |key: &str, value: Value| {
            let mut spec = plain.clone();
            spec[key] = value;
            spec
        };
        for (old, new, code) in [
            (plain.clone(), with("allowAll", json!({})), 422),
            (with("egress", json!([])), plain.clone(), 422),
            (plain.clone(), with("note", Value::Null), 422),
            (with("egress", json!([])), with("egress", json!(["x"])), 422),
            // What the server drops or adds is no change.
            (plain.clone(), with("unknown", json!({})), 200),
            (plain.clone(), with("allowAll", Value::Null), 200),
            (plain.clone(), json!({"tenant": "a"}), 200),
            (with("egress", json!([])), with("egress", json!([])), 200),
        ] {
            world.store(&path, stored(&old));
            let got = world.json("PUT", &path, &stored(&new)).await;
            assert_eq!(got.code, code, "{old} to {new}: {got:?}");
        }
        world.store(&path, stored(&with("egress", json!([]))));
        for (patch, code) in [
            (json!({"spec": {"egress": null}}), 422),
            (json!({"spec": {"allowAll": {}}}), 422),
            (json!({"metadata": {"labels": {"a": "b"}}}), 200),
        ] {
            let got = world.json("PATCH", &path, &patch).await;
            assert_eq!(got.code, code, "{patch}: {got:?}");
        }
    });
}

#[test]
fn a_selector_of_everything_is_a_change_of_a_network_policy() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[against_changes("networking.k8s.io networkpolicies")]);
        let path = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/n";
        let with = |peer: &Value, egress: &Value| {
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "n", "namespace": "ns", "generation": 3, "resourceVersion": "5"},
                "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "egress": egress, "ingress": [{"from": [peer]}]}})
        };
        let none = Value::Null;
        let pods = json!({"podSelector": {"matchLabels": {"a": "b"}}});
        let mut all = pods.clone();
        all["namespaceSelector"] = json!({});
        let mut stored = with(&pods, &none);
        stored["spec"].as_object_mut().unwrap().remove("egress");
        world.store(path, stored);
        for (peer, egress, code) in [
            (&all, &none, 422),
            (&pods, &none, 200),
            (&pods, &json!([]), 200),
        ] {
            let got = world.json("PUT", path, &with(peer, egress)).await;
            assert_eq!(got.code, code, "{peer} {egress}: {got:?}");
        }
        let patch = json!({"spec": {"ingress": [{"from": [all]}]}});
        assert_eq!(world.json("PATCH", path, &patch).await.code, 422);
    });
}

/// Clients that read metadata prefer protobuf, and take JSON where there is none.
#[test]
fn a_deletion_is_denied_also_if_the_client_prefers_protobuf() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.store(DEFINITION, definition("1", &json!({})));
        let path = format!("{WIDGETS}/w");
        world.store(&path, widget(&json!({}), &json!({})));
        let mut one = policy("p", "x.io widgets", "false");
        one["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
        world.enforce(&[one]);
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (accept, code, decision) in [
            (
                format!("{protobuf},application/json"),
                422,
                AdmissionDecision::Denied,
            ),
            (protobuf.to_owned(), 406, AdmissionDecision::Failed),
        ] {
            let mut call = world.call("DELETE", &path, "", Bytes::new());
            let headers = call.request.headers_mut();
            headers.insert("accept", accept.parse().unwrap());
            let got = world.send(call).await;
            assert_eq!(got.code, code, "{accept}: {got:?}");
            let record = world.records.all().pop().unwrap();
            assert_eq!(record.decision, decision, "{accept}: {record:?}");
        }
        assert!(world.sent().is_empty());
    });
}
