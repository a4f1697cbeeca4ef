//! Rules that keep the repository as ARCHITECTURE.md describes it: which module must not use which, and what a file must
//! have.
//!
//! The tests read text, so a name in a string counts, too; comments do not.

mod circles;
mod crates_page;
mod dependencies;
mod documents;
mod profiles;
mod reference;
mod rules;
mod sizes;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Crates that only these files may name, so that they can be replaced.
const BEHIND: &[(&str, &[&str])] = &[
    (
        "serde_yaml",
        &[
            "crates/manifest/src/yaml/documents.rs",
            "crates/manifest/src/yaml/lines.rs",
            "crates/manifest/src/yaml/manifest.rs",
        ],
    ),
    (
        "use kube::",
        &[
            "crates/policy-sources/src/kube/listing.rs",
            "crates/policy-sources/src/kube/mod.rs",
            "crates/upstream/src/informer/mod.rs",
            "crates/upstream/src/informer/pauses.rs",
            "crates/upstream/src/informer/transport.rs",
            "crates/upstream/src/informer/watch_error.rs",
            "crates/upstream/src/informer/watched_object.rs",
            "crates/check-cli/src/in_force/cluster.rs",
            "crates/check-cli/src/in_force/kubeconfig.rs",
        ],
    ),
];

/// The ways to read the time. Only `clock` may.
const READS_TIME: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
];

/// The ways to start threads. Those that may hold the value of a document are started by `stack`, or with its size.
const STARTS_THREADS: &[&str] = &[
    "thread::Builder::new()",
    "thread::spawn(",
    "Builder::new_multi_thread()",
];

/// Files that start other threads, and what these do.
const OTHER_THREADS: &[(&str, &str)] = &[
    ("crates/base/src/stack.rs", "they have the stack"),
    ("crates/observe/src/log.rs", "writes lines"),
    ("crates/store/src/local/mod.rs", "writes bytes"),
    (
        "src/app/admission/admission_log.rs",
        "writes records, which are flat",
    ),
    (
        "crates/demo/src/lib.rs",
        "clients and an upstream, which send what the demonstration is made of",
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files with an extension below a directory, by their paths in the repository.
fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The source files of all crates.
pub(crate) fn sources() -> Vec<PathBuf> {
    let crates = files("crates", "rs");
    let in_src = |path: &PathBuf| path.iter().any(|part| part == "src");
    let mut all = files("src", "rs");
    all.extend(files("loadtest/src", "rs"));
    all.extend(crates.into_iter().filter(in_src));
    all
}

pub(crate) fn is_test(path: &Path) -> bool {
    let text = path.to_str().unwrap();
    text.contains("/tests/") || text.contains("/conformance/") || text.ends_with("tests.rs")
}

/// The code of a source file: without comments, and without its tests.
pub(crate) fn code(path: &Path) -> String {
    let text = read(path);
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reports all of `wrong` at once.
pub(crate) fn nothing_is(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The top-level modules that `code` names, by `crate::x` or in a `crate::{…}`.
fn modules_named(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if is_word {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            named.insert(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' => begins |= depth == 0,
                c if depth == 0 && begins && !c.is_whitespace() => {
                    named.insert(word(&group[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    named
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

#[test]
fn modules_are_found_in_every_form_of_use() {
    let code =
        "use crate::{\n a::{b, c::{d}},\n e,\n};\nuse crate::f::g;\nmycrate::h; (crate::i::j)";
    let named: Vec<_> = modules_named(code).into_iter().collect();
    assert_eq!(named, ["a", "e", "f", "i"]);
}

#[test]
fn some_crates_are_used_by_one_module_only() {
    let mut wrong = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let code = code(path);
        for (name, allowed) in BEHIND {
            if code.contains(name) && !allowed.iter().any(|file| path == Path::new(file)) {
                wrong.push(format!(
                    "{}: names {name}; go through {allowed:?}",
                    path.display()
                ));
            }
        }
    }
    nothing_is(&wrong);
}

#[test]
fn every_source_file_says_what_it_is() {
    let mut wrong = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let text = read(path);
        let first = text.lines().next().unwrap_or_default();
        if first
            .strip_prefix("//! ")
            .is_none_or(|says| says.len() < 12)
        {
            wrong.push(format!("{}: opens with {first:?}", path.display()));
        }
    }
    nothing_is(&wrong);
}

#[test]
fn only_the_clock_reads_time() {
    let mut wrong = Vec::new();
    for path in sources() {
        let text = read(&path);
        for way in READS_TIME {
            if path != Path::new("crates/base/src/clock.rs") && text.contains(way) {
                wrong.push(format!("{}: {way}", path.display()));
            }
        }
    }
    nothing_is(&wrong);
}

#[test]
fn no_mark_of_unfinished_work_is_left() {
    let marks = ["todo!", "unimplemented!", "FIXME", "XXX", "TODO"];
    let mut wrong = Vec::new();
    for directory in [
        "crates", "src", "loadtest", "tests", "benches", "examples", "config",
    ] {
        for extension in ["rs", "go", "yaml"] {
            for path in files(directory, extension) {
                if path.ends_with("tidy.rs") || path.iter().any(|part| part == ".cache") {
                    continue;
                }
                for (number, line) in read(&path).lines().enumerate() {
                    if marks.iter().any(|mark| line.contains(mark)) {
                        wrong.push(format!(
                            "{}:{}: {}",
                            path.display(),
                            number + 1,
                            line.trim()
                        ));
                    }
                }
            }
        }
    }
    nothing_is(&wrong);
}

#[test]
fn threads_that_may_hold_a_document_have_the_stack_for_it() {
    let mut wrong = Vec::new();
    for path in sources() {
        let is_other = OTHER_THREADS
            .iter()
            .any(|(file, _)| path == Path::new(file));
        // The core starts threads in its tests alone.
        let others = ["loadtest", "crates/loadkit", "crates/core"];
        let is_of_gateway = !others.iter().any(|other| path.starts_with(other));
        if is_test(&path) || is_other || !is_of_gateway || is_only_for_tests(&path) {
            continue;
        }
        let code = code(&path);
        for starts in STARTS_THREADS {
            for (at, _) in code.match_indices(starts) {
                let rest: String = code[at..].lines().take(5).collect();
                if !rest.contains("STACK_BYTES") {
                    wrong.push(format!(
                        "{}: {starts}: use fairgate_base::stack",
                        path.display()
                    ));
                }
            }
        }
    }
    nothing_is(&wrong);
}

/// Whether the file is a module of tests by its declaration, or of a crate for tests.
fn is_only_for_tests(path: &Path) -> bool {
    let text = path.to_str().unwrap();
    text.contains("crates/testkit/")
        || text.ends_with("_tests.rs")
        || text.ends_with("deep_documents.rs")
}
