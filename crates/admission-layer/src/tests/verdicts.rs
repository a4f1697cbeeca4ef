//! Refusals, warnings, and what happens to requests that cannot be evaluated.

use fairgate_admission::AdmissionOperation::{Create, Update};
use fairgate_admission::{AdmissionDecision, AdmissionMode, LookupLack};
use serde_json::{Value, json};

use super::world::{World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[test]
fn a_refusal_has_the_text_of_the_api_server_and_is_not_forwarded() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "object.metadata.name.endsWith('k8s')",
        )]);
        let got = world.json("POST", MAPS, &map("foo", &json!({}))).await;
        assert_eq!(
            String::from_utf8(got.body.to_vec()).unwrap(),
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"configmaps \"foo\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-b' "#,
                r#"denied request: failed expression: object.metadata.name.endsWith('k8s')","#,
                r#""reason":"Invalid","details":{"name":"foo","kind":"configmaps","causes":[{"message":"#,
                r#""ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: failed expression: "#,
                r#"object.metadata.name.endsWith('k8s')"}]},"code":422}"#,
                "\n"
            )
        );
        assert_eq!((got.code, got.reason()), (422, "admission-denied"));
        assert!(world.sent().is_empty());
        let got = world.json("POST", MAPS, &map("a-k8s", &json!({}))).await;
        assert_eq!((got.code, got.reason()), (200, ""));
        let sent = world.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].body, map("a-k8s", &json!({})).to_string());
        let decisions: Vec<_> = world.records.all().iter().map(|one| one.decision).collect();
        assert_eq!(
            decisions,
            [AdmissionDecision::Denied, AdmissionDecision::Allowed]
        );
        let record = &world.records.all()[0];
        assert_eq!(
            (&*record.request.name, &*record.request.user),
            ("foo", "alice")
        );
        assert_eq!(record.checks[0].policy, "p");
        assert!(record.checks[0].message.starts_with("failed expression"));
    });
}

#[test]
fn g06_a_user_who_may_not_make_the_request_learns_nothing_of_policies() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.user.name = "mallory".to_owned();
        world.enforce(&[policy(
            "p",
            " configmaps",
            "request.userInfo.username == 'bob'",
        )]);
        let got = world.json("POST", MAPS, &map("foo", &json!({}))).await;
        assert_eq!((got.code, got.reason()), (403, "forbidden"));
        assert_eq!(
            got.message(),
            "configmaps is forbidden: User \"mallory\" cannot create resource \"configmaps\" in API group \"\" \
             in the namespace \"ns\": rbac"
        );
        assert!(world.sent().is_empty());
    });
}

#[test]
fn g08_own_warnings_come_after_those_of_the_upstream() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let mut warn = policy("p", " configmaps", "false");
        warn["actions"] = json!(["Warn"]);
        world.enforce(&[warn]);
        world.inside.answer = std::rc::Rc::new(|_| {
            let response = http::Response::builder().header("warning", "299 - \"old\"");
            response.body("{}".to_owned()).unwrap()
        });
        let got = world.json("POST", MAPS, &map("foo", &json!({}))).await;
        assert_eq!(got.code, 200);
        assert_eq!(
            got.warnings(),
            [
                "299 - \"old\"",
                "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': failed expression: false\""
            ]
        );
        world.inside.answer = std::rc::Rc::new(|_| {
            let response = http::Response::builder().status(403);
            response.body("{}".to_owned()).unwrap()
        });
        let got = world.json("POST", MAPS, &map("foo", &json!({}))).await;
        assert_eq!((got.code, got.warnings()), (403, vec![]));
    });
}

#[test]
fn an_update_sees_the_stored_object_and_one_that_does_not_exist_is_a_creation() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "request.operation == 'UPDATE' ? oldObject.data.a == object.data.a : oldObject == null",
        )]);
        let path = format!("{MAPS}/m");
        world.store(&path, map("m", &json!({"a": "1"})));
        for (value, code) in [("1", 200), ("2", 422)] {
            let body = map("m", &json!({"a": value}));
            assert_eq!(world.json("PUT", &path, &body).await.code, code, "{value}");
        }
        let absent = format!("{MAPS}/n");
        let got = world.json("PUT", &absent, &map("n", &json!({}))).await;
        assert_eq!(got.code, 200);
        let operations: Vec<_> = world
            .records
            .all()
            .iter()
            .map(|one| one.operation)
            .collect();
        assert_eq!(operations, [Update, Update, Create]);
    });
}

#[test]
fn a_deletion_is_evaluated_by_the_stored_object_and_its_options() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "object == null && 'deletable' in oldObject.data && request.options.gracePeriodSeconds == 5",
        )]);
        let path = format!("{MAPS}/m");
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5});
        // Forwarded, it might delete an object that is created meanwhile.
        assert_eq!(world.json("DELETE", &path, &options).await.code, 404);
        assert!(world.sent().is_empty());
        world.store(&path, map("m", &json!({})));
        assert_eq!(world.json("DELETE", &path, &options).await.code, 422);
        world.store(&path, map("m", &json!({"deletable": ""})));
        assert_eq!(world.json("DELETE", &path, &options).await.code, 200);
        let target = format!("{path}?gracePeriodSeconds=5");
        assert_eq!(world.json("DELETE", &target, &Value::Null).await.code, 200);
    });
}

#[test]
fn g13_one_protected_object_keeps_its_collection() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "!has(request.name) && oldObject.kind == 'ConfigMap' && !('protected' in oldObject.data)",
        )]);
        let list = |second: &str| {
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [
                {"metadata": {"name": "a"}, "data": {"x": ""}},
                {"metadata": {"name": "b"}, "data": {second: ""}}]})
        };
        world.store(MAPS, list("protected"));
        let target = format!("{MAPS}?labelSelector=a%3Db&dryRun=All&propagationPolicy=Orphan");
        let got = world.json("DELETE", &target, &Value::Null).await;
        assert_eq!(got.code, 422);
        assert!(
            got.message()
                .starts_with("configmaps \"Unknown\" is forbidden")
        );
        let listed = world.upstream.seen();
        let listed = listed
            .iter()
            .find(|seen| seen.target.starts_with(MAPS))
            .unwrap();
        assert_eq!(
            listed.target,
            format!("{MAPS}?limit=250&labelSelector=a%3Db")
        );
        world.store(MAPS, list("free"));
        assert_eq!(world.json("DELETE", &target, &Value::Null).await.code, 200);
    });
}

#[test]
fn a_collection_is_selected_as_the_server_reads_the_query() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "false")]);
        world.store(
            MAPS,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}),
        );
        // The first counts, encoded or not; what has a semicolon or a wrong escape is left out.
        let query = "label%53elector=&labelSelector=app%3Dnone&labelSelector=a;b&fieldSelector=%zz&field%53elector=c%3Dd&x=labelSelector";
        let target = format!("{MAPS}?{query}");
        assert_eq!(world.json("DELETE", &target, &Value::Null).await.code, 200);
        let listed = world.upstream.seen();
        let listed = listed.iter().find(|seen| seen.target.starts_with(MAPS));
        let selected = "label%53elector=&labelSelector=app%3Dnone&field%53elector=c%3Dd";
        assert_eq!(
            listed.unwrap().target,
            format!("{MAPS}?limit=250&{selected}")
        );
    });
}

#[test]
fn a_collection_is_listed_as_the_server_lists_it() {
    World::run(|| async {
        let names = |world: &World, from: &str| {
            let seen = world.upstream.seen();
            let listed = seen.iter().filter(|seen| seen.target.starts_with(from));
            listed.map(|seen| seen.target.clone()).collect::<Vec<_>>()
        };
        for (query, pages) in [
            ("limit=1", &["limit=1"][..]),
            ("limit=-1", &["limit=250"]),
            ("resourceVersion=7", &["limit=250&resourceVersion=7"]),
            ("resourceVersion=0", &["limit=250"]),
            (
                "resourceVersion=7&resourceVersionMatch=Exact&limit=5",
                &["limit=5&resourceVersion=7&resourceVersionMatch=Exact"],
            ),
            (
                "resourceVersion=7&limit=-1",
                &["limit=250&resourceVersion=7&resourceVersionMatch=NotOlderThan"],
            ),
            ("continue=1", &["limit=250&continue=1"]),
        ] {
            let world = World::new(AdmissionMode::Enforce);
            world.enforce(&[policy("p", " configmaps", "oldObject.metadata.name != 'b'")]);
            let of = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "7"}});
            world.store(
                MAPS,
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [of("a"), of("b")]}),
            );
            let target = format!("{MAPS}?{query}");
            let got = world.json("DELETE", &target, &Value::Null);
            // Only the first object is deleted with this limit, and none has the version 0.
            let expected = match query {
                "limit=1" => 200,
                "resourceVersion=0" => 409,
                _ => 422,
            };
            assert_eq!(got.await.code, expected, "{query}");
            let pages: Vec<_> = pages.iter().map(|page| format!("{MAPS}?{page}")).collect();
            assert_eq!(names(&world, MAPS), pages, "{query}");
        }
        // What is wrong with the options is found before anything is listed.
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "true")]);
        for (query, code) in [
            ("resourceVersionMatch=Exact", 422),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=1&resourceVersionMatch=x", 422),
            ("limit=x", 400),
            ("labelSelector=(", 400),
        ] {
            let target = format!("{MAPS}?{query}");
            let got = world.json("DELETE", &target, &Value::Null);
            assert_eq!(got.await.code, code, "{query}");
        }
        assert!(names(&world, MAPS).is_empty());
        assert!(world.sent().is_empty());
    });
}

#[test]
fn g14_exec_is_refused_before_the_upgrade() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " pods/exec",
            "request.operation == 'CONNECT' && object.command[0] != 'rm'",
        )]);
        let exec = "/api/v1/namespaces/ns/pods/p/exec?command=";
        for method in ["GET", "POST"] {
            let got = world.json(method, &format!("{exec}rm"), &Value::Null).await;
            assert_eq!(got.code, 422);
            assert!(got.message().starts_with("pods \"p\" is forbidden"));
            let got = world.json(method, &format!("{exec}ls"), &Value::Null).await;
            assert_eq!(got.code, 200);
        }
    });
}

#[test]
fn what_cannot_be_read_is_refused_whatever_the_failure_policies_say() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let path = format!("{MAPS}/m");
        world.store(&path, json!("broken"));
        for failure_policy in ["Fail", "Ignore"] {
            let mut one = policy("p", " configmaps", "true");
            one["spec"]["failurePolicy"] = json!(failure_policy);
            world.enforce(&[one]);
            let got = world.json("PUT", &path, &map("m", &json!({}))).await;
            assert_eq!(got.code, 500, "{failure_policy}");
            let decision = world.records.all().last().unwrap().decision;
            assert_eq!(decision, AdmissionDecision::Failed);
            assert!(world.sent().is_empty());
        }
        assert!(world.records.all()[0].failure.contains("500"));
    });
}

#[test]
fn a_lookup_that_is_not_answered_is_refused_whatever_the_failure_policy_says() {
    World::run(|| async {
        for (lack, code) in [
            (LookupLack::Time, 504),
            (LookupLack::Server("down".to_owned()), 500),
        ] {
            let world = World::new(AdmissionMode::Enforce);
            *world.cluster.lack.lock().unwrap() = Some(lack);
            // The namespace selects the policy, expressions see it, and params are not known.
            let mut selected = policy("p", " configmaps", "false");
            selected["namespaces"] = json!({"matchLabels": {"env": "test"}});
            let seen = policy("p", " configmaps", "namespaceObject == null");
            let mut with_params = policy("p", " configmaps", "params == null");
            with_params["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            with_params["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Allow"});
            for mut one in [selected, seen, with_params] {
                one["spec"]["failurePolicy"] = json!("Ignore");
                world.enforce(&[one]);
                let maps = "/api/v1/namespaces/new/configmaps";
                let got = world.json("POST", maps, &map("m", &json!({}))).await;
                assert_eq!((got.code, got.reason()), (code, "admission-failed"));
            }
            assert!(world.sent().is_empty());
        }
    });
}

#[test]
fn the_authorizer_is_told_the_selectors_of_a_check() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let check = |node: &str| {
            format!(
                "authorizer.group('').resource('pods').fieldSelector('spec.nodeName={node}')\
                 .check('list').allowed()"
            )
        };
        for (node, code) in [("here", 200), ("elsewhere", 422)] {
            world.enforce(&[policy("p", " configmaps", &check(node))]);
            let body = json!({"metadata": {"name": "m"}});
            let got = world
                .json("POST", "/api/v1/namespaces/ns/configmaps", &body)
                .await;
            assert_eq!(got.code, code, "{node}: {got:?}");
        }
    });
}

#[test]
fn the_authorizer_is_asked_between_two_passes_and_not_more_often_than_32_times() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let check = |name: &str| {
            format!("authorizer.group('').resource('pods').name('{name}').check('get')")
        };
        world.enforce(&[policy(
            "p",
            " configmaps",
            &format!(
                "{}.allowed() && {}.reason() == 'rbac'",
                check("a"),
                check("b")
            ),
        )]);
        let got = world.json("POST", MAPS, &map("m", &json!({}))).await;
        assert_eq!(got.code, 200, "{got:?}");
        let many: Vec<_> = (0..40)
            .map(|number| {
                let name = format!("p{number:02}");
                policy(&name, " configmaps", &format!("{}.allowed()", check(&name)))
            })
            .collect();
        world.enforce(&many);
        let got = world.json("POST", MAPS, &map("m", &json!({}))).await;
        assert_eq!(got.code, 422);
        let denied = world.records.all().last().unwrap().checks.clone();
        let denied = denied.iter().filter(|check| check.action.is_some()).count();
        assert_eq!(denied, 8, "checks that were not made are not allowed");
    });
}

#[test]
fn a_namespace_that_is_not_known_is_read() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy(
            "p",
            " configmaps",
            "namespaceObject.metadata.labels.env == 'test'",
        );
        one["namespaces"] = json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]});
        world.enforce(&[one]);
        let maps = "/api/v1/namespaces/new/configmaps";
        let got = world.json("POST", maps, &map("m", &json!({}))).await;
        assert_eq!(
            got.code, 404,
            "the policy denies it, but the namespace comes first: {got:?}"
        );
        assert_eq!(got.message(), "namespaces \"new\" not found");
        assert!(world.sent().is_empty());
        let namespace = json!({"metadata": {"name": "new", "labels": {"env": "test"}}});
        let unknown = &world.cluster.unknown;
        unknown.lock().unwrap().insert("new".to_owned(), namespace);
        let got = world.json("POST", maps, &map("m", &json!({}))).await;
        assert_eq!(got.code, 200, "{got:?}");
    });
}

#[test]
fn params_are_those_of_the_namespace() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy("p", " configmaps", "params.data.max == object.data.max");
        one["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        one["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
        world.enforce(&[one]);
        let body = map("m", &json!({"max": "5"}));
        let got = world.json("POST", MAPS, &body).await;
        assert!(
            got.message()
                .contains("failed to configure binding: no params found")
        );
        let metadata = json!({"namespace": "ns", "name": "limits"});
        let param = json!({"metadata": metadata, "data": {"max": "5"}});
        world.cluster.params.lock().unwrap().push(param);
        assert_eq!(world.json("POST", MAPS, &body).await.code, 200);
    });
}

#[test]
fn a_long_evaluation_runs_elsewhere_and_is_interrupted_in_the_end() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let slow = "object.data.list.split(',').all(a, object.data.list.split(',').all(b, a != '' || b != ''))";
        world.enforce(&[policy("p", " configmaps", slow)]);
        let list = vec!["x"; 120].join(",");
        let got = world
            .json("POST", MAPS, &map("m", &json!({"list": list})))
            .await;
        assert_eq!(got.code, 200, "{got:?}");
    });
}

#[test]
fn a_part_is_evaluated_by_the_policy_that_reads_it_whatever_others_read() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let containers = "object.spec.?template.?spec.orValue(object.spec).containers";
        let no_secrets = format!("{containers}.all(c, c.env.all(e, e.value != 'secret'))");
        let images = [" pods", "apps deployments"].map(|resource| {
            let name = format!("images-{}", resource.len());
            policy(&name, resource, "object.metadata.name != ''")
        });
        let object = |kind: &str, value: &str| {
            let env = json!([{"name": "A", "value": value}]);
            let spec = json!({"containers": [{"name": "c", "image": "i", "env": env}]});
            let template = json!({"spec": spec});
            match kind {
                "Pod" => {
                    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}, "spec": spec})
                }
                _ => json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "n"},
                    "spec": {"template": template}}),
            }
        };
        let paths = [
            ("Pod", "/api/v1/namespaces/ns/pods"),
            ("Deployment", "/apis/apps/v1/namespaces/ns/deployments"),
        ];
        for (reads, code) in [(false, 200), (true, 422)] {
            let mut policies = images.to_vec();
            if reads {
                policies.push(policy("pods-env", " pods", &no_secrets));
                policies.push(policy("apps-env", "apps deployments", &no_secrets));
            }
            world.enforce(&policies);
            for (kind, path) in paths {
                let body = object(kind, "secret");
                assert_eq!(world.json("POST", path, &body).await.code, code, "{kind}");
                let allowed = object(kind, "other");
                assert_eq!(world.json("POST", path, &allowed).await.code, 200, "{kind}");
                // All of the body is forwarded, whatever is read of it.
                assert_eq!(world.sent().last().unwrap().body, allowed.to_string());
            }
        }
    });
}
