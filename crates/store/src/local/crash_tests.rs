//! What a file goes through: its writer killed at any moment, its disk full, itself cut short or
//! damaged.
//!
//! The writers are this test program once more, as another process that runs one of the ignored tests
//! named `child_…`.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    LocalStore,
    tests::{Scratch, open, settings, write},
};
use crate::{
    Precondition, ReadRevision, Store, StoreEntry, StoreError, StoreHealth, Watch, WriteOutcome,
    conformance,
};

/// Names the file to a child.
const FILE: &str = "FAIRGATE_STORE_TEST_FILE";
const SEED: &str = "FAIRGATE_STORE_TEST_SEED";

/// A sequence that a seed repeats: Steele's and Vigna's splitmix.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// What a change must have left behind, told by its revision and key alone: so that whoever reads can
/// check it without having heard of it.
fn value_for(key: &str, token: u64) -> Bytes {
    let mut draw = Draw(token);
    let length = draw.below(600);
    let mut value = format!("{key} {token} ").into_bytes();
    value.extend((0..length).map(|_| u8::try_from(draw.below(256)).unwrap()));
    value.into()
}

fn assert_whole(entry: &StoreEntry) {
    let text = String::from_utf8_lossy(&entry.value).into_owned();
    let token = text.split(' ').nth(1).and_then(|token| token.parse().ok());
    let expected = value_for(&entry.key, token.expect("a token"));
    assert!(entry.value == expected, "half of {}", entry.key);
}

/// Runs the test `child` of this program in a process of its own.
fn child(child: &str, file: &Path, seed: u64, limit_kib: Option<u64>) -> Child {
    let module = module_path!().split_once("::").unwrap().1;
    let limit = limit_kib.map_or(String::new(), |kib| format!("ulimit -f {kib};"));
    // Not killed by the limit, but told of it as an error; in blocks of 1024 bytes in bash.
    let script = format!(r#"trap "" XFSZ; {limit} exec "$@""#);
    Command::new("bash")
        .args(["-c", &script, "bash"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("{module}::{child}"),
            "--nocapture",
            "--include-ignored",
        ])
        .env(FILE, file)
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The file that a parent named, in a child.
fn named() -> (PathBuf, u64) {
    let file = std::env::var_os(FILE).expect("a parent names the file");
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    (file.into(), seed)
}

/// A line that the parent reads, whatever the test harness prints around it.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {line}").unwrap();
    out.flush().unwrap();
}

/// The next line that a child told, without what the harness printed.
fn heard(out: &mut impl BufRead) -> Option<String> {
    loop {
        let mut line = String::new();
        if out.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        // Killed within a line it told nothing.
        if let Some(told) = line.strip_prefix("> ")
            && let Some(told) = told.strip_suffix('\n')
        {
            return Some(told.to_owned());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test it is a part of"]
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
            let mut draw = Draw(seed * 4 + writer);
            loop {
                // Keys of its own, so that a write once begun is not lost.
                let key = format!("/{writer}/{}", draw.below(5));
                let current = store.get(&key, ReadRevision::Newest).await.unwrap();
                let expected = current
                    .as_ref()
                    .map_or(Precondition::Absent, |e| Precondition::At(e.revision));
                let token = draw.next();
                let delete = current.is_some() && draw.below(4) == 0;
                let value = (!delete).then(|| value_for(&key, token));
                let WriteOutcome::Done { revision, .. } =
                    store.write(&key, expected, value).await.unwrap()
                else {
                    panic!("lost")
                };
                let what = if delete {
                    "gone".to_owned()
                } else {
                    token.to_string()
                };
                tell(&format!("{revision} {key} {what}"));
            }
        });
    }
    writers.join_next().await;
}

/// What a child said it had written: by revision, the key, and the token or that it is gone.
type Told = BTreeMap<u64, (String, Option<u64>)>;

#[tokio::test]
async fn killed_at_any_moment_no_acknowledged_write_is_lost() {
    const ROUNDS: u64 = 40;
    let seed = std::env::var("FAIRGATE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FAIRGATE_SEED={seed}");
    let mut draw = Draw(seed);
    let scratch = Scratch::new();
    let file = scratch.file();
    let mut told = Told::new();
    for round in 0..ROUNDS {
        let mut writer = child("child_writes_until_killed", &file, draw.next() >> 8, None);
        let mut out = BufReader::new(writer.stdout.take().unwrap());
        // At times while it opens the file, at times after some writes, and then some moments later.
        let after = if round % 4 == 3 { 0 } else { draw.below(60) };
        let first = told.last_key_value().map_or(1, |(&last, _)| last);
        for _ in 0..after {
            let line = heard(&mut out).expect("the writer goes on until it is killed");
            note(&mut told, &line, first);
        }
        for _ in 0..draw.below(200_000) {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Acknowledged as well, but not yet read.
        while let Some(line) = heard(&mut out) {
            note(&mut told, &line, first);
        }
        check(&file, &mut told).await;
    }
    assert!(told.len() > 300, "{}", told.len());
}

#[tokio::test]
async fn killed_while_the_file_is_made_it_is_made_or_not() {
    const ROUNDS: u64 = 20;
    let mut draw = Draw(9);
    let mut made = 0;
    for _ in 0..ROUNDS {
        let scratch = Scratch::new();
        let file = scratch.file();
        let mut writer = child("child_writes_until_killed", &file, draw.next() >> 8, None);
        // Its directory is the first that it makes.
        while !file.parent().unwrap().exists() {
            std::thread::yield_now();
        }
        for _ in 0..draw.below(2_000_000) {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        let out = writer.wait_with_output().unwrap();
        made += u64::from(file.exists());
        let mut told = Told::new();
        let mut out = out.stdout.as_slice();
        while let Some(line) = heard(&mut out) {
            note(&mut told, &line, 1);
        }
        check(&file, &mut told).await;
    }
    println!("{made} of {ROUNDS} were made");
}

fn note(told: &mut Told, line: &str, first: u64) {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap();
    let (revision, key, what) = (word().parse().unwrap(), word(), word());
    assert!(revision > first, "revision {revision} was reused");
    let known = told.insert(revision, (key.to_owned(), what.parse().ok()));
    assert_eq!(known, None, "revision {revision} was given twice");
}

/// After a crash: all that was acknowledged is there, and follows from the history.
async fn check(file: &Path, told: &mut Told) {
    let store = open(file).unwrap();
    let newest = store.revision().await.unwrap();
    let last = told.last_key_value().map_or(1, |(&last, _)| last);
    assert!(newest >= last, "{newest} is before {last}");
    let page = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    page.entries.iter().for_each(|entry| assert_whole(entry));
    let now: BTreeMap<_, _> = page
        .entries
        .iter()
        .map(|e| (e.key.clone(), e.clone()))
        .collect();

    let floor = store.floor();
    let mut state: BTreeMap<_, _> = store
        .list("/", None, None, ReadRevision::Exactly(floor))
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    let mut watch = store.watch("/", floor).unwrap();
    let mut expected = floor;
    for event in read_all(&mut watch) {
        expected += 1;
        assert_eq!(event.revision, expected, "a gap");
        match &event.after {
            Some(after) => {
                assert_whole(after);
                state.insert(event.key.clone(), after.clone());
            }
            None => drop(state.remove(&event.key).expect("it was there")),
        }
        // Nobody saw another content under this revision.
        if let Some((key, token)) = told.get(&event.revision) {
            assert_eq!(**key, *event.key);
            let value = token.map(|token| value_for(key, token));
            assert_eq!(
                event.after.as_ref().map(|after| &after.value),
                value.as_ref()
            );
        }
    }
    assert_eq!(expected, newest);
    let revisions = |state: &BTreeMap<Arc<str>, Arc<StoreEntry>>| -> Vec<_> {
        state
            .iter()
            .map(|(key, entry)| (key.clone(), entry.revision))
            .collect()
    };
    assert_eq!(
        revisions(&state),
        revisions(&now),
        "the state is not the fold of its history"
    );
    // What was acknowledged last of each key is there, or something later.
    let mut latest: BTreeMap<&str, (u64, Option<u64>)> = BTreeMap::new();
    for (&revision, (key, token)) in &*told {
        latest.insert(key, (revision, *token));
    }
    for (key, (revision, token)) in latest {
        match (now.get(key), token) {
            (Some(entry), Some(token)) if entry.revision == revision => {
                assert_eq!(entry.value, value_for(key, token));
            }
            (Some(entry), _) => assert!(entry.revision > revision, "{key} went back"),
            (None, None) => {}
            (None, Some(_)) => {
                let deleted = read_all(&mut store.watch("/", revision.max(floor)).unwrap())
                    .iter()
                    .any(|event| *event.key == *key);
                assert!(deleted, "{key} is lost");
            }
        }
    }
    // Written but not acknowledged: from here on as good as told, so that it stays.
    for event in read_all(&mut store.watch("/", last.max(floor)).unwrap()) {
        let token = event.after.as_ref().map(|after| {
            let text = String::from_utf8_lossy(&after.value).into_owned();
            text.split(' ').nth(1).unwrap().parse().unwrap()
        });
        told.insert(event.revision, (event.key.to_string(), token));
    }
}

fn read_all(watch: &mut Watch) -> Vec<Arc<crate::StoreEvent>> {
    let mut all = Vec::new();
    loop {
        let events = watch.ready().unwrap();
        if events.is_empty() {
            return all;
        }
        all.extend(events);
    }
}

/// A file with some objects and some history, closed.
async fn filled(file: &Path) -> Vec<(Arc<str>, u64, Bytes)> {
    let store = open(file).unwrap();
    let mut draw = Draw(3);
    for n in 0..120 {
        let key = format!("/a/{}", draw.below(40));
        let current = store.get(&key, ReadRevision::Newest).await.unwrap();
        let expected = current
            .as_ref()
            .map_or(Precondition::Absent, |e| Precondition::At(e.revision));
        let value = (current.is_none() || n % 5 > 0).then(|| value_for(&key, n));
        store.write(&key, expected, value).await.unwrap();
    }
    everything(&store).await
}

async fn everything(store: &dyn Store) -> Vec<(Arc<str>, u64, Bytes)> {
    let page = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let entries = page.entries.iter();
    entries
        .map(|e| (e.key.clone(), e.revision, e.value.clone()))
        .collect()
}

#[tokio::test]
async fn a_file_cut_short_anywhere_is_reported() {
    let scratch = Scratch::new();
    let file = scratch.file();
    filled(&file).await;
    let whole = fs::read(&file).unwrap();
    let mut draw = Draw(5);
    let length = whole.len() as u64;
    let mut lengths = vec![
        0,
        1,
        63,
        64,
        319,
        320,
        4095,
        4096,
        4097,
        length / 2,
        length - 4096,
        length - 1,
    ];
    lengths.extend((0..60).map(|_| draw.below(length)));
    for cut in lengths {
        fs::write(&file, &whole[..usize::try_from(cut).unwrap()]).unwrap();
        let error = open(&file).err();
        let error = error.unwrap_or_else(|| panic!("{cut} of {length} bytes were opened"));
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{cut}: {error}"
        );
        assert!(
            error.to_string().contains("restore it from a backup"),
            "{error}"
        );
    }
    fs::write(
        &file,
        b"# not a database at all, but long enough to have been one, perhaps\n",
    )
    .unwrap();
    let error = open(&file).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    fs::write(&file, &whole).unwrap();
    open(&file).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_is_reported_or_harmless() {
    let scratch = Scratch::new();
    let file = scratch.file();
    let expected = filled(&file).await;
    // Closed well, and as a crash leaves it.
    let closed = fs::read(&file).unwrap();
    let store = open(&file).unwrap();
    let last = write(&store, "/a/last", Precondition::Absent, b"last")
        .await
        .unwrap();
    store
        .write("/a/last", Precondition::At(last), None)
        .await
        .unwrap();
    let crashed = fs::read(&file).unwrap();
    drop(store);
    let mut draw = Draw(7);
    for whole in [closed, crashed] {
        flip_bits(&file, &whole, &expected, &mut draw).await;
    }
}

async fn flip_bits(
    file: &Path,
    whole: &[u8],
    expected: &[(Arc<str>, u64, Bytes)],
    draw: &mut Draw,
) {
    fs::write(file, whole).unwrap();
    // What another image left there.
    fs::remove_file(super::database::beside(file, ".lock")).unwrap();
    let before = open(file).unwrap().revision().await.unwrap();
    let (mut reported, mut harmless) = (0, 0);
    for n in 0..500_u64 {
        let (at, bit) = match usize::try_from(n).unwrap() {
            // All of where everything hangs on: which of the last two commits holds, and what it is.
            bit @ ..192 => (bit / 8, bit % 8),
            // The rest of the head, and then where there is anything.
            n => loop {
                let end = if n < 300 { 512 } else { whole.len() as u64 };
                let at = usize::try_from(draw.below(end)).unwrap();
                if n < 300 || whole[at] != 0 {
                    break (at, n % 8);
                }
            },
        };
        let mut damaged = whole.to_vec();
        damaged[at] ^= 1 << bit;
        fs::write(file, &damaged).unwrap();
        match open(file) {
            Ok(store) => {
                let same = everything(&store).await == expected;
                assert!(same, "a bit of byte {at} changed what is read");
                assert_eq!(store.revision().await.unwrap(), before, "bit of byte {at}");
                harmless += 1;
            }
            Err(error) => {
                let clear = matches!(
                    error,
                    StoreError::Corrupt { .. } | StoreError::WentBack { .. }
                );
                assert!(clear, "byte {at}: {error}");
                reported += 1;
            }
        }
    }
    println!("{reported} reported, {harmless} harmless");
    assert!(reported > 30, "{reported} reported, {harmless} harmless");
}

#[tokio::test]
#[ignore = "run by the test it is a part of"]
async fn child_fills_the_disk() {
    let (file, _) = named();
    let store = open(&file).unwrap();
    let mut draw = Draw(11);
    let mut kept = Vec::new();
    let mut refusals = 0;
    while refusals < 3 {
        let key = format!("/a/{}", kept.len() + refusals);
        let value: Vec<u8> = (0..40_000)
            .map(|_| u8::try_from(draw.below(256)).unwrap())
            .collect();
        match write(&store, &key, Precondition::Absent, &value).await {
            Ok(revision) => kept.push((key, revision)),
            Err(error) => {
                assert!(matches!(error, StoreError::Full { .. }), "{error}");
                assert!(error.to_string().contains("make room"), "{error}");
                refusals += 1;
                // What is there is served, the rest is not.
                assert!(matches!(store.health(), StoreHealth::Degraded(_)));
                assert!(
                    store
                        .get(&key, ReadRevision::Newest)
                        .await
                        .unwrap()
                        .is_none()
                );
                assert_eq!(everything(&store).await.len(), kept.len());
            }
        }
    }
    assert!(kept.len() > 5, "{}", kept.len());
    // What takes no room goes on; deleting makes some.
    for (key, revision) in kept.drain(..3) {
        let deleted = store.write(&key, Precondition::At(revision), None).await;
        match deleted {
            Ok(_) => tell(&format!("deleted {key}")),
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error}"),
        }
    }
    tell(&format!("kept {}", kept.len()));
}

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_nothing_half_written() {
    let scratch = Scratch::new();
    let file = scratch.file();
    drop(open(&file).unwrap());
    let start = fs::metadata(&file).unwrap().len() / 1024;
    let mut writer = child("child_fills_the_disk", &file, 0, Some(start + 700));
    let mut out = BufReader::new(writer.stdout.take().unwrap());
    let mut lines = Vec::new();
    while let Some(line) = heard(&mut out) {
        lines.push(line);
    }
    assert!(writer.wait().unwrap().success());
    let kept: usize = lines
        .last()
        .unwrap()
        .strip_prefix("kept ")
        .unwrap()
        .parse()
        .unwrap();
    let deleted = lines.len() - 1;

    // With room again, it goes on.
    let store = open(&file).unwrap();
    let entries = everything(&store).await;
    assert_eq!(entries.len(), kept + 3 - deleted);
    assert!(entries.iter().all(|(_, _, value)| value.len() == 40_000));
    write(&store, "/b", Precondition::Absent, b"1")
        .await
        .unwrap();
}

#[tokio::test]
async fn when_there_is_room_again_writes_work_without_opening_anew() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        panic!("this system has no /dev/full")
    };
    // What the kernel says when a disk is full is what we take for it.
    let error = full.write_all_at(b"x", 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(full);
    // A child may raise its own limit again.
    let scratch = Scratch::new();
    let file = scratch.file();
    drop(open(&file).unwrap());
    let start = fs::metadata(&file).unwrap().len() / 1024;
    let mut writer = child("child_runs_full_and_gets_room", &file, start, None);
    assert!(writer.wait().unwrap().success());
    let store = open(&file).unwrap();
    assert_eq!(everything(&store).await.len(), 1);
}

#[tokio::test]
#[ignore = "run by the test it is a part of"]
async fn child_runs_full_and_gets_room() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (file, start) = named();
    let store = open(&file).unwrap();
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some((start + 8) * 1024),
        maximum: before.maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    let value = Bytes::from(vec![7; 1_000_000]);
    let full = store
        .write("/a", Precondition::Absent, Some(value.clone()))
        .await;
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert!(matches!(store.health(), StoreHealth::Degraded(_)));
    setrlimit(Resource::Fsize, before).unwrap();
    // It finds out by itself, and writes anew.
    while store.health() != StoreHealth::Ready {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let done = store
        .write("/a", Precondition::Absent, Some(value))
        .await
        .unwrap();
    assert!(
        matches!(done, WriteOutcome::Done { revision: 2, .. }),
        "{done:?}"
    );
    assert_eq!(store.health(), StoreHealth::Ready);
}

#[tokio::test]
async fn what_a_crash_left_of_making_the_file_is_in_nobodys_way() {
    let scratch = Scratch::new();
    let file = scratch.file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let leftover = super::database::beside(&file, ".new");
    File::create(&leftover).unwrap().write_all(b"half").unwrap();
    open(&file).unwrap();
    assert!(!leftover.exists());
}
