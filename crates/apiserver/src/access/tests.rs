//! What the upstream allows is asked once, remembered for its time, and never guessed.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;
use fairgate_core::{digest::RequestInfo, time::Time};

/// What a server says.
#[derive(Clone, Copy)]
enum Said {
    Yes,
    No,
    Lost,
    Refused,
}

/// Gives each question the next of some answers, the last one again and again.
#[derive(Clone)]
struct Server {
    answers: Arc<[Said]>,
    asked: Arc<AtomicUsize>,
    /// Where there is one, it holds all answers back.
    gate: Option<Arc<Notify>>,
}

impl Server {
    fn saying(answers: impl IntoIterator<Item = Said>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            asked: Arc::default(),
            gate: None,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn access(&self, settings: AccessSettings, clock: &Clock) -> SubjectAccess {
        SubjectAccess::new(self.clone(), settings, clock.clone())
    }
}

impl AskAccess for Server {
    fn ask(&self, _: Bytes) -> AskFuture<'_> {
        Box::pin(async move {
            let index = self.asked.fetch_add(1, Ordering::SeqCst);
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let failed = |reason: &str, again| {
                let reason = reason.to_owned();
                Err(NotAsked { reason, again })
            };
            let status = match self.answers[index.min(self.answers.len() - 1)] {
                Said::Yes => json!({"allowed": true}),
                Said::No => json!({"allowed": false, "reason": "because"}),
                Said::Lost => return failed("lost", Some(Duration::ZERO)),
                Said::Refused => return failed("answered 403", None),
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
fn the_question_is_the_one_of_the_api() {
    let mut user = alice();
    user.uid = "7".to_owned();
    user.extra
        .insert("example.com/k".to_owned(), vec!["v".to_owned()]);
    let target = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/x/status";
    assert_eq!(
        question(&user, &wanted(target)),
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
        question(&alice(), &wanted("/apis"))["spec"],
        json!({"user": "alice", "groups": ["devs"],
               "nonResourceAttributes": {"verb": "get", "path": "/apis"}})
    );
}

#[test]
fn a_refusal_goes_before_a_leave_and_nonsense_is_neither() {
    let of = |status: Value| answer(json!({"status": status}).to_string().as_bytes());
    assert!(of(json!({"allowed": true})).unwrap().allowed);
    assert!(
        !of(json!({"allowed": true, "denied": true}))
            .unwrap()
            .allowed
    );
    let denied = of(json!({"allowed": false, "reason": "because"})).unwrap();
    assert_eq!(&*denied.reason, "because");
    for body in [&b"<html>"[..], b"{}", br#"{"status": {"allowed": "yes"}}"#] {
        assert_eq!(answer(body), Err(AccessError::Malformed));
    }
}

#[tokio::test]
async fn leaves_hold_longer_than_refusals() {
    let clock = manual();
    let server = Server::saying([Said::Yes, Said::No]);
    let access = server.access(AccessSettings::default(), &clock);
    let (schemas, groups) = (schemas(), wanted("/apis"));
    for _ in 0..3 {
        assert!(access.decide(&alice(), &schemas).await.unwrap().allowed);
        let denied = access.decide(&alice(), &groups).await.unwrap();
        assert_eq!((denied.allowed, &*denied.reason), (false, "because"));
    }
    assert_eq!(server.asked(), 2);
    clock.advance(Duration::from_secs(31));
    access.decide(&alice(), &schemas).await.unwrap();
    assert_eq!(server.asked(), 2);
    access.decide(&alice(), &groups).await.unwrap();
    assert_eq!(server.asked(), 3);
    clock.advance(Duration::from_secs(270));
    assert!(!access.decide(&alice(), &schemas).await.unwrap().allowed);
    assert_eq!(server.asked(), 4);
}

#[tokio::test]
async fn users_and_questions_are_not_mixed_up() {
    let server = Server::saying([Said::Yes, Said::No]);
    let access = server.access(AccessSettings::default(), &manual());
    assert!(access.decide(&alice(), &schemas()).await.unwrap().allowed);
    let mut other = alice();
    other.groups.push("more".to_owned());
    assert!(!access.decide(&other, &schemas()).await.unwrap().allowed);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn masters_are_not_asked_about() {
    let server = Server::saying([Said::Lost]);
    let access = server.access(AccessSettings::default(), &manual());
    let root = User::new("root", [User::MASTERS]);
    assert!(access.decide(&root, &schemas()).await.unwrap().allowed);
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn one_question_is_asked_once_and_answered_even_if_the_first_to_ask_leaves() {
    let gate = Arc::new(Notify::new());
    let mut server = Server::saying([Said::Yes]);
    server.gate = Some(Arc::clone(&gate));
    let access = server.access(AccessSettings::default(), &manual());
    let ask = || {
        let access = access.clone();
        tokio::spawn(async move { access.decide(&alice(), &schemas()).await })
    };
    let leaves = ask();
    while server.asked() == 0 {
        tokio::task::yield_now().await;
    }
    let waiting: Vec<_> = (0..5).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    leaves.abort();
    gate.notify_one();
    for one in waiting {
        assert!(one.await.unwrap().unwrap().allowed);
    }
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn what_may_help_is_tried_again_and_failures_are_not_remembered() {
    let server = Server::saying([Said::Lost, Said::Yes, Said::Refused, Said::Lost]);
    let settings = AccessSettings {
        first_pause: Duration::from_millis(1),
        ..AccessSettings::default()
    };
    let access = server.access(settings, &manual());
    assert!(access.decide(&alice(), &schemas()).await.unwrap().allowed);
    assert_eq!(server.asked(), 2);
    let other = wanted("/apis");
    let told = |error: AccessError| error.to_string();
    let error = access.decide(&alice(), &other).await.unwrap_err();
    assert_eq!(told(error), "SubjectAccessReview: answered 403");
    assert_eq!(server.asked(), 3);
    let error = access.decide(&alice(), &other).await.unwrap_err();
    assert_eq!(told(error), "SubjectAccessReview: lost");
    assert_eq!(server.asked(), 6);
}

#[tokio::test]
async fn a_question_takes_no_longer_than_its_limit_and_only_so_many_wait() {
    let mut server = Server::saying([Said::Yes]);
    server.gate = Some(Arc::default());
    let settings = AccessSettings {
        max_pending: 1,
        limit: Duration::from_millis(20),
        ..AccessSettings::default()
    };
    let access = server.access(settings, &manual());
    let waiting = {
        let access = access.clone();
        tokio::spawn(async move { access.decide(&alice(), &schemas()).await })
    };
    tokio::task::yield_now().await;
    let one_more = access.decide(&alice(), &wanted("/apis")).await;
    assert_eq!(one_more, Err(AccessError::Overloaded));
    assert_eq!(waiting.await.unwrap(), Err(AccessError::TimedOut));
}
