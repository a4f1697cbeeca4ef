//! Several replicas on one etcd.

use std::time::Duration;

use bytes::Bytes;

use super::{create, open, prefix, settings, shared};
use crate::{Precondition, ReadRevision, WriteOutcome, conformance, etcd::EtcdRecords};
use fairgate_testkit::etcd::EtcdServer;

#[tokio::test]
async fn replicas_see_what_the_others_write_in_the_same_order() {
    const WRITES: usize = 20;
    let prefix = prefix();
    let endpoint = shared().endpoint();
    let one = open(settings(endpoint.clone(), &prefix)).await;
    let other = open(settings(endpoint, &prefix)).await;
    let start = one.revision().await.unwrap();
    let mut watches = [
        one.watch("/", start).unwrap(),
        other.watch("/", start).unwrap(),
    ];
    for n in 0..WRITES {
        let (writer, reader) = if n % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let key = format!("/a/{n}");
        let revision = create(&**writer, &key, "1").await;
        // A replica reads at once what another has acknowledged.
        let page = reader
            .list("/a/", None, None, ReadRevision::Newest)
            .await
            .unwrap();
        assert_eq!(page.entries.len(), n + 1);
        let entry = reader
            .get(&key, ReadRevision::Newest)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(entry.revision, revision);
        let again = reader
            .write(&key, Precondition::Absent, Some(Bytes::new()))
            .await;
        assert!(matches!(again, Ok(WriteOutcome::Lost(Some(found))) if found.revision == revision));
    }
    let mut seen = Vec::new();
    for watch in &mut watches {
        let mut revisions = Vec::new();
        while revisions.len() < WRITES {
            let events = watch.next().await.unwrap();
            revisions.extend(
                events
                    .iter()
                    .map(|event| (event.revision, event.key.clone())),
            );
        }
        seen.push(revisions);
    }
    assert_eq!(seen[0], seen[1]);
}

/// The first revision of the history, or 0 if it has never been compacted.
pub(super) async fn oldest_revision(client: &etcd_client::Client) -> i64 {
    // The error of a watch from the beginning names it.
    let options = etcd_client::WatchOptions::new()
        .with_start_revision(1)
        .with_all_keys();
    let mut client = client.watch_client();
    let mut stream = client.watch("", Some(options)).await.unwrap();
    loop {
        let response = stream.message().await.unwrap().unwrap();
        if response.canceled() {
            return response.compact_revision();
        }
        if !response.created() {
            return 0;
        }
    }
}

/// What only writes records keeps no history either.
#[tokio::test]
async fn records_compact_the_cluster_if_they_are_told_to() {
    let server = EtcdServer::start();
    let client = server.client().await;
    let mut settings = settings(server.endpoint(), "/fleets/a");
    let kept = EtcdRecords::start(&settings).unwrap();
    settings.compaction = Some(Duration::from_millis(50));
    let mut revision = 0;
    let mut write = async |records: &EtcdRecords| {
        let written = records.write("ledger", revision, vec![1]).await.unwrap();
        revision = written.expect("nobody else writes it");
        revision
    };
    let mut first = 0;
    for _ in 0..20 {
        first = write(&kept).await;
    }
    assert_eq!(oldest_revision(&client).await, 0, "nobody compacts yet");
    let compacting = [(); 2].map(|()| EtcdRecords::start(&settings).unwrap());
    // A lost round is followed by others.
    let compacts = async {
        while oldest_revision(&client).await < i64::try_from(first).unwrap() {
            write(&compacting[0]).await;
        }
    };
    let compacted = tokio::time::timeout(Duration::from_secs(60), compacts).await;
    assert!(compacted.is_ok(), "nobody compacts");
    let read = compacting[1]
        .get("ledger")
        .await
        .unwrap()
        .expect("it is there");
    assert!(read.revision >= first, "the record itself stays");
}

#[tokio::test]
async fn one_of_several_replicas_compacts_in_each_interval() {
    let server = EtcdServer::start();
    let clock = conformance::clock();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let mut settings = settings(server.endpoint(), "/fairgate");
        settings.compaction = Some(Duration::from_secs(300));
        replicas.push(open(settings).await);
    }
    let client = server.client().await;
    let oldest = async || oldest_revision(&client).await;
    let mut noted = Vec::new();
    for round in 0..4_usize {
        for n in 0..5 {
            create(&*replicas[0], &format!("/a/{round}-{n}"), "1").await;
        }
        let before = replicas[0].revision().await.unwrap();
        for replica in &replicas {
            replica.maintain(clock.now()).await.unwrap();
            // Before the interval is over, no replica does anything.
            replica.maintain(clock.now()).await.unwrap();
        }
        let after = replicas[0].revision().await.unwrap();
        assert_eq!(after - before, 1, "one of them took the turn");
        noted.push(after);
        let oldest = u64::try_from(oldest().await).unwrap();
        let expected = round.checked_sub(1).map_or(0, |last| noted[last]);
        assert_eq!(oldest, expected, "round {round}: {noted:?}");
        clock.advance(Duration::from_secs(300));
    }
}
