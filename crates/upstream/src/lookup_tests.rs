//! Random calls against a model: one flight per key, every waiter gets its result, nothing outlives its time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tokio::{runtime::Builder, sync::mpsc};

use super::*;

/// The keys that are looked up.
const KEYS: u32 = 4;
const POSITIVE_TTL: u64 = 10;
const NEGATIVE_TTL: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    is_positive: bool,
    number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    Source,
    Lookup(LookupFailure),
}

impl From<LookupFailure> for Failed {
    fn from(failure: LookupFailure) -> Self {
        Self::Lookup(failure)
    }
}

type Outcome = Result<Found, Failed>;

/// A lookup that the test answers.
struct Source(mpsc::UnboundedSender<(u32, oneshot::Sender<Outcome>)>);

impl Lookup for Source {
    const HAS_RENEWAL_LANE: bool = true;
    const HAS_STRANGERS: bool = true;

    type Key = u32;
    type Request = ();
    type Value = Found;
    type Error = Failed;

    async fn fetch(&self, key: &u32, (): &()) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send((*key, answer));
        answered.await.unwrap_or(Err(Failed::Source))
    }

    fn retention(&self, (): &(), found: &Found) -> Retention {
        let ttl = Duration::from_secs(if found.is_positive {
            POSITIVE_TTL
        } else {
            NEGATIVE_TTL
        });
        Retention {
            is_positive: found.is_positive,
            life: EntryLife {
                ttl,
                remembered: ttl * 3,
                bytes: 1,
            },
        }
    }

    fn log_failure(&self, _: &Failed, _: u64) {}
}

fn payer() -> LookupPayer {
    LookupPayer::of("somebody")
}

fn settings() -> LookupSettings {
    LookupSettings {
        max_entries: 100,
        max_bytes: 100,
        max_running: 100,
        max_pending: 100,
        limit: Duration::from_secs(3600),
        events: EventSink::default(),
    }
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A key is requested.
    Get(u32),
    /// One of the waiters is dropped.
    Leave(prop::sample::Index),
    /// The lookup of a key ends.
    Answer(u32, Result<bool, ()>),
    /// Seconds pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..KEYS).prop_map(Step::Get),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
        3 => (0..KEYS, prop_oneof![Just(Ok(true)), Just(Ok(false)), Just(Err(()))])
            .prop_map(|(key, end)| Step::Answer(key, end)),
        2 => (0..6u64).prop_map(Step::Pass),
    ]
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// A cache, and what it should know.
struct Model {
    cache: LookupCache<Source>,
    clock: Clock,
    /// The lookups that the cache starts.
    requests: mpsc::UnboundedReceiver<(u32, oneshot::Sender<Outcome>)>,
    /// What is known, until when.
    known: BTreeMap<u32, (Found, Time)>,
    /// The lookups in flight.
    flights: BTreeMap<u32, oneshot::Sender<Outcome>>,
    /// Those who wait for them.
    waiting: Vec<(u32, PendingLookup<Found, Failed>)>,
}

impl Model {
    fn new() -> Self {
        let (source, requests) = mpsc::unbounded_channel();
        let clock = Clock::manual(Time::ZERO);
        let cache = LookupCache::new(Source(source), settings(), clock.clone(), Handle::current());
        Self {
            cache,
            clock,
            requests,
            known: BTreeMap::new(),
            flights: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    async fn get(&mut self, key: u32) {
        let now = self.clock.now();
        let valid = self.known.get(&key).filter(|(_, until)| now < *until);
        let valid = valid.map(|(found, _)| *found);
        let is_in_flight = self.flights.contains_key(&key);
        let pending = self.cache.get(key, payer, || ());
        settle().await;
        if is_in_flight {
            assert!(self.requests.try_recv().is_err(), "one lookup per key");
            self.waiting.push((key, pending));
        } else if let Some(found) = valid {
            assert_eq!(self.cache.cached(&key, now), Some(found));
            assert_eq!(pending.await, Ok(found));
            assert!(
                self.requests.try_recv().is_err(),
                "a cached key is not looked up"
            );
        } else {
            assert_eq!(self.cache.cached(&key, now), None);
            let (sent, answer) = self.requests.try_recv().unwrap();
            assert_eq!(sent, key);
            self.flights.insert(key, answer);
            self.waiting.push((key, pending));
        }
    }

    async fn end(&mut self, key: u32, outcome: Outcome) {
        let Some(answer) = self.flights.remove(&key) else {
            return;
        };
        answer.send(outcome).unwrap();
        settle().await;
        if let Ok(found) = outcome {
            let ttl = if found.is_positive {
                POSITIVE_TTL
            } else {
                NEGATIVE_TTL
            };
            let until = self.clock.now().plus(Duration::from_secs(ttl));
            self.known.insert(key, (found, until));
        }
        for (_, pending) in self.waiting.extract_if(.., |(of, _)| *of == key) {
            assert_eq!(pending.await, outcome);
        }
    }
}

async fn play(steps: Vec<Step>) {
    let mut model = Model::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Get(key) => model.get(key).await,
            Step::Leave(_) if model.waiting.is_empty() => {}
            Step::Leave(which) => {
                let index = which.index(model.waiting.len());
                drop(model.waiting.remove(index));
            }
            Step::Answer(key, end) => {
                let outcome = end.map(|is_positive| Found {
                    is_positive,
                    number,
                });
                model.end(key, outcome.map_err(|()| Failed::Source)).await;
            }
            Step::Pass(seconds) => model.clock.advance(Duration::from_secs(seconds)),
        }
    }
    // Nobody waits any more, and the lookups still end and are cached.
    model.waiting.clear();
    for (_, answer) in std::mem::take(&mut model.flights) {
        answer.send(Err(Failed::Source)).unwrap();
    }
    settle().await;
    assert!(model.cache.is_idle());
}

proptest! {
    #[test]
    fn one_lookup_runs_per_key_and_all_waiting_callers_get_its_result(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(play(steps));
    }
}

#[tokio::test]
async fn pending_lookups_are_bounded_and_a_key_in_flight_counts_once() {
    let (source, mut requests) = mpsc::unbounded_channel();
    let settings = LookupSettings {
        max_pending: 2,
        max_running: 1,
        ..settings()
    };
    let clock = Clock::manual(Time::ZERO);
    let cache = LookupCache::new(Source(source), settings, clock, Handle::current());
    let (first, second) = (cache.get(1, payer, || ()), cache.get(2, payer, || ()));
    let overloaded = Err(Failed::Lookup(LookupFailure::Overloaded));
    assert_eq!(cache.get(3, payer, || ()).await, overloaded);
    let also_first = cache.get(1, payer, || ());
    let (key, answer) = requests.recv().await.unwrap();
    settle().await;
    assert_eq!(key, 1);
    assert!(requests.try_recv().is_err(), "one runs at a time");
    let found = Found {
        is_positive: true,
        number: 0,
    };
    answer.send(Ok(found)).unwrap();
    assert_eq!((first.await, also_first.await), (Ok(found), Ok(found)));
    requests.recv().await.unwrap().1.send(Ok(found)).unwrap();
    assert_eq!(second.await, Ok(found));
    assert_eq!(cache.len(), (2, 0));
}
