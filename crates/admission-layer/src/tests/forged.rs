//! Fields that a client may send and the server does not take: policies are not evaded by them.

use std::rc::Rc;

use fairgate_admission::AdmissionMode;
use http::{HeaderValue, Response, header::USER_AGENT};
use serde_json::{Value, json};

use super::world::{Sent, World, policy};

const PODS: &str = "/api/v1/namespaces/ns/pods";

fn pod(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "good"}]}})
}

/// A policy that refuses everything but what this is true for.
fn unless(resource: &str, exempt: &str) -> Value {
    let mut one = policy("p", resource, "false");
    one["spec"]["matchConditions"] = json!([{"name": "c", "expression": format!("!({exempt})")}]);
    one
}

/// The upstream's answer to a dry run: the body.
fn echo(sent: &Sent) -> Response<String> {
    Response::new(String::from_utf8(sent.body.to_vec()).unwrap())
}

#[test]
fn forged_metadata_of_a_new_object_does_not_exempt_it() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        for (key, value, exempt) in [
            (
                "deletionTimestamp",
                json!("2020-01-01T00:00:00Z"),
                "has(object.metadata.deletionTimestamp)",
            ),
            ("uid", json!("forged"), "object.metadata.uid == 'forged'"),
            ("generation", json!(77), "object.metadata.generation == 77"),
            (
                "creationTimestamp",
                json!("2020-01-01T00:00:00Z"),
                "object.metadata.creationTimestamp.startsWith('2020')",
            ),
        ] {
            world.enforce(&[unless(" pods", exempt)]);
            let mut body = pod(&json!({}));
            body["metadata"][key] = value;
            let got = world.json("POST", PODS, &body).await;
            assert_eq!(got.code, 422, "{key}: {got:?}");
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn a_dry_run_merges_the_lists_of_kinds_without_a_table() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
        let object = |label: &str| {
            json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
                "metadata": {"name": "things.example.com", "labels": {"seen": label}}})
        };
        world.store(path, object("old"));
        world.inside.answer = Rc::new(move |_| Response::new(object("merged").to_string()));
        for (expression, code, sent) in [
            ("object.metadata.labels.seen == 'merged'", 200, 2),
            ("object.metadata.labels.seen == 'sent'", 422, 3),
        ] {
            let resource = "apiextensions.k8s.io customresourcedefinitions";
            world.enforce(&[policy("p", resource, expression)]);
            let patch = br#"{"metadata":{"labels":{"seen":"sent"}}}"#;
            let media = "application/strategic-merge-patch+json";
            let call = world.call("PATCH", path, media, patch.to_vec().into());
            let got = world.send(call).await;
            assert_eq!(got.code, code, "{expression}: {got:?}");
            let targets = world.targets();
            assert_eq!(targets.len(), sent, "{targets:?}");
            assert!(
                targets.iter().any(|target| target.contains("dryRun=All")),
                "{targets:?}"
            );
        }
    });
}

#[test]
fn the_namespace_that_policies_see_is_that_of_the_url() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let namespaced = "has(object.metadata.namespace)";
        let (namespaces, maps) = ("/api/v1/namespaces", "/api/v1/namespaces/ns/configmaps");
        let in_system = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "kube-system"}});
        // An object without a namespace has none, whatever a client says.
        world.enforce(&[unless(" namespaces", namespaced)]);
        let got = world
            .json("POST", namespaces, &in_system("Namespace"))
            .await;
        assert_eq!(got.code, 422, "{got:?}");
        let path = format!("{namespaces}/a");
        world.store(
            &path,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
        );
        let got = world.json("PUT", &path, &in_system("Namespace")).await;
        assert_eq!(got.code, 422, "{got:?}");
        // One that has a namespace cannot lose it.
        world.enforce(&[unless(" configmaps", &format!("!{namespaced}"))]);
        let path = format!("{maps}/a");
        let mut stored = in_system("ConfigMap");
        stored["metadata"]["namespace"] = json!("ns");
        world.store(&path, stored);
        for (format, patch) in [
            ("merge-patch", json!({"metadata": {"namespace": null}})),
            ("merge-patch", json!({"metadata": {"namespace": ""}})),
            (
                "strategic-merge-patch",
                json!({"metadata": {"namespace": null}}),
            ),
            (
                "json-patch",
                json!([{"op": "remove", "path": "/metadata/namespace"}]),
            ),
        ] {
            let content = format!("application/{format}+json");
            let call = world.call("PATCH", &path, &content, patch.to_string().into());
            let got = world.send(call).await;
            assert_eq!(got.code, 422, "{format} {patch}: {got:?}");
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn a_field_with_two_names_is_seen_under_both() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let no_password = "!('password' in object.?data.orValue({}))";
        world.enforce(&[policy("p", " secrets", no_password)]);
        let secrets = "/api/v1/namespaces/ns/secrets";
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}});
        let path = format!("{secrets}/s");
        world.store(&path, secret.clone());
        let sent = json!({"stringData": {"password": "x"}});
        let mut whole = secret;
        whole["stringData"] = sent["stringData"].clone();
        for (method, path) in [("POST", secrets), ("PUT", &*path)] {
            let got = world.json(method, path, &whole).await;
            assert_eq!(got.code, 422, "{method}: {got:?}");
        }
        for patch in ["merge-patch", "strategic-merge-patch"] {
            let content = format!("application/{patch}+json");
            let call = world.call("PATCH", &path, &content, sent.to_string().into());
            let got = world.send(call).await;
            assert_eq!(got.code, 422, "{patch}: {got:?}");
        }

        let not_admin = "object.spec.?serviceAccountName.orValue('') != 'admin'";
        world.enforce(&[policy("p", " pods", not_admin)]);
        let mut body = pod(&json!({}));
        body["spec"]["serviceAccount"] = json!("admin");
        assert_eq!(world.json("POST", PODS, &body).await.code, 422);

        let confined = "object.spec.containers.all(c, c.?securityContext.?appArmorProfile.?type.orValue('') != 'Unconfined')";
        world.enforce(&[policy("p", " pods", confined)]);
        let mut body = pod(&json!({}));
        let name = &body["spec"]["containers"][0]["name"];
        let name = name.as_str().unwrap_or_default();
        let annotation = format!("container.apparmor.security.beta.kubernetes.io/{name}");
        body["metadata"]["annotations"] = json!({annotation: "unconfined"});
        assert_eq!(world.json("POST", PODS, &body).await.code, 422);

        world.enforce(&[policy(
            "p",
            " persistentvolumeclaims",
            "!has(object.spec.dataSource)",
        )]);
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "other"}}});
        let claims = "/api/v1/namespaces/ns/persistentvolumeclaims";
        assert_eq!(world.json("POST", claims, &body).await.code, 422);
        assert!(world.sent().is_empty());
    });
}

#[test]
fn bytes_are_seen_as_the_server_reads_them() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut echo = policy("p", " secrets", "false");
        echo["spec"]["validations"][0]["messageExpression"] = json!(
            "'data: ' + object.data.map(k, type(object.data[k]) == string ? k + '=' + object.data[k] : k + ' is no text').join(', ')"
        );
        world.enforce(&[echo]);
        let secrets = "/api/v1/namespaces/ns/secrets";
        let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "data": data});
        let path = format!("{secrets}/s");
        for (data, seen) in [
            (json!({"a": null}), "a is no text"),
            (json!({"a": []}), "a="),
            (json!({"a": [101, 118, 105, 108]}), "a=ZXZpbA=="),
        ] {
            world.store(&path, secret(json!({})));
            let whole = secret(data.clone()).to_string();
            let patch = json!({"data": data}).to_string();
            let writes = [
                ("POST", secrets, "json", &whole),
                ("POST", secrets, "yaml", &whole),
                ("PUT", &path, "json", &whole),
                ("PATCH", &path, "merge-patch+json", &patch),
                ("PATCH", &path, "strategic-merge-patch+json", &patch),
            ];
            // In a patch, null removes a member.
            let removes = data["a"].is_null();
            for (method, path, content, body) in writes {
                if removes && method == "PATCH" {
                    continue;
                }
                let content = format!("application/{content}");
                let call = world.call(method, path, &content, body.clone().into());
                let got = world.send(call).await;
                assert_eq!(got.code, 422, "{method} {content} {body}: {got:?}");
                let message = got.message();
                let is_seen = message.ends_with(&format!("data: {seen}"));
                assert!(is_seen, "{method} {content} {body}: {message}");
            }
        }
    });
}

#[test]
fn a_label_in_the_body_of_a_subresource_exempts_only_what_has_it_stored() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[unless(
            " pods/ephemeralcontainers",
            "'exempt' in object.metadata.?labels.orValue({})",
        )]);
        let path = format!("{PODS}/p/ephemeralcontainers");
        let exempt = json!({"exempt": "yes"});
        for (stored, sent, code) in [(&json!({}), &exempt, 422), (&exempt, &json!({}), 200)] {
            world.store(&path, pod(stored));
            let got = world.json("PUT", &path, &pod(sent)).await;
            assert_eq!(got.code, code, "{got:?}");
        }
        // One that is not there, or not yet, has no labels.
        let before = world.sent().len();
        let mut other = pod(&exempt);
        other["metadata"]["name"] = json!("q");
        let path = format!("{PODS}/q/ephemeralcontainers");
        let got = world.json("PUT", &path, &other).await;
        assert_eq!(got.message(), "pods \"q\" not found", "{got:?}");
        assert_eq!(world.sent().len(), before, "policies deny it, too");
    });
}

#[test]
fn an_unknown_subresource_of_kubernetes_is_evaluated_by_a_dry_run_and_one_of_others_is_refused() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(echo);
        world.enforce(&[policy("p", " pods/newest", "object.metadata.name == 'p'")]);
        let path = format!("{PODS}/p/newest");
        world.store(&path, pod(&json!({})));
        assert_eq!(world.json("PUT", &path, &pod(&json!({}))).await.code, 200);
        assert_eq!(world.sent()[0].target, format!("{path}?dryRun=All"));
        let before = world.sent().len();
        let path = "/apis/x.io/v1/namespaces/ns/widgets/w/start";
        let body = json!({"apiVersion": "x.io/v1", "kind": "Start"});
        for (fidelity, code, sent) in [
            ("completed", 403, 0),
            ("asSent", 200, 1),
            ("dryRun", 200, 3),
        ] {
            let mut one = policy("p", "x.io widgets/start", "true");
            one["fidelity"] = json!(fidelity);
            // A refusal for that reason is no failure that it could ignore.
            one["spec"]["failurePolicy"] = json!("Ignore");
            world.enforce(&[one]);
            let got = world.json("POST", path, &body).await;
            assert_eq!(
                (got.code, world.sent().len() - before),
                (code, sent),
                "{fidelity}: {got:?}"
            );
        }
    });
}

#[test]
fn what_an_overloaded_upstream_cannot_dry_run_is_not_forwarded_either() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        for code in [500, 503, 504] {
            world.inside.answer = Rc::new(move |_: &Sent| {
                let status = json!({"kind": "Status", "code": code});
                Response::builder()
                    .status(code)
                    .body(status.to_string())
                    .unwrap()
            });
            let mut one = policy("p", " configmaps", "true");
            one["fidelity"] = json!("dryRun");
            one["spec"]["failurePolicy"] = json!("Ignore");
            world.enforce(&[one]);
            let before = world.sent().len();
            let body = json!({"metadata": {"name": "m"}});
            let got = world
                .json("POST", "/api/v1/namespaces/ns/configmaps", &body)
                .await;
            assert_eq!(
                (got.code, world.sent().len() - before),
                (code, 1),
                "{got:?}"
            );
        }
    });
}

/// A server labels a Job, and a `ReplicationController`, like their pods.
#[test]
fn labels_that_an_object_gets_by_default_select_it() {
    World::run(|| async {
        let template = json!({"metadata": {"labels": {"env": "prod"}}, "spec": {"containers": []}});
        for (group, resource, kind, path) in [
            ("batch", "jobs", "Job", "/apis/batch/v1"),
            (
                "",
                "replicationcontrollers",
                "ReplicationController",
                "/api/v1",
            ),
        ] {
            let world = World::new(AdmissionMode::Enforce);
            let expression = "!has(object.metadata.labels) || object.metadata.labels.env != 'prod'";
            world.enforce(&[policy("p", &format!("{group} {resource}"), expression)]);
            let version = if group.is_empty() { "v1" } else { "batch/v1" };
            let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {"template": template}});
            let target = format!("{path}/namespaces/ns/{resource}");
            let got = world.json("POST", &target, &body).await;
            assert_eq!(got.code, 422, "{kind}: {got:?}");
        }
    });
}

/// A server notes who owns the fields of a new object before it asks policies.
#[test]
fn a_new_object_has_an_owner_of_its_fields() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let owned = |by: &str| {
            let expression = format!(
                "object.metadata.managedFields.exists(m, m.manager == '{by}' && m.operation == 'Update' \
                 && m.time == object.metadata.creationTimestamp && 'f:spec' in m.fieldsV1 \
                 && !('f:status' in m.fieldsV1) && m.fieldsV1['f:metadata'].size() == 1)"
            );
            let mut one = policy("p", " pods", &expression);
            one["spec"]["validations"][0]["messageExpression"] =
                json!("string(object.metadata.managedFields[0].manager)");
            one
        };
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "status": {"phase": "Running"},
            "spec": {"containers": [{"name": "c", "image": "good"}]}});
        for (query, owner) in [("", "unknown"), ("?fieldManager=me", "me")] {
            world.enforce(&[owned(owner)]);
            let got = world.json("POST", &format!("{PODS}{query}"), &pod).await;
            assert_eq!(got.code, 200, "{owner}: {got:?}");
            world.enforce(&[owned("another")]);
            let got = world.json("POST", &format!("{PODS}{query}"), &pod).await;
            assert!(got.message().ends_with(&format!(": {owner}")), "{got:?}");
        }
        // A user agent need not be text. Each byte of it that is none is a character for the server.
        for (agent, owner) in [
            (&b"kubectl-edit/v1 \xff"[..], "kubectl-edit"),
            (b"kube\xe2\x82ctl/v1", "kube\u{fffd}\u{fffd}ctl"),
        ] {
            let mut call = world.call("POST", PODS, "application/json", pod.to_string().into());
            let agent = HeaderValue::from_bytes(agent).unwrap();
            call.request.headers_mut().insert(USER_AGENT, agent);
            let got = world.send(call).await;
            assert!(got.message().ends_with(&format!(": {owner}")), "{got:?}");
        }
    });
}

/// A server notes who has changed what before it asks policies, and takes from others what was changed.
#[test]
fn a_changed_object_shows_who_owns_which_of_its_fields() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let entry = |manager: &str, fields: Value| json!({"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z"});
        let map = |data: Value| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns", "resourceVersion": "5", "uid": "u",
                "managedFields": [entry("first", json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}))]}, "data": data})
        };
        let path = "/api/v1/namespaces/ns/configmaps/m";
        world.store(path, map(json!({"a": "1", "b": "1"})));
        let mut one = policy("p", " configmaps", "false");
        one["spec"]["validations"][0]["messageExpression"] = json!(
            "object.metadata.managedFields.map(m, m.manager + (m.time == oldObject.metadata.managedFields[0].time ? ' then' : ' now') \
             + ('f:data' in m.fieldsV1 ? [' f:a', ' f:b', ' f:c'].filter(f, f.substring(1) in m.fieldsV1['f:data']).join('') : '')).join(', ')"
        );
        world.enforce(&[one]);
        let changed = json!({"data": {"b": "2", "c": "1"}});
        for (query, owners) in [
            ("?fieldManager=second", "first then f:a, second now f:b f:c"),
            ("?fieldManager=first", "first now f:a f:b f:c"),
        ] {
            let got = world
                .json("PATCH", &format!("{path}{query}"), &changed)
                .await;
            assert!(got.message().ends_with(&format!(": {owners}")), "{got:?}");
        }
        let put = map(json!({"a": "1"}));
        let got = world
            .json("PUT", &format!("{path}?fieldManager=second"), &put)
            .await;
        assert!(got.message().ends_with(": first then f:a"), "{got:?}");
        let mut reset = map(json!({"a": "2"}));
        reset["metadata"]["managedFields"] = json!([{}]);
        let got = world.json("PUT", path, &reset).await;
        // The message has no value, as nobody owns anything.
        assert!(
            got.message().ends_with("failed expression: false"),
            "{got:?}"
        );
    });
}

/// What a server makes of definitions and `APIServices`, only it can tell: it reads them into types that the gateway does not have.
#[test]
fn nulls_and_unknown_members_of_kinds_without_a_table_are_as_the_server_reads_them() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        // A server drops what its types do not have, and nulls.
        world.inside.answer = Rc::new(|sent: &Sent| {
            let mut object: Value = serde_json::from_slice(&sent.body).unwrap();
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.retain(|key, value| !value.is_null() && key != "owner");
            }
            Response::new(object.to_string())
        });
        let (services, definitions) = (
            "apiregistration.k8s.io/v1/apiservices",
            "apiextensions.k8s.io/v1/customresourcedefinitions",
        );
        let has_bundle = "!has(object.spec.service) || has(object.spec.caBundle)";
        for (of, kind, required, evading, honest) in [
            (
                services,
                "APIService",
                has_bundle,
                json!({"service": {"name": "s"}, "caBundle": null, "insecureSkipTLSVerify": true}),
                json!({"service": {"name": "s"}, "caBundle": "QQ=="}),
            ),
            (
                definitions,
                "CustomResourceDefinition",
                "has(object.spec.conversion)",
                json!({"group": "x.io", "conversion": null}),
                json!({"group": "x.io", "conversion": {"strategy": "None"}}),
            ),
            (
                definitions,
                "CustomResourceDefinition",
                "has(object.spec.owner) == false",
                json!({"group": "x.io", "owner": "x", "unseen": true}),
                json!({"group": "x.io", "owner": "x"}),
            ),
        ] {
            let (version, plural) = of.rsplit_once('/').unwrap();
            let (group, _) = version.split_once('/').unwrap();
            world.enforce(&[policy("p", &format!("{group} {plural}"), required)]);
            let collection = format!("/apis/{of}");
            let path = format!("{collection}/v1.x.io");
            let of_spec = |spec: &Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "v1.x.io", "resourceVersion": "5"}, "spec": spec});
            world.store(&path, of_spec(&json!({"group": "x.io"})));
            let evades = evading.get("unseen").is_none();
            for (spec, code) in [(&evading, if evades { 422 } else { 200 }), (&honest, 200)] {
                for (method, path) in [("POST", &collection), ("PUT", &path)] {
                    let before = world.sent().len();
                    let got = world.json(method, path, &of_spec(spec)).await;
                    assert_eq!(got.code, code, "{method} {path} {spec}: {got:?}");
                    let first = &world.sent()[before];
                    assert!(first.target.contains("dryRun=All"), "{first:?}");
                }
            }
        }
    });
}
