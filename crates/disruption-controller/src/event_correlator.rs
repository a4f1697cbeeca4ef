//! Decides which events are recorded, and how, as the event correlator of client-go does.
//!
//! A broken budget is synced repeatedly, and has the same events each time. A repeated event updates the one that was
//! recorded before. Of events with the same reason but different messages, all after the ninth are combined into one.
//! After 25 events about one object, one more is recorded every five minutes. Events that are not recorded are still
//! counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use fairgate_core::time::Time;
use fairgate_disruption::controller::{
    ObjectKey,
    events::{DisruptionEvent, EventSubject},
};
use jiff::Timestamp;

/// The number of events about one object that are recorded without delay.
const BURST: u32 = 25;
/// After those, one event is recorded per this interval.
const REFILL: Duration = Duration::from_secs(300);
/// From this number of different messages for one reason on, events are combined.
const COMBINED_FROM: usize = 10;
/// If no such event occurred for longer than this, the different messages are counted anew.
const COMBINED_WITHIN: Duration = Duration::from_secs(600);
/// The maximum number of events, of groups of events, and of objects that are remembered. The oldest are dropped.
const MAX_REMEMBERED: usize = 4096;
/// The maximum length of the name of an object.
const MAX_NAME: usize = 253;

/// The event object to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRecord {
    /// The name of the event object.
    pub(crate) name: String,
    /// The number of occurrences of the event.
    pub(crate) count: u32,
    /// The time of the first occurrence.
    pub(crate) first: Timestamp,
    /// The message of the last occurrence.
    pub(crate) message: String,
}

/// Namespace, kind, name and UID of an object.
type EventObject = (Box<str>, &'static str, String, String);
/// Events about an object: whether they are warnings, and their reason.
type EventGroup = (EventObject, bool, &'static str);
/// An event of a group by its message; without a message, the combined event of the group.
type EventKey = (EventGroup, Option<String>);

/// The different messages of a group.
#[derive(Debug)]
struct SimilarEvents {
    /// The hashes of the messages, because messages may be long.
    messages: BTreeSet<u64>,
    last: Time,
}

/// Decides which events are recorded.
#[derive(Debug, Default)]
pub(crate) struct EventCorrelator {
    similar: BTreeMap<EventGroup, SimilarEvents>,
    /// The recorded events, with the time of the last occurrence.
    recorded: BTreeMap<EventKey, (EventRecord, Time)>,
    /// For each object, the time at which its token bucket is full again.
    buckets: BTreeMap<EventObject, Time>,
}

impl EventCorrelator {
    /// What to write about an event that occurred `now`; `None` if it is not recorded. `date` is the time for its
    /// timestamps.
    pub(crate) fn correlate(
        &mut self,
        key: &ObjectKey,
        event: &DisruptionEvent,
        now: Time,
        date: Timestamp,
    ) -> Option<EventRecord> {
        let (kind, name, uid) = subject(&event.about);
        let about = (key.namespace.clone(), kind, name.to_owned(), uid.to_owned());
        let group = (about.clone(), event.is_warning, event.reason);
        let is_combined = self.is_combined(&group, &event.message, now);
        let (message, text) = if is_combined {
            let text = format!("(combined from similar events): {}", event.message);
            (None, text)
        } else {
            (Some(event.message.clone()), event.message.clone())
        };
        let id = (group, message);
        if !self.recorded.contains_key(&id) {
            forget_oldest(&mut self.recorded, |(_, last)| *last);
        }
        let (record, last) = self.recorded.entry(id).or_insert_with(|| {
            let record = EventRecord {
                name: event_name(name, date),
                count: 0,
                first: date,
                message: String::new(),
            };
            (record, now)
        });
        record.count = record.count.saturating_add(1);
        record.message = text;
        *last = now;
        let record = record.clone();
        self.take(&about, now).then_some(record)
    }

    /// Whether an event is combined with the others of its group. Remembers its message.
    fn is_combined(&mut self, group: &EventGroup, message: &str, now: Time) -> bool {
        if !self.similar.contains_key(group) {
            forget_oldest(&mut self.similar, |similar| similar.last);
        }
        let similar = self
            .similar
            .entry(group.clone())
            .or_insert_with(|| SimilarEvents {
                messages: BTreeSet::new(),
                last: now,
            });
        if now.since(similar.last) > COMBINED_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let hash = hasher.finish();
        similar.messages.insert(hash);
        let is_combined = similar.messages.len() >= COMBINED_FROM;
        if is_combined {
            // The original removes an arbitrary message.
            similar.messages.remove(&hash);
        }
        is_combined
    }

    /// Takes a token from the bucket of an object. Returns `false` if there is none.
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

/// Removes the oldest entry if the map is full. It costs `O(n)` then.
fn forget_oldest<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, last: impl Fn(&V) -> Time) {
    if map.len() < MAX_REMEMBERED {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, value)| last(value));
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        map.remove(&key);
    }
}

/// Kind, name and UID of the object that an event is about.
pub(crate) fn subject(about: &EventSubject) -> (&'static str, &str, &str) {
    match about {
        EventSubject::Budget { name, uid } => ("PodDisruptionBudget", name, uid),
        EventSubject::Pod { name, uid } => ("Pod", name, uid),
    }
}

/// The name of an event object: the name of the object that it is about, and the time in nanoseconds.
fn event_name(name: &str, date: Timestamp) -> String {
    let suffix = format!(".{:x}", date.as_nanosecond());
    let kept: String = name.chars().take(MAX_NAME - suffix.len()).collect();
    format!("{}{suffix}", kept.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn event(reason: &'static str, message: &str) -> DisruptionEvent {
        DisruptionEvent {
            about: EventSubject::Budget {
                name: "foo".to_owned(),
                uid: "u".to_owned(),
            },
            is_warning: true,
            reason,
            message: message.to_owned(),
        }
    }

    fn date(seconds: u64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + i64::try_from(seconds).unwrap()).unwrap()
    }

    /// The file has the results of client-go for the same events; `tests/cluster/events_test.go` writes it.
    #[test]
    fn events_are_correlated_as_by_client_go() {
        let mut correlators: BTreeMap<u64, EventCorrelator> = BTreeMap::new();
        let mut compared = 0;
        for line in include_str!("event_cases.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let number = |field: &str| case[field].as_u64().unwrap();
            let reason = ["NoPods", "UnmanagedPods"][usize::try_from(number("reason")).unwrap()];
            let event = event(reason, case["message"].as_str().unwrap());
            let correlator = correlators.entry(number("sequence")).or_default();
            let now = Time::ZERO.plus(Duration::from_secs(number("at")));
            let key = ObjectKey::new("ns", "foo");
            let record = correlator.correlate(&key, &event, now, date(number("at")));
            let got = record.map(|record| {
                let first = record.first.duration_since(date(0)).as_secs();
                (u64::from(record.count), first, record.message)
            });
            let want = case["recorded"].as_object().map(|want| {
                let first = want["first"].as_i64().unwrap();
                let text = want["message"].as_str().unwrap().to_owned();
                (want["count"].as_u64().unwrap(), first, text)
            });
            assert_eq!(got, want, "{line}");
            compared += 1;
        }
        assert!(compared > 1000);
    }

    #[test]
    fn a_repeated_event_keeps_its_name_and_events_are_rate_limited() {
        let mut correlator = EventCorrelator::default();
        let key = ObjectKey::new("ns", "foo");
        let mut correlate = |message: &str, at: u64| {
            let now = Time::ZERO.plus(Duration::from_secs(at));
            correlator.correlate(&key, &event("NoPods", message), now, date(at))
        };
        let first = correlate("a", 0).unwrap();
        let again = correlate("a", 1).unwrap();
        assert_eq!((first.count, again.count), (1, 2));
        assert_eq!((&first.name, first.first), (&again.name, again.first));
        assert_ne!(correlate("b", 2).unwrap().name, first.name);

        let written = (0..100).filter(|_| correlate("a", 3).is_some()).count();
        assert_eq!(written, 22, "25 in all");
        assert!(correlate("a", 290).is_none());
        assert_eq!(correlate("a", 310).unwrap().count, 104);
        assert!(correlate("a", 311).is_none());
    }

    #[test]
    fn the_number_of_remembered_events_is_bounded() {
        let mut correlator = EventCorrelator::default();
        for number in 0..2 * MAX_REMEMBERED {
            let now = Time::from_nanos(number as u64);
            let key = ObjectKey::new(&format!("ns-{number}"), "foo");
            let event = event("NoPods", "a");
            assert!(correlator.correlate(&key, &event, now, date(0)).is_some());
        }
        assert_eq!(correlator.recorded.len(), MAX_REMEMBERED);
        assert_eq!(correlator.similar.len(), MAX_REMEMBERED);
        assert_eq!(correlator.buckets.len(), MAX_REMEMBERED);
    }

    #[test]
    fn the_name_of_an_event_is_cut_to_the_maximum_length() {
        assert_eq!(event_name("foo", date(0)), "foo.17979cfe362a0000");
        assert_eq!(event_name(&"x".repeat(253), date(0)).len(), MAX_NAME);
    }
}
