//! What classification costs, in steps: table lookups and entries read.

use super::*;

/// The schemas besides the built-in ones, and requests to measure.
type Shape = (fn(usize) -> FlowSchema, fn(usize) -> RequestDigest);

const AUTHENTICATED: &str = "system:authenticated";

fn named(i: usize, rules: Vec<PolicyRulesWithSubjects>) -> FlowSchema {
    let precedence = i32::try_from(1000 + i % 5000).unwrap();
    schema(&format!("schema-{i}"), precedence, rules)
}

fn pods_in(namespace: &str, user: &str) -> RequestDigest {
    let target = format!("/api/v1/namespaces/{namespace}/pods/p");
    digest(user, &["dev", AUTHENTICATED], "GET", &target)
}

fn disjoint_users(i: usize) -> FlowSchema {
    named(i, vec![all_of(user(&format!("user-{i}")))])
}

fn by_a_user(i: usize) -> RequestDigest {
    pods_in("red", &format!("user-{i}"))
}

fn disjoint_resources(i: usize) -> FlowSchema {
    let part = resources(
        &["*"],
        &["example.com"],
        &[&format!("things{i}")],
        &["*"],
        true,
    );
    named(
        i,
        vec![rule(vec![group(AUTHENTICATED)], vec![part], vec![])],
    )
}

fn for_a_resource(i: usize) -> RequestDigest {
    let target = format!("/apis/example.com/v1/namespaces/red/things{i}/x");
    digest("alice", &["dev", AUTHENTICATED], "GET", &target)
}

fn disjoint_namespaces(i: usize) -> FlowSchema {
    let part = resources(&["*"], &["*"], &["*"], &[&format!("ns-{i}")], false);
    let subject = if i.is_multiple_of(2) {
        user("*")
    } else {
        group("*")
    };
    named(i, vec![rule(vec![subject], vec![part], vec![])])
}

fn in_a_namespace(i: usize) -> RequestDigest {
    pods_in(&format!("ns-{i}"), "alice")
}

/// All kinds of schemas of this file and some more, in a fixed but arbitrary order.
fn mix(i: usize) -> FlowSchema {
    match (i * 7 + i / 11) % 6 {
        0 => disjoint_users(i),
        1 => disjoint_resources(i),
        2 => disjoint_namespaces(i),
        3 => named(i, vec![all_of(account(&format!("ns-{i}"), "*"))]),
        4 => {
            let part = resources(
                &["list", "watch"],
                &["*"],
                &["pods", "pods/log"],
                &[&format!("ns-{i}")],
                false,
            );
            let subjects = vec![group(&format!("team-{i}")), group("dev"), user("bob")];
            named(i, vec![rule(subjects, vec![part], vec![])])
        }
        _ => {
            let part = paths(&["get"], &[&format!("/probe/{i}")]);
            named(i, vec![rule(vec![group("*")], vec![], vec![part])])
        }
    }
}

fn of_the_mix(i: usize) -> RequestDigest {
    match i % 5 {
        0 => by_a_user(i),
        1 => for_a_resource(i),
        2 => in_a_namespace(i),
        3 => {
            let user = format!("system:serviceaccount:ns-{i}:x");
            digest(
                &user,
                &["system:serviceaccounts", AUTHENTICATED],
                "GET",
                "/api/v1/pods",
            )
        }
        _ => digest("alice", &[AUTHENTICATED], "GET", &format!("/probe/{i}/x")),
    }
}

/// A request that no schema matches, so that it goes to the catch-all.
fn of_nobody(i: usize) -> RequestDigest {
    digest(
        &format!("loner-{i}"),
        &["none"],
        "GET",
        "/api/v1/namespaces/other/secrets/s",
    )
}

/// Mean and greatest steps of requests spread over all schemas.
fn steps(policy: &Policy, request: fn(usize) -> RequestDigest, schemas: usize) -> (f64, u64) {
    let (mut sum, mut most) = (0, 0);
    let samples = 200;
    for sample in 0..samples {
        let request = request(sample * schemas.max(1) / samples);
        let before = STEPS.get();
        policy.classify(&request);
        let taken = STEPS.get() - before;
        sum += taken;
        most = most.max(taken);
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let mean = sum as f64 / samples as f64;
    (mean, most)
}

#[test]
fn ten_thousand_schemas_cost_at_most_three_times_as_much_as_the_built_in_ones() {
    let shapes: [(&str, Shape); 5] = [
        ("users", (disjoint_users, by_a_user)),
        ("resources", (disjoint_resources, for_a_resource)),
        ("namespaces", (disjoint_namespaces, in_a_namespace)),
        ("mix", (mix, of_the_mix)),
        ("nobody", (mix, of_nobody)),
    ];
    for (name, (schema, request)) in shapes {
        let few = steps(&policy(vec![]), request, 0);
        let many = steps(&policy((0..10_000).map(schema).collect()), request, 10_000);
        println!(
            "{name}: mean {:.1} to {:.1}, most {} to {}",
            few.0, many.0, few.1, many.1
        );
        assert!(many.0 <= 3.0 * few.0, "{name}: mean {few:?} to {many:?}");
        assert!(many.1 <= 3 * few.1, "{name}: most {few:?} to {many:?}");
    }
}

#[test]
fn each_group_costs_one_lookup_however_many_schemas_there_are() {
    let groups: Vec<String> = (0..300).map(|i| format!("team-{i}")).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let request = digest("alice", &groups, "GET", "/api/v1/namespaces/other/pods/p");
    let cost = |policy: &Policy| {
        let before = STEPS.get();
        policy.classify(&request);
        STEPS.get() - before
    };
    let few = cost(&policy(vec![]));
    let many = cost(&policy((0..10_000).map(mix).collect()));
    assert!(many <= 3 * few, "{few} to {many}");
}

/// Rules of many subjects, resources and namespaces that overlap at random.
fn broad(i: usize) -> FlowSchema {
    let mut state = i as u64;
    let mut draw = |prefix: &str| -> Vec<String> {
        (0..20)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                format!("{prefix}{}", (state >> 33) % 400)
            })
            .collect()
    };
    let subjects = draw("user-").iter().map(|name| user(name)).collect();
    let part = ResourcePolicyRule {
        verbs: strings(&["*"]),
        api_groups: strings(&["*"]),
        resources: draw("things"),
        namespaces: Some(draw("ns-")),
        cluster_scope: None,
    };
    named(i, vec![rule(subjects, vec![part], vec![])])
}

#[test]
fn broad_rules_are_kept_whole_and_match_the_same_requests() {
    let policy = policy((0..2000).map(broad).collect());
    let classifier = policy.classifier();
    let listed = classifier.entries.len();
    assert!(listed < 1000, "{listed} combinations");
    let mut found = 0;
    for i in 0..300 {
        let target = format!(
            "/apis/x/v1/namespaces/ns-{}/things{}/n",
            i * 7 % 400,
            i * 3 % 400
        );
        let request = digest(
            &format!("user-{}", i * 13 % 400),
            &[AUTHENTICATED],
            "GET",
            &target,
        );
        let before = STEPS.get();
        let flow = policy.classify(&request);
        let taken = STEPS.get() - before;
        assert!(taken < 400, "{taken} steps with 2000 schemas");
        assert_eq!(flow.schema, scan(&policy, &request));
        found += usize::from(policy.schema(flow.schema).name.starts_with("schema-"));
    }
    assert!(found > 20, "{found} requests reach a broad rule");
}

#[test]
fn names_that_occur_together_count_as_one() {
    let team = |i: usize| -> FlowSchema {
        let subjects = (0..40).map(|j| user(&format!("user-{i}-{j}"))).collect();
        let namespaces: Vec<String> = (0..40).map(|j| format!("ns-{i}-{j}")).collect();
        let things: Vec<String> = (0..40).map(|j| format!("things{j}")).collect();
        let part = ResourcePolicyRule {
            verbs: strings(&["*"]),
            api_groups: strings(&["*"]),
            resources: things,
            namespaces: Some(namespaces),
            cluster_scope: None,
        };
        named(i, vec![rule(subjects, vec![part], vec![])])
    };
    let policy = policy((0..100).map(team).collect());
    let listed = policy.classifier().entries.len();
    assert!(
        listed < 200,
        "{listed} combinations for 100 rules of 64 000"
    );
    let target = "/apis/x/v1/namespaces/ns-7-39/things0/n";
    let request = |user: &str| digest(user, &[AUTHENTICATED], "GET", target);
    assert_eq!(matched(&policy, &request("user-7-0")), "schema-7");
    assert_eq!(matched(&policy, &request("user-8-0")), "global-default");
}

#[test]
fn the_cost_of_a_path_is_bounded_by_the_depth_of_the_rules() {
    let policy = policy(vec![named(
        0,
        vec![rule(
            vec![group("*")],
            vec![],
            vec![paths(&["get"], &["/a/b/c"])],
        )],
    )]);
    let deep = format!("/a/b{}", "/x".repeat(5000));
    let before = STEPS.get();
    policy.classify(&digest("alice", &[], "GET", &deep));
    assert!(STEPS.get() - before < 60, "{}", STEPS.get() - before);
}

#[test]
fn combinations_with_names_that_no_rule_mentions_are_not_looked_up() {
    let things = |groups: &[&str], things: &[&str], namespaces: &[&str]| {
        let part = resources(&["get"], groups, things, namespaces, true);
        rule(vec![user("alice")], vec![part], vec![])
    };
    let policy = policy(vec![named(
        0,
        vec![
            things(&["a"], &["ones"], &["red"]),
            things(&["*"], &["twos"], &["red"]),
            things(&["b"], &["*"], &["red"]),
        ],
    )]);
    let steps = |target: &str| {
        let request = digest("alice", &[], "GET", target);
        let before = STEPS.get();
        policy.classify(&request);
        STEPS.get() - before
    };
    for place in ["", "/namespaces/red"] {
        let mentioned = steps(&format!("/apis/a/v1{place}/twos/n"));
        for (group, resource) in [("x", "ones"), ("a", "others"), ("x", "others")] {
            let steps = steps(&format!("/apis/{group}/v1{place}/{resource}/n"));
            assert!(
                steps < mentioned,
                "{place} {group} {resource}: {steps} of {mentioned}"
            );
        }
    }
    let elsewhere = steps("/apis/a/v1/namespaces/blue/ones/n");
    assert!(elsewhere < steps("/apis/a/v1/namespaces/red/twos/n"));
}

#[test]
fn names_are_looked_up_only_if_a_rule_of_the_subject_lists_any() {
    let part = |group: &str, resource: &str, namespace: &str| {
        resources(&["get"], &[group], &[resource], &[namespace], false)
    };
    let of = |i, name: &str, part| named(i, vec![rule(vec![user(name)], vec![part], vec![])]);
    let steps = |part_of_alice: ResourcePolicyRule| {
        // The rules of another user mention all names of the request.
        let of_another = of(1, "bob", part("apps", "things", "red"));
        let policy = policy(vec![of(0, "alice", part_of_alice), of_another]);
        let request = digest("alice", &[], "GET", "/apis/apps/v1/namespaces/red/things/n");
        let before = STEPS.get();
        policy.classify(&request);
        STEPS.get() - before
    };
    let any = steps(part("*", "*", "*"));
    assert!(any < steps(part("apps", "*", "*")));
    assert!(any < steps(part("*", "things", "*")));
    assert!(any < steps(part("*", "*", "red")));
}
