//! Whether the admission policies in force are those of their source, for health checks and metrics.

use std::{fmt, sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// A source that was up to date a shorter time ago counts as up to date.
const GRACE: Duration = Duration::from_secs(2);

/// Reads how long ago a source was up to date; zero while it is.
type ReadAge = Box<dyn Fn() -> Duration + Send + Sync>;

/// Whether the policies in force are those of their source.
pub struct PublishingStatus {
    clock: Clock,
    source_age: ReadAge,
    /// How long ago the source was last heard of.
    source_silence: ReadAge,
    state: Mutex<PublishingState>,
}

/// What a valid set is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValidSetId {
    /// The number of its policies with a binding.
    pub(crate) policies: usize,
    /// `sha256:` and the digest of its documents, if they are files.
    pub(crate) digest: Option<String>,
    /// When it was kept, in seconds since 1970, if it is the last good one of files that have had errors since the start.
    pub(crate) kept_at: Option<u64>,
}

#[derive(Default)]
struct PublishingState {
    /// The set in force; `None` until one is published.
    in_force: Option<ValidSetId>,
    /// The set that waits for what it needs to know of the cluster.
    waiting: Option<ValidSetId>,
    /// Since when the policies in force are not those of the source.
    behind_since: Option<Time>,
    /// Why the last set is invalid; `None` if it is valid.
    refused: Option<String>,
}

impl fmt::Debug for PublishingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishingStatus")
            .field("policies", &self.policies())
            .finish_non_exhaustive()
    }
}

impl PublishingStatus {
    /// The status of a source that was up to date `source_age` ago.
    pub fn new(
        clock: Clock,
        source_age: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_silence(clock, source_age, || Duration::ZERO)
    }

    /// The same of a source that was last heard of `source_silence` ago. It may be up to date although it says nothing.
    pub fn with_silence(
        clock: Clock,
        source_age: impl Fn() -> Duration + Send + Sync + 'static,
        source_silence: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        let began = clock.now();
        Arc::new(Self {
            clock,
            source_age: Box::new(source_age),
            source_silence: Box::new(source_silence),
            state: Mutex::new(PublishingState {
                behind_since: Some(began),
                ..PublishingState::default()
            }),
        })
    }

    /// The time now.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The number of policies in force, with a binding.
    pub fn policies(&self) -> usize {
        let state = lock(&self.state);
        state.in_force.as_ref().map_or(0, |set| set.policies)
    }

    /// The digest of the set in force, or of the one that will be as soon as what it needs is known; `None` if there is
    /// neither, or if its documents are no files.
    pub(crate) fn digest(&self) -> Option<String> {
        let state = lock(&self.state);
        let set = state.in_force.as_ref().or(state.waiting.as_ref());
        set?.digest.clone()
    }

    /// For how long the policies in force have not been those of their source; zero while they are.
    pub fn age(&self) -> Duration {
        let behind = lock(&self.state).behind_since;
        let behind = behind.map(|since| self.clock.now().since(since));
        behind.unwrap_or_default().max((self.source_age)())
    }

    /// For how long it has not been certain that the policies in force are those of their source; `None` while a newer set is known that
    /// is not in force.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        let silence = (self.source_silence)();
        let is_current = lock(&self.state).behind_since.is_none();
        is_current.then(|| silence.max((self.source_age)()))
    }

    /// Why the policies in force are not those of their source, and which are in force; `None` if they are those of their source,
    /// or were a moment ago.
    pub fn problem(&self) -> Option<String> {
        let age = self.age();
        let state = lock(&self.state);
        if state.refused.is_none() && age < GRACE {
            return None;
        }
        let seconds = age.as_secs();
        let why = match &state.refused {
            Some(why) => format!("invalid for {seconds} s: {why}"),
            None => format!("not up to date for {seconds} s"),
        };
        let now = match (&state.in_force, &state.waiting) {
            (Some(set), _) => format!(
                "the last good policies stay in force{}",
                self.in_parentheses(set)
            ),
            (None, Some(set)) if state.refused.is_some() => format!(
                "the last good policies{} come into force when the upstream's namespaces are known; until then, requests that may be subject to them wait",
                self.in_parentheses(set)
            ),
            (None, _) => {
                "no policies are in force yet, and requests that may be subject to them wait"
                    .to_owned()
            }
        };
        Some(format!("{why}; {now}"))
    }

    /// Digest and age of a set, as far as there are any.
    fn in_parentheses(&self, set: &ValidSetId) -> String {
        let digest = set.digest.as_ref().map(|digest| format!("digest {digest}"));
        let kept = set.kept_at.map(|kept_at| {
            let age = self.clock.unix_seconds().saturating_sub(kept_at);
            format!("kept {age} s ago")
        });
        let parts: Vec<String> = digest.into_iter().chain(kept).collect();
        if parts.is_empty() {
            return String::new();
        }
        format!(" ({})", parts.join(", "))
    }

    /// A set has arrived. Until it is published, the age is at least what it was, although the source has nothing more to tell.
    pub(crate) fn received(&self) {
        let changed = self.clock.now().minus(self.age());
        lock(&self.state).behind_since.get_or_insert(changed);
    }

    /// The set that arrived last is invalid.
    pub(crate) fn rejected(&self, why: String) {
        lock(&self.state).refused = Some(why);
    }

    /// A set is valid, and waits for what it needs to know of the cluster.
    pub(crate) fn waits(&self, set: ValidSetId) {
        let mut state = lock(&self.state);
        // What was wrong before is mended, unless this is what stands in for it.
        if set.kept_at.is_none() {
            state.refused = None;
        }
        state.waiting = Some(set);
    }

    /// Policies came into force that are not the newest of their source, because those are invalid.
    pub(crate) fn published_last_good(&self, set: ValidSetId) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        (state.in_force, state.waiting) = (Some(set), None);
        state.behind_since.get_or_insert(now);
        let unread = || "their files have errors; the log says which".to_owned();
        state.refused.get_or_insert_with(unread);
    }

    pub(crate) fn published(&self, set: ValidSetId) {
        *lock(&self.state) = PublishingState {
            in_force: Some(set),
            ..PublishingState::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(policies: usize) -> ValidSetId {
        ValidSetId {
            policies,
            digest: Some(format!("sha256:{policies}")),
            kept_at: None,
        }
    }

    const WHY: &str = "a.yaml, document 1: ValidatingAdmissionPolicy \"p\": spec.validations: Required value; correct it";

    #[test]
    fn the_status_says_since_when_policies_are_behind_and_why() {
        let clock = Clock::manual(Time::ZERO);
        let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
        clock.advance(Duration::from_secs(3));
        let problem = "not up to date for 3 s; no policies are in force yet, and requests that may be subject to them wait";
        assert_eq!(status.problem().as_deref(), Some(problem));
        status.published(set(2));
        assert_eq!(
            (status.age(), status.problem(), status.policies()),
            (Duration::ZERO, None, 2)
        );
        status.received();
        status.rejected(WHY.to_owned());
        clock.advance(Duration::from_secs(4));
        let problem = format!(
            "invalid for 4 s: {WHY}; the last good policies stay in force (digest sha256:2)"
        );
        assert_eq!(status.problem(), Some(problem));
        assert_eq!((status.policies(), status.digest()), (2, set(2).digest));
        status.published(set(1));
        assert_eq!(status.problem(), None);
    }

    #[test]
    fn last_good_policies_in_force_do_not_hide_that_the_source_is_invalid() {
        let clock = Clock::manual(Time::ZERO);
        let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
        let last_good = ValidSetId {
            kept_at: Some(clock.unix_seconds() - 60),
            ..set(2)
        };
        clock.advance(Duration::from_secs(3));
        status.published_last_good(last_good);
        let problem = "invalid for 3 s: their files have errors; the log says which; the last good policies stay in force (digest sha256:2, kept 63 s ago)";
        assert_eq!(status.problem().as_deref(), Some(problem));
        assert_eq!((status.policies(), status.staleness()), (2, None));
        status.received();
        status.rejected(WHY.to_owned());
        let problem = status.problem().unwrap();
        assert!(
            problem.starts_with(&format!("invalid for 3 s: {WHY};")),
            "{problem}"
        );
        status.published(set(1));
        assert_eq!(status.problem(), None);
    }

    #[test]
    fn policies_that_wait_for_the_cluster_are_named() {
        let clock = Clock::manual(Time::ZERO);
        let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
        status.received();
        status.waits(set(1));
        status.rejected(WHY.to_owned());
        let problem = format!(
            "invalid for 0 s: {WHY}; the last good policies (digest sha256:1) come into force when the upstream's namespaces are known; until then, requests that may be subject to them wait"
        );
        assert_eq!(status.problem(), Some(problem));
        // A mended set waits, too.
        status.waits(set(3));
        clock.advance(Duration::from_secs(3));
        let problem = status.problem().unwrap();
        assert!(
            problem.starts_with("not up to date for 3 s; no policies"),
            "{problem}"
        );
    }

    #[test]
    fn until_a_set_is_published_its_age_counts_from_the_change() {
        let clock = Clock::manual(Time::ZERO);
        let behind = Arc::new(Mutex::new(Duration::ZERO));
        let source = Arc::clone(&behind);
        let status = PublishingStatus::new(clock.clone(), move || *lock(&source));
        status.published(set(1));
        // The source could not be read for ten minutes. What it yields then is not published at once.
        clock.advance(Duration::from_secs(600));
        *lock(&behind) = Duration::from_secs(600);
        status.received();
        *lock(&behind) = Duration::ZERO;
        clock.advance(Duration::from_secs(2));
        assert_eq!(status.age(), Duration::from_secs(602));
        status.published(set(2));
        assert_eq!(status.age(), Duration::ZERO);
    }
}
