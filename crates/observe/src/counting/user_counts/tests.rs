//! The counts of users: bounded, by core, and dropped when they are idle.

use std::sync::Arc;

use super::{UserRefusal, UserRegistry, UserRequest, UserTable, registry::MAX_KEYS};

fn refused(user: &str) -> UserRequest<'_> {
    UserRequest {
        user,
        level: "strict",
        refusal: Some(UserRefusal {
            reason: "queue-full",
            code: 429,
        }),
    }
}

fn tables<const N: usize>() -> (Arc<UserRegistry>, [UserTable; N]) {
    let registry = Arc::new(UserRegistry::default());
    let tables = [(); N].map(|()| UserTable::new(Arc::clone(&registry)));
    (registry, tables)
}

fn total(registry: &UserRegistry, user: &str) -> Option<u64> {
    let mut counts = registry.counts().into_iter();
    let count = counts.find(|count| &*count.labels.user == user);
    count.map(|count| count.total)
}

#[test]
fn the_counts_of_all_cores_are_added_up() {
    let (registry, [one, other]) = tables();
    one.count(&refused("ann"), 2);
    other.count(&refused("ann"), 3);
    other.count(&refused("bob"), 1);
    let counts = registry.counts();
    let found: Vec<_> = counts
        .iter()
        .map(|count| (&*count.labels.user, count.total))
        .collect();
    assert_eq!(found, [("ann", 5), ("bob", 1)]);
}

#[test]
fn a_flood_is_found_among_a_million_users_who_send_one_request_each() {
    let (registry, [table]) = tables();
    // They were there first, and have filled the table.
    let mut strangers = 0..;
    for stranger in strangers.by_ref().take(2 * MAX_KEYS) {
        table.count(&refused(&format!("stranger-{stranger}")), 1);
    }
    for _ in 0..1000 {
        for _ in 0..100 {
            for stranger in strangers.by_ref().take(10) {
                table.count(&refused(&format!("stranger-{stranger}")), 1);
            }
            table.count(&refused("flood"), 1);
        }
        registry.sweep();
    }
    assert_eq!(&*registry.counts()[0].labels.user, "flood");
    let counted = total(&registry, "flood").unwrap();
    // It got a row within a few sweeps, and has kept it.
    assert!((95_000..=100_000).contains(&counted), "{counted}");
    let (keys, rows) = registry.sizes();
    assert!(keys <= MAX_KEYS && rows <= MAX_KEYS, "{keys} {rows}");
}

#[test]
fn who_floods_now_is_heavier_than_who_flooded_an_hour_ago() {
    let (registry, [table]) = tables();
    table.count(&refused("before"), 1_000_000);
    for _ in 0..3000 {
        registry.sweep();
    }
    table.count(&refused("now"), 10);
    assert_eq!(
        &*registry.heaviest(1, &["strict"].into())[0].labels.user,
        "now"
    );
    assert_eq!(total(&registry, "before"), Some(1_000_000));
    for _ in 0..1000 {
        registry.sweep();
    }
    assert_eq!(total(&registry, "before"), None, "idle for an hour");
    table.count(&refused("before"), 1);
    assert_eq!(total(&registry, "before"), Some(1), "it starts anew");
}

#[test]
fn each_level_has_its_heaviest_users() {
    let (registry, [table]) = tables();
    for user in ["a", "b", "c"] {
        table.count(&refused(user), 5);
        let request = UserRequest {
            level: "other",
            ..refused(user)
        };
        table.count(&request, u64::from(user == "c") + 1);
    }
    let found: Vec<_> = registry
        .heaviest(2, &["strict", "other"].into())
        .into_iter()
        .map(|count| {
            (
                count.labels.level.into_string(),
                count.labels.user.into_string(),
            )
        })
        .collect();
    let expected = [
        ("other", "a"),
        ("other", "c"),
        ("strict", "a"),
        ("strict", "b"),
    ];
    assert_eq!(registry.heaviest(2, &["strict"].into()).len(), 2);
    assert_eq!(
        found,
        expected.map(|(level, user)| (level.to_owned(), user.to_owned()))
    );
}

#[test]
fn refusals_of_admission_and_of_flow_control_do_not_hide_each_other() {
    let (registry, [table]) = tables();
    let denied = |user| UserRequest {
        refusal: Some(UserRefusal {
            reason: "admission-denied",
            code: 422,
        }),
        ..refused(user)
    };
    for user in ["a", "b", "c"] {
        table.count(&denied(user), 100);
    }
    table.count(&refused("d"), 1);
    let found = registry.heaviest(2, &["strict"].into());
    let users: Vec<&str> = found.iter().map(|count| &*count.labels.user).collect();
    assert_eq!(users, ["a", "b", "d"]);
}

#[test]
fn names_that_read_the_same_do_not_add_rows_without_end() {
    let (registry, [table]) = tables();
    for i in 1..30_u8 {
        table.count(&refused(&format!("a{}", char::from(i))), 1);
    }
    assert_eq!(registry.sizes(), (1, 1));
    assert_eq!(total(&registry, "a\u{fffd}"), Some(29));
    let long = "x".repeat(1000);
    for i in 0..30 {
        table.count(&refused(&format!("{long}{i}")), 1);
    }
    assert_eq!(registry.sizes(), (2, 2));
    assert_eq!(total(&registry, &"x".repeat(super::MAX_NAME)), Some(30));
}

#[test]
fn users_are_told_apart_whether_or_not_they_were_counted_last() {
    let (registry, [table]) = tables();
    // Each place of recent rows has several of these users, and one user several rows.
    let users: Vec<String> = (0..100).map(|number| format!("user-{number:03}")).collect();
    for round in 0..3 {
        for user in &users {
            for _ in 0..=round {
                table.count(&refused(user), 1);
                let taking = UserRequest {
                    refusal: None,
                    ..refused(user)
                };
                table.count(&taking, 100);
                let elsewhere = UserRequest {
                    level: "other",
                    ..refused(user)
                };
                table.count(&elsewhere, 10_000);
            }
        }
    }
    let counts = registry.counts();
    assert_eq!(counts.len(), 300);
    for count in counts {
        let one = match (&*count.labels.level, count.labels.refusal) {
            ("strict", Some(_)) => 1,
            ("strict", None) => 100,
            _ => 10_000,
        };
        assert_eq!(count.total, 6 * one, "{:?}", count.labels);
    }
}

#[test]
fn what_is_dropped_while_it_was_counted_last_starts_anew() {
    let (registry, [table]) = tables();
    table.count(&refused("ann"), 7);
    for _ in 0..3601 {
        registry.sweep();
    }
    assert_eq!(total(&registry, "ann"), None);
    table.count(&refused("ann"), 1);
    assert_eq!(total(&registry, "ann"), Some(1));
}

#[test]
fn names_that_are_kept_shortened_share_a_row_with_what_they_are_shortened_to() {
    let (registry, [table]) = tables();
    let long = "a".repeat(super::MAX_NAME);
    for user in [
        format!("{long}1"),
        long.clone(),
        format!("{long}2"),
        long.clone(),
    ] {
        table.count(&refused(&user), 1);
    }
    assert_eq!(total(&registry, &long), Some(4));
}
