//! What clients of several stores asked for and were told, and whether one order of the changes explains it.
//!
//! etcd numbers all changes, so the order need not be searched: a watch shows it. Every value that a client writes is
//! used once, so a change shows whose it is.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{Precondition, StoreEvent};

/// What a client asked for.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// `None` deletes.
    Write(Precondition, Option<String>),
    Get,
    List,
}

/// What it was told.
#[derive(Clone, Debug)]
pub(super) enum Response {
    Written(u64),
    /// Nothing was written.
    Lost,
    /// The keys that were found with their revisions and values, and the revision of a list.
    Found(Vec<(String, u64, String)>, Option<u64>),
    Failed(String),
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) key: String,
    pub(super) request: Request,
    pub(super) response: Response,
    /// The newest revision that any client knew when the call began.
    known: u64,
    /// The phase of the test in which the call began: 0 is before the fault, and 1 its first second.
    pub(super) phase: usize,
    /// How long it took in milliseconds; shown, not evaluated.
    pub(super) millis: u128,
}

/// All calls of all clients so far.
#[derive(Default)]
pub(super) struct Recorder {
    calls: Mutex<Vec<Call>>,
    known: AtomicU64,
    pub(super) phase: AtomicU64,
}

/// What has to be noted before a call.
pub(super) struct Begun {
    known: u64,
    phase: usize,
}

impl Recorder {
    pub(super) fn begin(&self) -> Begun {
        Begun {
            known: self.known.load(Ordering::SeqCst),
            phase: usize::try_from(self.phase.load(Ordering::SeqCst)).unwrap(),
        }
    }

    pub(super) fn end(
        &self,
        begun: &Begun,
        key: &str,
        request: Request,
        response: Response,
        millis: u128,
    ) {
        let known = match &response {
            Response::Written(revision) => *revision,
            Response::Found(found, listed) => {
                let newest = found.iter().map(|(_, revision, _)| *revision).max();
                newest.max(*listed).unwrap_or(0)
            }
            Response::Lost | Response::Failed(_) => 0,
        };
        self.known.fetch_max(known, Ordering::SeqCst);
        // What the fault interrupted belongs to its first second.
        let phase = match self.phase.load(Ordering::SeqCst) {
            0 => 0,
            _ => begun.phase.max(1),
        };
        let call = Call {
            key: key.to_owned(),
            request,
            response,
            known: begun.known,
            phase,
            millis,
        };
        self.locked().push(call);
    }

    /// How many calls of a phase have ended.
    pub(super) fn ended(&self, phase: usize) -> usize {
        let calls = self.locked();
        calls.iter().filter(|call| call.phase == phase).count()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.locked().clone()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change as a watch has shown it: key, revision, and value (`None` for a deletion).
pub(super) type Change = (String, u64, Option<String>);

pub(super) fn change(event: &StoreEvent) -> Change {
    let value = event.after.as_ref().map(|after| text(&after.bytes()));
    (event.key.to_string(), event.revision, value)
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks calls against the changes of all keys from the beginning, and panics where they disagree.
///
/// - Every acknowledged write is a change, at a revision that nobody knew when the call began, and the state before it is
///   the one that the write expected.
/// - Every value is written once, and none that its client was told is not written.
/// - Every read returns a state that existed at a revision not older than any that was known when the call began.
pub(super) fn check(changes: &[Change], calls: &[Call]) {
    let by_key = by_key(changes);
    let by_revision: HashMap<u64, &Change> = changes.iter().map(|c| (c.1, c)).collect();
    check_values(changes, calls);
    for call in calls {
        let history = by_key.get(&*call.key).map_or(&[][..], Vec::as_slice);
        match (&call.request, &call.response) {
            (Request::Write(expected, value), Response::Written(revision)) => {
                let found = by_revision.get(revision);
                let found = found.unwrap_or_else(|| panic!("no change is that of {call:?}"));
                assert_eq!((&found.0, &found.2), (&call.key, value), "{call:?}");
                assert!(*revision > call.known, "{call:?} is older than its call");
                let before = history.iter().take_while(|(at, _)| at < revision).last();
                let before = before.and_then(|(at, value)| value.map(|_| *at));
                let holds = match expected {
                    Precondition::Absent => before.is_none(),
                    Precondition::At(at) => before == Some(*at),
                };
                assert!(holds, "{call:?} replaced {before:?}");
            }
            (Request::Get, Response::Found(found, _)) => {
                let found = found.first().map(|(_, at, value)| (*at, &**value));
                assert!(
                    existed(history, found, call.known),
                    "{call:?} in {history:?}"
                );
            }
            (Request::List, Response::Found(found, Some(listed))) => {
                assert!(*listed >= call.known, "{call:?} is old");
                let mut expected = Vec::new();
                for (key, history) in &by_key {
                    let last = history.iter().take_while(|(at, _)| at <= listed).last();
                    if let Some((at, Some(value))) = last {
                        expected.push(((*key).to_owned(), *at, (*value).to_owned()));
                    }
                }
                assert_eq!(*found, expected, "the list at {listed}");
            }
            _ => {}
        }
    }
}

/// The changes of each key: revision, and value.
fn by_key(changes: &[Change]) -> BTreeMap<&str, Vec<(u64, Option<&str>)>> {
    let mut by_key: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let mut last = 0;
    for (key, revision, value) in changes {
        assert!(*revision > last, "revision {revision} after {last}");
        last = *revision;
        let of_key = by_key.entry(key).or_default();
        of_key.push((*revision, value.as_deref()));
    }
    by_key
}

fn check_values(changes: &[Change], calls: &[Call]) {
    let mut written: HashMap<&str, u64> = HashMap::new();
    for (key, revision, value) in changes {
        let Some(value) = value else { continue };
        let before = written.insert(value, *revision);
        assert_eq!(
            before, None,
            "{value:?} was written to {key} again at {revision}"
        );
    }
    for call in calls {
        if let (Request::Write(_, Some(value)), Response::Lost) = (&call.request, &call.response) {
            let found = written.get(&**value);
            assert_eq!(found, None, "{call:?} was written");
        }
    }
}

/// Whether a key was as `found` at some revision that is not older than `known`.
fn existed(history: &[(u64, Option<&str>)], found: Option<(u64, &str)>, known: u64) -> bool {
    let mut until = history.iter().skip(1).map(|(at, _)| *at);
    let absent_at_first = history.first().is_none_or(|(at, _)| *at > known);
    let states = history.iter().map(|(at, value)| {
        let state = value.map(|value| (*at, value));
        (state, until.next().unwrap_or(u64::MAX))
    });
    let mut states = states.collect::<Vec<_>>().into_iter();
    (found.is_none() && absent_at_first)
        || states.any(|(state, until)| state == found && until > known)
}

#[test]
fn a_history_with_a_lost_write_an_old_read_or_a_second_winner_is_refused() {
    let changes: [Change; 3] = [
        ("/a".to_owned(), 2, Some("x".to_owned())),
        ("/a".to_owned(), 3, None),
        ("/a".to_owned(), 5, Some("y".to_owned())),
    ];
    let call = |request, response, known| Call {
        key: "/a".to_owned(),
        request,
        response,
        known,
        phase: 0,
        millis: 0,
    };
    let put = |expected, value: &str| Request::Write(expected, Some(value.to_owned()));
    let found =
        |at, value: &str| Response::Found(vec![("/a".to_owned(), at, value.to_owned())], None);
    let refused = |call: Call| std::panic::catch_unwind(|| check(&changes, &[call])).is_err();

    let good = [
        call(put(Precondition::Absent, "x"), Response::Written(2), 1),
        call(
            Request::Write(Precondition::At(2), None),
            Response::Written(3),
            2,
        ),
        call(Request::Get, found(2, "x"), 2),
        call(Request::Get, Response::Found(vec![], None), 4),
        call(put(Precondition::At(2), "z"), Response::Lost, 3),
    ];
    check(&changes, &good);
    assert!(refused(call(
        put(Precondition::Absent, "z"),
        Response::Written(4),
        1
    )));
    assert!(refused(call(
        put(Precondition::At(2), "y"),
        Response::Written(5),
        1
    )));
    assert!(refused(call(
        put(Precondition::Absent, "y"),
        Response::Written(5),
        5
    )));
    assert!(refused(call(
        put(Precondition::Absent, "y"),
        Response::Lost,
        1
    )));
    assert!(refused(call(Request::Get, found(2, "x"), 3)));
    assert!(refused(call(
        Request::Get,
        Response::Found(vec![], None),
        5
    )));
}
