//! What keeps the repository as ARCHITECTURE.md says it is: who may use whom, what a file must have,
//! and that the documents speak of keys, files, metrics and commands that exist.
//!
//! It reads text, so a mention in a string counts too; comments do not.

mod circles;
mod reference;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Which modules of a crate each may name, tests aside, for each crate that has several. Among crates the
/// compiler sees to it.
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

/// Modules, and whom each may name.
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

/// What everybody stands on.
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
    ("validation", &[]),
    ("conditions", &["read"]),
    ("labels", &["read"]),
    ("pod", &["labels", "read"]),
    ("budget", &["int_or_percent", "pod", "read"]),
    ("amounts", &["budget", "int_or_percent", "pod"]),
    ("advice", &["budget", "int_or_percent", "pod", "validation"]),
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
    ("state", &["negotiate"]),
    (
        "calls",
        &[
            "continue_token",
            "list_parameters",
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
        &["calls", "hosted", "request", "response", "stored"],
    ),
];

/// Evictions in the request path: from what a call is up to the layer.
const EVICTOR: Edges = &[
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
        ],
    ),
    (
        "run",
        &[
            "budget_queue",
            "client_link",
            "evictor",
            "upstream_response",
        ],
    ),
    (
        "data_side",
        &[
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

/// Tells all of `wrong` at once.
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
fn modules_use_only_whom_they_may() {
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
            wrong.push(format!("{}: `{top}` has no line here", path.display()));
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
fn modules_use_each_other_in_no_circle() {
    for (directory, edges) in CRATES {
        let mut left: Vec<_> = edges.to_vec();
        // Again and again, those go that use nobody who is left.
        while let Some(at) = left.iter().position(|(_, uses)| {
            let is_left = |used: &str| left.iter().any(|(module, _)| *module == used);
            !uses.iter().any(|used| is_left(used))
        }) {
            left.remove(at);
        }
        let circle: Vec<_> = left.iter().map(|(module, _)| module).collect();
        assert!(
            circle.is_empty(),
            "{directory}: in a circle, or above one: {circle:?}"
        );
    }
}

#[test]
fn some_crates_stay_behind_one_module() {
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
fn nothing_is_left_undone() {
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

/// The documents that speak of the rest.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "docs/evictions.md",
    "docs/fair-shares.md",
    "docs/in-front-of-kube-apiserver.md",
    "docs/library.md",
    "docs/modes.md",
    "docs/observing.md",
    "docs/policies.md",
    "docs/quick-start.md",
    "docs/sidecar.md",
    "docs/standalone.md",
    "docs/troubleshooting.md",
];

/// What the paths begin with that a document may name.
const DIRECTORIES: &[&str] = &[
    "crates/",
    "src/",
    "config/",
    "docs/",
    "examples/",
    "tests/",
    "benches/",
    "fuzz/",
    ".ci/",
];

/// What stands between single backticks, outside of blocks.
fn quoted(document: &str) -> BTreeSet<String> {
    let mut quoted = BTreeSet::new();
    let mut inside = false;
    for line in read(document).lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            quoted.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    quoted
}

#[test]
fn the_documents_name_configuration_keys_that_exist() {
    let config: serde_yaml::Value = serde_yaml::from_str(&read("config/fairgate.yaml")).unwrap();
    let sections = config.as_mapping().unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in DOCUMENTS {
        for text in quoted(document) {
            // Without a value that may follow it.
            let key = text.split(':').next().unwrap();
            let mut parts = key.split('.');
            let first = parts.next().unwrap();
            if !key.contains('.') || !sections.contains_key(first) {
                continue;
            }
            seen += 1;
            let found = parts.try_fold(&config[first], |value, part| value.get(part));
            if found.is_none() {
                wrong.push(format!("{document}: no key {text}"));
            }
        }
    }
    nothing_is(&wrong);
    assert!(seen > 10, "the documents name keys: {seen}");
}

#[test]
fn the_documents_name_files_and_metrics_that_exist() {
    let source: String = sources().iter().map(read).collect();
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        for text in quoted(document) {
            let is_path = DIRECTORIES.iter().any(|start| text.starts_with(start));
            // What follows are arguments.
            let file = text.split(' ').next().unwrap_or_default();
            if is_path && !file.contains('*') && !root().join(file).exists() {
                wrong.push(format!("{document}: no file {file}"));
            }
            let is_metric =
                text.starts_with("apiserver_flowcontrol_") || text.starts_with("fairgate_");
            let name = word(&text);
            if is_metric && !text.contains('*') && !source.contains(&format!("\"{name}\"")) {
                wrong.push(format!("{document}: no metric {name}"));
            }
        }
        let directory = root().join(document);
        let directory = directory.parent().unwrap();
        for link in links(&read(document)) {
            if !directory.join(&link).exists() {
                wrong.push(format!("{document}: no file {link}"));
            }
        }
    }
    nothing_is(&wrong);
}

/// Where the links of a document lead to, as far as that is in the repository.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split([')', '#']).next());
    let own = targets.filter(|target| !target.is_empty() && !target.contains("://"));
    own.map(str::to_owned).collect()
}

/// The paths of a code map: a line that begins with a directory says where the tree below it stands.
fn code_map(document: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut inside = false;
    // The directory at each depth of the tree.
    let mut above: Vec<PathBuf> = Vec::new();
    for line in read(document).lines() {
        if line.starts_with("```") {
            inside = line == "```text";
            above.clear();
            continue;
        }
        let tree = line.trim_start_matches("│  ");
        let branch = ["├─ ", "└─ "]
            .iter()
            .find_map(|branch| tree.strip_prefix(branch));
        let begins = branch.is_none() && tree.split(' ').next().unwrap().ends_with('/');
        let (depth, names) = match branch {
            Some(names) if !above.is_empty() => {
                ((line.len() - tree.len()) / "│  ".len() + 1, names)
            }
            None if inside && begins => (0, tree),
            // Another kind of drawing, or no drawing.
            _ => continue,
        };
        if depth == 0 {
            above = vec![PathBuf::new()];
        }
        above.truncate(depth + 1);
        let names = names.split("  ").next().unwrap();
        for name in names
            .split(", ")
            .map(|name| name.split(' ').next().unwrap())
        {
            let path = above[above.len() - 1].join(name);
            if name.ends_with('/') && !names.contains(", ") {
                let sources = root().join(&path).join("src").is_dir();
                above.push(path.join(if sources { "src" } else { "" }));
            }
            paths.push(path);
        }
    }
    paths
}

#[test]
fn the_code_map_names_files_that_exist() {
    let paths = code_map("ARCHITECTURE.md");
    let wrong: Vec<_> = paths
        .iter()
        .filter(|path| !root().join(path).exists())
        .map(|path| format!("ARCHITECTURE.md: no file {}", path.display()))
        .collect();
    nothing_is(&wrong);
    assert!(paths.len() > 40, "paths are found: {}", paths.len());
}

/// Commands of a document with the output that it shows: its console blocks, a dollar before commands.
fn commands(document: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in read(document).lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), String::new()));
        } else if let Some((command, output)) = commands.last_mut() {
            if command.ends_with('\\') && output.is_empty() {
                command.pop();
                command.push_str(line.trim_start());
            } else {
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    commands
}

#[test]
fn the_documents_show_what_their_commands_print() {
    let directory = Path::new(env!("CARGO_BIN_EXE_fairgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", directory.display());
    let mut ran = 0;
    for (command, expected) in DOCUMENTS.iter().flat_map(|document| commands(document)) {
        let shows = ["fairgate check", "fairgate explain"]
            .iter()
            .any(|c| command.contains(c));
        if !shows || command.contains("/etc/") || command.contains("kubectl") {
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}; }} 2>&1")])
            .current_dir(root())
            .env("PATH", &path)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.trim_end(), expected.trim_end(), "$ {command}");
        ran += 1;
    }
    assert!(ran >= 3, "the documents show examples: {ran}");
}

#[test]
fn the_documents_know_the_commands_there_are() {
    let readme = read("README.md");
    for command in [
        "cargo run --release -- demo",
        "cargo test --workspace",
        ".ci/run",
    ] {
        assert!(readme.contains(command), "{command}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_fairgate"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for (command, _) in DOCUMENTS.iter().flat_map(|document| commands(document)) {
        let Some(rest) = command.split("fairgate ").nth(1) else {
            continue;
        };
        let name = rest.split(' ').next().unwrap();
        if command.starts_with("fairgate ") {
            assert!(help.contains(&format!("\n  {name} ")), "{command}\n{help}");
        }
    }
}
