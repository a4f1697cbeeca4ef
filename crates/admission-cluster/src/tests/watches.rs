//! Watches of policies that break or stay silent, without a limit of their staleness.

use super::*;
use crate::{follower::SHORT_PAUSES, publisher::PARAMS_LIMIT, upstream_policies::BURST};
use fairgate_policy_sources::PolicySource as _;

/// Policies of a server that are followed.
struct Followed {
    api: StandIn,
    upstream: TestUpstream,
    clock: Clock,
    /// Reads what the upstream serves until it is dropped.
    _state: Arc<FollowedCluster>,
    feed: UpstreamPolicies,
}

impl Followed {
    /// With one policy that is known.
    async fn one_policy() -> Self {
        let (api, upstream) = usual();
        api.put(POLICIES, policy("one", "true"));
        let clock = Clock::manual(Time::ZERO);
        let state = follow_at(&upstream, clock.clone());
        let feed = UpstreamPolicies::start(&state, false, None);
        let mut followed = Self {
            api,
            upstream,
            clock,
            _state: state,
            feed,
        };
        followed.until_known(1).await;
        until("both kinds are watched", || {
            let watches = [POLICIES, BINDINGS].map(|path| followed.api.open_watches(path));
            watches == [1, 1]
        })
        .await;
        followed
    }

    async fn until_known(&mut self, count: usize) {
        let known = async { while self.feed.next().await.documents.len() != count {} };
        let limit = Duration::from_secs(30);
        let known = tokio::time::timeout(limit, known).await;
        assert!(known.is_ok(), "never known: {count}");
    }

    /// How often the policies were listed, and the queries of their watches.
    fn asked(&self) -> (usize, Vec<String>) {
        let seen = self.upstream.seen().into_iter();
        let of = seen.filter(|seen| seen.target.starts_with(POLICIES));
        let (watches, lists): (Vec<_>, Vec<_>) = of
            .map(|seen| seen.target)
            .partition(|target| target.contains("watch=true"));
        (lists.len(), watches)
    }

    /// The server ends the watch of policies, which is opened again.
    async fn reopen(&self) {
        let before = self.asked().1.len();
        self.api
            .with(|state| state.collection(POLICIES).watches.clear());
        until("it is opened again", || self.asked().1.len() > before).await;
        until("it is open", || self.api.open_watches(POLICIES) == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_policies_on_which_nothing_arrives_is_given_up_after_31_seconds() {
    let mut policies = Followed::one_policy().await;
    policies
        .api
        .with(|state| state.collection(POLICIES).is_mute = true);
    policies.api.put(POLICIES, policy("two", "true"));
    policies.clock.advance(Duration::from_secs(32));
    policies.until_known(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_in_time_but_never_tell_anything_are_noticed_after_62_seconds() {
    let mut policies = Followed::one_policy().await;
    policies
        .api
        .with(|state| state.collection(POLICIES).is_silent = true);
    policies.api.put(POLICIES, policy("two", "true"));
    for _ in 0..2 {
        policies.clock.advance(Duration::from_secs(29));
        policies.reopen().await;
    }
    policies.clock.advance(Duration::from_secs(5));
    policies.until_known(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_from_its_last_bookmark_without_a_list() {
    let policies = Followed::one_policy().await;
    for revision in [700, 701, 702, 703] {
        policies.clock.advance(Duration::from_secs(28));
        let bookmark = json!({"type": "BOOKMARK", "object": {
            "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"resourceVersion": revision.to_string()}}});
        policies.api.with(|state| {
            let watches = &state.collection(POLICIES).watches;
            for watch in watches {
                send(watch, &bookmark);
            }
        });
        policies.reopen().await;
        let (lists, watches) = policies.asked();
        let last = watches.last().unwrap();
        assert_eq!(lists, 1, "the policies are not listed again");
        assert!(
            last.contains(&format!("resourceVersion={revision}")),
            "{last}"
        );
        assert!(last.contains("allowWatchBookmarks=true") && last.contains("timeoutSeconds=30"));
    }
}

/// The first request that the server answers again repairs them, and all pauses on the way together are below two seconds: that before
/// the request, the wait for more changes, and that for params.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_repaired_by_the_first_request_that_is_answered() {
    for refusals in [1, 4] {
        let mut policies = Followed::one_policy().await;
        policies.api.forbid(POLICIES, true);
        let asked = |of: &Followed| {
            let (lists, watches) = of.asked();
            lists + watches.len()
        };
        let before = asked(&policies);
        policies
            .api
            .with(|state| state.collection(POLICIES).watches.clear());
        until("requests are refused", || {
            asked(&policies) >= before + refusals
        })
        .await;
        policies.api.put(POLICIES, policy("two", "true"));
        let before = policies.api.with(|state| {
            state.collection(POLICIES).is_forbidden = false;
            asked(&policies)
        });
        policies.until_known(2).await;
        let more = asked(&policies) - before;
        assert!(more <= 1, "{more} requests after {refusals} refusals");
    }
    assert!(SHORT_PAUSES.longest() + BURST + PARAMS_LIMIT < Duration::from_secs(2));
}
