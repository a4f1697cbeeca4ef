//! Requests that wait for the store, beside those of others.

use std::sync::atomic::{AtomicUsize, Ordering};

use fairgate_apihttp::request::Caller;
use fairgate_call::ResponseMemory;
use fairgate_core::digest::{RequestDigest, RequestInfo};
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
use fairgate_store::{Precondition, Store as _, StoreFuture};
use fairgate_testkit::{client::soon, store::TestStore};
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::*;
use crate::test_api;

const BUDGETS: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";
/// So many that listing and deleting them is heavy.
const OBJECTS: usize = 300;

/// Stores budgets of a KiB each that stay, marked, when they are deleted.
async fn store_budgets(store: &TestStore) {
    for number in 0..OBJECTS {
        let name = format!("budget-{number:03}");
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "a", "uid": name, "finalizers": ["a.example/b"],
                "annotations": {"long": "x".repeat(1000)}},
            "spec": {"minAvailable": 1},
        });
        let key = format!("{}a/{name}", POD_DISRUPTION_BUDGET.key_prefix());
        let value = Some(object.to_string().into());
        let written = store.write(&key, Precondition::Absent, value).await;
        written.unwrap();
    }
}

fn request(method: Method, user: &str) -> Arc<ReceivedRequest> {
    let info = RequestInfo::parse(method.as_str(), BUDGETS, None).unwrap();
    let digest = RequestDigest {
        info,
        user: Arc::new(User::new(user, [User::AUTHENTICATED])),
    };
    Arc::new(ReceivedRequest {
        request: ApiRequest {
            method,
            path: BUDGETS.to_owned(),
            query: String::new(),
            headers: HeaderMap::new(),
            body: Some(Bytes::new()),
            caller: Caller::Client { impersonator: None },
            audit_id: None,
            digest: Arc::new(digest),
        },
        _body: None,
    })
}

#[tokio::test]
async fn deletions_that_wait_for_the_store_do_not_delay_long_lists_of_other_users() {
    let clock = Clock::system();
    let store = test_api::store(&clock);
    store_budgets(&store).await;
    let (waiting, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (waits, may_write) = (Arc::clone(&waiting), Arc::clone(&written));
    let meanwhile = move || -> StoreFuture<'static, ()> {
        let may_write = Arc::clone(&may_write);
        waits.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            drop(may_write.acquire().await);
            Ok(())
        })
    };
    let before_writes = ("poddisruptionbudgets", Box::new(meanwhile) as Box<_>);
    assert!(store.before_writes.set(before_writes).is_ok());
    let responses = ResponseMemory::new(64 << 20);
    let kinds = vec![&POD_DISRUPTION_BUDGET];
    let shared = Rc::new(Shared {
        hosted: test_api::hosted(&store, kinds, clock.clone(), responses),
        control: Handle::current(),
        clock,
        ownership: Ownership::Everything,
        fan_out: OnceCell::new(),
    });
    let serve = |request: Arc<ReceivedRequest>| {
        let shared = Rc::clone(&shared);
        async move {
            assert!(shared.hosted.is_heavy(&request.request));
            let share = shared.hosted.responses.share(&request.request.digest.user);
            shared.serve(&request, share).await.unwrap().response
        }
    };
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let deleting =
                [(); 2].map(|()| turns::spawn_local(serve(request(Method::DELETE, "greedy"))));
            soon(async {
                while waiting.load(Ordering::SeqCst) < 2 {
                    assert!(!deleting.iter().any(JoinHandle::is_finished));
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let listed = soon(serve(request(Method::GET, "other"))).await;
            assert_eq!(listed.status, StatusCode::OK);
            assert_eq!(waiting.load(Ordering::SeqCst), 2, "nothing was written yet");
            written.add_permits(2 * OBJECTS);
            for deleted in deleting {
                let deleted = soon(deleted).await.unwrap();
                assert_eq!(deleted.status, StatusCode::OK);
            }
        })
        .await;
    assert!(waiting.load(Ordering::SeqCst) >= OBJECTS);
}
