//! Rules that keep the repository as ARCHITECTURE.md describes it: which module may use which, and what a file must have.
//!
//! The tests read text, so a name in a string counts, too; comments do not.

mod circles;
mod documents;
mod reference;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// For each crate with several modules, which module may use which. Tests may use all. The compiler checks the
/// dependencies between crates.
const CRATES: &[(&str, Edges)] = &[
    ("crates/core/src", CORE),
    ("crates/base/src", BASE),
    ("crates/upstream/src", UPSTREAM),
    ("crates/proxy/src", PROXY),
    ("crates/store/src", STORE),
    ("crates/objects/src", OBJECTS),
    ("crates/eviction/src", EVICTION),
    ("crates/apiserver/src", APISERVER),
    ("crates/evictor/src", EVICTOR),
    ("src", SERVER),
];

/// Modules, and which others each may use.
type Edges = &'static [(&'static str, &'static [&'static str])];

/// The pure core.
const CORE: Edges = &[
    ("sync", &[]),
    ("time", &[]),
    ("finding", &[]),
    ("go_duration", &[]),
    ("names", &[]),
    ("random", &[]),
    ("rejection", &[]),
    ("mailbox", &["sync"]),
    ("digest", &["go_duration", "names"]),
    (
        "apf",
        &["digest", "finding", "names", "rejection", "sync", "time"],
    ),
    ("cells", &["digest", "rejection"]),
];

/// What all other crates with a runtime use.
const BASE: Edges = &[
    ("clock", &[]),
    ("events", &[]),
    ("local", &[]),
    ("log_limit", &[]),
    ("socket", &[]),
];

/// The gateway as a client of its upstream.
const UPSTREAM: Edges = &[
    ("tls", &[]),
    ("endpoint", &["tls"]),
    ("dial", &["endpoint"]),
    ("client", &["dial", "endpoint"]),
    ("cache", &[]),
    ("lookup", &["cache"]),
    ("review", &["client", "lookup"]),
    ("token_review", &["cache", "client", "lookup", "review"]),
    ("access_review", &["cache", "client", "lookup", "review"]),
];

/// The request path, whose layers never use each other.
const PROXY: Edges = &[
    ("serve", &[]),
    ("auth", &[]),
    ("fairness", &[]),
    ("forward", &[]),
    ("stack", &[]),
];

/// The stores: what is kept, the mirror in memory, and the two that feed it.
const STORE: Edges = &[
    ("error", &[]),
    ("entry", &["error"]),
    ("history", &["entry"]),
    ("types", &["entry"]),
    ("migration", &[]),
    ("mirror", &["entry", "error", "history", "types"]),
    ("watch", &["entry", "error", "mirror"]),
    ("store", &["entry", "error", "types", "watch"]),
    (
        "etcd",
        &[
            "entry",
            "error",
            "history",
            "migration",
            "mirror",
            "store",
            "types",
            "watch",
        ],
    ),
    (
        "local",
        &[
            "entry",
            "error",
            "history",
            "migration",
            "mirror",
            "store",
            "types",
            "watch",
        ],
    ),
];

/// Disruption budgets and evictions.
const EVICTION: Edges = &[
    ("read", &[]),
    ("int_or_percent", &[]),
    ("conditions", &["read"]),
    ("labels", &["read"]),
    ("pod", &["labels", "read"]),
    ("budget", &["int_or_percent", "pod", "read"]),
    ("amounts", &["budget", "int_or_percent", "pod"]),
    ("waiting", &[]),
    ("advice", &["budget", "int_or_percent", "pod"]),
    (
        "controller",
        &[
            "amounts",
            "budget",
            "conditions",
            "int_or_percent",
            "pod",
            "read",
        ],
    ),
    ("procedure", &["budget", "conditions", "pod", "read"]),
];

/// What an API object is: tables first, then what reads them, then the kinds.
const OBJECTS: Edges = &[
    ("go", &[]),
    ("schema", &["go"]),
    ("field_error", &["go"]),
    ("kind", &["field_error", "schema"]),
    ("disruption_budget", &["field_error"]),
    ("selector", &["go"]),
    ("codec", &["go", "schema"]),
    ("internal_form", &["codec", "schema"]),
    ("metadata", &["codec", "field_error", "go", "schema"]),
    ("patch", &["codec", "go", "schema"]),
    ("ssa", &["go", "schema"]),
    ("object", &["codec", "kind", "metadata"]),
    ("table", &["go", "kind", "metadata", "object", "schema"]),
    (
        "kinds",
        &[
            "disruption_budget",
            "field_error",
            "internal_form",
            "kind",
            "metadata",
            "schema",
            "table",
        ],
    ),
];

/// The hosted API: from errors and parameters up to the layer.
const APISERVER: Edges = &[
    ("status_error", &[]),
    ("query", &["status_error"]),
    ("negotiate", &["query", "status_error"]),
    ("request", &["status_error"]),
    ("ownership", &[]),
    ("discovery", &["ownership"]),
    ("object_writer", &["negotiate"]),
    ("list_parameters", &["query", "status_error"]),
    ("stored", &["status_error"]),
    (
        "watch_stream",
        &[
            "list_parameters",
            "negotiate",
            "object_writer",
            "status_error",
            "stored",
        ],
    ),
    (
        "response",
        &[
            "discovery",
            "negotiate",
            "object_writer",
            "status_error",
            "watch_stream",
        ],
    ),
    (
        "admin",
        &["negotiate", "request", "response", "status_error"],
    ),
    ("authorize", &["status_error"]),
    ("access", &["authorize", "negotiate", "request", "response"]),
    ("posted", &["negotiate", "query", "request", "status_error"]),
    ("continue_token", &["status_error"]),
    ("random", &["status_error"]),
    ("route", &[]),
    ("fuzzing", &["route"]),
    ("namespaces", &["status_error"]),
    ("state", &["namespaces", "negotiate"]),
    (
        "calls",
        &[
            "continue_token",
            "list_parameters",
            "namespaces",
            "negotiate",
            "object_writer",
            "query",
            "random",
            "request",
            "response",
            "route",
            "state",
            "status_error",
            "stored",
            "watch_stream",
        ],
    ),
    ("compression", &["request", "response"]),
    ("openapi", &["discovery", "ownership"]),
    ("merged_document_id", &["discovery", "openapi", "ownership"]),
    (
        "documents",
        &[
            "discovery",
            "merged_document_id",
            "negotiate",
            "openapi",
            "ownership",
            "query",
            "request",
            "response",
            "route",
            "status_error",
        ],
    ),
    (
        "merged_documents",
        &[
            "compression",
            "discovery",
            "documents",
            "merged_document_id",
            "openapi",
        ],
    ),
    ("reviews", &["authorize", "status_error"]),
    (
        "hosted",
        &[
            "access",
            "admin",
            "authorize",
            "calls",
            "compression",
            "documents",
            "merged_documents",
            "namespaces",
            "negotiate",
            "object_writer",
            "ownership",
            "query",
            "request",
            "response",
            "reviews",
            "route",
            "state",
            "status_error",
        ],
    ),
    (
        "merging",
        &[
            "compression",
            "discovery",
            "documents",
            "hosted",
            "merged_document_id",
            "merged_documents",
            "negotiate",
            "query",
            "response",
            "route",
        ],
    ),
    (
        "layer",
        &[
            "hosted",
            "merging",
            "negotiate",
            "random",
            "request",
            "response",
            "status_error",
            "watch_stream",
        ],
    ),
    (
        "reconcile",
        &[
            "calls",
            "hosted",
            "namespaces",
            "negotiate",
            "request",
            "response",
            "status_error",
            "stored",
        ],
    ),
];

/// Evictions in the request path: from what a call is up to the layer.
const EVICTOR: Edges = &[
    ("attempt", &[]),
    ("wait_rules", &[]),
    ("waits", &[]),
    ("events", &[]),
    ("path", &[]),
    ("client_link", &[]),
    ("budget_queue", &[]),
    ("upstream_response", &[]),
    ("budget_api", &["upstream_response"]),
    ("upstream_objects", &["budget_api", "upstream_response"]),
    ("body", &["path"]),
    ("responses", &["body", "events", "upstream_response"]),
    (
        "evictor",
        &[
            "budget_api",
            "budget_queue",
            "events",
            "responses",
            "upstream_objects",
            "wait_rules",
            "waits",
        ],
    ),
    ("budget_reader", &["evictor"]),
    (
        "run",
        &[
            "attempt",
            "budget_queue",
            "client_link",
            "evictor",
            "upstream_response",
        ],
    ),
    (
        "data_side",
        &[
            "attempt",
            "body",
            "client_link",
            "events",
            "evictor",
            "path",
            "responses",
        ],
    ),
    (
        "layer",
        &["data_side", "events", "evictor", "path", "responses"],
    ),
    (
        "wait_layer",
        &["attempt", "data_side", "events", "layer", "path", "waits"],
    ),
];

/// The gateway: objects, settings, sight; and those that put it all together.
const SERVER: Edges = &[
    ("source", &[]),
    ("config", &[]),
    ("observe", &["config"]),
    ("app", &["config", "observe", "source"]),
    // Another gateway, with an upstream and clients of its own.
    ("demo", &["app"]),
    ("cli", &["app", "config", "demo", "source"]),
];

/// Crates that only these files may name, so that they can be replaced.
const BEHIND: &[(&str, &[&str])] = &[
    (
        "serde_yaml",
        &[
            "crates/manifest/src/yaml/documents.rs",
            "crates/manifest/src/yaml/manifest.rs",
        ],
    ),
    (
        "use kube::",
        &[
            "src/source/kube/known_objects.rs",
            "src/source/kube/mod.rs",
            "src/source/kube/transport.rs",
            "src/source/kube/watch_failure.rs",
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files of an extension below a directory of the repository, by their paths in it.
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
fn modules_use_only_those_they_may() {
    for (directory, edges) in CRATES {
        follows(directory, edges);
    }
}

/// Fails if the modules in `directory` use others than `edges` says, or not all of those.
fn follows(directory: &str, edges: Edges) {
    let table: BTreeMap<_, _> = edges.iter().copied().collect();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in files(directory, "rs").iter().filter(|path| !is_test(path)) {
        let inside = path.strip_prefix(directory).unwrap();
        let top = inside.iter().next().unwrap().to_str().unwrap();
        let top = top.strip_suffix(".rs").unwrap_or(top);
        if top == "main" || top == "lib" {
            continue;
        }
        let Some(allowed) = table.get(top) else {
            wrong.push(format!(
                "{}: `{top}` has no line in tests/it/tidy.rs",
                path.display()
            ));
            continue;
        };
        for module in modules_named(&code(path)) {
            used.insert((top.to_owned(), module.clone()));
            if module != top && !allowed.contains(&module.as_str()) {
                wrong.push(format!(
                    "{}: `{top}` may not use `{module}`",
                    path.display()
                ));
            }
        }
    }
    for (module, allowed) in edges {
        for other in *allowed {
            if !used.contains(&((*module).to_owned(), (*other).to_owned())) {
                wrong.push(format!(
                    "{directory}: `{module}` does not use `{other}` any more"
                ));
            }
        }
    }
    nothing_is(&wrong);
}

#[test]
fn the_tables_have_no_circles() {
    for (directory, edges) in CRATES {
        let mut left: Vec<_> = edges.to_vec();
        // Repeatedly removes a module that uses none of those left.
        while let Some(at) = left.iter().position(|(_, uses)| {
            let is_left = |used: &str| left.iter().any(|(module, _)| *module == used);
            !uses.iter().any(|used| is_left(used))
        }) {
            left.remove(at);
        }
        let circle: Vec<_> = left.iter().map(|(module, _)| module).collect();
        assert!(
            circle.is_empty(),
            "{directory}: these are in a circle, or use one: {circle:?}"
        );
    }
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
    for directory in ["crates", "src", "tests", "benches", "examples", "config"] {
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
