//! Writers that are killed at any moment: acknowledged writes are kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, Write as _},
    path::Path,
    sync::Arc,
};

use fairgate_testkit::random::Random;

use super::{
    super::{LocalStore, database::beside},
    Scratch,
    children::{assert_whole, child, named, next_report, read_all, report, value_for},
    open, settings,
};
use crate::{Precondition, ReadRevision, Store as _, StoreEntry, WriteOutcome, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in a process that another test starts"]
async fn child_writes_until_killed() {
    let (file, seed) = named();
    let mut settings = settings(&file);
    // Some rounds drop history as well.
    settings.limits.events = if seed.is_multiple_of(3) { 50 } else { 100_000 };
    let store = Arc::new(LocalStore::open(settings, conformance::clock()).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4_u64 {
        let store = store.clone();
        writers.spawn(async move {
            let mut random = Random::seeded(seed * 4 + writer);
            loop {
                // Each writer has keys of its own, so it never loses a race.
                let key = format!("/{writer}/{}", random.within(0..5));
                let current = store.get(&key, ReadRevision::Newest).await.unwrap();
                let expected = current
                    .as_ref()
                    .map_or(Precondition::Absent, |e| Precondition::At(e.revision));
                let token = random.number();
                let delete = current.is_some() && random.within(0..4) == 0;
                let value = (!delete).then(|| value_for(&key, token));
                let WriteOutcome::Done { revision, .. } =
                    store.write(&key, expected, value).await.unwrap()
                else {
                    panic!("lost")
                };
                let content = if delete {
                    "gone".to_owned()
                } else {
                    token.to_string()
                };
                report(&format!("{revision} {key} {content}"));
            }
        });
    }
    writers.join_next().await;
}

/// The writes that a child has reported: by revision, the key, and the token, or `None` for a deletion.
type Acknowledged = BTreeMap<u64, (String, Option<u64>)>;

#[tokio::test]
async fn no_acknowledged_write_is_lost_when_the_writer_is_killed() {
    const ROUNDS: u64 = 40;
    let seed = std::env::var("FAIRGATE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FAIRGATE_SEED={seed}");
    let mut random = Random::seeded(seed);
    let scratch = Scratch::new();
    let file = scratch.file();
    let mut acknowledged = Acknowledged::new();
    for round in 0..ROUNDS {
        let mut writer = child(
            &format!("{}::child_writes_until_killed", module_path!()),
            &file,
            random.number() >> 8,
            None,
        );
        let mut out = BufReader::new(writer.stdout.take().unwrap());
        // Every fourth time soon after the start, otherwise some moments after a number of writes.
        let after = if round % 4 == 3 {
            0
        } else {
            random.within(0..60)
        };
        let first = acknowledged.last_key_value().map_or(1, |(&last, _)| last);
        for _ in 0..after {
            let line = next_report(&mut out).expect("the writer runs until it is killed");
            note(&mut acknowledged, &line, first);
        }
        for _ in 0..random.within(0..200_000) {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Reported before the kill, but not read yet.
        while let Some(line) = next_report(&mut out) {
            note(&mut acknowledged, &line, first);
        }
        check_after_crash(&file, &mut acknowledged).await;
    }
    assert!(acknowledged.len() > 300, "{}", acknowledged.len());
}

#[tokio::test]
async fn a_writer_killed_while_it_creates_the_file_leaves_all_of_it_or_nothing() {
    const ROUNDS: u64 = 20;
    let mut random = Random::seeded(9);
    let mut made = 0;
    for _ in 0..ROUNDS {
        let scratch = Scratch::new();
        let file = scratch.file();
        let mut writer = child(
            &format!("{}::child_writes_until_killed", module_path!()),
            &file,
            random.number() >> 8,
            None,
        );
        // It creates the directory first.
        while !file.parent().unwrap().exists() {
            std::thread::yield_now();
        }
        for _ in 0..random.within(0..2_000_000) {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        let out = writer.wait_with_output().unwrap();
        made += u64::from(file.exists());
        let mut acknowledged = Acknowledged::new();
        let mut out = out.stdout.as_slice();
        while let Some(line) = next_report(&mut out) {
            note(&mut acknowledged, &line, 1);
        }
        check_after_crash(&file, &mut acknowledged).await;
    }
    println!("{made} of {ROUNDS} files were created");
}

#[tokio::test]
async fn a_leftover_of_a_crash_during_creation_is_removed() {
    let scratch = Scratch::new();
    let file = scratch.file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let leftover = beside(&file, ".new");
    File::create(&leftover).unwrap().write_all(b"half").unwrap();
    open(&file).unwrap();
    assert!(!leftover.exists());
}

/// Notes a reported write.
fn note(acknowledged: &mut Acknowledged, line: &str, first: u64) {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap();
    let (revision, key, content) = (word().parse().unwrap(), word(), word());
    assert!(revision > first, "revision {revision} was reused");
    let known = acknowledged.insert(revision, (key.to_owned(), content.parse().ok()));
    assert_eq!(known, None, "revision {revision} was given twice");
}

/// After a crash: all acknowledged writes are there, and the state follows from the history.
///
/// Writes that are there without having been acknowledged are added to `acknowledged`: they must stay, too.
async fn check_after_crash(file: &Path, acknowledged: &mut Acknowledged) {
    let store = open(file).unwrap();
    let newest = store.revision().await.unwrap();
    let last = acknowledged.last_key_value().map_or(1, |(&last, _)| last);
    assert!(newest >= last, "{newest} is before {last}");
    let state = state_at(&store, ReadRevision::Newest).await;
    for entry in state.values() {
        assert_whole(entry);
    }

    let replayed = replay(&store, acknowledged).await;
    let revisions = |state: &State| -> Vec<_> {
        let entries = state.iter();
        entries
            .map(|(key, entry)| (key.clone(), entry.revision))
            .collect()
    };
    assert_eq!(
        revisions(&replayed),
        revisions(&state),
        "the state does not follow from its history"
    );
    check_latest(&store, &state, acknowledged);

    let floor = store.floor();
    for event in read_all(&mut store.watch("/", last.max(floor)).unwrap()) {
        let token = event.after.as_ref().map(|after| {
            let text = String::from_utf8_lossy(&after.bytes()).into_owned();
            text.split(' ').nth(1).unwrap().parse().unwrap()
        });
        acknowledged.insert(event.revision, (event.key.to_string(), token));
    }
}

/// Entries by their keys.
type State = BTreeMap<Arc<str>, Arc<StoreEntry>>;

async fn state_at(store: &LocalStore, revision: ReadRevision) -> State {
    let page = store.list("/", None, None, revision).await.unwrap();
    let entries = page.entries.into_iter();
    entries.map(|entry| (entry.key.clone(), entry)).collect()
}

/// The state at the floor with all changes since then. Checks that no revision is missing, and that each has the
/// content that was acknowledged for it.
async fn replay(store: &LocalStore, acknowledged: &Acknowledged) -> State {
    let floor = store.floor();
    let mut state = state_at(store, ReadRevision::Exactly(floor)).await;
    let mut revision = floor;
    for event in read_all(&mut store.watch("/", floor).unwrap()) {
        revision += 1;
        assert_eq!(event.revision, revision, "a gap");
        match &event.after {
            Some(after) => {
                assert_whole(after);
                state.insert(event.key.clone(), after.clone());
            }
            None => drop(state.remove(&event.key).expect("it was there")),
        }
        if let Some((key, token)) = acknowledged.get(&event.revision) {
            assert_eq!(**key, *event.key);
            let value = token.map(|token| value_for(key, token));
            assert_eq!(event.after.as_ref().map(|after| after.bytes()), value);
        }
    }
    assert_eq!(revision, store.revision().await.unwrap());
    state
}

/// Checks that each key has the content that was acknowledged last, or a later one.
fn check_latest(store: &LocalStore, state: &State, acknowledged: &Acknowledged) {
    let mut latest: BTreeMap<&str, (u64, Option<u64>)> = BTreeMap::new();
    for (&revision, (key, token)) in acknowledged {
        latest.insert(key, (revision, *token));
    }
    for (key, (revision, token)) in latest {
        match (state.get(key), token) {
            (Some(entry), Some(token)) if entry.revision == revision => {
                assert_eq!(entry.bytes(), value_for(key, token));
            }
            (Some(entry), _) => assert!(entry.revision > revision, "{key} went back"),
            (None, None) => {}
            (None, Some(_)) => {
                let since = revision.max(store.floor());
                let deleted = read_all(&mut store.watch("/", since).unwrap())
                    .iter()
                    .any(|event| *event.key == *key);
                assert!(deleted, "{key} is lost");
            }
        }
    }
}
