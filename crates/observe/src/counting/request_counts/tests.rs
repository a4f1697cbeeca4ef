//! What is distinguished, what is counted together, and what is removed.

use std::{sync::Arc, time::Duration};

use http::Method;

use super::{
    registry::{FORGOTTEN_SWEEPS, IDLE_SWEEPS, MAX_KINDS, MAX_TIMED},
    status_counts::StatusCounts,
    *,
};
use fairgate_core::digest::RequestInfo;

fn count(table: &RequestTable, method: &Method, target: &str, code: u16) {
    let info = RequestInfo::from_target(method.as_str(), target).unwrap();
    table.count(&FinishedRequest {
        info: &info,
        method,
        is_apply: target.contains("fieldManager"),
        dry_run: DryRun::of(target.split_once('?').map(|(_, query)| query)),
        code,
        terminated: code == 429,
        executed: code != 429,
        aborted: code == 504,
        duration: Duration::from_millis(90),
        took: Duration::from_millis(70),
        bytes: 5000,
    });
}

fn lines(registry: &RequestRegistry) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, totals) in registry.totals() {
        for ((code, dry_run), count) in totals.requests {
            let RequestLabels {
                group,
                version,
                resource,
                subresource,
                scope,
                verb,
            } = &kind;
            let (code, dry_run) = (code.unwrap_or(0), dry_run.as_str());
            lines.push(format!(
                "{verb} {group}/{version}/{resource}/{subresource} {scope} {code}{dry_run} {count}"
            ));
        }
    }
    lines
}

#[test]
fn requests_are_distinguished_as_the_api_server_does() {
    let registry = Arc::new(RequestRegistry::default());
    let (one, other) = (
        RequestTable::new(registry.clone()),
        RequestTable::new(registry.clone()),
    );
    let pods = "/api/v1/namespaces/a/pods";
    count(&one, &Method::GET, pods, 200);
    count(&other, &Method::GET, pods, 200);
    count(&other, &Method::GET, &format!("{pods}/x"), 404);
    count(&one, &Method::GET, &format!("{pods}?watch=1"), 200);
    count(&one, &Method::GET, &format!("{pods}/x/log"), 200);
    count(&one, &Method::POST, &format!("{pods}?dryRun=All"), 201);
    count(
        &one,
        &Method::PATCH,
        &format!("{pods}/x?fieldManager=m"),
        200,
    );
    count(&one, &Method::DELETE, pods, 429);
    count(&one, &Method::GET, "/apis/apps/v1/deployments", 200);
    count(&one, &Method::HEAD, "/livez/ping", 200);
    count(&one, &Method::GET, "/secret/path", 404);
    assert_eq!(
        lines(&registry),
        [
            "GET ///non-resource  200 1",
            "GET ///non-resource  404 1",
            "DELETE /v1/pods/ namespace 429 1",
            "LIST /v1/pods/ namespace 200 2",
            "WATCH /v1/pods/ namespace 200 1",
            "APPLY /v1/pods/ resource 200 1",
            "GET /v1/pods/ resource 404 1",
            "POST /v1/pods/ resource 201All 1",
            "CONNECT /v1/pods/log resource 200 1",
            "LIST apps/v1/deployments/ cluster 200 1",
        ]
    );
    let totals = registry.totals();
    let terminated = totals.iter().map(|(_, t)| t.terminations.len());
    assert_eq!(terminated.sum::<usize>(), 1);
    let durations = totals.iter().flat_map(|(_, t)| &t.timings.duration);
    let timed: u64 = durations.map(|(_, total)| total.count()).sum();
    assert_eq!(timed, 10, "what was refused has no duration");
}

#[test]
fn a_resource_that_never_responded_has_no_series_of_its_own() {
    let registry = Arc::new(RequestRegistry::default());
    let table = RequestTable::new(registry.clone());
    for i in 0..1000 {
        count(&table, &Method::GET, &format!("/apis/g{i}/v1/things"), 404);
        count(&table, &Method::GET, &format!("/api/v1/made-up-{i}/x"), 429);
    }
    assert_eq!(
        lines(&registry),
        [
            "LIST other/other/other/other cluster 404 1000",
            "GET other/other/other/other resource 429 1000"
        ]
    );
}

#[test]
fn kinds_are_bounded_even_if_the_upstream_answers_everything() {
    let registry = Arc::new(RequestRegistry::default());
    let tables = [
        RequestTable::new(registry.clone()),
        RequestTable::new(registry.clone()),
    ];
    for i in 0..MAX_KINDS * 2 {
        let target = format!("/apis/g/v1/thing{i}");
        count(&tables[i % 2], &Method::GET, &target, 200);
        count(&tables[i % 2], &Method::POST, &target, 201);
    }
    assert!(
        registry.totals().len() <= MAX_KINDS + 4,
        "{}",
        registry.totals().len()
    );
    let counted: u64 = registry
        .totals()
        .iter()
        .flat_map(|(_, totals)| totals.requests.values())
        .sum();
    assert_eq!(counted, MAX_KINDS as u64 * 4);
    assert!(
        lines(&registry)
            .iter()
            .any(|line| line.starts_with("POST other/"))
    );
}

#[test]
fn a_kind_that_is_not_seen_any_more_is_forgotten() {
    let registry = Arc::new(RequestRegistry::default());
    let tables = [
        RequestTable::new(registry.clone()),
        RequestTable::new(registry.clone()),
    ];
    for i in 0..MAX_KINDS * 2 {
        count(
            &tables[i % 2],
            &Method::GET,
            &format!("/apis/g/v1/t{i}"),
            200,
        );
    }
    assert!(registry.is_full());
    for _ in 0..=FORGOTTEN_SWEEPS {
        count(&tables[0], &Method::GET, "/apis/g/v1/t0", 200);
        registry.sweep();
    }
    let left = lines(&registry);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left[0].starts_with("LIST g/v1/t0/ cluster 200 "),
        "{left:?}"
    );
    assert!(left[1].starts_with("LIST other/"), "{left:?}");
    count(&tables[1], &Method::GET, "/apis/g/v1/t1", 200);
    let left = lines(&registry);
    assert_eq!(left[1], "LIST g/v1/t1/ cluster 200 1", "it begins anew");
    assert_eq!(tables[1].sizes(), (2, 1), "the core has removed them, too");
}

/// The resources with a histogram of their own, and all times counted anywhere.
fn timed(registry: &RequestRegistry) -> (Vec<String>, u64) {
    let totals = registry.totals();
    let all = totals
        .iter()
        .map(|(_, totals)| totals.timings.sli.count())
        .sum();
    let own = totals
        .iter()
        .filter(|(kind, totals)| &*kind.resource != OTHER && totals.timings.sli.count() > 0);
    (
        own.map(|(kind, _)| kind.resource.to_string()).collect(),
        all,
    )
}

#[test]
fn few_kinds_have_a_histogram_of_their_own_and_idle_ones_give_theirs_up() {
    let registry = Arc::new(RequestRegistry::default());
    let table = RequestTable::new(registry.clone());
    let ask = |i: usize| count(&table, &Method::GET, &format!("/apis/g/v1/t{i}"), 200);
    (0..MAX_TIMED + 2).for_each(ask);
    let (own, all) = timed(&registry);
    assert_eq!(own.len(), MAX_TIMED);
    assert_eq!(all, MAX_TIMED as u64 + 2, "the others' times are not lost");
    assert_eq!(
        lines(&registry).len(),
        MAX_TIMED + 2,
        "all are counted separately"
    );
    let late = format!("t{}", MAX_TIMED + 1);
    assert!(!own.contains(&late));
    for _ in 0..=IDLE_SWEEPS {
        registry.sweep();
        (1..MAX_TIMED + 2).for_each(ask);
    }
    registry.sweep();
    ask(MAX_TIMED + 1);
    let (own, _) = timed(&registry);
    assert_eq!(own.len(), MAX_TIMED);
    assert!(!own.contains(&"t0".to_owned()), "it was idle");
    let waiting = [MAX_TIMED, MAX_TIMED + 1].map(|i| own.contains(&format!("t{i}")));
    assert_eq!(waiting.iter().filter(|own| **own).count(), 1, "{waiting:?}");
}

#[test]
fn statuses_beyond_a_few_are_counted_together() {
    let codes = StatusCounts::<3>::default();
    for code in 200..210 {
        codes.count(code, DryRun::No);
    }
    codes.count(201, DryRun::All);
    let mut totals = StatusTotals::new();
    codes.add_to(&mut totals);
    assert_eq!(totals[&(None, DryRun::No)], 8);
    assert_eq!(totals[&(Some(201), DryRun::No)], 1);
    assert_eq!(totals.len(), 4);
}

#[test]
fn a_dry_run_is_one_that_says_all() {
    assert_eq!(DryRun::of(None), DryRun::No);
    assert_eq!(DryRun::of(Some("a=b&dryRun=All")), DryRun::All);
    assert_eq!(DryRun::of(Some("dryRun=Some")), DryRun::Invalid);
    assert_eq!(DryRun::of(Some("dryRun=All&dryRun=x")), DryRun::Invalid);
}

#[test]
fn durations_sizes_and_aborts_are_counted_as_kube_apiserver_does() {
    let registry = Arc::new(RequestRegistry::default());
    let table = RequestTable::new(registry.clone());
    let pods = "/api/v1/namespaces/a/pods";
    count(&table, &Method::GET, pods, 200);
    count(&table, &Method::GET, pods, 504);
    count(&table, &Method::POST, pods, 201);
    count(&table, &Method::POST, &format!("{pods}?dryRun=All"), 201);
    let totals = registry.totals();
    let of = |verb: &str| {
        let (_, totals) = totals.iter().find(|(kind, _)| kind.verb == verb).unwrap();
        totals
    };
    let (list, post) = (of("LIST"), of("POST"));
    assert_eq!((list.aborts, post.aborts), (1, 0));
    assert_eq!(list.timings.sizes.count(), 2, "only reads have a size");
    assert!((list.timings.sizes.sum - 10_000.0).abs() < 1e-9);
    assert_eq!(post.timings.sizes.count(), 0);
    let durations = post.timings.duration.each_ref();
    let counts = durations.map(|(dry_run, total)| (dry_run.as_str(), total.count()));
    assert_eq!(counts[..2], [("", 1), ("All", 1)]);
    assert_eq!(counts[2].1, 0);
    assert!((durations[0].1.sum - 0.09).abs() < 1e-9);
    assert_eq!(
        post.timings.sli.count(),
        1,
        "a dry run has no service level"
    );
}

#[test]
fn running_requests_count_by_resource_once_a_request_for_it_has_ended() {
    let registry = Arc::new(RequestRegistry::default());
    let table = RequestTable::new(registry.clone());
    count(&table, &Method::GET, "/api/v1/pods", 200);
    let parse = |target: &str| RequestInfo::from_target("GET", target).unwrap();
    let running = [
        parse("/api/v1/pods?watch=1"),
        parse("/api/v1/namespaces/a/pods?watch=1"),
        parse("/apis/made.up/v1/things?watch=1"),
        parse("/apis/made.up/v1/widgets?watch=1"),
    ];
    let counts = registry.count_running(running.iter());
    let found: Vec<_> = counts
        .iter()
        .map(|(kind, count)| (&*kind.resource, kind.scope, kind.verb, *count))
        .collect();
    let expected = [
        ("pods", "cluster", "WATCH", 1),
        ("pods", "namespace", "WATCH", 1),
        (OTHER, "cluster", "WATCH", 2),
    ];
    assert_eq!(found, expected);
}
