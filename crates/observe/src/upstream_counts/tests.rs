//! Reading in pieces of any size, the interval between reads, and the effects of failures.

use std::cell::RefCell;

use http_body_util::Full;
use proptest::prelude::*;

use super::{
    reader::{CountReader, MAX_LINE, MAX_RESOURCES},
    *,
};

/// The metrics as kube-apiserver 1.34 writes them, between others.
const METRICS: &str = r#"# HELP aggregator_discovery_aggregation_count_total [ALPHA] Counter
# TYPE aggregator_discovery_aggregation_count_total counter
aggregator_discovery_aggregation_count_total 3
# HELP apiserver_resource_objects [ALPHA] Number of stored objects
# TYPE apiserver_resource_objects gauge
apiserver_resource_objects{group="",resource="pods"} 1200
apiserver_resource_objects{group="apps",resource="deployments"} 7
apiserver_resource_objects{group="example.com",resource="widgets"} -1
apiserver_resource_objects_more{group="",resource="pods"} 5
apiserver_request_duration_seconds_bucket{component="apiserver",le="+Inf"} 12
apiserver_resource_size_estimate_bytes{group="",resource="pods"} 1.2e+07 1722780000000
apiserver_resource_size_estimate_bytes{group="apps",resource="deployments"} -1
apiserver_storage_objects{resource="pods"} 1100
apiserver_storage_objects{resource="leases.coordination.k8s.io"} 20
apiserver_storage_objects{resource="widgets.example.com"} -1
"#;

fn count(
    group: &str,
    resource: &str,
    count: u64,
    total_bytes: impl Into<Option<u64>>,
) -> ObjectCount {
    ObjectCount {
        group: group.into(),
        resource: resource.into(),
        count,
        total_bytes: total_bytes.into(),
    }
}

fn expected() -> Vec<ObjectCount> {
    vec![
        count("", "pods", 1200, 12_000_000),
        count("apps", "deployments", 7, None),
        count("coordination.k8s.io", "leases", 20, None),
    ]
}

fn read(text: &str) -> Vec<ObjectCount> {
    let mut reader = CountReader::default();
    reader.read(text.as_bytes());
    reader.finish()
}

#[test]
fn counts_are_found_wherever_the_text_is_cut() {
    for piece in 1..METRICS.len() {
        let mut reader = CountReader::default();
        for data in METRICS.as_bytes().chunks(piece) {
            reader.read(data);
        }
        assert_eq!(reader.finish(), expected(), "in pieces of {piece}");
    }
}

#[test]
fn an_older_server_reports_counts_only() {
    let text = "apiserver_storage_objects{resource=\"events.events.k8s.io\"} 3\r\n\
                apiserver_storage_objects{resource=\"events\"} 4";
    let found = read(text);
    assert_eq!(
        found,
        [
            count("", "events", 4, None),
            count("events.k8s.io", "events", 3, None)
        ]
    );
}

#[test]
fn a_count_missing_in_one_metric_is_taken_from_the_other() {
    let text = "apiserver_resource_objects{group=\"\",resource=\"pods\"} -1\n\
                apiserver_storage_objects{resource=\"pods\"} 5\n";
    assert_eq!(read(text), [count("", "pods", 5, None)]);
}

#[test]
fn labels_may_be_written_in_many_ways() {
    for line in [
        r#"apiserver_resource_objects{resource="p\"o\\ds",group="a"} 1"#,
        r#"apiserver_resource_objects { x="}, y=" , resource = "p\"o\\ds" , group = "a" , }  1"#,
    ] {
        assert_eq!(read(line), [count("a", "p\"o\\ds", 1, None)], "{line}");
    }
}

#[test]
fn lines_that_make_no_sense_are_passed_over() {
    for line in [
        "apiserver_resource_objects",
        "apiserver_resource_objects 5",
        "apiserver_resource_objects{",
        "apiserver_resource_objects{}",
        "apiserver_resource_objects{} 5",
        r#"apiserver_resource_objects{resource="pods"}"#,
        r#"apiserver_resource_objects{resource="pods"} x"#,
        r#"apiserver_resource_objects{resource="pods"} NaN"#,
        r#"apiserver_resource_objects{resource="pods"} +Inf"#,
        r#"apiserver_resource_objects{resource="pods 5"#,
        r#"apiserver_resource_objects{resource="pods\"#,
        "apiserver_resource_objects{resource=pods} 5",
        r#"apiserver_resource_size_estimate_bytes{resource="pods"} 5"#,
    ] {
        assert_eq!(read(line), [], "{line}");
    }
}

#[test]
fn a_line_without_end_takes_no_memory_and_hides_no_other() {
    let mut reader = CountReader::default();
    reader.read(b"apiserver_resource_objects{resource=\"");
    for _ in 0..1000 {
        reader.read(&[b'x'; 4096]);
        assert!(reader.line.capacity() <= 2 * MAX_LINE);
    }
    reader.read(b"\"} 1\napiserver_resource_objects{resource=\"pods\"} 2");
    assert_eq!(reader.finish(), [count("", "pods", 2, None)]);
}

#[test]
fn resources_are_bounded() {
    let mut reader = CountReader::default();
    for number in 0..MAX_RESOURCES + 10 {
        reader.read(format!("apiserver_resource_objects{{resource=\"r{number}\"}} 1\n").as_bytes());
    }
    assert_eq!(reader.finish().len(), MAX_RESOURCES);
}

#[test]
fn failures_slow_polling_down_and_success_resets_it() {
    let mut interval = PollInterval::new(Duration::from_secs(60));
    let failed = FetchError::failed("no");
    let minutes = |interval: &mut PollInterval, error| interval.next(error, 0).as_secs() / 60;
    assert_eq!(minutes(&mut interval, None), 1);
    for expected in [1, 2, 4, 8, 8, 8] {
        assert_eq!(minutes(&mut interval, Some(&failed)), expected);
    }
    assert_eq!(minutes(&mut interval, Some(&FetchError::Forbidden)), 8);
    assert_eq!(minutes(&mut interval, None), 1);
    assert_eq!(minutes(&mut interval, Some(&failed)), 1);
    for random in [1, 199, 200, u64::MAX] {
        let next = interval.next(None, random);
        assert!((60..72).contains(&next.as_secs()), "{next:?}");
    }
    // Unusual settings are accepted.
    assert!(PollInterval::new(Duration::ZERO).next(None, 0) > Duration::ZERO);
    PollInterval::new(Duration::MAX).next(Some(&FetchError::Forbidden), u64::MAX);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn the_counts_of_each_read_are_passed_on() {
    let seeded = RefCell::new(0);
    let is_done = tokio::sync::Notify::new();
    let fetch = async || Ok(Full::new(Bytes::from_static(METRICS.as_bytes())));
    let seed = |counts: &[ObjectCount]| {
        assert_eq!(counts, expected());
        *seeded.borrow_mut() += 1;
        if *seeded.borrow() == 3 {
            is_done.notify_one();
        }
    };
    block_on(async {
        tokio::select! {
            () = follow(fetch, Duration::ZERO, seed) => {}
            () = is_done.notified() => {}
        }
    });
    assert_eq!(*seeded.borrow(), 3);
}

#[test]
fn a_refusal_seeds_nothing() {
    let fetch = async || Err::<Full<Bytes>, _>(FetchError::Forbidden);
    let seed = |_: &[ObjectCount]| panic!("there is nothing to seed");
    assert_eq!(
        block_on(read_once(&fetch, &seed)),
        Err(FetchError::Forbidden)
    );
}

#[test]
fn a_response_that_breaks_off_seeds_nothing() {
    let fetch = async || {
        let half = Bytes::from_static(METRICS.as_bytes());
        let frames = [Ok(http_body::Frame::data(half)), Err("it broke off")];
        Ok(Frames(frames.into_iter().collect()))
    };
    let seed = |_: &[ObjectCount]| panic!("there is nothing to seed");
    assert_eq!(
        block_on(read_once(&fetch, &seed)),
        Err(FetchError::failed("it broke off"))
    );
}

#[test]
fn it_runs_on_any_thread() {
    fn assert_send(_: impl Send) {}
    let fetch = || std::future::ready(Ok(Full::new(Bytes::new())));
    assert_send(follow(fetch, Duration::from_secs(60), |_| {}));
}

#[test]
fn each_failure_is_logged_when_it_begins() {
    let mut failures = FailureLog::default();
    failures.log(Some(&FetchError::failed("no")));
    assert!(failures.is_failing && !failures.logged_forbidden);
    failures.log(Some(&FetchError::Forbidden));
    failures.log(None);
    assert!(!failures.is_failing && failures.logged_forbidden);
}

/// A body of these frames.
struct Frames(std::collections::VecDeque<Result<http_body::Frame<Bytes>, &'static str>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
        std::task::Poll::Ready(self.0.pop_front())
    }
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm(
        text in "(apiserver_resource_objects)?[{}\"=\\\\, a\n0-9é]{0,100}",
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        piece in 1_usize..50,
    ) {
        let mut reader = CountReader::default();
        for data in text.as_bytes().chunks(piece).chain(bytes.chunks(piece)) {
            reader.read(data);
        }
        reader.finish();
    }
}
