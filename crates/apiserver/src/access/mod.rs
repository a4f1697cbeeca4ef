//! What somebody may do, by the word of an API server: `SubjectAccessReview`.
//!
//! Where a server is behind the gateway, its rules hold for what the gateway answers in its place, too.
//! An answer is remembered for as long as API servers remember that of their webhooks, so a rule that
//! is taken back there holds here some minutes longer, as it does with any delegated authorizer. One
//! question is asked once, however many calls wait for the answer, and is asked to its end even if
//! they leave.
//!
//! `system:masters` may do everything, as on the server itself, without being asked about: the
//! administrator gets in even when the server does not answer.
//!
//! That nobody could be asked is neither leave nor refusal, and is not remembered.
//!
//! Not here: how a question travels ([`AskAccess`]), selectors of lists (they could only narrow what
//! is asked about), lists of rights.

mod remembered;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use self::remembered::Remembered;
use crate::attributes::Attributes;
use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};

/// How often one question is asked.
const TRIES: u32 = 3;
/// How much of a reason is kept, in characters.
const REASON: usize = 1_000;

/// Carries a `SubjectAccessReview` to whoever decides.
///
/// An implementation need not limit time nor repeat.
pub trait AskAccess: Send + Sync + 'static {
    /// Posts `review`, JSON; gives the body of the answer.
    fn ask(&self, review: Bytes) -> AskFuture<'_>;
}

/// The body of an answer, when it is there.
pub type AskFuture<'a> = Pin<Box<dyn Future<Output = Result<Bytes, NotAsked>> + Send + 'a>>;

/// Why no answer came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAsked {
    /// For people.
    pub reason: String,
    /// If another attempt may help, how long to wait before it, at least.
    pub again: Option<Duration>,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessEnd {
    /// They may.
    Allowed,
    /// They may not.
    Denied,
    /// There was no answer.
    Failed,
}

/// How questions are asked and answers kept.
#[derive(Clone, Debug)]
pub struct AccessSettings {
    /// How long a leave holds.
    pub allowed_ttl: Duration,
    /// How long a refusal holds.
    pub denied_ttl: Duration,
    /// How many answers of each kind are remembered; at least 1.
    pub max_entries: usize,
    /// How many questions are asked at once; at least 1.
    pub max_running: usize,
    /// How many may be asked or wait for it. Further ones fail at once.
    pub max_pending: usize,
    /// The limit of one question with all its attempts, waiting included.
    pub limit: Duration,
    /// The pause after the first failed attempt; the next is twice as long.
    pub first_pause: Duration,
    /// Hears how questions end.
    pub events: EventSink<AccessEnd>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            allowed_ttl: Duration::from_secs(300),
            denied_ttl: Duration::from_secs(30),
            max_entries: 8_192,
            max_running: 32,
            max_pending: 1_024,
            limit: Duration::from_secs(10),
            first_pause: Duration::from_millis(200),
            events: EventSink::default(),
        }
    }
}

/// Whether somebody may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether they may.
    pub allowed: bool,
    /// Why; empty if no reason was given.
    pub reason: Arc<str>,
}

impl Decision {
    /// One without a reason.
    pub fn plain(allowed: bool) -> Self {
        Self {
            allowed,
            reason: Arc::default(),
        }
    }
}

/// Why nothing was decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No answer.
    #[error("SubjectAccessReview: {0}")]
    NotAsked(Arc<str>),
    /// An answer that is none.
    #[error("SubjectAccessReview: the answer makes no sense")]
    Malformed,
    /// Out of time.
    #[error("SubjectAccessReview: it took too long")]
    TimedOut,
    /// Too many wait already.
    #[error("too many SubjectAccessReviews are pending")]
    Overloaded,
    /// The runtime ended, or the transport panicked.
    #[error("the SubjectAccessReview was abandoned")]
    Abandoned,
}

/// Asks, and remembers the answers. Cloning shares them.
#[derive(Clone)]
pub struct SubjectAccess(Arc<Shared>);

struct Shared {
    asks: Box<dyn AskAccess>,
    settings: AccessSettings,
    clock: Clock,
    known: Mutex<Known>,
    lane: Semaphore,
    /// How many failures are logged: clients can cause any number.
    failures: LogLimit,
}

/// Leaves and refusals are kept apart, so that many of one drive out none of the other.
struct Known {
    allowed: Remembered,
    denied: Remembered,
    /// Who waits for the answer to each question that is being asked.
    flights: HashMap<Key, Vec<oneshot::Sender<Landed>>>,
}

/// The hash of a question: a question can be long, and nobody can find two with the same hash.
type Key = [u8; 32];

type Landed = Result<Decision, AccessError>;

impl SubjectAccess {
    /// Questions that go through `asks`.
    pub fn new(asks: impl AskAccess, settings: AccessSettings, clock: Clock) -> Self {
        let remembered = || Remembered::new(settings.max_entries);
        Self(Arc::new(Shared {
            asks: Box::new(asks),
            clock,
            known: Mutex::new(Known {
                allowed: remembered(),
                denied: remembered(),
                flights: HashMap::new(),
            }),
            lane: Semaphore::new(settings.max_running.clamp(1, Semaphore::MAX_PERMITS)),
            failures: LogLimit::new(5),
            settings,
        }))
    }

    /// Whether `user` may do what is wanted. To be called inside of a runtime, on which the question
    /// is asked.
    ///
    /// # Errors
    ///
    /// [`AccessError`], when nobody could be asked.
    pub async fn decide(&self, user: &User, wanted: &Attributes) -> Landed {
        if user.in_group(User::MASTERS) {
            return Ok(Decision::plain(true));
        }
        let question = Bytes::from(question(user, wanted).to_string());
        let key: Key = Sha256::digest(&question).into();
        let (sender, receiver) = oneshot::channel();
        match self.0.queue(key, sender) {
            Queued::Settled(landed) => return landed,
            Queued::First => {
                // Without the lock: a runtime that has ended drops the flight, which takes it.
                let flight = Flight {
                    shared: Arc::clone(&self.0),
                    key,
                    landed: None,
                };
                tokio::spawn(flight.fly(question));
            }
            Queued::Behind => {}
        }
        receiver.await.unwrap_or(Err(AccessError::Abandoned))
    }
}

/// What becomes of somebody who wants an answer.
enum Queued {
    /// It is there.
    Settled(Landed),
    /// It will be told, and is to be asked for.
    First,
    /// It will be told.
    Behind,
}

impl Shared {
    /// Has `sender` told the answer to a question, unless there is one already.
    fn queue(&self, key: Key, sender: oneshot::Sender<Landed>) -> Queued {
        let now = self.clock.now();
        let mut known = lock(&self.known);
        let found = known.allowed.get(&key, now);
        if let Some(decision) = found.or_else(|| known.denied.get(&key, now)) {
            return Queued::Settled(Ok(decision));
        }
        if let Some(waiting) = known.flights.get_mut(&key) {
            waiting.push(sender);
            return Queued::Behind;
        }
        if known.flights.len() >= self.settings.max_pending {
            return Queued::Settled(Err(AccessError::Overloaded));
        }
        known.flights.insert(key, vec![sender]);
        Queued::First
    }

    async fn ask(&self, question: Bytes) -> Landed {
        let _turn = self
            .lane
            .acquire()
            .await
            .map_err(|_closed| AccessError::Abandoned)?;
        let mut pause = self.settings.first_pause;
        for attempt in 1.. {
            let failed = match self.asks.ask(question.clone()).await {
                Ok(body) => return answer(&body),
                Err(failed) => failed,
            };
            let Some(at_least) = failed.again.filter(|_| attempt < TRIES) else {
                return Err(AccessError::NotAsked(failed.reason.into()));
            };
            sleep(pause.max(at_least)).await;
            pause *= 2;
        }
        Err(AccessError::TimedOut)
    }
}

/// One question under way. However it ends, those who wait are told.
struct Flight {
    shared: Arc<Shared>,
    key: Key,
    /// How it ended, once it has.
    landed: Option<Landed>,
}

impl Flight {
    async fn fly(mut self, question: Bytes) {
        let shared = Arc::clone(&self.shared);
        let landed = timeout(shared.settings.limit, shared.ask(question))
            .await
            .unwrap_or(Err(AccessError::TimedOut));
        if let Err(error) = &landed {
            let now = shared.clock.now();
            if let Some(left_out) = shared.failures.admit(now) {
                tracing::warn!(%error, left_out, "cannot check a user's authorization");
            }
        }
        self.landed = Some(landed);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let landed = self.landed.take().unwrap_or(Err(AccessError::Abandoned));
        let settings = &self.shared.settings;
        settings.events.send(match &landed {
            Ok(decision) if decision.allowed => AccessEnd::Allowed,
            Ok(_) => AccessEnd::Denied,
            Err(_) => AccessEnd::Failed,
        });
        let now = self.shared.clock.now();
        let mut known = lock(&self.shared.known);
        match &landed {
            Ok(decision) if decision.allowed => {
                let expires = now.plus(settings.allowed_ttl);
                known.allowed.put(self.key, decision.clone(), now, expires);
            }
            Ok(decision) => {
                let expires = now.plus(settings.denied_ttl);
                known.denied.put(self.key, decision.clone(), now, expires);
            }
            Err(_) => {}
        }
        let waiting = known.flights.remove(&self.key);
        drop(known);
        for sender in waiting.into_iter().flatten() {
            let _ = sender.send(landed.clone()); // fails for those who have left
        }
    }
}

/// The review that asks whether `user` may do what is wanted.
fn question(user: &User, wanted: &Attributes) -> Value {
    let mut spec = Map::new();
    spec.insert("user".into(), json!(user.name));
    if !user.uid.is_empty() {
        spec.insert("uid".into(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if wanted.is_resource {
        let attributes: BTreeMap<&str, &str> = [
            ("verb", wanted.verb.as_str()),
            ("group", &wanted.group),
            ("version", &wanted.version),
            ("resource", &wanted.resource),
            ("subresource", &wanted.subresource),
            ("namespace", &wanted.namespace),
            ("name", &wanted.name),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
        spec.insert("resourceAttributes".into(), json!(attributes));
    } else {
        let attributes = json!({"verb": wanted.verb, "path": wanted.path});
        spec.insert("nonResourceAttributes".into(), attributes);
    }
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    })
}

/// The decision in the body of an answer. A refusal goes before a leave.
fn answer(body: &[u8]) -> Landed {
    let review: Value = serde_json::from_slice(body).map_err(|_| AccessError::Malformed)?;
    let status = &review["status"];
    let allowed = status["allowed"].as_bool().ok_or(AccessError::Malformed)?;
    let denied = status["denied"].as_bool().unwrap_or_default();
    let reason = status["reason"].as_str().unwrap_or_default();
    Ok(Decision {
        allowed: allowed && !denied,
        reason: reason.chars().take(REASON).collect::<String>().into(),
    })
}

impl fmt::Debug for SubjectAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectAccess")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
