//! Writes whose response is lost, or which arrive only after they were repeated: each takes place once.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    history::{change, text},
    members::Cluster,
    until_ready,
};
use crate::{Precondition, ReadRevision, Store, StoreError, StoreHealth, WriteOutcome};

/// More writes than there are members, so some go to each.
const WRITES: usize = 9;

fn key(number: usize) -> String {
    format!("/a/{number}")
}

/// Makes several writes at once. Values name the key and a step.
async fn write_all(
    store: &Arc<dyn Store>,
    step: &str,
    expected: impl Fn(usize) -> Precondition,
    deletes: bool,
) -> Vec<Result<u64, StoreError>> {
    let mut writes = Vec::new();
    for number in 0..WRITES {
        let (store, expected) = (Arc::clone(store), expected(number));
        let value = (!deletes).then(|| Bytes::from(format!("{number} {step}")));
        writes.push(tokio::spawn(async move {
            match store.write(&key(number), expected, value).await? {
                WriteOutcome::Done { revision, .. } => Ok(revision),
                WriteOutcome::Lost(found) => panic!("write {number} lost to {found:?}"),
            }
        }));
    }
    let mut written = Vec::new();
    for write in writes {
        written.push(write.await.unwrap());
    }
    written
}

async fn until_all_answer(store: &dyn Store) {
    let health = until_ready(store, true).await;
    assert_eq!(health, StoreHealth::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_response_is_lost_takes_place_once_and_is_acknowledged() {
    let cluster = Cluster::start().await;
    let (store, relay) = (&cluster.stores[0], &cluster.relays[0]);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();
    let at = |written: &[Result<u64, StoreError>]| {
        let revisions: Vec<_> = written
            .iter()
            .map(|write| *write.as_ref().unwrap())
            .collect();
        move |number: usize| Precondition::At(revisions[number])
    };

    relay.cut_responses();
    let created = write_all(store, "created", |_| Precondition::Absent, false).await;
    relay.mend();
    until_all_answer(&**store).await;
    relay.cut_responses();
    let changed = write_all(store, "changed", at(&created), false).await;
    relay.mend();
    until_all_answer(&**store).await;
    relay.cut_responses();
    let deleted = write_all(store, "deleted", at(&changed), true).await;
    relay.mend();

    let page = store.list("/a/", None, None, ReadRevision::Newest).await;
    assert!(page.unwrap().entries.is_empty());
    // A deletion has no value by which it could be recognised.
    let unknown = deleted.iter().filter_map(|write| write.as_ref().err());
    for error in unknown {
        let text = error.to_string();
        assert!(
            text.ends_with("was deleted, by this call or another"),
            "{text}"
        );
    }
    let mut seen = Vec::new();
    while seen.len() < 3 * WRITES {
        seen.extend(
            watch
                .next()
                .await
                .unwrap()
                .iter()
                .map(|event| change(event)),
        );
    }
    for number in 0..WRITES {
        let of_key = seen.iter().filter(|(of, ..)| *of == key(number));
        let of_key: Vec<_> = of_key.map(|(_, at, value)| (*at, value.clone())).collect();
        let value = |step: &str| Some(format!("{number} {step}"));
        assert_eq!(of_key.len(), 3, "{of_key:?}");
        assert_eq!(
            of_key[0],
            (*created[number].as_ref().unwrap(), value("created"))
        );
        assert_eq!(
            of_key[1],
            (*changed[number].as_ref().unwrap(), value("changed"))
        );
        assert_eq!(of_key[2].1, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_arrives_after_it_was_repeated_changes_nothing() {
    let cluster = Cluster::start().await;
    let (store, relay) = (&cluster.stores[0], &cluster.relays[0]);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();

    relay.cut();
    let created = write_all(store, "created", |_| Precondition::Absent, false).await;
    let created: Vec<_> = created.into_iter().map(Result::unwrap).collect();
    let at = |number: usize| Precondition::At(created[number]);
    for write in write_all(store, "deleted", at, true).await {
        write.unwrap();
    }
    // Now the member gets the creations.
    relay.mend();
    until_all_answer(&**store).await;
    let mut last = 0;
    for number in 0..20 {
        let value = Bytes::from(format!("later {number}"));
        let key = format!("/a/later{number}");
        let written = store.write(&key, Precondition::Absent, Some(value)).await;
        match written.unwrap() {
            WriteOutcome::Done { revision, .. } => last = revision,
            WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
        }
    }
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(_, at, _)| *at < last) {
        seen.extend(
            watch
                .next()
                .await
                .unwrap()
                .iter()
                .map(|event| change(event)),
        );
    }
    for number in 0..WRITES {
        let changes = seen.iter().filter(|(of, ..)| *of == key(number)).count();
        assert_eq!(changes, 2, "{seen:?}");
    }
    let page = store.list("/a/", None, None, ReadRevision::Newest).await;
    let values = page.unwrap().entries;
    assert!(
        values
            .iter()
            .all(|entry| text(&entry.bytes()).starts_with("later"))
    );
    assert_eq!(values.len(), 20);
}
