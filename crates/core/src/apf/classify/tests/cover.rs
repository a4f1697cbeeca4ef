//! Which schemas are called unreachable.

use super::*;

/// How a schema of the rule `later` is covered by a preceding schema of the rule `earlier`.
fn behind(earlier: PolicyRulesWithSubjects, later: PolicyRulesWithSubjects) -> Cover {
    let policy = policy(vec![
        schema("a", 2, vec![earlier]),
        schema("b", 3, vec![later]),
    ]);
    let later = policy.schema_by_name("b").unwrap();
    policy.classifier().cover(later.0)
}

fn is_whole(earlier: PolicyRulesWithSubjects, later: PolicyRulesWithSubjects) -> bool {
    matches!(behind(earlier, later), Cover::Whole(_))
}

#[test]
fn subjects_are_covered_by_themselves_and_by_everybody() {
    let whole = |earlier: Subject, later: Subject| is_whole(all_of(earlier), all_of(later));
    assert!(whole(user("a"), user("a")));
    assert!(whole(user("*"), user("a")));
    assert!(whole(group("*"), group("g")));
    assert!(whole(account("ns", "*"), account("ns", "x")));
    assert!(whole(
        account("ns", "x"),
        user("system:serviceaccount:ns:x")
    ));
    assert!(!whole(user("a"), user("b")));
    assert!(!whole(user("a"), user("*")));
    assert!(
        !whole(group("g"), user("a")),
        "the user may not be in the group"
    );
    assert!(!whole(account("ns", "x"), account("ns", "*")));
}

#[test]
fn resource_rules_are_covered_by_broader_ones() {
    let rule = |part: ResourcePolicyRule| rule(vec![user("a")], vec![part], vec![]);
    let whole = |earlier, later| is_whole(rule(earlier), rule(later));
    let one = || resources(&["get", "list"], &["apps"], &["pods/log"], &["red"], false);
    let every = || resources(&["*"], &["*"], &["*"], &["*"], true);
    assert!(whole(one(), one()));
    assert!(whole(every(), one()));
    assert!(!whole(one(), every()));
    assert!(whole(
        resources(&["*"], &["*"], &["*"], &["*"], false),
        one()
    ));
    for narrower in [
        resources(&["get"], &["*"], &["*"], &["*"], true),
        resources(&["*"], &["batch"], &["*"], &["*"], true),
        resources(&["*"], &["*"], &["pods"], &["*"], true),
        resources(&["*"], &["*"], &["*"], &["blue"], true),
        resources(&["*"], &["*"], &["*"], &[], true),
    ] {
        assert!(!whole(narrower.clone(), one()), "{narrower:?}");
    }
    assert!(!whole(
        resources(&["*"], &["*"], &["*"], &["*"], false),
        every()
    ));
    let nine = &crate::apf::objects::validate::VERBS;
    assert!(
        !whole(resources(nine, &["*"], &["*"], &["*"], true), every()),
        "the verb of OPTIONS is not listed"
    );
}

#[test]
fn paths_are_covered_by_directories_above_them() {
    let rule = |url: &str| rule(vec![user("a")], vec![], vec![paths(&["get"], &[url])]);
    let whole = |earlier: &str, later: &str| is_whole(rule(earlier), rule(later));
    assert!(whole("/healthz", "/healthz"));
    assert!(whole("/healthz", "/healthz/*"));
    assert!(whole("/healthz", "/healthz/etcd"));
    assert!(whole("/", "/healthz"));
    assert!(whole("*", "/"));
    assert!(
        !whole("/healthz/*", "/healthz"),
        "the path itself is not covered"
    );
    assert!(!whole("/healthz/etcd", "/healthz"));
    assert!(!whole("/healthz", "/healthzx"));
    assert!(!whole("/", "*"), "a path need not begin with a slash");
}

#[test]
fn the_authenticated_and_unauthenticated_groups_cover_all_but_users_without_groups() {
    let both = || {
        let mut both = all_of(group(User::AUTHENTICATED));
        both.subjects.push(group(User::UNAUTHENTICATED));
        both
    };
    assert!(matches!(
        behind(both(), all_of(user("a"))),
        Cover::AllButGroupless(_)
    ));
    assert_eq!(
        behind(all_of(group(User::AUTHENTICATED)), all_of(user("a"))),
        Cover::Open
    );
}

#[test]
fn several_earlier_schemas_may_cover_one() {
    let policy = policy(vec![
        schema("a", 2, vec![all_of(user("a"))]),
        schema("b", 2, vec![all_of(user("b"))]),
        schema("c", 3, vec![all_of(user("b")), all_of(user("a"))]),
    ]);
    let index = |name| policy.schema_by_name(name).unwrap().0;
    let last = SchemaIndex(index("c"));
    assert_eq!(
        policy.classifier().cover(last.0),
        Cover::Whole([index("a"), index("b")].into())
    );
}

#[test]
fn a_schema_whose_rules_match_nothing_is_reported() {
    let nothing = rule(
        vec![user("a")],
        vec![resources(&["*"], &["*"], &["pods/"], &["*"], true)],
        vec![],
    );
    assert_eq!(behind(all_of(user("b")), nothing), Cover::Nothing);
}
