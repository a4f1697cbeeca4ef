//! What crates depend on: what they use, and what ARCHITECTURE.md shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{files, nothing_is, read};

/// The crates of the workspace, by folder, and the manifests of those below `crates`.
pub(super) fn folders() -> Vec<String> {
    let manifests = files("crates", "toml").into_iter();
    let folders = manifests
        .filter(|path| path.ends_with("Cargo.toml"))
        .map(|path| path.parent().unwrap().to_str().unwrap().to_owned());
    folders.collect()
}

/// The packages that a manifest names in a section, without those of other targets.
pub(super) fn named_in(folder: &str, section: &str) -> Vec<String> {
    let manifest = read(Path::new(folder).join("Cargo.toml"));
    let Some((_, rest)) = manifest.split_once(&format!("\n[{section}]\n")) else {
        return Vec::new();
    };
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// All source files of a folder, as one text.
fn text(folder: &str) -> String {
    files(folder, "rs").iter().map(read).collect()
}

/// Whether a text names a crate, as Rust spells it.
fn names(text: &str, package: &str) -> bool {
    let word = package.replace('-', "_");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(&word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[test]
fn crates_use_what_they_depend_on() {
    assert!(names("use http::Uri;", "http") && !names("use http_body::Body;", "http"));
    let mut wrong = Vec::new();
    for folder in folders() {
        let sources = text(&format!("{folder}/src"));
        let all = text(&folder);
        let used = named_in(&folder, "dependencies").into_iter();
        let unused = used.filter(|package| !names(&sources, package));
        wrong.extend(unused.map(|package| format!("{folder}: does not use {package}")));
        // Benches and examples of all crates stand together at the top.
        let beside = text("benches") + &text("examples");
        let tested = named_in(&folder, "dev-dependencies").into_iter();
        let unused = tested.filter(|package| !names(&all, package) && !names(&beside, package));
        wrong.extend(unused.map(|package| format!("{folder}: no test uses {package}")));
    }
    nothing_is(&wrong);
}

/// The crates of the workspace that each depends on, as ARCHITECTURE.md shows them: lines such as `a, b ← c ← d   text`.
fn shown() -> BTreeMap<String, BTreeSet<String>> {
    let document = read("ARCHITECTURE.md");
    let (_, rest) = document
        .split_once("Dependencies between the crates:\n\n```text\n")
        .unwrap();
    let mut shown = BTreeMap::new();
    for line in rest.lines().take_while(|line| *line != "```") {
        let mut chain = line.split(" ← ").peekable();
        while let (Some(of), Some(next)) = (chain.next(), chain.peek()) {
            let name = next.split_whitespace().next().unwrap();
            let of = of.split(", ").filter(|of| *of != "(nothing)");
            let on: &mut BTreeSet<String> = shown.entry(name.to_owned()).or_default();
            on.extend(of.map(str::to_owned));
        }
    }
    shown
}

#[test]
fn the_architecture_shows_what_crates_depend_on() {
    let shown = shown();
    let mut wrong = Vec::new();
    for folder in folders() {
        let name = folder.strip_prefix("crates/").unwrap().to_owned();
        if name == "testkit" {
            // What tests share is not part of the program.
            continue;
        }
        let packages = named_in(&folder, "dependencies").into_iter();
        let is: BTreeSet<String> = packages
            .filter_map(|package| package.strip_prefix("fairgate-").map(str::to_owned))
            .collect();
        if shown.get(&name) != Some(&is) {
            let of = shown.get(&name);
            wrong.push(format!(
                "{name} depends on {is:?}, and ARCHITECTURE.md shows {of:?}"
            ));
        }
    }
    nothing_is(&wrong);
}
