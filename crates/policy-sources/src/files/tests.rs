//! Which files are read, and when a change counts.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicU32, Ordering},
};

use fairgate_core::{
    apf::policy::{Policy, PolicySettings, Semantics},
    time::Time,
};
use serde_json::json;

use super::*;

/// A directory that is removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        // Tests that run at a time may use the same name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-{}-{name}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn follow(&self) -> FileSource {
        let quick = Duration::from_millis(1);
        FileSource::polling(&self.0, quick, quick)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks the documents of a set, each given by the end of its origin and its value: a number, which
/// a finding reports.
fn assert_documents<const N: usize>(set: &DocumentSet, expected: [(&str, Value); N]) {
    assert_eq!(set.documents.len(), N);
    for (document, (origin, value)) in set.documents.iter().zip(expected) {
        let found = document.findings().next().unwrap();
        assert!(found.origin.ends_with(origin), "{found}");
        assert_eq!(**document, ParsedDocument::parse(&found.origin, value));
    }
}

#[tokio::test]
async fn a_known_revision_is_not_yielded_again() {
    let scratch = Scratch::new("known");
    scratch.write("a.yaml", "1");
    let known = load(&scratch.0).revision;
    let mut files = scratch.follow().after(known.clone());
    let unchanged = time::timeout(Duration::from_millis(50), files.next()).await;
    assert!(unchanged.is_err());
    scratch.write("a.yaml", "2");
    let set = files.next().await;
    assert_documents(&set, [("a.yaml", json!(2))]);
    assert_ne!(set.revision, known);
}

#[test]
fn a_level_that_may_be_in_a_file_with_errors_is_not_said_to_be_missing() {
    let scratch = Scratch::new("missing-level");
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "it"},
        "spec": {"matchingPrecedence": 300, "priorityLevelConfiguration": {"name": "mine"}},
    });
    scratch.write("schema.json", &schema.to_string());
    let warnings = || {
        let settings = PolicySettings {
            total_seats: 600,
            semantics: Semantics::Improved,
            hash_key: [0; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let compiled = Policy::compile(&load(&scratch.0).objects(), &settings).unwrap();
        let missing = |finding: &Finding| finding.message.contains("does not exist");
        compiled.findings.into_iter().filter(missing).count()
    };
    assert_eq!(warnings(), 1);
    scratch.write(
        "level.yaml",
        "kind: PriorityLevelConfiguration\nmetadata: {name: mine",
    );
    assert_eq!(warnings(), 0);
}

#[test]
fn of_a_file_that_cannot_be_read_the_path_is_to_be_checked_and_not_the_text() {
    let scratch = Scratch::new("remedies");
    let remedies = |name: &str| {
        let findings = load(&scratch.0.join(name)).findings;
        findings.into_iter().map(|finding| finding.remedy)
    };
    let absent: Vec<String> = remedies("absent.yaml").collect();
    assert_eq!(absent, ["check the path and its permissions"]);
    scratch.write("broken.yaml", "a: [");
    let broken: Vec<String> = remedies("broken.yaml").collect();
    assert_eq!(broken, ["correct it or leave it out"]);
}

#[test]
fn files_are_read_in_order_and_other_ones_are_not() {
    let scratch = Scratch::new("order");
    scratch.write("b.yml", "2");
    scratch.write("a.yaml", "0\n---\n1\n");
    scratch.write("c.json", "3");
    scratch.write(".hidden.yaml", "9");
    scratch.write("a.yaml~", "9");
    scratch.write("README.md", "9");
    fs::create_dir(scratch.0.join("d.yaml")).unwrap();

    let set = load(&scratch.0);

    let expected = [
        ("a.yaml, document 1", json!(0)),
        ("a.yaml, document 2", json!(1)),
        ("b.yml", json!(2)),
        ("c.json", json!(3)),
    ];
    assert_documents(&set, expected);
    assert_eq!(set.findings, []);
}

#[test]
fn every_unreadable_file_is_reported() {
    let scratch = Scratch::new("unreadable");
    scratch.write("a.yaml", "a: [");
    scratch.write("b.yaml", "1");
    symlink("nowhere", scratch.0.join("c.yaml")).unwrap();

    let set = load(&scratch.0);

    let origins: Vec<_> = set
        .findings
        .iter()
        .map(|f| f.origin.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(origins, ["a.yaml", "c.yaml"]);
    assert_documents(&set, [("b.yaml", json!(1))]);
    assert_eq!(load(Path::new("/nonexistent")).findings.len(), 1);
}

#[test]
fn a_file_without_an_object_is_a_warning() {
    let scratch = Scratch::new("empty");
    scratch.write("a.yaml", "1");
    scratch.write("b.yaml", "");
    scratch.write("c.yaml", "# later\n");
    let set = load(&scratch.0);
    assert_eq!(set.documents.len(), 1);
    let found: Vec<_> = set.findings.iter().map(ToString::to_string).collect();
    let of = |name: &str| {
        format!(
            "warning: {}: holds no object; write what belongs into it, or remove it",
            scratch.0.join(name).display()
        )
    };
    assert_eq!(found, [of("b.yaml"), of("c.yaml")]);
}

#[test]
fn documents_come_from_any_reader() {
    let set = load_from("-", &b"1\n---\n2\n"[..]);
    let expected = [("-, document 1", json!(1)), ("-, document 2", json!(2))];
    assert_documents(&set, expected);
    assert_eq!(load_from("-", &b"a: ["[..]).findings.len(), 1);
}

#[test]
fn a_revision_depends_on_names_and_contents() {
    let scratch = Scratch::new("revision");
    scratch.write("a.yaml", "1");
    let first = load(&scratch.0).revision;
    assert_eq!(load(&scratch.0).revision, first);
    scratch.write("a.yaml", "2");
    let second = load(&scratch.0).revision;
    assert_ne!(second, first);
    fs::rename(scratch.0.join("a.yaml"), scratch.0.join("b.yaml")).unwrap();
    assert_ne!(load(&scratch.0).revision, second);
}

#[tokio::test]
async fn changes_are_followed_whichever_way_they_are_made() {
    let scratch = Scratch::new("follow");
    let mut files = scratch.follow();
    assert!(files.next().await.documents.is_empty());

    scratch.write("a.yaml", "1");
    assert_documents(&files.next().await, [("", json!(1))]);

    scratch.write(".new", "2");
    fs::rename(scratch.0.join(".new"), scratch.0.join("a.yaml")).unwrap();
    assert_documents(&files.next().await, [("", json!(2))]);

    fs::remove_file(scratch.0.join("a.yaml")).unwrap();
    assert!(files.next().await.documents.is_empty());

    fs::remove_dir(&scratch.0).unwrap();
    assert_eq!(files.next().await.findings.len(), 1);

    fs::create_dir(&scratch.0).unwrap();
    assert_eq!(files.next().await.findings, []);
}

#[tokio::test]
async fn a_change_is_found_within_a_second() {
    let scratch = Scratch::new("soon");
    let mut files = FileSource::new(&scratch.0);
    // The pauses before the first and the second reading after a change.
    assert!(files.period + files.settle < Duration::from_millis(900));
    assert!(files.next().await.documents.is_empty());
    scratch.write("a.yaml", "1");
    assert_documents(&files.next().await, [("", json!(1))]);
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_through_its_swaps() {
    let scratch = Scratch::new("swap");
    let version = |name: &str, text: &str| {
        fs::create_dir(scratch.0.join(name)).unwrap();
        scratch.write(&format!("{name}/a.yaml"), text);
        symlink(name, scratch.0.join("..tmp")).unwrap();
        fs::rename(scratch.0.join("..tmp"), scratch.0.join("..data")).unwrap();
    };
    version("..1", "1");
    symlink("..data/a.yaml", scratch.0.join("a.yaml")).unwrap();
    let mut files = scratch.follow();
    assert_documents(&files.next().await, [("", json!(1))]);

    version("..2", "2");
    fs::remove_dir_all(scratch.0.join("..1")).unwrap();
    assert_documents(&files.next().await, [("", json!(2))]);
}

#[tokio::test]
async fn a_nudge_yields_the_set_again_though_nothing_changed() {
    let scratch = Scratch::new("nudge");
    let mut files = FileSource::polling(&scratch.0, Duration::from_secs(3600), Duration::ZERO);
    let first = files.next().await;
    files.nudge().notify_one();
    assert_eq!(files.next().await, first);
}

#[tokio::test]
async fn a_nudge_that_a_dropped_wait_has_taken_still_counts() {
    let scratch = Scratch::new("dropped-nudge");
    let hour = Duration::from_secs(3600);
    let mut files = FileSource::polling(&scratch.0, hour, Duration::ZERO);
    let first = files.next().await;
    files.nudged = true;
    assert_eq!(files.next().await, first);
}

#[tokio::test]
async fn files_that_cancelled_calls_have_read_are_in_the_next_set() {
    let scratch = Scratch::new("cancelled");
    scratch.write("a.yaml", "1");
    let clock = Clock::manual(Time::ZERO);
    let mut files = scratch.follow();
    files.clock = clock.clone();
    // Calls that are cancelled while the files settle have come this far. From the second one on their stamps are old.
    for _ in 0..2 {
        assert!(files.read_changed().await.is_some());
        clock.advance(Duration::from_secs(3));
    }
    let next = time::timeout(Duration::from_secs(60), files.next()).await;
    assert_documents(&next.unwrap(), [("", json!(1))]);
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_no_change() {
    let scratch = Scratch::new("dropped");
    let mut files = scratch.follow();
    files.next().await;
    scratch.write("a.yaml", "1");
    tokio::select! {
        biased;
        _ = files.next() => panic!("a reading takes longer than one poll"),
        () = std::future::ready(()) => {}
    }
    assert_documents(&files.next().await, [("", json!(1))]);
}
