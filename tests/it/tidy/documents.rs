//! The documents name keys, files, metrics and commands that exist, and show what commands print.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{files, nothing_is, read, root, sources, word};

/// The documents that are checked: every Markdown file of the repository, so that a new one need not be listed.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let name = entry.unwrap().file_name();
            let path = directory.join(&name);
            let name = name.to_str().unwrap();
            // What is built or downloaded is not part of the repository.
            let foreign = name.starts_with('.') || name == "target" || name == "node_modules";
            if root().join(&path).is_dir() && !foreign {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_document_of_the_repository_is_found() {
    let documents = documents();
    for document in [
        "README.md",
        "docs/admission.md",
        "docs/runbooks/FairgateDown.md",
        "loadtest/README.md",
        "tests/cluster/README.md",
        "crates/core/src/apf/queueset/algorithm.md",
    ] {
        assert!(
            documents.iter().any(|found| found == document),
            "{document}"
        );
    }
}

#[test]
fn the_list_of_pages_has_every_page() {
    let list = links(&read("docs/README.md"));
    let mut wrong = Vec::new();
    for document in documents() {
        let page = document.strip_prefix("docs/").unwrap_or_default();
        let listed = page == "README.md" || list.iter().any(|link| link == page);
        if !page.is_empty() && !page.starts_with("runbooks/") && !listed {
            wrong.push(format!("docs/README.md: does not list {page}"));
        }
    }
    nothing_is(&wrong);
}

/// The beginnings of the metrics that a document may name.
const METRICS: &[&str] = &["apiserver_flowcontrol_", "fairgate_"];

/// The beginnings of the paths that a document may name.
const DIRECTORIES: &[&str] = &[
    "crates/",
    "loadtest/",
    "src/",
    "config/",
    "docs/",
    "examples/",
    "tests/",
    "benches/",
    "fuzz/",
    ".ci/",
];

/// The texts between single backticks, outside of code blocks.
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
    let scenarios: String = files("loadtest/src/scenario", "rs")
        .iter()
        .map(read)
        .collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in documents() {
        for text in quoted(&document) {
            // The key may be followed by a value.
            let key = text.split(':').next().unwrap();
            let mut parts = key.split('.');
            let first = parts.next().unwrap();
            let is_file = ["rs", "go"].contains(&key.rsplit('.').next().unwrap());
            let is_group = key.ends_with(".k8s.io");
            if !key.contains('.') || is_file || is_group || !sections.contains_key(first) {
                continue;
            }
            seen += 1;
            let found = parts.try_fold(&config[first], |value, part| value.get(part));
            // A scenario of a load test has keys of its own.
            let last = key.rsplit('.').next().unwrap().trim_end_matches("[]");
            let is_of_scenario =
                document.starts_with("loadtest/") && scenarios.contains(&format!("\"{last}\""));
            if found.is_none() && !is_of_scenario {
                wrong.push(format!("{document}: no key {text}"));
            }
        }
    }
    nothing_is(&wrong);
    assert!(seen > 10, "the documents name keys: {seen}");
}

#[test]
fn the_documents_name_files_and_metrics_that_exist() {
    let sources: Vec<String> = sources().iter().map(read).collect();
    let texts = sources.iter().flat_map(|source| source.split('"'));
    let metrics: HashSet<&str> = texts
        .filter(|text| METRICS.iter().any(|start| text.starts_with(start)))
        .collect();
    let mut wrong = Vec::new();
    for document in documents() {
        let directory = root().join(&document);
        let directory = directory.parent().unwrap();
        for text in quoted(&document) {
            let is_path = DIRECTORIES.iter().any(|start| text.starts_with(start));
            // What follows are arguments.
            let file = text.split(' ').next().unwrap_or_default();
            // A crate's README is read in its crate.
            let exists = root().join(file).exists() || directory.join(file).exists();
            if is_path && !file.contains('*') && !exists {
                wrong.push(format!("{document}: no file {file}"));
            }
            let is_metric = METRICS.iter().any(|start| text.starts_with(start));
            let name = word(&text);
            let is_known = metrics.contains(&*name) || is_crate(&name);
            if is_metric && !text.contains('*') && !is_known {
                wrong.push(format!("{document}: no metric {name}"));
            }
        }
        for link in links(&read(&document)) {
            if !directory.join(&link).exists() {
                wrong.push(format!("{document}: no file {link}"));
            }
        }
    }
    nothing_is(&wrong);
}

/// Whether a name is that of a crate of the workspace, as Rust writes it.
fn is_crate(name: &str) -> bool {
    let name = name.strip_prefix("fairgate_").unwrap_or_default();
    let directory = Path::new("crates").join(name.replace('_', "-"));
    !name.is_empty() && root().join(directory).is_dir()
}

/// The targets of the links of a document that are in the repository.
fn links(text: &str) -> Vec<String> {
    // What is between backticks is no link, though it may look like one.
    let plain: String = text.split('`').step_by(2).collect();
    let ends = plain.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split([')', '#']).next());
    let own = targets.filter(|target| !target.is_empty() && !target.contains("://"));
    own.map(str::to_owned).collect()
}

/// The paths of a code map: a line that begins with a directory names the root of the tree below it.
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
        let first = tree.split(' ').next().unwrap();
        // Other documents show trees that are not of this repository, too.
        let own = document == "ARCHITECTURE.md" || first.starts_with("crates/");
        let begins = branch.is_none() && first.ends_with('/') && own;
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
fn code_maps_name_files_that_exist() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let paths = code_map(&document);
        seen += paths.len();
        let missing = paths.iter().filter(|path| !root().join(path).exists());
        wrong.extend(missing.map(|path| format!("{document}: no file {}", path.display())));
    }
    nothing_is(&wrong);
    assert!(seen > 100, "paths are found: {seen}");
}

/// The commands of a document with the output that it shows: the lines of its console blocks that begin with a
/// dollar, and what follows each.
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
    for (command, expected) in documents().iter().flat_map(|document| commands(document)) {
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
fn the_documents_name_commands_that_exist() {
    let readme = read("README.md");
    for command in [
        "cargo run --release -- demo",
        "cargo test --workspace",
        ".ci/run",
    ] {
        assert!(readme.contains(command), "{command}");
    }
    let mut wrong = Vec::new();
    let mut helps = BTreeMap::new();
    let mut seen = 0;
    for document in documents() {
        for command in invocations(&document) {
            let mut words = command.split_whitespace().skip(1);
            let name = words.next().unwrap_or_default();
            if name.starts_with('-') || !name.starts_with(char::is_alphabetic) {
                continue;
            }
            seen += 1;
            if !help_of(&mut helps, "").contains(&format!("\n  {name} ")) {
                wrong.push(format!("{document}: no command {name}: {command}"));
                continue;
            }
            for option in words.filter(|word| word.starts_with("--")) {
                let option = option.split(['=', ',', '`']).next().unwrap();
                // `policy` has commands of its own.
                if name != "policy" && !help_of(&mut helps, name).contains(option) {
                    wrong.push(format!("{document}: no option {option}: {command}"));
                }
            }
        }
    }
    nothing_is(&wrong);
    assert!(seen > 20, "the documents name commands: {seen}");
}

/// What `fairgate` prints for `--help`, or one of its commands does.
fn help_of<'a>(helps: &'a mut BTreeMap<String, String>, command: &str) -> &'a str {
    helps.entry(command.to_owned()).or_insert_with(|| {
        let output = Command::new(env!("CARGO_BIN_EXE_fairgate"))
            .args(command.split_whitespace())
            .arg("--help")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    })
}

/// The commands of `fairgate` that a document names: between backticks, and as lines of blocks of commands.
fn invocations(document: &str) -> Vec<String> {
    let mut found: Vec<String> = quoted(document).into_iter().collect();
    found.extend(commands(document).into_iter().map(|(command, _)| command));
    let mut inside = false;
    for line in read(document).lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            found.push(line.to_owned());
        }
    }
    let own = found
        .into_iter()
        .filter(|command| command.starts_with("fairgate "));
    // What follows belongs to another command, or is a comment.
    own.map(|command| {
        command
            .split(['|', ';', '&', '>', '#'])
            .next()
            .unwrap()
            .to_owned()
    })
    .collect()
}

#[test]
fn the_documents_name_steps_of_the_checks_that_exist() {
    let checks = read(".ci/run");
    let mut wrong = Vec::new();
    for document in documents() {
        for text in quoted(&document) {
            let Some(arguments) = text.strip_prefix(".ci/run ") else {
                continue;
            };
            let names = arguments
                .split(' ')
                .filter(|word| word.starts_with(char::is_alphabetic));
            for name in names {
                let is_tier = ["always", "changed", "measure"].contains(&name);
                if !is_tier && !checks.contains(&format!("\nstep_{name}() ")) {
                    wrong.push(format!("{document}: no step {name}"));
                }
            }
        }
    }
    nothing_is(&wrong);
}
