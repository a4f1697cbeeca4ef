//! Metrics: names, labels, buckets and values after requests with known outcomes.

use super::{scrape::Scrape, *};

const ANN: &str = r#"apiserver="kube:6443",flow_schema="elephants",priority_level="narrow""#;

/// The metrics while one of Ann's requests holds the seat of `narrow` and two wait for it, after a rejected and an
/// exempt request.
async fn crowded() -> (World, Vec<JoinHandle<Got>>, Scrape) {
    let mut world = World::new();
    let sent = world.crowd().await;
    let refused = world.get("/api/v1/namespaces/hold/pods/d", "ann").await;
    assert_eq!(refused.status, 429);
    world.get("/livez", "sid").await;
    let sampler = world.telemetry.sampler();
    sampler.sample(world.telemetry.flow_control(), world.clock.now());
    let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
    (world, sent, scrape)
}

#[test]
fn every_metric_of_a_flow_is_exported_with_its_labels() {
    local(async {
        let (_world, _sent, scrape) = crowded().await;
        for family in catalogue::CELL_METRICS {
            assert!(scrape.kinds.contains_key(family.name), "{}", family.name);
        }
        let one = |name: &str, value| scrape.is(&format!("{APF}{name}{{{ANN}}}"), value);
        one("dispatched_requests_total", 1.0);
        one("current_inqueue_requests", 2.0);
        one("current_inqueue_seats", 2.0);
        one("current_executing_requests", 1.0);
        one("current_executing_seats", 1.0);
        one("request_concurrency_in_use", 1.0);
        one("request_queue_length_after_enqueue_count", 3.0);
        one("work_estimated_seats_count", 4.0);
        one("request_dispatch_no_accommodation_total", 0.0);
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"queue-full\"}}"),
            1.0,
        );
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"time-out\"}}"),
            0.0,
        );
        let execute = |execute: &str| {
            format!(
                "{APF}request_wait_duration_seconds_count{{apiserver=\"kube:6443\",\
                 execute=\"{execute}\",flow_schema=\"elephants\",priority_level=\"narrow\"}}"
            )
        };
        scrape.is(&execute("true"), 1.0);
        scrape.is(&execute("false"), 1.0);
    });
}

#[test]
fn every_metric_of_a_level_is_exported_with_its_labels() {
    local(async {
        let (_world, _sent, scrape) = crowded().await;
        let level = |name: &str, value| {
            let labels = r#"apiserver="kube:6443",priority_level="narrow""#;
            scrape.is(&format!("{APF}{name}{{{labels}}}"), value);
        };
        level("nominal_limit_seats", 1.0);
        level("request_concurrency_limit", 1.0);
        level("lower_limit_seats", 1.0);
        level("upper_limit_seats", 1.0);
        level("current_limit_seats", 1.0);
        level("demand_seats_count", 2e9);
        scrape.value(&format!("{APF}seat_fair_frac{{apiserver=\"kube:6443\"}}"));
        let bound = |name: &str, bound: &str| {
            scrape.value(&format!(
                "{APF}{name}{{apiserver=\"kube:6443\",bound=\"{bound}\",priority_level=\"narrow\"}}"
            ))
        };
        assert!(bound("next_s_bounds", "min") <= bound("next_s_bounds", "max"));
        bound("next_discounted_s_bounds", "min");

        // In the first of two seconds no request waited; a level has eight places in queues.
        let ratio = |name: &str, phase: &str, rest: &str| {
            scrape.value(&format!(
                "{APF}{name}{{apiserver=\"kube:6443\",phase=\"{phase}\",priority_level=\"narrow\"{rest}}}"
            ))
        };
        let waiting = ratio("priority_level_request_utilization_sum", "waiting", "");
        let expected = 0.5e9 / 8.0 + 2.0 * 1.0e9 / 8.0;
        assert!((waiting - expected).abs() < 1.0, "{waiting}");
        let seats = ratio("priority_level_seat_utilization_sum", "executing", "");
        assert!((seats - 2e9).abs() < 1.0, "{seats}");
    });
}

#[test]
fn histograms_have_the_buckets_of_kube_apiserver() {
    local(async {
        let (_world, _sent, scrape) = crowded().await;
        let durations: &[&str] = &[
            "0", "0.005", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "15", "30",
        ];
        assert_eq!(
            scrape.bounds(&format!("{APF}request_wait_duration_seconds")),
            durations
        );
        assert_eq!(
            scrape.bounds(&format!("{APF}work_estimated_seats")),
            ["1", "2", "4", "8", "16", "32", "64", "100"]
        );
        assert_eq!(
            scrape.bounds(&format!("{APF}request_queue_length_after_enqueue")),
            ["0", "10", "25", "50", "100", "250", "500", "1000"]
        );
        assert_eq!(
            scrape
                .bounds(&format!("{APF}read_vs_write_current_requests"))
                .len(),
            15
        );
        assert_eq!(
            scrape.bounds("apiserver_request_filter_duration_seconds"),
            [
                "0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "5", "10",
                "15", "30"
            ]
        );
    });
}

#[test]
fn all_requests_are_counted_when_they_have_ended() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        assert_eq!(
            world
                .get("/api/v1/namespaces/hold/pods/d", "ann")
                .await
                .status,
            429
        );
        assert_eq!(world.get("/api/v1/pods", "").await.status, 401);
        assert_eq!(world.get("/api/v1/nothing", "sid").await.status, 404);
        let watch = world.get("/api/v1/pods?watch=1", "sid").await;
        assert_eq!(watch.status, 200);
        for sent in sent {
            world.release().await;
            assert_eq!(sent.await.unwrap().status, 200);
        }
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        let pods = "group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
        let label = |rest: &str| format!("{{apiserver=\"kube:6443\",{rest}}}");
        scrape.is(
            &format!(
                "apiserver_request_total{}",
                label(&format!(
                    "code=\"200\",component=\"apiserver\",dry_run=\"\",{pods}"
                ))
            ),
            3.0,
        );
        let other = "group=\"other\",resource=\"other\",scope=\"resource\",subresource=\"other\",verb=\"GET\",version=\"other\"";
        scrape.is(
            &format!(
                "apiserver_request_terminations_total{}",
                label(&format!("code=\"429\",component=\"apiserver\",{other}"))
            ),
            1.0,
        );
        scrape.is(
            &format!(
                "apiserver_request_sli_duration_seconds_count{}",
                label(&format!("component=\"apiserver\",{pods}"))
            ),
            3.0,
        );
        // The second and third waited; their waits of 1.5 and 1 seconds do not count.
        scrape.is(
            &format!(
                "apiserver_request_sli_duration_seconds_sum{}",
                label(&format!("component=\"apiserver\",{pods}"))
            ),
            2.0,
        );
        scrape.is(
            "fairgate_refusals_total{apiserver=\"kube:6443\",reason=\"queue-full\"}",
            1.0,
        );
        scrape.is(
            "fairgate_refusals_total{apiserver=\"kube:6443\",reason=\"unauthorized\"}",
            1.0,
        );
        scrape.is(
            &format!("{APF}request_execution_seconds_count{{{ANN},type=\"regular\"}}"),
            3.0,
        );
        scrape.is(&format!("{APF}current_executing_requests{{{ANN}}}"), 0.0);
    });
}

#[test]
fn the_time_for_which_an_eviction_was_held_does_not_count() {
    local(async {
        let mut world = World::new();
        let inbound = world.inbound(Method::GET, "/api/v1/namespaces/hold/pods/a", "ann");
        let held = Some(Duration::from_millis(1500));
        inbound.context.trace.eviction_wait.set(held);
        let answer = (world.stack)(inbound);
        let sent = fairgate_base::turns::spawn_local(async move {
            let body = answer.await.into_body();
            body.collect().await.unwrap();
        });
        settle().await;
        world.clock.advance(Duration::from_secs(2));
        world.release().await;
        sent.await.unwrap();
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        let labels = "apiserver=\"kube:6443\",component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
        let name = "apiserver_request_sli_duration_seconds_sum";
        scrape.is(&format!("{name}{{{labels}}}"), 0.5);
    });
}

#[test]
fn a_client_that_leaves_is_counted_too() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        sent[1].abort();
        settle().await;
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        let gone = scrape
            .samples
            .iter()
            .filter(|(series, _)| series.starts_with("apiserver_request_total"));
        let gone: Vec<_> = gone.collect();
        assert_eq!(gone.len(), 1);
        assert!(gone[0].0.contains("code=\"499\""), "{gone:?}");
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"time-out\"}}"),
            1.0,
        );
    });
}

#[test]
fn readers_and_writers_are_sampled_apart() {
    local(async {
        let mut world = World::new();
        let (flow_control, sampler) = (
            Arc::clone(world.telemetry.flow_control()),
            world.telemetry.clone(),
        );
        let sampler = sampler.sampler();
        sampler.sample(&flow_control, world.clock.now());
        let sent = world.crowd().await;
        let post = world
            .send(Method::POST, "/api/v1/namespaces/hold/pods", "sid")
            .await;
        sampler.sample(&flow_control, world.clock.now());
        for _ in 0..10 {
            world.clock.advance(Duration::from_millis(100));
            sampler.sample(&flow_control, world.clock.now());
        }
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        let kind = |name: &str, kind: &str| {
            scrape.value(&format!(
                "apiserver_current_{name}_requests{{apiserver=\"kube:6443\",request_kind=\"{kind}\"}}"
            ))
        };
        let most = [
            kind("inflight", "readOnly"),
            kind("inflight", "mutating"),
            kind("inqueue", "readOnly"),
            kind("inqueue", "mutating"),
        ];
        assert_eq!(most.map(|most| most.to_string()), ["1", "1", "2", "0"]);
        let sum = |phase: &str, kind: &str| {
            scrape.value(&format!(
                "{APF}read_vs_write_current_requests_sum{{apiserver=\"kube:6443\",phase=\"{phase}\",request_kind=\"{kind}\"}}"
            ))
        };
        // A second of two waiting in eight places, and of one executing; the nominal limits are
        // 1, 1, and 2 of the catch-all.
        assert!(
            (sum("waiting", "readOnly") - 0.25e9).abs() < 1.0,
            "{}",
            sum("waiting", "readOnly")
        );
        assert!(
            (sum("executing", "mutating") - 0.25e9).abs() < 1.0,
            "{}",
            sum("executing", "mutating")
        );
        assert!(sum("waiting", "mutating").abs() < 1.0);
        drop((sent, post));
    });
}

#[test]
fn a_level_that_is_gone_takes_its_series_along_once_it_has_drained() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let (flow_control, now) = (
            Arc::clone(world.telemetry.flow_control()),
            world.clock.now(),
        );
        flow_control.apply(now, policy(false));
        let levels = world.telemetry.dump(Dump::PriorityLevels).await;
        let rows = cells(&levels);
        let narrow = rows.iter().find(|row| row[0] == "narrow").unwrap();
        assert_eq!(
            narrow[1..6],
            ["1", "false", "true", "2", "1"],
            "it is quiescing"
        );
        let scrape = Scrape::parse(&world.telemetry.metrics_text().await.unwrap());
        scrape.is(&format!("{APF}current_inqueue_requests{{{ANN}}}"), 2.0);
        scrape.is(&format!("{APF}current_executing_requests{{{ANN}}}"), 1.0);
        for sent in sent {
            world.release().await;
            assert_eq!(sent.await.unwrap().status, 200);
        }
        flow_control.rebalance(world.clock.now());
        let text = world.telemetry.metrics_text().await.unwrap();
        assert!(
            !text.contains("narrow") && !text.contains("elephants"),
            "{text}"
        );
        let dump = Dump::Requests { details: true };
        assert_eq!(world.telemetry.dump(dump).await.lines().count(), 1);
    });
}

#[test]
fn the_same_state_gives_the_same_text() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        world.get("/api/v1/pods", "sid").await;
        assert_eq!(
            world.telemetry.metrics_text().await.unwrap(),
            world.telemetry.metrics_text().await.unwrap()
        );
        drop(sent);
    });
}

const APF: &str = "apiserver_flowcontrol_";

#[test]
fn the_largest_flows_of_a_level_are_named_with_what_they_have() {
    local(async {
        let (world, _sent, scrape) = crowded().await;
        let of = |name: &str, value| {
            let labels = r#"apiserver="kube:6443",flow="ann",flow_schema="elephants",priority_level="narrow""#;
            scrape.is(&format!("fairgate_flow_{name}{{{labels}}}"), value);
        };
        of("inqueue_requests", 2.0);
        of("executing_seats", 1.0);
        let level = |name: &str, value| {
            let labels = r#"apiserver="kube:6443",priority_level="narrow""#;
            scrape.is(&format!("fairgate_{name}{{{labels}}}"), value);
        };
        level("active_flows", 1.0);
        level("active_queues", 1.0);
        level("jain_index", 1.0);
        level("largest_flow_share", 1.0);
        // The second of three requests came half a second after the first, and a second before now.
        level("oldest_wait_seconds", 1.5);
        // All three are of one flow.
        level("bystander_wait_seconds", 0.0);
        world.leaf.held.borrow_mut().clear();
    });
}
