//! The number of objects, as learnt from list responses and reported counts.

use super::*;
use Semantics::{Compatible, Improved};

const PODS: StatsScope<'_> = StatsScope {
    group: b"",
    resource: b"pods",
    namespace: None,
};

fn pods_in(namespace: &str) -> StatsScope<'_> {
    StatsScope {
        namespace: Some(namespace.as_bytes()),
        ..PODS
    }
}

const fn minutes(minutes: u64) -> Time {
    Time::from_nanos(minutes * 60_000_000_000)
}

fn counts(semantics: Semantics) -> Counts {
    Counts::new(CountSettings::of(semantics))
}

fn known(count: u64, average_bytes: u64) -> ObjectStats {
    ObjectStats::Known {
        count,
        average_bytes,
    }
}

/// A response with `items` objects of `bytes` in total.
fn page(items: u64, bytes: u64) -> ListObservation {
    ListObservation {
        items_in_page: Some(items),
        decoded_bytes: bytes,
        ..ListObservation::default()
    }
}

/// What is known of pods after these list responses.
fn after(observations: &[ListObservation]) -> ObjectStats {
    let mut counts = counts(Improved);
    for observation in observations {
        counts.observe_list(Time::ZERO, &PODS, observation);
    }
    counts.lookup(Time::ZERO, &PODS)
}

#[test]
fn unreported_resources_are_untracked_and_reported_ones_are_known() {
    for semantics in [Compatible, Improved] {
        let mut counts = counts(semantics);
        assert_eq!(counts.lookup(Time::ZERO, &PODS), ObjectStats::Untracked);
        counts.seed(Time::ZERO, &PODS, 0, None);
        assert_eq!(counts.lookup(Time::ZERO, &PODS), known(0, 0));
        counts.seed(Time::ZERO, &PODS, 0, Some(0));
        assert_eq!(counts.lookup(Time::ZERO, &PODS), known(0, 0));
        counts.seed(Time::ZERO, &PODS, 799, Some(7_990_500));
        assert_eq!(counts.lookup(Time::ZERO, &PODS), known(799, 10_000));
        assert_eq!(counts.lookup(minutes(3), &PODS), known(799, 10_000));
    }
}

#[test]
fn compatible_a_count_is_stale_after_three_minutes() {
    let mut counts = counts(Compatible);
    counts.seed(Time::ZERO, &PODS, 799, None);
    let late = minutes(3).plus(Duration::from_millis(1));
    assert_eq!(counts.lookup(late, &PODS), ObjectStats::Stale);
}

#[test]
fn improved_the_last_count_stands_until_it_is_forgotten() {
    let mut counts = counts(Improved);
    counts.seed(Time::ZERO, &PODS, 799, Some(799_000));
    assert_eq!(counts.lookup(minutes(59), &PODS), known(799, 1000));
    assert_eq!(counts.lookup(minutes(60), &PODS), ObjectStats::Untracked);
}

#[test]
fn pruning_removes_what_is_an_hour_old() {
    for semantics in [Compatible, Improved] {
        let mut counts = counts(semantics);
        for (minute, namespace) in [(0, "old"), (1, "hour"), (2, "young")] {
            counts.observe_list(minutes(minute), &pods_in(namespace), &page(1, 1));
            let resource = StatsScope {
                resource: namespace.as_bytes(),
                ..PODS
            };
            counts.seed(minutes(minute), &resource, 1, None);
        }
        counts.prune(minutes(61));
        assert_eq!(counts.len(), 2);
        assert!(!counts.is_empty());
        let young = StatsScope {
            resource: b"young",
            ..PODS
        };
        assert_ne!(counts.lookup(minutes(61), &young), ObjectStats::Untracked);
    }
}

#[test]
fn compatible_a_namespace_costs_what_the_whole_resource_costs() {
    let mut counts = counts(Compatible);
    counts.seed(Time::ZERO, &PODS, 5000, Some(50_000_000));
    counts.observe_list(Time::ZERO, &pods_in("small"), &page(3, 3000));
    let stats = counts.lookup(Time::ZERO, &pods_in("small"));
    assert_eq!(stats, known(5000, 10_000));
}

#[test]
fn improved_a_namespace_costs_what_it_holds_if_known_and_otherwise_what_the_resource_costs() {
    let mut counts = counts(Improved);
    counts.seed(Time::ZERO, &PODS, 5000, Some(50_000_000));
    counts.observe_list(Time::ZERO, &pods_in("small"), &page(3, 3000));
    let lookup = |namespace| counts.lookup(Time::ZERO, &pods_in(namespace));
    assert_eq!(lookup("small"), known(3, 1000));
    assert_eq!(lookup("other"), known(5000, 10_000));
    assert_eq!(counts.lookup(Time::ZERO, &PODS), known(5000, 10_000));
}

#[test]
fn the_count_is_the_page_plus_the_remaining_items() {
    let first = ListObservation {
        remaining_item_count: Some(9_500),
        limit: Some(500),
        ..page(500, 1_000_000)
    };
    assert_eq!(after(&[first]), known(10_000, 2000));
    let uncounted = ListObservation {
        items_in_page: None,
        ..first
    };
    assert_eq!(after(&[uncounted]), known(10_000, 2000));
    assert_eq!(after(&[page(20, 40_000)]), known(20, 2000));
}

#[test]
fn later_pages_raise_a_count_and_never_lower_it() {
    let later = ListObservation {
        remaining_item_count: Some(100),
        limit: Some(500),
        from_continue: true,
        ..page(500, 1_000_000)
    };
    assert_eq!(after(&[later]), known(600, 2000));
    assert_eq!(after(&[page(700, 1_400_000), later]), known(700, 2000));
}

#[test]
fn a_list_with_a_selector_shows_the_size_of_objects_but_not_their_number() {
    let selection = ListObservation {
        had_selector: true,
        ..page(2, 8000)
    };
    assert_eq!(after(&[selection]), ObjectStats::Untracked);
    assert_eq!(after(&[page(98, 0), selection]), known(98, 80));
}

#[test]
fn an_uncounted_response_still_shows_its_bytes() {
    let uncounted = ListObservation {
        items_in_page: None,
        ..page(0, 1_000_000)
    };
    assert_eq!(after(&[uncounted]), known(250, 4000));
    // Once a page shows the size of objects, the bytes show their number.
    let selection = ListObservation {
        had_selector: true,
        ..page(2, 20_000)
    };
    assert_eq!(after(&[uncounted, selection]), known(100, 10_000));
    assert_eq!(after(&[page(5, 50_000), uncounted]), known(100, 10_000));

    // Where the number was reported, the bytes show the size.
    let mut counts = counts(Improved);
    counts.seed(Time::ZERO, &PODS, 500, None);
    counts.observe_list(Time::ZERO, &PODS, &uncounted);
    assert_eq!(counts.lookup(Time::ZERO, &PODS), known(500, 2000));

    // An empty collection has no size to learn: the bytes show that it is no longer empty.
    let mut counts = self::counts(Improved);
    counts.seed(Time::ZERO, &PODS, 0, None);
    counts.observe_list(Time::ZERO, &PODS, &uncounted);
    assert_eq!(counts.lookup(Time::ZERO, &PODS), known(250, 4000));
}

#[test]
fn the_mean_size_weights_observations_by_their_number_of_objects() {
    let complete = [page(100, 100_000), page(100, 300_000)];
    assert_eq!(after(&complete), known(100, 2000));
    let one = ListObservation {
        had_selector: true,
        ..page(1, 1_001_000)
    };
    assert_eq!(after(&[page(999, 999_000), one]), known(999, 2000));
}

#[test]
fn a_size_that_the_server_reported_overrides_observed_sizes() {
    let mut counts = counts(Improved);
    counts.seed(Time::ZERO, &PODS, 100, Some(100_000));
    counts.observe_list(minutes(3), &PODS, &page(100, 900_000));
    assert_eq!(counts.lookup(minutes(3), &PODS), known(100, 1000));
    counts.observe_list(minutes(4), &PODS, &page(100, 900_000));
    assert_eq!(counts.lookup(minutes(4), &PODS), known(100, 5000));
}

#[test]
fn the_scopes_remembered_are_bounded_and_the_latest_stay() {
    let mut counts = Counts::new(CountSettings {
        max_namespaces: 80,
        ..CountSettings::of(Improved)
    });
    counts.seed(Time::ZERO, &PODS, 1, None);
    for number in 0..1000_u32 {
        let namespace = format!("namespace-{number}");
        counts.observe_list(Time::ZERO, &pods_in(&namespace), &page(7, 70));
        assert!(counts.len() <= 81);
    }
    assert!(counts.len() > 70);
    let lookup = |namespace: &str| counts.lookup(Time::ZERO, &pods_in(namespace));
    for number in 930..1000 {
        assert_eq!(lookup(&format!("namespace-{number}")), known(7, 10));
    }
    assert_eq!(lookup("namespace-0"), known(1, 0));
}

#[test]
fn extreme_figures_and_long_names_are_bounded() {
    let odd = ListObservation {
        items_in_page: Some(u64::MAX),
        remaining_item_count: Some(u64::MAX),
        decoded_bytes: u64::MAX,
        limit: Some(0),
        ..ListObservation::default()
    };
    assert_eq!(after(&[odd, odd]), known(u64::MAX, 1));
    assert_eq!(after(&[page(3, 0)]), known(3, 1));

    let mut counts = Counts::new(CountSettings {
        max_resources: 0,
        max_namespaces: 0,
        ..CountSettings::of(Improved)
    });
    counts.seed(Time::ZERO, &PODS, 5, Some(u64::MAX));
    counts.observe_list(Time::ZERO, &pods_in(&"x".repeat(2000)), &page(1, 1));
    assert_eq!(counts.len(), 1);
}

#[test]
fn a_last_page_that_was_not_counted_is_not_taken_for_a_full_one() {
    let last = ListObservation {
        items_in_page: None,
        remaining_item_count: Some(0),
        limit: Some(500),
        ..page(0, 1_000_000)
    };
    assert_eq!(after(&[last]), ObjectStats::Untracked);
}

#[test]
fn a_response_that_confirms_the_count_changes_nothing() {
    let uncounted = ListObservation {
        items_in_page: None,
        ..page(0, 1_000_000)
    };
    let as_many_remain = ListObservation {
        remaining_item_count: Some(250),
        ..uncounted
    };
    let selection = ListObservation {
        had_selector: true,
        ..page(2, 20_000)
    };
    // The number still follows from the bytes.
    assert_eq!(after(&[uncounted, as_many_remain]), known(250, 4000));
    let observed = [uncounted, as_many_remain, selection];
    assert_eq!(after(&observed), known(100, 10_000));
}

#[test]
fn changed_semantics_apply_to_counts_that_are_known() {
    let mut counts = counts(Compatible);
    counts.seed(Time::ZERO, &PODS, 1000, Some(1_000_000));
    let in_red = |counts: &mut Counts| counts.lookup(Time::ZERO, &pods_in("red"));
    let compatible = in_red(&mut counts);
    counts.observe_list(Time::ZERO, &pods_in("red"), &page(7, 7000));
    assert_eq!(
        in_red(&mut counts),
        compatible,
        "namespaces are not counted separately"
    );
    counts.set_semantics(Improved);
    counts.observe_list(Time::ZERO, &pods_in("red"), &page(7, 7000));
    assert_eq!(in_red(&mut counts), known(7, 1000));
    assert_eq!(counts.lookup(minutes(4), &PODS), known(1000, 1000));
    counts.set_semantics(Compatible);
    assert_eq!(counts.lookup(minutes(4), &PODS), ObjectStats::Stale);
}
