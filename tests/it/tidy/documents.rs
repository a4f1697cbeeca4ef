//! The documents name keys, files, metrics and commands that exist, and show what commands print.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use super::{nothing_is, read, root, sources, word};

/// The documents that are checked.
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
    "docs/runbooks/FairgateAdmissionPoliciesStale.md",
    "docs/runbooks/FairgateCertificateExpires.md",
    "docs/runbooks/FairgateDown.md",
    "docs/runbooks/FairgateExemptShare.md",
    "docs/runbooks/FairgateFlowDominates.md",
    "docs/runbooks/FairgateLevelSaturated.md",
    "docs/runbooks/FairgatePanics.md",
    "docs/runbooks/FairgatePolicyRefused.md",
    "docs/runbooks/FairgatePolicySourceStale.md",
    "docs/runbooks/FairgateRetryAmplification.md",
    "docs/runbooks/FairgateSlowReaders.md",
    "docs/runbooks/FairgateUnfairLevel.md",
    "docs/runbooks/FairgateUpstreamDown.md",
    "docs/runbooks/FairgateVitalLevelRefuses.md",
    "docs/runbooks/FairgateWaitNearLimit.md",
    "docs/runbooks/FairgateWatchesNearLimit.md",
    "docs/runbooks/README.md",
    "docs/sidecar.md",
    "docs/standalone.md",
    "docs/testing-admission-policies.md",
    "docs/troubleshooting.md",
];

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
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in DOCUMENTS {
        for text in quoted(document) {
            // The key may be followed by a value.
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

/// The targets of the links of a document that are in the repository.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1);
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
fn the_documents_name_commands_that_exist() {
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
