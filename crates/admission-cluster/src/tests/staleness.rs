//! With a limit of their staleness, policies are not used once it is not certain that they are those of their source.

use fairgate_admission::Fidelity;
use fairgate_core::finding::{Finding, Severity};
use tokio::{sync::mpsc, task::JoinHandle};

use super::*;
use fairgate_policy_sources::{PolicyDocument, PolicyDocuments, PolicySource};

const MAX: Duration = Duration::from_secs(10);
/// More than that.
const LONG: Duration = Duration::from_secs(11);

/// A little more than the third of it after which policies are listed again.
const SOON: Duration = Duration::from_secs(4);

/// Policies of a source, published with the limit.
struct Published {
    clock: Clock,
    in_force: Arc<PublishedPolicies>,
    task: JoinHandle<()>,
}

impl Drop for Published {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Published {
    fn upstream(upstream: &TestUpstream) -> Self {
        let clock = Clock::manual(Time::ZERO);
        let state = follow_at(upstream, clock.clone());
        let feed = UpstreamPolicies::start(&state, false, Some(MAX));
        let status = PublishingStatus::with_silence(clock.clone(), feed.age(), feed.unconfirmed());
        Self::start(clock, state, status, feed)
    }

    fn start(
        clock: Clock,
        state: Arc<FollowedCluster>,
        status: Arc<PublishingStatus>,
        feed: impl PolicySource<Set = PolicyDocuments> + 'static,
    ) -> Self {
        let published = Arc::<PublishedPolicies>::default();
        let publisher = PolicyPublisher {
            published: Arc::clone(&published),
            state,
            fidelity: Fidelity::Completed,
            status,
            max_staleness: Some(MAX),
            keep: None,
        };
        Self {
            clock,
            in_force: published,
            task: tokio::spawn(publisher.run(feed)),
        }
    }

    /// The number of policies that requests are evaluated by.
    fn usable(&self) -> Option<usize> {
        let current = self.in_force.current()?;
        (!self.in_force.are_stale(&self.clock)).then(|| current.set.len())
    }

    /// Waits until these are usable, and sees to it that the ones before are not meanwhile.
    async fn never_usable_before(&self, before: usize, count: usize) {
        until("the new policies are in force, and confirmed", || {
            let usable = self.usable();
            assert_ne!(usable, Some(before), "before {count}");
            usable == Some(count)
        })
        .await;
    }

    async fn until_usable(&self, count: usize) {
        until("the policies are in force, and confirmed", || {
            self.usable() == Some(count)
        })
        .await;
    }
}

/// An upstream with a policy that has a binding, and that policy in force.
async fn one_policy() -> (StandIn, TestUpstream, Published) {
    let (api, upstream) = usual();
    put_policy(&api, "one");
    let policies = Published::upstream(&upstream);
    policies.until_usable(1).await;
    (api, upstream, policies)
}

fn put_policy(api: &StandIn, name: &str) {
    api.put(POLICIES, policy(name, "true"));
    api.put(BINDINGS, binding(name));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_on_which_nothing_arrives_is_noticed_and_the_policies_are_listed_again() {
    let (api, _upstream, policies) = one_policy().await;
    // The watches stay open, but nothing arrives on them any more.
    api.with(|state| {
        for path in [POLICIES, BINDINGS] {
            state.collection(path).is_mute = true;
        }
    });
    put_policy(&api, "two");
    assert_eq!(policies.usable(), Some(1));
    policies.clock.advance(LONG);
    assert_ne!(policies.usable(), Some(1), "from this moment on");
    policies.until_usable(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_stay_silent_however_often_they_are_opened_are_no_proof() {
    let (api, _upstream, policies) = one_policy().await;
    api.with(|state| {
        for path in [POLICIES, BINDINGS] {
            state.collection(path).is_silent = true;
        }
    });
    for number in 2..6 {
        put_policy(&api, &format!("p{number}"));
        policies.clock.advance(LONG);
        policies.never_usable_before(number - 1, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_policies_were_not_usable_the_old_ones_are_never_used_again() {
    let (api, _upstream, policies) = one_policy().await;
    for number in 2..6 {
        for path in [POLICIES, BINDINGS] {
            api.forbid(path, true);
            api.with(|state| state.collection(path).watches.clear());
        }
        put_policy(&api, &format!("p{number}"));
        policies.clock.advance(LONG);
        assert_eq!(policies.usable(), None);
        for path in [POLICIES, BINDINGS] {
            api.forbid(path, false);
        }
        policies.never_usable_before(number - 1, number).await;
    }
}

/// However many changes wait to be taken, a set is confirmed by the last list before it, and by a later one only if it has all that
/// this list showed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_lacks_a_change_is_confirmed_by_the_list_before_it() {
    let (api, upstream) = usual();
    put_policy(&api, "one");
    let clock = Clock::manual(Time::ZERO);
    let state = follow_at(&upstream, clock.clone());
    let mut feed = UpstreamPolicies::start(&state, false, Some(MAX));
    let unconfirmed = feed.unconfirmed();
    let set = feed.next().await;
    assert_eq!(set.documents.len(), 2);
    assert_eq!(unconfirmed(), Duration::ZERO);

    clock.advance(LONG);
    until("a list confirms the set that lacks nothing", || {
        unconfirmed() == Duration::ZERO
    })
    .await;
    put_policy(&api, "two");
    until("the set lacks a change", || unconfirmed() == LONG).await;

    let set = feed.next().await;
    assert_eq!(set.documents.len(), 4);
    assert_eq!(unconfirmed(), Duration::ZERO, "the second list was before");

    put_policy(&api, "three");
    let lists = |of: &str| {
        let seen = upstream.seen().into_iter();
        seen.filter(|seen| seen.target.starts_with(of) && !seen.target.contains("watch="))
            .count()
    };
    let before = [POLICIES, BINDINGS].map(lists);
    // Whoever lists a second time has read the first list.
    for (more, later) in [(1, LONG), (2, SOON)] {
        clock.advance(later);
        until("both kinds are listed again", || {
            [POLICIES, BINDINGS].map(lists) >= before.map(|count| count + more)
        })
        .await;
    }
    assert_eq!(unconfirmed(), LONG + SOON, "since the second list");
    let set = feed.next().await;
    assert_eq!(set.documents.len(), 6);
    assert!(unconfirmed() <= SOON, "the third list was before it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_change_all_the_time_are_confirmed() {
    let (api, _upstream, policies) = one_policy().await;
    let changing = tokio::spawn(async move {
        loop {
            put_policy(&api, "one");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for _ in 0..3 {
        policies.clock.advance(LONG);
        policies.until_usable(1).await;
    }
    changing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_whose_watch_is_broken_are_not_used_until_it_is_open_again() {
    let (api, upstream, policies) = one_policy().await;
    api.forbid(BINDINGS, true);
    api.with(|state| state.collection(BINDINGS).watches.clear());
    api.put(BINDINGS, binding("two"));
    policies.clock.advance(LONG);
    assert_eq!(policies.usable(), None);
    // However often the upstream is asked meanwhile.
    let asked = || {
        let seen = upstream.seen();
        seen.iter()
            .filter(|seen| seen.target.starts_with(BINDINGS))
            .count()
    };
    let before = asked();
    until("the upstream is asked again", || asked() > before + 2).await;
    assert_eq!(policies.usable(), None);
    api.forbid(BINDINGS, false);
    policies.until_usable(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_cannot_be_read_at_the_start_are_never_passed_by() {
    let (api, upstream) = usual();
    api.forbid(POLICIES, true);
    let policies = Published::upstream(&upstream);
    until("the upstream is asked", || {
        let mut seen = upstream.seen().into_iter();
        seen.any(|seen| seen.target.starts_with(POLICIES))
    })
    .await;
    policies.clock.advance(LONG);
    assert!(policies.in_force.current().is_none());
    api.forbid(POLICIES, false);
    policies.until_usable(0).await;
}

/// A source whose sets the test makes.
struct Sets(mpsc::UnboundedReceiver<PolicyDocuments>);

impl PolicySource for Sets {
    type Set = PolicyDocuments;

    async fn next(&mut self) -> PolicyDocuments {
        match self.0.recv().await {
            Some(set) => set,
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_are_replaced_by_an_invalid_set_are_used_for_a_limited_time() {
    let (_api, upstream) = usual();
    let clock = Clock::manual(Time::ZERO);
    let state = follow_at(&upstream, clock.clone());
    let (send, sets) = mpsc::unbounded_channel();
    let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
    let policies = Published::start(clock, state, Arc::clone(&status), Sets(sets));
    let set = |findings| PolicyDocuments {
        documents: Vec::<PolicyDocument>::new(),
        findings,
        are_files: true,
        last_good: None,
    };
    send.send(set(Vec::new())).unwrap();
    policies.until_usable(0).await;
    policies.clock.advance(10 * LONG);
    policies.until_usable(0).await;
    send.send(set(vec![unreadable()])).unwrap();
    until("the set is rejected", || status.problem().is_some()).await;
    assert_eq!(policies.usable(), Some(0));
    policies.clock.advance(LONG);
    assert_eq!(policies.usable(), None);
    send.send(set(Vec::new())).unwrap();
    policies.until_usable(0).await;
}

/// An error of a source.
fn unreadable() -> Finding {
    Finding::without_object(Severity::Error, "a.yaml", "cannot be read", "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_wait_for_namespaces_come_into_force_although_a_newer_set_is_invalid() {
    let (api, upstream) = usual();
    api.forbid(NAMESPACES, true);
    let clock = Clock::manual(Time::ZERO);
    let state = follow_at(&upstream, clock.clone());
    let (send, sets) = mpsc::unbounded_channel();
    let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
    let policies = Published::start(clock, state, Arc::clone(&status), Sets(sets));
    let object = |kind: &str, mut object: Value| {
        object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        object["kind"] = json!(kind);
        PolicyDocument {
            origin: "a.yaml".to_owned(),
            object,
        }
    };
    let good = PolicyDocuments {
        documents: vec![
            object("ValidatingAdmissionPolicy", policy("one", "true")),
            object("ValidatingAdmissionPolicyBinding", binding("one")),
        ],
        are_files: true,
        ..PolicyDocuments::default()
    };
    let bad = PolicyDocuments {
        findings: vec![unreadable()],
        are_files: true,
        ..PolicyDocuments::default()
    };
    send.send(good).unwrap();
    send.send(bad).unwrap();
    until("the second set is rejected", || {
        let problem = status.problem();
        problem.is_some_and(|problem| problem.starts_with("invalid"))
    })
    .await;
    assert!(policies.in_force.current().is_none());
    api.forbid(NAMESPACES, false);
    until("the first is in force", || status.policies() == 1).await;
    let problem = status.problem().unwrap();
    assert!(
        problem.contains("the last good policies stay in force"),
        "{problem}"
    );
}
