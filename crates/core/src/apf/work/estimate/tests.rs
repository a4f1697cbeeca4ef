//! The original's tables, and where the two semantics differ.

use super::*;

/// A server that cannot serve consistent reads from its cache, as in the original's tables.
const SETTINGS: EstimatorSettings = EstimatorSettings {
    semantics: Semantics::Compatible,
    consistent_read_from_cache: false,
};

const IMPROVED: EstimatorSettings = EstimatorSettings {
    semantics: Semantics::Improved,
    ..SETTINGS
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn info(method: &str, target: &str) -> RequestInfo {
    RequestInfo::from_target(method, target).unwrap()
}

fn known(count: u64, average_bytes: u64) -> ObjectStats {
    ObjectStats::Known {
        count,
        average_bytes,
    }
}

/// The seats of a list with this query, without a cap of the level.
fn list(query: &str, objects: ObjectStats) -> Seats {
    capped_list(query, objects, WidthCap::NONE)
}

fn capped_list(query: &str, objects: ObjectStats, cap: WidthCap) -> Seats {
    let info = info("GET", &format!("/apis/foo.bar/v1/events?{query}"));
    let work = SETTINGS.estimate(&info, objects, 1000, cap);
    assert_eq!(work, Work::seats(work.initial_seats), "{query}");
    work.initial_seats
}

/// Queries of lists, what is known of the objects, and how many seats each takes.
fn lists() -> Vec<(&'static str, ObjectStats, Seats)> {
    use ObjectStats::{Stale, Unknown, Untracked};
    let known = |count, kilobytes: u64| known(count, kilobytes * 1000);
    vec![
        ("limit=invalid", known(799, 10), 100),
        ("limit=399&resourceVersion=1", known(699, 10), 40),
        ("resourceVersion=1", known(699, 10), 10),
        ("resourceVersion=1", known(69, 10), 7),
        ("limit=399", known(699, 10), 40),
        ("", known(399, 10), 40),
        ("", Untracked, 1),
        ("continue=token&limit=399", known(699, 10), 40),
        ("limit=299&resourceVersion=0", known(399, 10), 10),
        ("limit=20&resourceVersion=0", known(399, 10), 2),
        ("resourceVersion=0", known(799, 10), 10),
        ("resourceVersion=0", known(79, 10), 8),
        (
            "resourceVersion=1&resourceVersionMatch=Exact&limit=399",
            known(699, 10),
            40,
        ),
        (
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            known(799, 10),
            10,
        ),
        (
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            known(79, 10),
            8,
        ),
        ("resourceVersionMatch=foo", known(200, 10), 20),
        (
            "resourceVersion=foo&resourceVersionMatch=Exact&limit=399",
            known(699, 10),
            40,
        ),
        ("", Stale, 100),
        ("limit=499", Stale, 100),
        ("limit=1", Stale, 15),
        ("limit=1", Unknown, 15),
        ("", known(1, 0), 15),
        ("limit=1", known(1, 0), 15),
        ("limit=499", known(1, 0), 15),
        ("resourceVersion=0&limit=499", known(1, 0), 10),
        ("fieldSelector=metadata.name=test", known(799, 200), 2),
        ("fieldSelector=metadata.name=test", known(799, 1500), 15),
        (
            "resourceVersion=0&limit=500&fieldSelector=metadata.name=test",
            known(799, 200),
            2,
        ),
        (
            "resourceVersion=0&limit=500&fieldSelector=metadata.name=test",
            known(799, 1500),
            10,
        ),
        ("labelSelector=a=b", known(799, 10), 80),
        ("labelSelector=a=b&limit=49", known(799, 10), 40),
        ("labelSelector=a=b&limit=699", known(799, 10), 70),
        ("labelSelector=a=b&resourceVersion=0", known(799, 10), 10),
        (
            "labelSelector=a=b&resourceVersion=0&limit=29",
            known(799, 10),
            3,
        ),
    ]
}

#[test]
fn a_list_takes_a_seat_for_each_hundred_kilobytes_read() {
    for (query, objects, expected) in lists() {
        assert_eq!(list(query, objects), expected, "{query} {objects:?}");
    }
}

#[test]
fn a_list_of_a_resource_without_objects_takes_one_seat_even_with_a_name() {
    for query in [
        "",
        "fieldSelector=metadata.name%3Dx",
        "limit=5",
        "resourceVersion=0",
    ] {
        assert_eq!(list(query, known(0, 0)), 1, "{query}");
    }
    assert_eq!(list("fieldSelector=metadata.name%3Dx", known(1, 0)), 15);
}

#[test]
fn a_list_takes_at_most_what_its_level_allows() {
    let query = "resourceVersion=1&resourceVersionMatch=Exact";
    let objects = known(5000, 10_000);
    assert_eq!(capped_list(query, objects, WidthCap::at(20)), 20);
    assert_eq!(capped_list(query, objects, WidthCap::at(500)), 100);
    assert_eq!(capped_list("limit=x", objects, WidthCap::at(7)), 7);
}

#[test]
fn seats_depend_on_bytes_and_not_on_the_number_of_objects() {
    // Number of objects, their total bytes, the limit of a page; then the seats for all objects from storage,
    // a page from storage, such a page with a selector, all from the cache, and a page from the cache.
    let table = [
        (99, 99_999, None, [Some(1), None, None, Some(1), None]),
        (10, 99_999, None, [Some(1), None, None, Some(1), None]),
        (
            1000,
            999_999,
            Some(100),
            [Some(10), Some(1), Some(5), Some(10), Some(1)],
        ),
        (
            1000,
            9_999_999,
            Some(100),
            [Some(100), Some(10), Some(50), Some(10), Some(10)],
        ),
        (
            99,
            999_999,
            Some(10),
            [Some(10), Some(2), Some(5), Some(10), None],
        ),
        (
            99,
            9_999_999,
            Some(10),
            [Some(100), Some(11), Some(50), Some(10), Some(10)],
        ),
    ];
    for (count, bytes, limit, expected) in table {
        let objects = known(count, bytes / count);
        let limit = limit.map_or(String::new(), |limit: u32| format!("&limit={limit}"));
        let queries = [
            String::new(),
            limit.clone(),
            format!("labelSelector=app=web{limit}"),
            "resourceVersion=0".into(),
            format!("resourceVersion=0{limit}"),
        ];
        for (query, expected) in queries.iter().zip(expected) {
            if let Some(expected) = expected {
                assert_eq!(list(query, objects), expected, "{query} {objects:?}");
            }
        }
    }
    let single = known(1000, 999_999_999 / 1000);
    assert_eq!(list("fieldSelector=metadata.name=a", single), 10);
    assert_eq!(
        list("fieldSelector=metadata.name=a&resourceVersion=0", single),
        10
    );
}

#[test]
fn a_watch_costs_a_list_only_if_it_begins_with_one() {
    let seats = |query: &str| {
        let info = info("GET", &format!("/apis/foo.bar/v1/events?watch=true{query}"));
        let work = SETTINGS.estimate(&info, known(799, 1000), 0, WidthCap::NONE);
        (SETTINGS.input(&info), work.initial_seats)
    };
    for initial in ["", "&sendInitialEvents=true", "&sendInitialEvents=false"] {
        for version in ["", "&resourceVersion=", "&resourceVersion=0"] {
            let query = format!("{version}{initial}");
            assert_eq!(seats(&query), (EstimateInput::Objects, 8), "{query}");
        }
    }
    let follow = "&resourceVersion=1";
    assert_eq!(seats(follow), (EstimateInput::Nothing, 1));
    assert_eq!(
        seats("&resourceVersion=1&sendInitialEvents=false"),
        (EstimateInput::Nothing, 1)
    );
    assert_eq!(
        seats("&resourceVersion=1&sendInitialEvents=true"),
        (EstimateInput::Objects, 8)
    );
    assert_eq!(
        seats("&limit=x&resourceVersion=1"),
        (EstimateInput::Nothing, 100)
    );
}

#[test]
fn a_consistent_read_from_the_cache_costs_a_read_from_the_cache() {
    let modern = EstimatorSettings {
        consistent_read_from_cache: true,
        ..SETTINGS
    };
    let objects = known(399, 10_000);
    for (query, expected) in [("", 10), ("?limit=20", 2), ("?limit=399", 10)] {
        let info = info("GET", &format!("/api/v1/pods{query}"));
        let work = modern.estimate(&info, objects, 0, WidthCap::NONE);
        assert_eq!(work.initial_seats, expected, "{query}");
    }
    let exact = info(
        "GET",
        "/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact",
    );
    let work = modern.estimate(&exact, objects, 0, WidthCap::NONE);
    assert_eq!(work.initial_seats, 40);
}

#[test]
fn a_write_costs_by_the_watchers_it_wakes_and_narrowing_keeps_the_area() {
    let table = [
        (0, 10, 0, ms(0)),
        (5, 10, 0, ms(0)),
        (9, 10, 0, ms(0)),
        (10, 10, 1, ms(5)),
        (29, 10, 3, ms(5)),
        (199, 10, 10, ms(10)),
        (100, 5, 5, ms(10)),
        (1000, 20, 10, ms(50)),
    ];
    let writes = [
        ("POST", "/apis/foo.bar/v1/foos"),
        ("PUT", "/apis/foo.bar/v1/foos/myfoo"),
        ("PATCH", "/apis/foo.bar/v1/foos/myfoo"),
        ("DELETE", "/apis/foo.bar/v1/foos/myfoo"),
    ];
    for (watchers, cap, final_seats, additional_latency) in table {
        for (method, target) in writes {
            let info = info(method, target);
            assert_eq!(SETTINGS.input(&info), EstimateInput::Watchers);
            let cap = WidthCap::at(cap);
            let expected = Work {
                initial_seats: 1,
                final_seats,
                additional_latency,
            };
            for settings in [SETTINGS, IMPROVED] {
                let work = settings.estimate(&info, ObjectStats::Stale, watchers, cap);
                assert_eq!(work, expected, "{method} {watchers}");
            }
        }
    }
    let most = write(u32::MAX, 1);
    assert_eq!(most.final_seats, 1);
    assert_eq!(most.additional_latency, EVENT_TIME * u32::MAX.div_ceil(10));
}

#[test]
fn creating_a_token_wakes_no_watcher() {
    for group in ["/api/v1", "/apis/foo.bar/v1"] {
        let target = format!("{group}/namespaces/a/serviceaccounts/b/token");
        let info = info("POST", &target);
        assert_eq!(SETTINGS.input(&info), EstimateInput::Nothing);
        let work = SETTINGS.estimate(&info, ObjectStats::Untracked, 5777, WidthCap::at(10));
        assert_eq!(work, Work::ONE);
    }
}

#[test]
fn everything_else_takes_one_seat() {
    let requests = [
        ("GET", "/api/v1/namespaces/a/pods/b"),
        ("GET", "/healthz"),
        ("POST", "/healthz"),
        ("DELETE", "/healthz/nothing"),
        ("GET", "/api/v1/proxy/namespaces/a/pods/b"),
    ];
    for (method, target) in requests {
        let info = info(method, target);
        let work = SETTINGS.estimate(&info, ObjectStats::Stale, 0, WidthCap::NONE);
        assert_eq!(work, Work::ONE, "{method} {target}");
    }
}

#[test]
fn compatible_deleting_a_collection_takes_one_seat_however_large_it_is() {
    let info = info("DELETE", "/api/v1/namespaces/a/pods");
    assert_eq!(SETTINGS.input(&info), EstimateInput::Nothing);
    let work = SETTINGS.estimate(&info, known(799, 10_000), 0, WidthCap::NONE);
    assert_eq!(work, Work::ONE);
}

#[test]
fn improved_deleting_a_collection_costs_what_listing_it_costs() {
    let info = info("DELETE", "/api/v1/namespaces/a/pods");
    assert_eq!(IMPROVED.input(&info), EstimateInput::Objects);
    let work = IMPROVED.estimate(&info, known(799, 10_000), 0, WidthCap::NONE);
    assert_eq!(work, Work::seats(80));
}

#[test]
fn a_watch_that_begins_with_a_list_reads_from_the_cache_whatever_the_version() {
    let settings = EstimatorSettings {
        consistent_read_from_cache: false,
        ..SETTINGS
    };
    let seats = |query: &str| {
        let info = info("GET", &format!("/apis/foo.bar/v1/events?{query}"));
        let objects = known(100_000, 1000);
        settings
            .estimate(&info, objects, 0, WidthCap::NONE)
            .initial_seats
    };
    assert_eq!(seats("watch=true"), seats("resourceVersion=0"));
    assert!(seats("watch=true") < seats("resourceVersion="));
}
