//! Records events as kube-controller-manager does: as `Event` objects of the core group.
//!
//! Not here: which events are recorded, and which are counted or combined (`event_correlator`).

use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
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
    failures: LogLimit,
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
            failures: LogLimit::new(1),
        }
    }

    /// Writes events until all senders are dropped.
    pub(crate) async fn run(&mut self) {
        while let Some((key, event)) = self.waiting.recv().await {
            let (now, date) = (self.clock.now(), self.calls.date());
            let Some(record) = self.correlator.admit(&key, &event, now, date) else {
                continue;
            };
            if let Err(error) = self.write(&key, &event, &record, date).await
                && let Some(left_out) = self.failures.admit(now)
            {
                tracing::warn!(%error, left_out, "an event cannot be recorded");
            }
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
