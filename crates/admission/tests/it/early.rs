//! matchConditions that are evaluated before the objects are known.

use fairgate_admission::{AdmissionAttributes, AdmissionOperation, EvaluationBudgets, PolicySet};
use fairgate_core::digest::User;
use fairgate_objects::{defaults::DefaultedKinds, schema::UnreadParts};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Value, json};

use super::limits::{Cluster, binding, creation, policy, resources};

fn policy_with(conditions: &[&str], change: impl FnOnce(&mut Value)) -> PolicySet {
    let conditions = conditions.iter().enumerate();
    let conditions: Vec<Value> = conditions
        .map(|(at, expression)| json!({"name": format!("c{at}"), "expression": expression}))
        .collect();
    let mut spec = json!({"matchConditions": conditions,
        "validations": [{"expression": "false"}]});
    change(&mut spec);
    let policy: ValidatingAdmissionPolicy =
        policy("p", &resources("deployments", &json!({})), &spec);
    PolicySet::compile(&[policy], &[binding("p")])
}

fn may_match(conditions: &[&str], attributes: &AdmissionAttributes<'_>) -> bool {
    let set = policy_with(conditions, |_| {});
    let cluster = Cluster::with("{}");
    let may_match = set.may_match(attributes, &cluster);
    let possible = set.possible(attributes, &cluster);
    assert_eq!(may_match, !possible.is_empty(), "{conditions:?}");
    if !may_match {
        let verdict = set.evaluate(attributes, &cluster, EvaluationBudgets::default());
        let evaluations = verdict.unwrap().evaluations;
        let decides = evaluations.iter().any(|one| !one.decisions.is_empty());
        assert!(!decides, "{conditions:?}: evaluating says something else");
    }
    may_match
}

#[test]
fn conditions_on_the_request_alone_are_known_before_the_body() {
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    for (conditions, expected) in [
        (&["request.userInfo.username == 'alice'"][..], true),
        (&["request.userInfo.username != 'alice'"], false),
        (&["!('dev' in request.userInfo.groups)"], false),
        (&["request.operation == 'UPDATE'"], false),
        (&["request.resource.resource == 'pods'"], false),
        (&["request.kind.kind != 'Deployment'"], false),
        (&["request.name != 'web'"], false),
        (&["has(request.subResource)"], false),
        (&["true", "request.namespace == 'other'"], false),
        (&["false"], false),
        (&["['other'].exists(one, one == request.namespace)"], false),
    ] {
        assert_eq!(
            may_match(conditions, &attributes),
            expected,
            "{conditions:?}"
        );
    }
}

#[test]
fn whatever_a_body_may_change_leaves_the_policy_possible() {
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    let long = format!(
        "lists.range(50000).exists(at, at < 0 && request.name == '{}')",
        "x"
    );
    for conditions in [
        &["object.metadata.name == 'other'"][..],
        &["request.namespace == 'other'", "has(object.spec)"],
        &["variables.v == request.name"],
        &["request.dryRun"],
        &["has(request.options.dryRun)"],
        &["dyn(request) == 3"],
        &["authorizer.group('').resource('pods').check('get').allowed()"],
        // An error may come from a step limit, which is smaller here.
        &["request.name == 'other'", "[1][int(request.name)] == 1"],
        &["no.such.name"],
        &[&*long],
    ] {
        assert!(may_match(conditions, &attributes), "{conditions:?}");
    }
    let nameless = AdmissionAttributes {
        name: "",
        ..attributes
    };
    assert!(may_match(&["has(request.name)"], &nameless));
    assert!(!may_match(&["request.namespace == 'other'"], &nameless));
    let unknown = AdmissionAttributes {
        kind: fairgate_admission::GroupVersionKind::default(),
        operation: AdmissionOperation::Create,
        ..attributes
    };
    assert!(may_match(&["request.kind.kind == ''"], &unknown));
}

#[test]
fn what_is_wrong_before_the_conditions_still_counts() {
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    let cluster = Cluster::with("{}");
    let with_params = policy_with(&["request.name == 'other'"], |spec| {
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    });
    assert!(with_params.may_match(&attributes, &cluster));
}

#[test]
fn policies_that_read_nothing_with_a_default_are_known() {
    let unknown = |expression| reads(expression).1.meets(DefaultedKinds::UNKNOWN);
    for expression in [
        "object.spec.replicas == 1",
        "has(object.status)",
        "object == oldObject",
        "object.metadata == oldObject.metadata",
        "object.metadata.generation == 1",
        "object[request.operation] == 1",
        "[object].all(one, one.spec.hostNetwork)",
        "variables.meta.replicas == 1",
    ] {
        assert!(unknown(expression), "{expression}");
    }
    for expression in [
        "object.metadata.labels.a == 'b' && object.metadata.name != 'c'",
        "object.kind == 'Pod' && object.apiVersion == 'v1'",
        "oldObject.spec.replicas == 1",
        "request.namespace == 'web' || params == null",
        "[object].all(one, one.kind == 'Pod')",
        "has(object.metadata)",
    ] {
        assert!(!unknown(expression), "{expression}");
    }
}

/// The kinds of which a policy with this validation may read a field with a default.
fn read_kinds(expression: &str) -> Vec<&'static str> {
    let kinds = [
        ("", "Pod"),
        ("apps", "Deployment"),
        ("batch", "CronJob"),
        ("", "Service"),
        ("", "Secret"),
        ("networking.k8s.io", "Ingress"),
        ("", "ConfigMap"),
    ];
    let read = reads(expression).1;
    let mut found = Vec::from(kinds);
    found.retain(|(group, kind)| read.meets(DefaultedKinds::of(group, kind)));
    found.into_iter().map(|(_, kind)| kind).collect()
}

#[test]
fn a_field_without_a_default_is_not_one_with_a_default_however_it_is_read() {
    for (expression, wanted) in [
        ("object.spec.nodeName == 'a'", &["Service"][..]),
        ("!has(object.spec.nodeName)", &["Service"]),
        ("object.spec.?nodeName.orValue('') == ''", &["Service"]),
        (
            "object.spec.containers.all(c, c.image != 'a' && !has(c.securityContext))",
            &["Service"],
        ),
        ("object.spec.containers.size() == 1", &["Service"]),
        (
            "object.spec.template.spec.containers.all(c, c.image.startsWith('r/'))",
            &["Service"],
        ),
        (
            "object.spec.template.metadata.labels.a == 'b'",
            &["Service"],
        ),
        ("has(object.spec)", &["Service"]),
        ("object.data.a == 'b'", &[]),
        ("'a' in object.metadata.labels", &[]),
    ] {
        assert_eq!(read_kinds(expression), wanted, "{expression}");
    }
}

#[test]
fn what_has_a_default_or_contains_one_or_is_within_one_is_known_by_kind() {
    const ALL: &[&str] = &[
        "Pod",
        "Deployment",
        "CronJob",
        "Service",
        "Secret",
        "Ingress",
    ];
    for (expression, wanted) in [
        ("object.spec.dnsPolicy == 'None'", &["Pod", "Service"][..]),
        (
            "has(object.spec.securityContext.runAsUser)",
            &["Pod", "Service"],
        ),
        ("has(object.spec.resources)", &["Pod", "Service"]),
        (
            "size(object.spec) == 1",
            &["Pod", "Deployment", "CronJob", "Service"],
        ),
        (
            "object.spec == oldObject.spec",
            &["Pod", "Deployment", "CronJob", "Service", "Ingress"],
        ),
        (
            "object.spec.exists(name, name == 'dnsPolicy')",
            &["Pod", "Deployment", "CronJob", "Service", "Ingress"],
        ),
        ("object.spec.replicas == 1", &["Deployment", "Service"]),
        (
            "object.spec.containers.exists(c, c == {})",
            &["Pod", "Service"],
        ),
        (
            "object.spec.containers.all(c, c.imagePullPolicy == 'Always')",
            &["Pod", "Service"],
        ),
        (
            "object.spec.containers.all(c, has(c.resources.requests.cpu))",
            &["Pod", "Service"],
        ),
        (
            "object.spec['containers'][0].ports[0]['protocol'] == 'TCP'",
            &["Pod", "Service"],
        ),
        (
            "(object.spec.containers + object.spec.initContainers).all(c, c.livenessProbe.httpGet.path == '/')",
            &["Pod", "Service"],
        ),
        (
            "object.spec.template.spec.volumes.all(v, !has(v.emptyDir))",
            &["Deployment", "Service"],
        ),
        (
            "object.spec.jobTemplate.spec.template.spec.restartPolicy == 'Never'",
            &["CronJob", "Service"],
        ),
        ("object.type == 'Opaque'", &["Secret"]),
        ("variables.meta.dnsPolicy == 'None'", &["Pod", "Service"]),
        ("object[request.name] == 1", ALL),
        ("object.metadata.generation == 1", ALL),
        ("object == oldObject", ALL),
    ] {
        assert_eq!(read_kinds(expression), wanted, "{expression}");
    }
}

/// Whether a policy with this validation may read the name of the object; of which kinds it may read fields with defaults; and which parts of the object it does not
/// read.
fn reads(expression: &str) -> (bool, DefaultedKinds, UnreadParts) {
    let user = User::new("alice", ["dev"]);
    let set = policy_with(&[], |spec| {
        spec["variables"] = json!([
            {"name": "meta", "expression": "object.spec"},
            {"name": "all", "expression": "object"},
        ]);
        spec["validations"] = json!([{"expression": expression}]);
    });
    let possible = set.possible(&creation(&user), &Cluster::with("{}"));
    let one = possible[0];
    (one.reads_name, one.reads_defaults, set.unread_parts())
}

/// Which policies match may change until the request is evaluated, with the labels of its namespace. So the parts do not depend on it.
#[test]
fn what_a_policy_reads_counts_although_it_does_not_match() {
    let user = User::new("alice", ["dev"]);
    let set = policy_with(&["request.namespace == 'other'"], |spec| {
        spec["validations"] = json!([{"expression": "!has(object.spec.volumes)"}]);
    });
    assert_eq!(set.possible(&creation(&user), &Cluster::with("{}")), []);
    let (volumes, _) = UnreadParts::paths()
        .find(|(_, path)| path.last() == Some(&"volumes"))
        .unwrap();
    assert_eq!(set.unread_parts(), UnreadParts::ALL.without(volumes));
}

#[test]
fn policies_that_may_read_the_name_of_the_object_are_known() {
    for expression in [
        "object.metadata.name == 'web'",
        "has(object.metadata.name)",
        "object['metadata']['name'] == 'web'",
        "object.?metadata.?name.orValue('') == ''",
        "object.metadata.exists(key, key == 'name')",
        "object == oldObject",
        "object[request.operation].name == ''",
        "(request.dryRun ? object : oldObject).metadata.name == 'web'",
        "[object].all(one, one.metadata.name == 'web')",
        "variables.all.metadata.name == 'web'",
        "request.name.startsWith('web')",
        "request == null",
        "authorizer.requestResource.check('create').allowed()",
    ] {
        assert!(reads(expression).0, "{expression}");
    }
    for expression in [
        "object.metadata.labels.name == 'web'",
        "has(object.metadata)",
        "object.metadata.generateName == 'web-'",
        "object.spec.template.metadata.name == 'web'",
        "oldObject.metadata.name == 'web'",
        "namespaceObject.metadata.name == 'web'",
        "request.namespace == 'web' && request.userInfo.username == 'alice'",
        "variables.meta.name == 'web'",
        "authorizer.group('').resource('pods').name('web').check('get').allowed()",
        "object.spec.containers.all(one, one.name == 'web')",
        "(request.dryRun ? object : oldObject).metadata.labels.a == 'b'",
        "[object].all(one, one.kind == 'Pod')",
        "variables.all.metadata.labels.name == 'web'",
    ] {
        assert!(!reads(expression).0, "{expression}");
    }
}

#[test]
fn parts_of_the_object_that_policies_do_not_read_are_known() {
    // What may be read, as names below the specification of pods.
    let all: Vec<_> = UnreadParts::paths()
        .filter(|(_, path)| path[0] == "spec" && path.len() < 6 && path[1] != "template")
        .filter(|(_, path)| path[1] != "jobTemplate")
        .map(|(part, path)| (part, path.last().copied().unwrap()))
        .collect();
    for (expression, read) in [
        ("object.metadata.labels.app == 'a'", &[][..]),
        ("object.spec.nodeName == 'a'", &[]),
        ("oldObject.spec.volumes == []", &[]),
        ("object.spec.volumes.all(v, has(v.secret))", &["volumes"]),
        ("has(object.spec.volumes)", &["volumes"]),
        (
            "object.spec.containers.all(c, c.image != 'a')",
            &["containers"],
        ),
        (
            "object.spec.template.spec.containers.all(c, size(c.env) < 5)",
            &["containers", "env"],
        ),
        (
            "(object.spec.containers + object.spec.initContainers).all(c, !has(c.ports))",
            &["containers", "initContainers", "ports"],
        ),
        (
            "object.spec.resources.requests.cpu == '1'",
            &[
                "containers",
                "ephemeralContainers",
                "initContainers",
                "resources",
            ],
        ),
        (
            "object.spec.jobTemplate.spec.template.spec.containers[0].args[0] == ''",
            &["args", "containers"],
        ),
    ] {
        let unread = reads(expression).2;
        for (part, name) in &all {
            let is_read = unread.without(*part) == unread;
            let shares = all
                .iter()
                .any(|(of, name)| of == part && read.contains(name));
            assert_eq!(is_read, shares, "{expression}: {name}");
        }
    }
    for expression in [
        "object == null",
        "variables.all == null",
        "object.spec == oldObject.spec",
        "object[request.name] == 1",
    ] {
        assert_eq!(reads(expression).2, UnreadParts::NONE, "{expression}");
    }
}

/// What is found for the constraints of one policy counts for others with the same, however many different ones there are.
#[test]
fn policies_are_told_apart_by_their_constraints() {
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    let cluster = Cluster::with("{}");
    let unmet = json!([{"name": "c", "expression": "request.userInfo.username == 'bob'"}]);
    let mut expected = Vec::new();
    let policies: Vec<_> = (0..120)
        .map(|at| {
            let mut spec = json!({"validations": [{"expression": "true"}]});
            if at % 2 == 0 {
                spec["matchConditions"] = unmet.clone();
            }
            let mut constraints = resources("deployments", &json!({}));
            // More different ones than are noted. Two thirds exclude the resource of the request.
            let mut excluded = vec![format!("things{}", at % 40)];
            if at % 3 != 0 {
                excluded.push("deployments".to_owned());
            }
            constraints["excludeResourceRules"] = json!([{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": excluded,
            }]);
            let name = format!("p{at}");
            if at % 6 == 3 {
                expected.push(name.clone());
            }
            policy(&name, &constraints, &spec)
        })
        .collect();
    let bindings: Vec<_> = (0..120).map(|at| binding(&format!("p{at}"))).collect();
    let set = PolicySet::compile(&policies, &bindings);
    let possible = set.possible(&attributes, &cluster).into_iter();
    let possible: Vec<_> = possible.map(|one| one.name.to_owned()).collect();
    assert_eq!(possible, expected);
}

/// A condition that several policies have gives each what it gives when the policy is alone.
#[test]
fn shared_conditions_say_of_each_policy_what_they_say_of_it_alone() {
    const POOL: [&str; 7] = [
        "true",
        "request.userInfo.username == 'bob'",
        "request.userInfo.username == 'alice'",
        "request.userInfo.groups[7] == 'dev'",
        "request.namespace in ['other']",
        "request.userInfo.groups.exists(one, one == 'dev')",
        "object.spec.replicas == 1",
    ];
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    let cluster = Cluster::with("{}");
    let everything = resources("deployments", &json!({}));
    // All sets of up to seven of them, in two orders, and some with one that no other policy has.
    let policies: Vec<_> = (0..384_usize)
        .map(|at| {
            let mut chosen: Vec<_> = (0..POOL.len()).filter(|one| at >> one & 1 == 1).collect();
            if at >= 128 {
                chosen.reverse();
            }
            let mut expressions: Vec<_> = chosen.iter().map(|one| POOL[*one].to_owned()).collect();
            if at >= 256 {
                expressions.push(format!("request.name != 'only-{at}'"));
            }
            let conditions = expressions.iter().enumerate();
            let conditions: Vec<_> = conditions
                .map(|(at, one)| json!({"name": format!("c{at}"), "expression": one}))
                .collect();
            let spec =
                json!({"matchConditions": conditions, "validations": [{"expression": "true"}]});
            policy(&format!("p{at}"), &everything, &spec)
        })
        .collect();
    let bindings: Vec<_> = (0..384).map(|at| binding(&format!("p{at}"))).collect();
    let mut expected = Vec::new();
    for (policy, binding) in policies.iter().zip(&bindings) {
        let alone = PolicySet::compile(std::slice::from_ref(policy), std::slice::from_ref(binding));
        if alone.may_match(&attributes, &cluster) {
            expected.push(policy.metadata.name.clone().unwrap());
        }
    }
    let set = PolicySet::compile(&policies, &bindings);
    let possible = set.possible(&attributes, &cluster).into_iter();
    let possible: Vec<_> = possible.map(|one| one.name.to_owned()).collect();
    assert_eq!(possible, expected);
    assert!((100..350).contains(&expected.len()), "{}", expected.len());
}
