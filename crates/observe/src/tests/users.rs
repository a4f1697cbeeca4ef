//! Who is refused, who takes the seats, and who watches what.

use super::{scrape::Scrape, *};

fn dump(name: &str) -> Dump {
    let path = format!("/debug/api_priority_and_fairness/{name}");
    Dump::of(path.as_bytes(), None).unwrap()
}

/// The rows of a dump, without their padding and the header.
async fn rows(world: &World, name: &str) -> Vec<Vec<String>> {
    let text = world.telemetry.dump(dump(name)).await;
    let cells = |row: &str| row.split(',').map(|cell| cell.trim().to_owned()).collect();
    text.lines().skip(1).map(cells).collect()
}

#[test]
fn users_who_are_refused_are_named_in_metrics_and_dump() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        for user in ["ann", "ann", "sid"] {
            let sent = world.send(Method::GET, "/api/v1/namespaces/hold/pods/a", user);
            drop(sent.await);
        }
        settle().await;
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        scrape.is(
            "fairgate_user_refusals_total{apiserver=\"kube:6443\",code=\"429\",priority_level=\"narrow\",reason=\"queue-full\",user=\"ann\"}",
            2.0,
        );
        let refused = rows(&world, "dump_refusals").await;
        let expected = ["ann", "narrow", "429", "queue-full", "true", "2", "2"];
        assert_eq!(refused, [expected.map(str::to_owned)]);
        drop(sent);
    });
}

#[test]
fn users_whose_evictions_fail_are_named_with_the_reason() {
    local(async {
        let mut world = World::new();
        for (target, user) in [
            ("/api/v1/namespaces/broken/pods/a/eviction", "ann"),
            ("/api/v1/namespaces/broken/pods/b/eviction", "ann"),
            ("/api/v1/namespaces/fine/pods/a/eviction", "sid"),
            // Neither what is no eviction, nor an eviction that is refused.
            ("/api/v1/namespaces/broken/pods", "eve"),
            ("/api/v1/namespaces/nothing/pods/a/eviction", "eve"),
        ] {
            drop(world.send(Method::POST, target, user).await.await);
        }
        settle().await;
        let text = world.telemetry.metrics_text().await.unwrap();
        let scrape = Scrape::parse(&text);
        scrape.is(
            "fairgate_user_failed_evictions_total{apiserver=\"kube:6443\",code=\"500\",reason=\"upstream-error\",user=\"ann\"}",
            2.0,
        );
        let names = "fairgate_user_failed_evictions_total{";
        let lines = text.lines().filter(|line| line.starts_with(names));
        assert_eq!(lines.count(), 1, "{text}");
    });
}

#[test]
fn seat_seconds_are_those_of_requests_that_have_ended() {
    local(async {
        let mut world = World::new();
        let sent = world
            .send(Method::GET, "/api/v1/namespaces/hold/pods/a", "ann")
            .await;
        settle().await;
        world.clock.advance(Duration::from_millis(2500));
        assert_eq!(rows(&world, "dump_seat_seconds").await.len(), 0);
        world.release().await;
        sent.await.unwrap();
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        scrape.is(
            "fairgate_user_seat_seconds_total{apiserver=\"kube:6443\",priority_level=\"narrow\",user=\"ann\"}",
            2.5,
        );
        let expected = ["ann", "narrow", "2.500", "2.500"].map(str::to_owned);
        assert_eq!(rows(&world, "dump_seat_seconds").await, [expected]);
    });
}

#[test]
fn watches_are_counted_by_user_and_resource() {
    local(async {
        let mut world = World::new();
        let mut sent = Vec::new();
        for (user, resource) in [
            ("ann", "pods"),
            ("ann", "pods"),
            ("ann", "nodes"),
            ("ann", "secrets"),
            ("ann", "leases"),
            ("ann", "events"),
            ("sid", "pods"),
        ] {
            let target = format!("/api/v1/namespaces/hold/{resource}?watch=1");
            // Exempt, so that they do not wait for each other.
            let user = format!("{user}/{}", User::MASTERS);
            sent.push(world.send(Method::GET, &target, &user).await);
        }
        settle().await;
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        for (resource, user, count) in [
            ("pods", "ann", 2.0),
            ("events", "ann", 1.0),
            ("leases", "ann", 1.0),
            ("pods", "sid", 1.0),
        ] {
            scrape.is(
                &format!("fairgate_user_watches{{apiserver=\"kube:6443\",group=\"\",resource=\"{resource}\",user=\"{user}\"}}"),
                count,
            );
        }
        // The rest of the user's.
        scrape.is(
            "fairgate_user_watches{apiserver=\"kube:6443\",group=\"other\",resource=\"other\",user=\"ann\"}",
            2.0,
        );
        let watches = rows(&world, "dump_watches").await;
        assert_eq!(watches.len(), 6);
        assert_eq!(watches[0], ["ann", "", "pods", "2"].map(str::to_owned));
        assert_eq!(watches[5], ["sid", "", "pods", "1"].map(str::to_owned));
        drop(sent);
    });
}

#[test]
fn without_top_flows_no_metric_names_a_user() {
    local(async {
        let mut world = World::with_top_flows(0);
        let sent = world.crowd().await;
        drop(
            world
                .send(Method::GET, "/api/v1/namespaces/hold/pods/a", "ann")
                .await,
        );
        settle().await;
        let text = world.telemetry.metrics_text().await.unwrap();
        assert!(!text.contains("\"ann\""), "{text}");
        assert_eq!(rows(&world, "dump_refusals").await.len(), 1);
        drop(sent);
    });
}
