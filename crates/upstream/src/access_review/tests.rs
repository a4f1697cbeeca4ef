//! Decisions are requested once, cached for their time, and never guessed.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    protocol::{decision, request},
    *,
};
use crate::review::PostFuture;
use fairgate_core::{digest::RequestInfo, time::Time};

/// How the server responds.
#[derive(Clone, Copy)]
enum Reply {
    Yes,
    No,
    Lost,
    Refused,
}

/// Responds to each review with the next of some replies, and repeats the last.
#[derive(Clone)]
struct Server {
    answers: Arc<[Reply]>,
    requests: Arc<AtomicUsize>,
    /// If present, it holds all responses back.
    gate: Option<Arc<Notify>>,
}

impl Server {
    fn replying(answers: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            requests: Arc::default(),
            gate: None,
        }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn access(&self, settings: AccessReviewSettings, clock: &Clock) -> AccessReviews {
        AccessReviews::new(settings, self.clone(), clock.clone(), Handle::current())
    }
}

impl ReviewTransport for Server {
    fn post(&self, _: Bytes) -> PostFuture<'_> {
        Box::pin(async move {
            let index = self.requests.fetch_add(1, Ordering::SeqCst);
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let status = match self.answers[index.min(self.answers.len() - 1)] {
                Reply::Yes => json!({"allowed": true}),
                Reply::No => json!({"allowed": false, "reason": "because"}),
                Reply::Lost => {
                    return Err(RequestError::Lost {
                        reason: "reset".into(),
                    });
                }
                Reply::Refused => {
                    return Err(RequestError::Status {
                        status: 403,
                        retry_after: None,
                        message: "Forbidden".into(),
                    });
                }
            };
            Ok(json!({"status": status}).to_string().into())
        })
    }
}

fn wanted(target: &str) -> Attributes {
    Attributes::of(&RequestInfo::from_target("GET", target).unwrap())
}

fn schemas() -> Attributes {
    wanted("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")
}

fn alice() -> User {
    User::new("alice", ["devs"])
}

fn manual() -> Clock {
    Clock::manual(Time::ZERO)
}

#[test]
fn the_review_has_the_fields_of_the_kubernetes_api() {
    let mut user = alice();
    user.uid = "7".to_owned();
    user.extra
        .insert("example.com/k".to_owned(), vec!["v".to_owned()]);
    let target = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/x/status";
    assert_eq!(
        request(&user, &wanted(target)),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "alice", "uid": "7", "groups": ["devs"], "extra": {"example.com/k": ["v"]},
                "resourceAttributes": {
                    "verb": "get", "group": "flowcontrol.apiserver.k8s.io", "version": "v1",
                    "resource": "flowschemas", "subresource": "status", "name": "x",
                },
            },
        })
    );
    assert_eq!(
        request(&alice(), &wanted("/apis"))["spec"],
        json!({"user": "alice", "groups": ["devs"],
               "nonResourceAttributes": {"verb": "get", "path": "/apis"}})
    );
    let limited = Attributes {
        field_selector: "spec.nodeName=n".to_owned(),
        label_selector: "a in (".to_owned(),
        ..wanted("/api/v1/pods")
    };
    assert_eq!(
        request(&alice(), &limited)["spec"]["resourceAttributes"],
        json!({"verb": "list", "version": "v1", "resource": "pods",
               "fieldSelector": {"rawSelector": "spec.nodeName=n"},
               "labelSelector": {"rawSelector": "a in ("}})
    );
}

#[test]
fn denied_overrides_allowed_and_a_malformed_response_is_neither() {
    let of = |status: Value| decision(json!({"status": status}).to_string().as_bytes());
    assert!(of(json!({"allowed": true})).unwrap().allowed);
    assert!(
        !of(json!({"allowed": true, "denied": true}))
            .unwrap()
            .allowed
    );
    let denied = of(json!({"allowed": false, "reason": "because"})).unwrap();
    assert_eq!(&*denied.reason, "because");
    for body in [&b"<html>"[..], b"{}", br#"{"status": {"allowed": "yes"}}"#] {
        assert_eq!(decision(body), Err(AccessReviewError::Malformed));
    }
}

#[tokio::test]
async fn allow_decisions_hold_longer_than_deny_decisions() {
    let clock = manual();
    let server = Server::replying([Reply::Yes, Reply::No]);
    let access = server.access(AccessReviewSettings::default(), &clock);
    let (schemas, groups) = (schemas(), wanted("/apis"));
    for _ in 0..3 {
        assert!(access.decide(&alice(), &schemas).await.unwrap().allowed);
        let denied = access.decide(&alice(), &groups).await.unwrap();
        assert_eq!((denied.allowed, &*denied.reason), (false, "because"));
    }
    assert_eq!(server.requests(), 2);
    clock.advance(Duration::from_secs(31));
    access.decide(&alice(), &schemas).await.unwrap();
    assert_eq!(server.requests(), 2);
    access.decide(&alice(), &groups).await.unwrap();
    assert_eq!(server.requests(), 3);
    clock.advance(Duration::from_secs(270));
    assert!(!access.decide(&alice(), &schemas).await.unwrap().allowed);
    assert_eq!(server.requests(), 4);
}

#[tokio::test]
async fn each_user_and_each_question_has_a_decision_of_its_own() {
    let server = Server::replying([Reply::Yes, Reply::No]);
    let access = server.access(AccessReviewSettings::default(), &manual());
    assert!(access.decide(&alice(), &schemas()).await.unwrap().allowed);
    let mut other = alice();
    other.groups.push("more".to_owned());
    assert!(!access.decide(&other, &schemas()).await.unwrap().allowed);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn system_masters_are_not_reviewed() {
    let server = Server::replying([Reply::Lost]);
    let access = server.access(AccessReviewSettings::default(), &manual());
    let root = User::new("root", [User::MASTERS]);
    assert!(access.decide(&root, &schemas()).await.unwrap().allowed);
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn one_review_serves_all_waiting_callers_even_if_the_first_leaves() {
    let gate = Arc::new(Notify::new());
    let mut server = Server::replying([Reply::Yes]);
    server.gate = Some(Arc::clone(&gate));
    let access = server.access(AccessReviewSettings::default(), &manual());
    let ask = || {
        let access = access.clone();
        tokio::spawn(async move { access.decide(&alice(), &schemas()).await })
    };
    let leaves = ask();
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let waiting: Vec<_> = (0..5).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    leaves.abort();
    gate.notify_one();
    for one in waiting {
        assert!(one.await.unwrap().unwrap().allowed);
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn transient_failures_are_retried_and_failures_are_not_cached() {
    let server = Server::replying([Reply::Lost, Reply::Yes, Reply::Refused, Reply::Lost]);
    let settings = AccessReviewSettings {
        first_pause: Duration::from_millis(1),
        ..AccessReviewSettings::default()
    };
    let access = server.access(settings, &manual());
    assert!(access.decide(&alice(), &schemas()).await.unwrap().allowed);
    assert_eq!(server.requests(), 2);
    let other = wanted("/apis");
    let error = access.decide(&alice(), &other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "SubjectAccessReview: the upstream answered 403: Forbidden"
    );
    assert_eq!(server.requests(), 3);
    let error = access.decide(&alice(), &other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "SubjectAccessReview: connection lost: reset"
    );
    assert_eq!(server.requests(), 6);
}

#[tokio::test]
async fn a_review_takes_no_longer_than_its_limit() {
    let mut server = Server::replying([Reply::Yes]);
    server.gate = Some(Arc::default());
    let settings = AccessReviewSettings {
        lookups: LookupSettings {
            limit: Duration::from_millis(1),
            ..AccessReviewSettings::default().lookups
        },
        ..AccessReviewSettings::default()
    };
    let access = server.access(settings, &manual());
    let never_answered = access.decide(&alice(), &schemas()).await;
    assert_eq!(never_answered, Err(AccessReviewError::TimedOut));
}

#[tokio::test]
async fn pending_reviews_are_bounded() {
    let gate = Arc::new(Notify::new());
    let mut server = Server::replying([Reply::Yes]);
    server.gate = Some(Arc::clone(&gate));
    let settings = AccessReviewSettings {
        lookups: LookupSettings {
            max_pending: 1,
            limit: Duration::from_secs(3600),
            ..AccessReviewSettings::default().lookups
        },
        ..AccessReviewSettings::default()
    };
    let access = server.access(settings, &manual());
    let pending = {
        let access = access.clone();
        tokio::spawn(async move { access.decide(&alice(), &schemas()).await })
    };
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let one_more = access.decide(&alice(), &wanted("/apis")).await;
    assert_eq!(one_more, Err(AccessReviewError::Overloaded));
    gate.notify_one();
    assert!(pending.await.unwrap().unwrap().allowed);
}
