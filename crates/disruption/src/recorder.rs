//! Records events as kube-controller-manager does: in the core API, as a count if they repeat, and at a
//! limited rate.
//!
//! A broken budget is synced again and again, and has the same events each time. A repeated event changes the one that
//! was recorded before; and after 25 events about one object there is one more in five minutes.

use std::{collections::BTreeMap, time::Duration};

use fairgate_base::{clock::Clock, log_limit::LogLimit};
use fairgate_core::time::Time;
use fairgate_eviction::controller::{
    ObjectKey,
    events::{DisruptionEvent, EVENT_SOURCE, EventSubject},
};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::calls::{CallError, Calls, JSON, STRATEGIC_MERGE_PATCH, object_path};

/// Events about one object that are recorded at once.
const BURST: u32 = 25;
/// After those, one event is recorded per this interval.
const REFILL: Duration = Duration::from_secs(300);
/// The number of events, and of objects, that are remembered.
const MAX_REMEMBERED: usize = 4096;
/// The number of events that wait to be written. More are dropped.
const MAX_WAITING: usize = 1000;
/// The longest name of an object.
const MAX_NAME: usize = 253;

/// An event about an object of this namespace and name.
pub(crate) type Occurrence = (ObjectKey, DisruptionEvent);

/// Writes events.
#[derive(Debug)]
pub(crate) struct Recorder<'c> {
    calls: &'c Calls,
    clock: Clock,
    waiting: mpsc::Receiver<Occurrence>,
    limiter: EventLimiter,
    failures: LogLimit,
}

impl<'c> Recorder<'c> {
    /// A recorder, and the sender of events to it.
    pub(crate) fn new(calls: &'c Calls, clock: &Clock) -> (Self, mpsc::Sender<Occurrence>) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let recorder = Self {
            calls,
            clock: clock.clone(),
            waiting,
            limiter: EventLimiter::default(),
            failures: LogLimit::new(1),
        };
        (recorder, sender)
    }

    /// Writes events until all senders are dropped.
    pub(crate) async fn run(&mut self) {
        while let Some((key, event)) = self.waiting.recv().await {
            let (now, date) = (self.clock.now(), self.calls.date());
            let Some(record) = self.limiter.admit(&key, &event, now, date) else {
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
            let patch = json!({"count": record.count, "lastTimestamp": seconds(date)});
            let path = path(&record.name);
            let patched =
                self.calls
                    .call(Method::PATCH, &path, STRATEGIC_MERGE_PATCH, Some(&patch));
            match patched.await {
                // Events are deleted after an hour.
                Err(error) if error.code() == Some(404) => {}
                patched => return patched.map(|_| ()),
            }
        }
        let object = object(key, event, record, date);
        let created = self
            .calls
            .call(Method::POST, &path(""), JSON, Some(&object))
            .await;
        created.map(|_| ())
    }
}

/// What to write about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRecord {
    /// The name of the event object.
    name: String,
    /// How often the event has occurred.
    count: u32,
    /// When it occurred first.
    first: Timestamp,
}

/// Which events are recorded.
#[derive(Debug, Default)]
struct EventLimiter {
    /// By object, reason and message.
    recorded: BTreeMap<(EventObject, &'static str, String), (EventRecord, Time)>,
    /// By object: when its bucket will be full again.
    buckets: BTreeMap<EventObject, Time>,
}

/// Namespace, kind, name and UID.
type EventObject = (Box<str>, &'static str, String, String);

impl EventLimiter {
    fn admit(
        &mut self,
        key: &ObjectKey,
        event: &DisruptionEvent,
        now: Time,
        date: Timestamp,
    ) -> Option<EventRecord> {
        let (kind, name, uid) = subject(&event.about);
        let about = (key.namespace.clone(), kind, name.to_owned(), uid.to_owned());
        if !self.take(&about, now) {
            return None;
        }
        let id = (about, event.reason, event.message.clone());
        if !self.recorded.contains_key(&id) {
            forget_oldest(&mut self.recorded, |(_, last)| *last);
        }
        let (record, last) = self.recorded.entry(id).or_insert_with(|| {
            let record = EventRecord {
                name: event_name(name, date),
                count: 0,
                first: date,
            };
            (record, now)
        });
        record.count = record.count.saturating_add(1);
        *last = now;
        Some(record.clone())
    }

    /// Takes a token from the bucket of an object.
    fn take(&mut self, about: &EventObject, now: Time) -> bool {
        if !self.buckets.contains_key(about) {
            forget_oldest(&mut self.buckets, |full_at| *full_at);
        }
        let full_at = self.buckets.entry(about.clone()).or_insert(now);
        let after = (*full_at).max(now).plus(REFILL);
        let is_there = after.since(now) <= REFILL * BURST;
        if is_there {
            *full_at = after;
        }
        is_there
    }
}

/// Makes room for another entry.
fn forget_oldest<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, last: impl Fn(&V) -> Time) {
    if map.len() < MAX_REMEMBERED {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, value)| last(value));
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        map.remove(&key);
    }
}

/// Kind, name and UID.
fn subject(about: &EventSubject) -> (&'static str, &str, &str) {
    match about {
        EventSubject::Budget { name, uid } => ("PodDisruptionBudget", name, uid),
        EventSubject::Pod { name, uid } => ("Pod", name, uid),
    }
}

/// The name of an event: that of the object, and the time in nanoseconds.
fn event_name(name: &str, date: Timestamp) -> String {
    let suffix = format!(".{:x}", date.as_nanosecond());
    let kept: String = name.chars().take(MAX_NAME - suffix.len()).collect();
    format!("{}{suffix}", kept.trim_end_matches(['.', '-']))
}

fn object(
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
        "message": event.message,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "source": {"component": EVENT_SOURCE},
        "reportingComponent": EVENT_SOURCE,
        "reportingInstance": "",
        "firstTimestamp": seconds(record.first),
        "lastTimestamp": seconds(date),
        "count": record.count,
    })
}

fn seconds(date: Timestamp) -> String {
    date.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
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
    fn a_repeated_event_counts_up_and_a_flood_is_cut() {
        let mut limiter = EventLimiter::default();
        let key = ObjectKey::new("ns", "foo");
        let mut admit = |message: &str, at: u64| {
            let now = Time::ZERO.plus(Duration::from_secs(at));
            limiter.admit(&key, &event(message), now, date(i64::try_from(at).unwrap()))
        };
        let first = admit("a", 0).unwrap();
        let again = admit("a", 1).unwrap();
        assert_eq!((first.count, again.count), (1, 2));
        assert_eq!((&first.name, first.first), (&again.name, again.first));
        assert_ne!(admit("b", 2).unwrap().name, first.name);

        let admitted = (0..100).filter(|_| admit("a", 3).is_some()).count();
        assert_eq!(admitted, 22, "25 in all");
        assert!(admit("a", 290).is_none());
        assert_eq!(admit("a", 310).unwrap().count, 25);
        assert!(admit("a", 311).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limiter = EventLimiter::default();
        for number in 0..2 * MAX_REMEMBERED {
            let now = Time::from_nanos(number as u64);
            let key = ObjectKey::new(&format!("ns-{number}"), "foo");
            assert!(limiter.admit(&key, &event("a"), now, date(0)).is_some());
        }
        assert_eq!(limiter.recorded.len(), MAX_REMEMBERED);
        assert_eq!(limiter.buckets.len(), MAX_REMEMBERED);
    }

    #[test]
    fn an_event_is_written_as_the_original_writes_it() {
        let record = EventRecord {
            name: event_name("foo", date(0)),
            count: 1,
            first: date(0),
        };
        let object = object(
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
        let long = event_name(&"x".repeat(253), date(0));
        assert_eq!(long.len(), MAX_NAME);
    }
}
