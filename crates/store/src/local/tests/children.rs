//! Writers in processes of their own: this test program, running one of the ignored tests named `child_…`.

use std::{
    io::{BufRead, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use fairgate_testkit::random::Random;

use crate::{ReadRevision, Store, StoreEntry, StoreEvent, Watch};

/// Environment variables for a child: the file, and the seed of its random numbers.
const FILE: &str = "FAIRGATE_STORE_TEST_FILE";
const SEED: &str = "FAIRGATE_STORE_TEST_SEED";

/// A value that contains the key and a token and follows from them, so that a reader can check it without knowing
/// the write.
pub(super) fn value_for(key: &str, token: u64) -> Bytes {
    let mut random = Random::seeded(token);
    let length = random.within(0..600);
    let mut value = format!("{key} {token} ").into_bytes();
    value.extend((0..length).map(|_| u8::try_from(random.within(0..256)).unwrap()));
    value.into()
}

/// Asserts that a value is exactly as it was written.
pub(super) fn assert_whole(entry: &StoreEntry) {
    let text = String::from_utf8_lossy(&entry.bytes()).into_owned();
    let token = text.split(' ').nth(1).and_then(|token| token.parse().ok());
    let expected = value_for(&entry.key, token.expect("a token"));
    assert!(entry.bytes() == expected, "{} is not whole", entry.key);
}

/// Runs the test with the full path `test` of this program in a process of its own.
pub(super) fn child(test: &str, file: &Path, seed: u64, limit_kib: Option<u64>) -> Child {
    let (_, test) = test.split_once("::").unwrap();
    let limit = limit_kib.map_or(String::new(), |kib| format!("ulimit -f {kib};"));
    // The limit counts blocks of 1024 bytes in bash. The child gets an error instead of a signal.
    let script = format!(r#"trap "" XFSZ; {limit} exec "$@""#);
    Command::new("bash")
        .args(["-c", &script, "bash"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(FILE, file)
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// In a child: the file and the seed that the parent has passed.
pub(super) fn named() -> (PathBuf, u64) {
    let file = std::env::var_os(FILE).expect("a parent names the file");
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    (file.into(), seed)
}

/// In a child: prints a line for the parent, marked among the output of the test harness.
pub(super) fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {line}").unwrap();
    out.flush().unwrap();
}

/// The next line that a child has reported.
pub(super) fn next_report(out: &mut impl BufRead) -> Option<String> {
    loop {
        let mut line = String::new();
        if out.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        // A line that was cut off by the kill does not count.
        if let Some(report) = line.strip_prefix("> ")
            && let Some(report) = report.strip_suffix('\n')
        {
            return Some(report.to_owned());
        }
    }
}

/// All events that a watch has at once.
pub(super) fn read_all(watch: &mut Watch) -> Vec<Arc<StoreEvent>> {
    let mut all = Vec::new();
    loop {
        let events = watch.ready().unwrap();
        if events.is_empty() {
            return all;
        }
        all.extend(events);
    }
}

/// All entries: key, revision and value.
pub(super) async fn everything(store: &dyn Store) -> Vec<(Arc<str>, u64, Bytes)> {
    let page = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let entries = page.entries.iter();
    entries
        .map(|e| (e.key.clone(), e.revision, e.bytes()))
        .collect()
}
