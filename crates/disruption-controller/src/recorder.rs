//! Records events as kube-controller-manager does: as `Event` objects of the core group.
//!
//! Not here: which events are recorded, and which are counted or combined (`event_correlator`).

use std::{collections::BTreeMap, time::Duration};

use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
use fairgate_core::time::Time;
use fairgate_disruption::controller::{
    ObjectKey,
    events::{DisruptionEvent, EVENT_SOURCE},
};
use fairgate_gotext::time;
use fairgate_upstream::client::ApiClient;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    calls::{CallError, Calls, JSON, STRATEGIC_MERGE_PATCH, object_path},
    event_correlator::{EventCorrelator, EventRecord, subject},
};

/// The maximum number of events that wait to be written. Further events are dropped.
const MAX_WAITING: usize = 1000;
/// For how long no event is written in a namespace after one was denied there.
const DENIED_FOR: Duration = Duration::from_secs(300);
/// How often the log says that events are denied, at most.
const DENIED_LOGGED: Duration = Duration::from_secs(3600);
/// The maximum number of namespaces that are remembered because events are denied there.
const MAX_DENIED: usize = 1000;

/// An event, with the namespace and name of the object that it is about.
pub type Occurrence = (ObjectKey, DisruptionEvent);

/// Writes events.
#[derive(Debug)]
pub(crate) struct Recorder<'c> {
    calls: &'c Calls,
    /// The component that reports the events.
    source: &'static str,
    clock: Clock,
    waiting: mpsc::Receiver<Occurrence>,
    correlator: EventCorrelator,
    denied: DeniedNamespaces,
    failures: LogLimit,
}

/// The namespaces in which the gateway's user may not record events: without the permission, an event costs neither a call nor a
/// line of the log.
#[derive(Debug, Default)]
struct DeniedNamespaces {
    /// When each was denied.
    since: BTreeMap<String, Time>,
    logged: Option<Time>,
}

impl<'c> Recorder<'c> {
    /// A recorder, and the sender of events to it.
    pub(crate) fn new(calls: &'c Calls, clock: &Clock) -> (Self, mpsc::Sender<Occurrence>) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        (Self::of(calls, EVENT_SOURCE, clock, waiting), sender)
    }

    fn of(
        calls: &'c Calls,
        source: &'static str,
        clock: &Clock,
        waiting: mpsc::Receiver<Occurrence>,
    ) -> Self {
        Self {
            calls,
            source,
            clock: clock.clone(),
            waiting,
            correlator: EventCorrelator::default(),
            denied: DeniedNamespaces::default(),
            failures: LogLimit::new(1),
        }
    }

    /// Writes events until all senders are dropped.
    pub(crate) async fn run(&mut self) {
        while let Some((key, event)) = self.waiting.recv().await {
            let (now, date) = (self.clock.now(), self.calls.date());
            let Some(record) = self.correlator.correlate(&key, &event, now, date) else {
                continue;
            };
            if self.denied.has(&key.namespace, now) {
                continue;
            }
            if let Err(error) = self.write(&key, &event, &record, date).await {
                self.failed(&key.namespace, &error, now);
            }
        }
    }

    fn failed(&mut self, namespace: &str, error: &CallError, now: Time) {
        if is_denied(error) {
            if self.denied.add(namespace, now) {
                tracing::warn!(
                    %error,
                    "events are not recorded: grant fairgate's user create and patch of events, see docs/evictions.md"
                );
            }
        } else if let Some(left_out) = self.failures.next_line(now) {
            tracing::warn!(%error, left_out, "an event cannot be recorded");
        }
    }

    async fn write(
        &self,
        key: &ObjectKey,
        event: &DisruptionEvent,
        record: &EventRecord,
        date: Timestamp,
    ) -> Result<(), CallError> {
        let path = |name| object_path("/api/v1", &key.namespace, "events", name);
        if record.count > 1 {
            let patch = json!({"count": record.count, "lastTimestamp": seconds(date), "message": record.message});
            let path = path(&record.name);
            let patched =
                self.calls
                    .call(Method::PATCH, &path, STRATEGIC_MERGE_PATCH, Some(&patch));
            match patched.await {
                // By default, kube-apiserver deletes events after an hour: the event is created again.
                Err(error) if error.code() == Some(404) => {}
                patched => return patched.map(|_| ()),
            }
        }
        let object = object(self.source, key, event, record, date);
        let created = self
            .calls
            .call(Method::POST, &path(""), JSON, Some(&object))
            .await;
        created.map(|_| ())
    }
}

impl DeniedNamespaces {
    /// Whether events of this namespace were denied a short time ago.
    fn has(&self, namespace: &str, now: Time) -> bool {
        let since = self.since.get(namespace);
        since.is_some_and(|since| now.since(*since) < DENIED_FOR)
    }

    /// Remembers that an event of this namespace was denied `now`. Returns whether to log that.
    fn add(&mut self, namespace: &str, now: Time) -> bool {
        if self.since.len() >= MAX_DENIED {
            self.since.retain(|_, since| now.since(*since) < DENIED_FOR);
        }
        if self.since.len() < MAX_DENIED {
            self.since.insert(namespace.to_owned(), now);
        }
        let is_logged = (self.logged).is_some_and(|logged| now.since(logged) < DENIED_LOGGED);
        if !is_logged {
            self.logged = Some(now);
        }
        !is_logged
    }
}

/// Whether the gateway's user lacks the permission, as authorizers say it. Quotas, webhooks, and namespaces that are being deleted forbid
/// an event, too, and not for long.
fn is_denied(error: &CallError) -> bool {
    match error {
        CallError::Refused { code: 403, message } => {
            message.contains(" cannot create resource ")
                || message.contains(" cannot patch resource ")
        }
        CallError::Refused { .. } | CallError::Broken(_) => false,
    }
}

/// Records the events of another component than the controller, one after the other, with what limits and combines those of the
/// controller.
#[derive(Debug)]
pub struct EventRecorder {
    calls: Calls,
    clock: Clock,
    source: &'static str,
    waiting: mpsc::Receiver<Occurrence>,
}

impl EventRecorder {
    /// A recorder for the component `source`, and what takes its events: without delay, and while very many wait to be written,
    /// not at all.
    pub fn new(
        client: ApiClient,
        clock: &Clock,
        source: &'static str,
    ) -> (Self, EventSink<Occurrence>) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let recorder = Self {
            calls: Calls::new(client, clock.clone()),
            clock: clock.clone(),
            source,
            waiting,
        };
        let sink = EventSink::new(move |event| {
            let _ = sender.try_send(event);
        });
        (recorder, sink)
    }

    /// Writes events until all senders are dropped.
    pub async fn run(self) {
        let Self {
            calls,
            clock,
            source,
            waiting,
        } = self;
        Recorder::of(&calls, source, &clock, waiting).run().await;
    }
}

fn object(
    source: &str,
    key: &ObjectKey,
    event: &DisruptionEvent,
    record: &EventRecord,
    date: Timestamp,
) -> Value {
    let (kind, name, uid) = subject(&event.about);
    let api_version = if kind == "Pod" { "v1" } else { "policy/v1" };
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": record.name, "namespace": key.namespace},
        "involvedObject": {
            "apiVersion": api_version, "kind": kind, "namespace": key.namespace, "name": name, "uid": uid,
        },
        "reason": event.reason,
        "message": record.message,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "source": {"component": source},
        "reportingComponent": source,
        "reportingInstance": "",
        "firstTimestamp": seconds(record.first),
        "lastTimestamp": seconds(date),
        "count": record.count,
    })
}

fn seconds(date: Timestamp) -> String {
    // No clock is beyond the year 9999.
    time::from_seconds(date.as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fairgate_disruption::controller::events::EventSubject;

    use super::*;

    fn event(message: &str) -> DisruptionEvent {
        DisruptionEvent {
            about: EventSubject::Budget {
                name: "foo".to_owned(),
                uid: "u".to_owned(),
            },
            is_warning: true,
            reason: "UnmanagedPods",
            message: message.to_owned(),
        }
    }

    fn date(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn what_is_denied_is_tried_again_after_a_while_and_logged_once_an_hour() {
        let at = |seconds| Time::ZERO.plus(Duration::from_secs(seconds));
        let mut denied = DeniedNamespaces::default();
        assert!(!denied.has("a", at(0)));
        assert!(denied.add("a", at(0)), "the first one is logged");
        assert!(denied.has("a", at(299)) && !denied.has("a", at(300)));
        assert!(!denied.has("b", at(0)), "only in this namespace");
        assert!(!denied.add("b", at(10)) && !denied.add("a", at(300)));
        assert!(denied.has("a", at(599)));
        assert!(denied.add("a", at(3600)));
        // What is remembered is bounded.
        for number in 0..2 * MAX_DENIED {
            denied.add(&number.to_string(), at(4000));
        }
        assert_eq!(denied.since.len(), MAX_DENIED);
        denied.add("c", at(4300));
        assert!(denied.has("c", at(4300)) && denied.since.len() == 1);
    }

    #[test]
    fn a_namespace_that_is_being_deleted_or_full_is_no_missing_permission() {
        let refused = |code, message: &str| CallError::Refused {
            code,
            message: message.to_owned(),
        };
        let missing = "events is forbidden: User \"fairgate\" cannot create resource \"events\"";
        let quota = "events \"foo.1\" is forbidden: exceeded quota: objects, requested: count/events=1, used: count/events=9, limited: count/events=9";
        let ending = "events \"foo.1\" is forbidden: unable to create new content in namespace ns because it is being terminated";
        assert!(is_denied(&refused(403, missing)));
        assert!(!is_denied(&refused(403, ending)) && !is_denied(&refused(403, quota)));
        assert!(
            !is_denied(&refused(500, missing))
                && !is_denied(&CallError::Broken(missing.to_owned()))
        );
    }

    #[test]
    fn an_event_is_written_as_by_kube_controller_manager() {
        let record = EventRecord {
            name: "foo.17979cfe362a0000".to_owned(),
            count: 1,
            first: date(0),
            message: "text".to_owned(),
        };
        let object = object(
            EVENT_SOURCE,
            &ObjectKey::new("ns", "foo"),
            &event("text"),
            &record,
            date(5),
        );
        assert_eq!(
            object,
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": "foo.17979cfe362a0000", "namespace": "ns"},
                "involvedObject": {
                    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "namespace": "ns", "name": "foo", "uid": "u",
                },
                "reason": "UnmanagedPods", "message": "text", "type": "Warning",
                "source": {"component": "controllermanager"},
                "reportingComponent": "controllermanager", "reportingInstance": "",
                "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:25Z",
                "count": 1,
            })
        );
    }
}
