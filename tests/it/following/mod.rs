//! Policy objects of an upstream's API, followed by list and watch.

pub mod api;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{apf::objects::ObjectSet, time::Time};
use fairgate_policy_sources::{
    DocumentSet, PolicySource as _,
    kube::{KubeSource, SyncStatus},
};
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
};
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    client::soon,
    failures::until,
    ports,
    process::{GatewayProcess, wait_until},
    upstream::{SeenRequest, TestUpstream},
};
use api::{Api, level};

/// A source that runs in a task, with a manual clock for its age.
struct Followed {
    sets: mpsc::UnboundedReceiver<DocumentSet>,
    status: Arc<SyncStatus>,
    clock: Clock,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    fn start(address: SocketAddr) -> Self {
        let endpoint = Endpoint::new(address.to_string().parse().unwrap(), None);
        let user = [("x-remote-user", "fairgate")].map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let user = HeaderMap::from_iter(user);
        let credentials = Arc::new(move || user.clone());
        let client = ApiClient::new(endpoint, credentials, ConnectionReuse::PerRequest);
        let clock = Clock::manual(Time::ZERO);
        let mut source = KubeSource::new(client, clock.clone());
        let status = source.sync_status();
        let (sender, sets) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move { while sender.send(source.next().await).is_ok() {} });
        Self {
            sets,
            status,
            clock,
            task,
        }
    }

    async fn next(&mut self) -> DocumentSet {
        soon(self.sets.recv()).await.unwrap()
    }

    /// Waits until all watches are open.
    async fn in_sync(&self) {
        until(|| {
            // Otherwise the age would be zero from the start.
            self.clock.advance(Duration::from_nanos(1));
            self.status.age() == Duration::ZERO
        })
        .await;
    }

    /// Asserts that no set has come.
    #[track_caller]
    fn no_set_has_come(&mut self) {
        assert_eq!(self.sets.try_recv().ok(), None);
    }
}

/// Levels with their shares.
fn shares(objects: &ObjectSet) -> Vec<(&str, i32)> {
    let levels = objects.priority_levels().iter().map(|level| &level.object);
    levels
        .map(|level| {
            let limited = level.spec.as_ref().unwrap().limited.as_ref().unwrap();
            let name = level.metadata.name.as_deref().unwrap();
            (name, limited.nominal_concurrency_shares.unwrap())
        })
        .collect()
}

/// The version in which levels were last listed.
fn listed_version(upstream: &TestUpstream) -> String {
    let seen = upstream.seen();
    let is_list = |seen: &&SeenRequest| {
        seen.target.contains("limit=") && seen.target.contains("prioritylevelconfigurations")
    };
    let last = seen.iter().rfind(is_list).unwrap();
    last.target.split('/').nth(3).unwrap().to_owned()
}

/// The number of requests that the upstream has seen and for which `holds` returns true.
fn count(upstream: &TestUpstream, holds: impl Fn(&SeenRequest) -> bool) -> usize {
    upstream.seen().iter().filter(|seen| holds(seen)).count()
}

fn lists(upstream: &TestUpstream) -> usize {
    count(upstream, |seen| seen.target.contains("limit="))
}

/// How many watches of levels were opened.
fn watches(upstream: &TestUpstream) -> usize {
    count(upstream, |seen| {
        seen.target.contains("/prioritylevelconfigurations?") && seen.target.contains("watch=true")
    })
}

/// Waits until the source has received every event so far: it then opens the next watch from the last revision.
async fn all_events_received(api: &Api, upstream: &TestUpstream) {
    let revision = format!("resourceVersion={}", api.with(|state| state.revision()));
    api.end_watches();
    let reopened = |seen: &SeenRequest| {
        let (_, query) = seen.target.split_once('?').unwrap_or_default();
        seen.target.contains("watch=true") && query.split('&').any(|pair| pair == revision)
    };
    until(|| count(upstream, reopened) > 0).await;
}

#[tokio::test]
async fn the_objects_are_listed_and_then_followed() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = Followed::start(upstream.address);
    let first = followed.next().await;
    assert_eq!(shares(&first.objects()), [("a", 1)]);
    assert_eq!(listed_version(&upstream), "v1");
    followed.in_sync().await;

    api.put_level("b", 2);
    let second = followed.next().await;
    assert_eq!(shares(&second.objects()), [("a", 1), ("b", 2)]);
    assert_ne!(second.revision, first.revision);
    api.put_level("a", 3);
    assert_eq!(
        shares(&followed.next().await.objects()),
        [("a", 3), ("b", 2)]
    );
    // In one step, so that the upstream sends them together.
    api.with(|state| {
        state.delete_level("a");
        state.delete_level("b");
        state.put(level("a", 1));
    });
    let burst = followed.next().await;
    assert_eq!(shares(&burst.objects()), [("a", 1)], "a burst is one set");
    for seen in upstream.seen() {
        assert_eq!(seen.headers["x-remote-user"], "fairgate", "{seen:?}");
        assert_eq!(seen.method, http::Method::GET);
    }
}

#[tokio::test]
async fn changes_that_do_not_affect_the_policy_are_ignored() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = Followed::start(upstream.address);
    followed.next().await;
    followed.in_sync().await;
    let mut object = level("a", 1);
    object["status"] = json!({"conditions": []});
    object["metadata"]["labels"] = json!({"some": "label"});
    api.put(object);
    all_events_received(&api, &upstream).await;
    followed.no_set_has_come();

    api.put_level("b", 2);
    let next = followed.next().await;
    assert_eq!(shares(&next.objects()), [("a", 1), ("b", 2)]);
    let levels = next.objects();
    assert!(levels.priority_levels()[0].object.status.is_some());
}

#[tokio::test]
async fn while_the_upstream_is_gone_nothing_changes_and_afterwards_missed_changes_are_read() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = Followed::start(upstream.address);
    followed.next().await;
    followed.in_sync().await;
    let status = Arc::clone(&followed.status);

    api.go_down();
    api.put_level("b", 2);
    let before = upstream.seen().len();
    until(|| upstream.seen().len() >= before + 3).await;
    let grace = Duration::from_secs(2);
    followed.clock.advance(grace);
    assert!(status.age() >= grace, "{:?}", status.age());
    let problem = status.problem().unwrap();
    assert!(
        problem.contains("the upstream answered 503: down; the last good policy"),
        "{problem}"
    );
    followed.no_set_has_come();

    api.come_up();
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 1), ("b", 2)]);
    followed.in_sync().await;
    assert_eq!((status.age(), status.problem()), (Duration::ZERO, None));

    // After a short failure nothing has changed.
    let before = watches(&upstream);
    api.go_down();
    api.come_up();
    until(|| watches(&upstream) > before).await;
    followed.in_sync().await;
    followed.no_set_has_come();
    api.put_level("c", 3);
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 1), ("b", 2), ("c", 3)]);
}

#[tokio::test]
async fn after_a_watch_that_is_too_old_the_objects_are_listed_again() {
    for is_refused in [false, true] {
        let (api, upstream) = Api::start();
        api.with(|state| state.refuses_old_watches = is_refused);
        api.put_level("a", 1);
        let mut followed = Followed::start(upstream.address);
        followed.next().await;
        followed.in_sync().await;
        api.end_watches();
        api.put_level("b", 2);
        api.delete_level("a");
        api.compact();
        let before = lists(&upstream);
        assert_eq!(shares(&followed.next().await.objects()), [("b", 2)]);
        assert!(lists(&upstream) > before);
        api.put_level("c", 3);
        assert_eq!(
            shares(&followed.next().await.objects()),
            [("b", 2), ("c", 3)]
        );
    }
}

#[tokio::test]
async fn a_watch_that_ends_is_opened_again_and_misses_nothing() {
    let (api, upstream) = Api::start();
    let mut followed = Followed::start(upstream.address);
    followed.next().await;
    followed.in_sync().await;
    let before = lists(&upstream);
    api.end_watches();
    api.put_level("a", 1);
    assert_eq!(shares(&followed.next().await.objects()), [("a", 1)]);
    assert_eq!(lists(&upstream), before);
}

#[tokio::test]
async fn watches_that_the_upstream_ends_at_once_are_opened_at_most_twice_a_second() {
    const OPENED: usize = 4;
    let (api, upstream) = Api::start();
    api.with(|state| state.ends_watches_at_once = true);
    let clock = Clock::system();
    let started = clock.now();
    let mut followed = Followed::start(upstream.address);
    followed.next().await;
    until(|| watches(&upstream) >= OPENED).await;
    // A busy machine makes this longer, never shorter.
    let passed = clock.now().since(started);
    assert!(passed >= Duration::from_millis(1500), "{passed:?}");
}

#[tokio::test]
async fn an_upstream_with_only_v1beta3_is_followed_in_that_version_until_it_serves_v1() {
    let (api, upstream) = Api::start();
    api.with(|state| state.versions = vec!["v1beta3"]);
    api.put_level("a", 1);
    let mut followed = Followed::start(upstream.address);
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 1)]);
    assert_eq!(listed_version(&upstream), "v1beta3");
    followed.in_sync().await;

    api.go_down();
    api.with(|state| state.versions = vec!["v1"]);
    api.come_up();
    api.put_level("a", 2);
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 2)]);
    assert_eq!(listed_version(&upstream), "v1");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_and_the_others_take_effect() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    api.put(json!({"metadata": {"name": "strange", "generation": "x"}, "spec": [7]}));
    let mut followed = Followed::start(upstream.address);
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 1)]);
    assert!(!set.findings.is_empty());
    for finding in &set.findings {
        assert!(!finding.is_error(), "{finding}");
        assert_eq!(finding.name, "strange");
    }
    followed.in_sync().await;
    api.put_level("strange", 2);
    let set = followed.next().await;
    assert_eq!(shares(&set.objects()), [("a", 1), ("strange", 2)]);
    assert_eq!(set.findings, []);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_yields_nothing_and_the_status_says_why() {
    let mut followed = Followed::start(ports::unused());
    let problem = || followed.status.problem().unwrap();
    until(|| problem().contains("onnection refused")).await;
    assert!(
        problem().contains("the built-in objects are in force"),
        "{}",
        problem()
    );
    followed.no_set_has_come();
}

#[test]
fn a_gateway_serves_with_built_in_objects_until_it_reaches_the_upstream_and_then_by_its_objects() {
    let (api, upstream) = Api::start();
    api.put_level("mine", 1);
    api.go_down();
    let gateway = GatewayProcess::start(json!({
        "mode": "sidecar",
        "upstream": {"url": format!("http://{}", upstream.address)},
        "dataCores": 1,
    }));
    let shows = |text: &str| gateway.admin_get("/metrics").contains(text);

    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.contains("200 OK"), "{ready}");
    assert!(ready.contains("[!]source: not reached for"), "{ready}");
    assert!(
        ready.contains("the built-in objects are in force"),
        "{ready}"
    );
    assert!(shows("priority_level=\"workload-low\""));
    assert!(!shows("fairgate_source_age_seconds 0\n"));

    api.come_up();
    wait_until("the level takes effect", || {
        shows("priority_level=\"mine\"")
    });
    wait_until("the source is in sync", || {
        shows("fairgate_source_age_seconds 0\n")
    });
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.contains("[+]source ok"), "{ready}");

    api.go_down();
    wait_until("readyz reports the failure", || {
        gateway
            .admin_get("/readyz?verbose")
            .contains("the last good policy stays in force")
    });
    assert!(shows("priority_level=\"mine\""));
}
