//! Object counts from the upstream's own metrics.
//!
//! An API server tells how many objects it stores of each resource, and since 1.34 how large they
//! are. Where the gateway may read its `/metrics`, [`follow`] does so about every minute, and the
//! width of lists does not depend on what happened to pass.
//!
//! The metrics run to tens of MiB, of which a few hundred lines matter: [`CountReader`] reads them
//! as they come and keeps no more. Names and labels are those of Kubernetes' metrics reference.
//!
//! Not here: the connection to the upstream, which is handed in, and what is made of the counts
//! ([`fairgate_core::apf::counts`]).

use std::{
    collections::BTreeMap,
    fmt::Display,
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

/// The longest line that is looked at. Those that matter are shorter than 700 bytes, names being
/// limited to 253.
const MAX_LINE: usize = 2 << 10;

/// The most resources kept.
const MAX_RESOURCES: usize = 10_000;

/// The most that is read of one answer.
const MAX_BODY_BYTES: u64 = 512 << 20;

/// How long one answer may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How often a refusal or a failure doubles the time to the next attempt, at most: to 8 times.
const MAX_DOUBLINGS: u32 = 3;

/// How many objects there are of a resource, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectCount {
    /// The API group; empty for the core group.
    pub(crate) group: Box<str>,
    /// The resource, plural.
    pub(crate) resource: Box<str>,
    /// How many there are.
    pub(crate) count: u64,
    /// How many bytes they take together, as the server stores them, if it knows.
    pub(crate) total_bytes: Option<u64>,
}

/// Why the upstream's metrics could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The upstream answered 401 or 403: it does not let the gateway read them.
    #[error("the upstream does not allow it")]
    Forbidden,
    /// Anything else; may pass.
    #[error("{0}")]
    Failed(Box<str>),
}

impl FetchError {
    fn failed(why: impl Display) -> Self {
        Self::Failed(why.to_string().into())
    }
}

/// Reads metrics in Prometheus' text format, in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct CountReader {
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// The line is too long, and what comes of it is left out.
    is_too_long: bool,
    rows: BTreeMap<(Box<str>, Box<str>), Row>,
}

/// What the metrics say of one resource. A value below zero means that the server does not know.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// `apiserver_resource_objects`
    objects: Option<u64>,
    /// `apiserver_storage_objects`, its predecessor.
    storage_objects: Option<u64>,
    /// `apiserver_resource_size_estimate_bytes`
    bytes: Option<u64>,
}

impl CountReader {
    /// Reads a piece. Lines that do not matter or make no sense are passed over.
    pub(crate) fn read(&mut self, data: &[u8]) {
        let mut rest = data;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.line.is_empty() && !self.is_too_long {
                self.read_line(line);
            } else {
                self.hold(line);
                self.read_held();
            }
            rest = after;
        }
        self.hold(rest);
    }

    /// The counts, in order of group and resource. Resources whose count the server does not know
    /// are left out.
    pub(crate) fn finish(mut self) -> Vec<ObjectCount> {
        self.read_held();
        self.rows
            .into_iter()
            .filter_map(|((group, resource), row)| {
                Some(ObjectCount {
                    group,
                    resource,
                    count: row.objects.or(row.storage_objects)?,
                    total_bytes: row.bytes,
                })
            })
            .collect()
    }

    fn hold(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MAX_LINE {
            self.is_too_long = true;
            self.line.clear();
        }
        if !self.is_too_long {
            self.line.extend_from_slice(part);
        }
    }

    fn read_held(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.is_too_long) {
            self.read_line(&line);
        }
        self.line = line;
        self.line.clear();
    }

    fn read_line(&mut self, line: &[u8]) {
        if line.starts_with(b"apiserver_")
            && line.len() <= MAX_LINE
            && let Ok(line) = str::from_utf8(line)
            && let Some(sample) = Sample::parse(line)
        {
            self.take(sample);
        }
    }

    fn take(&mut self, sample: Sample) {
        let key = (sample.group, sample.resource);
        if self.rows.len() >= MAX_RESOURCES && !self.rows.contains_key(&key) {
            return;
        }
        let row = self.rows.entry(key).or_default();
        match sample.metric {
            Metric::Objects => row.objects = sample.value,
            Metric::StorageObjects => row.storage_objects = sample.value,
            Metric::Bytes => row.bytes = sample.value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Objects,
    StorageObjects,
    Bytes,
}

/// One line that matters.
struct Sample {
    metric: Metric,
    group: Box<str>,
    resource: Box<str>,
    value: Option<u64>,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (name, mut rest) = line.split_once('{')?;
        let metric = match name.trim_end() {
            "apiserver_resource_objects" => Metric::Objects,
            "apiserver_storage_objects" => Metric::StorageObjects,
            "apiserver_resource_size_estimate_bytes" => Metric::Bytes,
            _ => return None,
        };
        let (mut group, mut resource) = (String::new(), String::new());
        while let Some((name, value)) = label(&mut rest)? {
            match name {
                "group" => group = value,
                "resource" => resource = value,
                _ => {}
            }
        }
        if metric == Metric::StorageObjects
            && let Some((plural, suffix)) = resource.split_once('.')
        {
            (group, resource) = (suffix.to_owned(), plural.to_owned());
        }
        if resource.is_empty() {
            return None;
        }
        // A time stamp may follow.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self {
            metric,
            group: group.into(),
            resource: resource.into(),
            value: whole(value),
        })
    }
}

/// Takes the next label off `text`, which stands behind the opening brace or a label; `Some(None)`
/// behind the last one, where the brace is taken off too; `None` if it is none.
#[expect(clippy::option_option, reason = "malformed, ended, or a label")]
fn label<'a>(text: &mut &'a str) -> Option<Option<(&'a str, String)>> {
    let rest = text.trim_start_matches([' ', '\t', ',']);
    if let Some(behind) = rest.strip_prefix('}') {
        *text = behind;
        return Some(None);
    }
    let (name, rest) = rest.split_once('=')?;
    let mut characters = rest.trim_start().strip_prefix('"')?.chars();
    let mut value = String::new();
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => value.push(match characters.next()? {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    *text = characters.as_str();
    Some(Some((name.trim(), value)))
}

/// A count as a whole number; `None` for what cannot be one, as -1 for unknown.
fn whole(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and the cast saturates"
    )]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// Reads the upstream's metrics for ever, the first time at once and then about `every` so often,
/// and gives their counts to `seed`.
///
/// `fetch` asks for `/metrics` and hands over the body, not compressed, of a `200`; it answers for
/// the time up to the headers, as this for the body. While it fails the time to the next attempt
/// doubles, up to 8 times `every`; if it is forbidden, it is that at once. Each kind of failure is
/// logged when it begins, a refusal only once. Drop the future to end it.
pub(crate) async fn follow<F, A, B>(fetch: F, every: Duration, seed: impl Fn(&[ObjectCount]))
where
    F: Fn() -> A,
    A: Future<Output = Result<B, FetchError>>,
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let mut pace = Pace::new(every);
    let mut diary = Diary::default();
    loop {
        let outcome = read_once(&fetch, &seed).await;
        diary.note(outcome.as_ref().err());
        let random = RandomState::new().hash_one(0);
        tokio::time::sleep(pace.next(outcome.as_ref().err(), random)).await;
    }
}

/// Reads the metrics once.
async fn read_once<F, A, B>(fetch: &F, seed: &impl Fn(&[ObjectCount])) -> Result<(), FetchError>
where
    F: Fn() -> A,
    A: Future<Output = Result<B, FetchError>>,
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let read = async { read_body(fetch().await?).await };
    let counts = tokio::time::timeout(TIME_LIMIT, read)
        .await
        .map_err(|_| FetchError::failed("it took longer than a minute"))??;
    tracing::debug!(resources = counts.len(), "read object counts");
    seed(&counts);
    Ok(())
}

async fn read_body<B>(body: B) -> Result<Vec<ObjectCount>, FetchError>
where
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let mut body = pin!(body);
    let mut reader = CountReader::default();
    let mut seen = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(FetchError::failed)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        seen = seen.saturating_add(data.len() as u64);
        if seen > MAX_BODY_BYTES {
            return Err(FetchError::failed("they are longer than 512 MiB"));
        }
        reader.read(data);
    }
    Ok(reader.finish())
}

/// When to try again.
#[derive(Debug)]
struct Pace {
    every: Duration,
    failures: u32,
}

impl Pace {
    fn new(every: Duration) -> Self {
        Self {
            every: every.max(Duration::from_millis(1)),
            failures: 0,
        }
    }

    /// How long to wait after this outcome: up to a fifth longer than is due, by `random`, so that
    /// gateways that start together do not ask together for ever.
    fn next(&mut self, error: Option<&FetchError>, random: u64) -> Duration {
        let doublings = match error {
            None => {
                self.failures = 0;
                0
            }
            Some(FetchError::Failed(_)) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures - 1).min(MAX_DOUBLINGS)
            }
            Some(FetchError::Forbidden) => MAX_DOUBLINGS,
        };
        let due = self.every.saturating_mul(1 << doublings);
        let thousandths = u32::try_from(random % 200).unwrap_or(0);
        due.saturating_add((due / 1000).saturating_mul(thousandths))
    }
}

/// Says what matters, once.
#[derive(Debug, Default)]
struct Diary {
    said_forbidden: bool,
    is_failing: bool,
}

impl Diary {
    fn note(&mut self, error: Option<&FetchError>) {
        match error {
            None => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the upstream's metrics can be read again");
                }
            }
            Some(FetchError::Forbidden) => {
                if !std::mem::replace(&mut self.said_forbidden, true) {
                    tracing::info!(
                        "may not read the upstream's metrics; object counts are learnt from lists \
                         alone. To allow it, let the gateway `get` the non-resource URL /metrics"
                    );
                }
            }
            Some(error @ FetchError::Failed(_)) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "cannot read the upstream's metrics");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    /// As a server of 1.34 writes them, between much else.
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
    fn an_older_server_tells_counts_alone() {
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
    fn a_count_that_one_metric_does_not_know_is_the_others() {
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
            reader.read(
                format!("apiserver_resource_objects{{resource=\"r{number}\"}} 1\n").as_bytes(),
            );
        }
        assert_eq!(reader.finish().len(), MAX_RESOURCES);
    }

    #[test]
    fn failures_slow_it_down_and_success_puts_it_right() {
        let mut pace = Pace::new(Duration::from_secs(60));
        let failed = FetchError::failed("no");
        let minutes = |pace: &mut Pace, error| pace.next(error, 0).as_secs() / 60;
        assert_eq!(minutes(&mut pace, None), 1);
        for expected in [1, 2, 4, 8, 8, 8] {
            assert_eq!(minutes(&mut pace, Some(&failed)), expected);
        }
        assert_eq!(minutes(&mut pace, Some(&FetchError::Forbidden)), 8);
        assert_eq!(minutes(&mut pace, None), 1);
        assert_eq!(minutes(&mut pace, Some(&failed)), 1);
        for random in [1, 199, 200, u64::MAX] {
            let next = pace.next(None, random);
            assert!((60..72).contains(&next.as_secs()), "{next:?}");
        }
        // Odd settings do no harm.
        assert!(Pace::new(Duration::ZERO).next(None, 0) > Duration::ZERO);
        Pace::new(Duration::MAX).next(Some(&FetchError::Forbidden), u64::MAX);
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn what_is_fetched_again_and_again_is_handed_on() {
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
    fn half_an_answer_seeds_nothing() {
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
    fn each_trouble_is_told_when_it_begins() {
        let mut diary = Diary::default();
        diary.note(Some(&FetchError::failed("no")));
        assert!(diary.is_failing && !diary.said_forbidden);
        diary.note(Some(&FetchError::Forbidden));
        diary.note(None);
        assert!(!diary.is_failing && diary.said_forbidden);
    }

    /// A body that comes in these frames.
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
}
