//! Lists and watches the objects of one kind of the upstream, for whoever keeps them.
//!
//! An [`Informer`] yields a list and then the changes since, as [`Event`]s of kube-rs, and it never ends: after a failure it
//! pauses and goes on. A watch that the upstream ends is continued at its last revision. Objects are listed again when that revision is
//! gone (410), when the open watch is silent for longer than it may be, when a list stops halfway, and as often as its settings ask for.
//!
//! [`WatchHealth`] says whether the objects are up to date, and logs each failure once.
//!
//! Not here: the objects. Each user keeps what it needs of them, and what it knows stays valid until the next list is complete. A
//! list is passed on object by object, because that of all pods would be a long turn of the control thread.

mod health;
mod pauses;
mod transport;
mod watch_error;
mod watched_object;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    runtime::watcher::{self, watcher},
};
use tokio::time::Sleep;

use crate::client::ApiClient;
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

pub use health::WatchHealth;
pub use kube::{
    core::{ApiResource, GroupVersionKind},
    runtime::watcher::Event,
};
pub use pauses::RetryPauses;
pub use transport::{KubeTransport, ObservedWatch, WatchObserver, WatchedBody};
pub use watch_error::WatchError;
pub use watched_object::{KeptFields, WatchedObject, Whole};

/// How often an informer looks whether something that should have arrived has not.
const CHECK: Duration = Duration::from_secs(1);
/// How long after its end a watch counts as dead on which nothing has arrived: an overloaded server ends it late.
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// The same where a bookmark is expected in each watch: the server sends it shortly before that end.
const BOOKMARK_DEAD_AFTER: Duration = Duration::from_secs(1);
/// For how many checks in a row nothing of a list may arrive, which comes page by page. More than a response head may take
/// (`HEAD_TIMEOUT`), so that a slow page has time for its body, too.
const LIST_CHECKS: u32 = 90;
/// For how many times the time between lists one may take.
const RELISTS: u32 = 3;

/// When an informer asks for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerSettings {
    /// After how many seconds the upstream should end a watch, which is then opened again where it ended, without a list. A
    /// kube-apiserver sends a bookmark once a minute, and two seconds before that end.
    pub watch_seconds: u32,
    /// After how long without an event, a bookmark or a list the objects are listed again, although watches are opened and end in time.
    /// `None`: never.
    pub progress_within: Option<Duration>,
    /// How often objects are listed again although they are watched: an open watch does not prove that nothing is missing. `None`: never.
    pub relisted_every: Option<Duration>,
    /// The pauses after failures.
    pub pauses: RetryPauses,
}

impl Default for InformerSettings {
    /// Watches of two minutes, which is right for objects of which there may be many.
    fn default() -> Self {
        Self {
            watch_seconds: 120,
            progress_within: None,
            relisted_every: None,
            pauses: RetryPauses::default(),
        }
    }
}

/// What an open watch is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchVerdict {
    Fine,
    /// Nothing has arrived for so long, not even its end.
    Dead(Duration),
    /// It is opened and ends, without an event or a bookmark: events may be missing.
    NoProgress,
}

impl InformerSettings {
    /// After how long without anything an open watch is dead.
    fn dead_after(&self) -> Duration {
        let late = self
            .progress_within
            .map_or(DEAD_AFTER, |_| BOOKMARK_DEAD_AFTER);
        Duration::from_secs(self.watch_seconds.into()) + late
    }

    /// Whether the objects are to be listed again, where nothing was heard on the open watch for `silence`, and for
    /// `without_progress` there was no event, bookmark or list.
    fn verdict(&self, silence: Duration, without_progress: Duration) -> WatchVerdict {
        let dead_after = self.dead_after();
        if silence > dead_after {
            return WatchVerdict::Dead(dead_after);
        }
        match self.progress_within {
            Some(within) if without_progress > within => WatchVerdict::NoProgress,
            _ => WatchVerdict::Fine,
        }
    }
}

/// Follows the objects of one kind. Dropping it closes its watch.
pub struct Informer<K: KeptFields> {
    /// One for all lists and watches, since it keeps watches from being opened too often.
    client: Client,
    clock: Clock,
    resource: ApiResource,
    settings: InformerSettings,
    health: Arc<WatchHealth>,
    events: BoxStream<'static, watcher::Result<Event<WatchedObject<K>>>>,
    /// When the last list was asked for.
    listed: Time,
    /// Whether it has been received.
    is_complete: bool,
    /// For how many checks in a row nothing of it has arrived.
    quiet_checks: u32,
    /// When the list was asked for whose end was returned last. It counts once the caller has taken it.
    taken: Option<Time>,
    /// The pauses to come, which begin anew after a list or an event.
    pauses: RetryPauses,
    /// What is left of the pause after a failure.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<K: KeptFields> Informer<K> {
    /// Follows `resource` through `streams`, a client with a connection for each request. Nothing is sent before the first
    /// [`next`](Self::next). Call it inside the runtime that is to run it.
    pub fn new(
        streams: ApiClient,
        clock: Clock,
        resource: ApiResource,
        settings: InformerSettings,
        health: Arc<WatchHealth>,
    ) -> Self {
        let observer = Arc::clone(&health);
        let client = KubeTransport::new(streams, clock.clone(), observer).into_client();
        Self::over(client, clock, resource, settings, health)
    }

    /// The same with a client that others had before, so that the same watch is not opened too often. `health` has to be its
    /// observer.
    pub fn over(
        client: Client,
        clock: Clock,
        resource: ApiResource,
        settings: InformerSettings,
        health: Arc<WatchHealth>,
    ) -> Self {
        let listed = clock.now();
        let pauses = settings.pauses.clone();
        let mut informer = Self {
            client,
            clock,
            resource,
            settings,
            health,
            events: stream::pending().boxed(),
            listed,
            is_complete: false,
            quiet_checks: 0,
            taken: None,
            pauses,
            pause: None,
        };
        informer.list_again();
        informer
    }

    /// The next event, or why there is none at present; the informer goes on after a pause. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`WatchError`], which has been reported to the [`WatchHealth`].
    pub async fn next(&mut self) -> Result<Event<WatchedObject<K>>, WatchError> {
        // Only now has the caller all objects of that list.
        if let Some(asked) = self.taken.take() {
            self.health.listed(asked);
        }
        loop {
            if let Some(pause) = &mut self.pause {
                pause.as_mut().await;
                self.pause = None;
            }
            if self.is_due() {
                self.list_again();
            }
            let Ok(event) = tokio::time::timeout(CHECK, self.events.next()).await else {
                match self.check() {
                    WatchVerdict::Fine => {}
                    WatchVerdict::NoProgress => self.list_again(),
                    WatchVerdict::Dead(silence) => {
                        self.list_again();
                        return Err(self.failed(WatchError::Silent(silence)));
                    }
                }
                continue;
            };
            self.quiet_checks = 0;
            match event.map(|event| event.map_err(WatchError::from)) {
                Some(Ok(event)) => {
                    self.note(&event);
                    return Ok(event);
                }
                // The watcher lists by itself only if the watch was open. One that was refused it asks for again, at the same revision.
                Some(Err(WatchError::Refused { code: 410, .. })) => {
                    self.list_again();
                    self.begin_pause();
                }
                Some(Err(error)) => return Err(self.failed(error)),
                None => {
                    self.list_again();
                    return Err(self.failed(WatchError::Broken("the watch ended".to_owned())));
                }
            }
        }
    }

    /// All that [`next`](Self::next) returns, as a stream that never ends.
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<Event<WatchedObject<K>>, WatchError>> + Send {
        stream::unfold(self, |mut informer| async {
            Some((informer.next().await, informer))
        })
    }

    fn failed(&mut self, error: WatchError) -> WatchError {
        let kind = &self.resource.kind;
        self.health
            .failed(kind, error.to_string(), error.is_final());
        self.begin_pause();
        error
    }

    /// Has the next attempt wait. Not left to the stream of events, which takes the beginning of a list for a success, also of one that
    /// fails again.
    fn begin_pause(&mut self) {
        let pause = self.pauses.next().map(tokio::time::sleep);
        self.pause = pause.map(Box::pin);
    }

    /// Gives up the watch, and begins with a list.
    fn list_again(&mut self) {
        let api = Api::<WatchedObject<K>>::all_with(self.client.clone(), &self.resource);
        let config = watcher::Config::default().timeout(self.settings.watch_seconds);
        self.events = watcher(api, config).boxed();
        (self.listed, self.is_complete) = (self.clock.now(), false);
        self.quiet_checks = 0;
    }

    /// Whether the objects are to be listed again. A list is not given up while it could still count.
    fn is_due(&self) -> bool {
        let age = self.clock.now().since(self.listed);
        let every = self.settings.relisted_every;
        every.is_some_and(|every| {
            let after = if self.is_complete {
                every
            } else {
                RELISTS * every
            };
            age > after
        })
    }

    /// What the list or the watch is worth, on which nothing has arrived for one more check.
    fn check(&mut self) -> WatchVerdict {
        if !self.is_complete {
            self.quiet_checks += 1;
            return if self.quiet_checks < LIST_CHECKS {
                WatchVerdict::Fine
            } else {
                WatchVerdict::Dead(CHECK * LIST_CHECKS)
            };
        }
        // One that is not open is tried again anyway.
        if !self.health.is_open() {
            return WatchVerdict::Fine;
        }
        let (silence, without_progress) = (self.health.silence(), self.health.without_progress());
        self.settings.verdict(silence, without_progress)
    }

    fn note(&mut self, event: &Event<WatchedObject<K>>) {
        match event {
            // The list is asked for after this.
            Event::Init => (self.listed, self.is_complete) = (self.clock.now(), false),
            Event::InitApply(_) => {}
            Event::InitDone => {
                (self.is_complete, self.taken) = (true, Some(self.listed));
                self.pauses = self.settings.pauses.clone();
            }
            Event::Apply(_) | Event::Delete(_) => self.pauses = self.settings.pauses.clone(),
        }
    }
}

impl<K: KeptFields> Drop for Informer<K> {
    fn drop(&mut self) {
        self.health.given_up();
    }
}

impl<K: KeptFields> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("resource", &self.resource)
            .field("settings", &self.settings)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, uri::Authority};

    use super::*;
    use crate::{client::ConnectionReuse, endpoint::Endpoint};

    type ReceivedEvent = watcher::Result<Event<WatchedObject<Whole>>>;

    /// An informer that gets these events, and nothing more.
    fn informer(events: Vec<ReceivedEvent>) -> Informer<Whole> {
        let endpoint = Endpoint::new(Authority::from_static("localhost:1"), None);
        let none = Arc::new(HeaderMap::new);
        let streams = ApiClient::new(endpoint, none, ConnectionReuse::PerRequest);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        let clock = Clock::manual(Time::ZERO);
        let health = WatchHealth::new(clock.clone(), "pods", "for a test");
        let settings = InformerSettings::default();
        let mut informer = Informer::new(streams, clock, kind, settings, health);
        let events = stream::iter(events);
        informer.events = events.chain(stream::pending()).boxed();
        informer
    }

    fn refused() -> ReceivedEvent {
        let status = kube::core::Status::failure("not now", "ServiceUnavailable").with_code(503);
        let error = kube::Error::Api(status.boxed());
        Err(watcher::Error::InitialListFailed(error))
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_lists_fail_and_begin_anew_after_one() {
        let mut events = Vec::new();
        for _ in 0..3 {
            events.extend([Ok(Event::Init), refused()]);
        }
        events.extend([Ok(Event::Init), Ok(Event::InitDone)]);
        let mut informer = informer(events);
        let first = informer.pauses.longest_next();
        for doublings in 1..4 {
            assert!(matches!(informer.next().await, Ok(Event::Init)));
            assert!(informer.next().await.is_err());
            let grown = first * 2_u32.pow(doublings);
            assert_eq!(informer.pauses.longest_next(), grown);
        }
        for _ in 0..2 {
            informer.next().await.unwrap();
        }
        assert_eq!(informer.pauses.longest_next(), first);
    }

    /// What a list changes is counted by its taker, so until then nothing is confirmed by it.
    #[tokio::test(start_paused = true)]
    async fn a_list_counts_once_it_was_taken() {
        let mut informer = informer(vec![Ok(Event::Init), Ok(Event::InitDone)]);
        let clock = informer.clock.clone();
        clock.advance(Duration::from_secs(1));
        for _ in 0..2 {
            informer.next().await.unwrap();
        }
        assert_eq!(informer.health.listed_at(), Time::ZERO);
        let next = tokio::time::timeout(Duration::from_secs(2), informer.next());
        assert!(next.await.is_err());
        assert_eq!(informer.health.listed_at(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_stops_halfway_is_begun_again() {
        let object: WatchedObject<Whole> =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        let mut informer = informer(vec![Ok(Event::Init), Ok(Event::InitApply(object))]);
        assert!(matches!(informer.next().await, Ok(Event::Init)));
        assert!(matches!(informer.next().await, Ok(Event::InitApply(_))));
        let limit = CHECK * LIST_CHECKS;
        let failure = informer.next().await.unwrap_err();
        assert_eq!(failure, WatchError::Silent(limit));
        let why = Some(("nothing was received for 90 s".to_owned(), false));
        assert_eq!(informer.health.failure(), why);
        // The new one begins from the start.
        assert!(matches!(informer.next().await, Ok(Event::Init)));
    }

    /// The revision may also be gone before the watch is open.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_as_too_old_begins_with_a_list() {
        let status = kube::core::Status::failure("too old", "Expired").with_code(410);
        let refused = watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()));
        let mut informer = informer(vec![Ok(Event::Init), Ok(Event::InitDone), Err(refused)]);
        for _ in 0..2 {
            informer.next().await.unwrap();
        }
        let hour = Duration::from_secs(3600);
        let next = tokio::time::timeout(hour, informer.next()).await;
        assert!(matches!(next, Ok(Ok(Event::Init))), "{next:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_without_news_is_not_listed_again() {
        let mut informer = informer(vec![Ok(Event::Init), Ok(Event::InitDone)]);
        for _ in 0..2 {
            informer.next().await.unwrap();
        }
        let hour = Duration::from_secs(3600);
        let next = tokio::time::timeout(hour, informer.next());
        assert!(next.await.is_err(), "an event, or a failure");
    }

    #[test]
    fn a_bookmark_in_each_watch_keeps_objects_from_being_listed_again() {
        let short = InformerSettings {
            watch_seconds: 30,
            progress_within: Some(Duration::from_secs(62)),
            ..InformerSettings::default()
        };
        let verdict = |silence, without_progress| {
            let [silence, without_progress] = [silence, without_progress].map(Duration::from_secs);
            short.verdict(silence, without_progress)
        };
        assert_eq!(verdict(31, 31), WatchVerdict::Fine);
        let dead = WatchVerdict::Dead(Duration::from_secs(31));
        assert_eq!(verdict(32, 32), dead);
        assert_eq!(verdict(28, 62), WatchVerdict::Fine, "a bookmark is missing");
        assert_eq!(verdict(5, 63), WatchVerdict::NoProgress);
        let long = Duration::from_secs(100_000);
        let usual = InformerSettings::default().verdict(Duration::from_secs(121), long);
        assert_eq!(usual, WatchVerdict::Fine);
    }
}
