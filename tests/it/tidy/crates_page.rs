//! The picture of the crates, `docs/reference/crates.md`, is generated from their manifests: here it is generated again and compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use super::{
    dependencies::{folders, named_in},
    read,
    reference::is_up_to_date,
};

/// A crate of the workspace.
struct Crate {
    folder: String,
    description: String,
    /// The crates of the workspace that it uses.
    uses: BTreeSet<String>,
}

/// The crates of the program and its tools, by their names without the prefix of the workspace.
fn crates() -> BTreeMap<String, Crate> {
    let others = [".", "loadtest", "loadtest/peers/bare"].map(str::to_owned);
    let all = folders().into_iter().chain(others);
    let all = all.filter(|folder| folder != "crates/testkit");
    let crates: BTreeMap<_, _> = all
        .map(|folder| {
            let value = |key: &str| {
                let manifest = read(Path::new(&folder).join("Cargo.toml"));
                let (_, package) = manifest.split_once("[package]\n").unwrap();
                let line = package.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap().trim_matches([' ', '=', '"']).to_owned()
            };
            let packages = named_in(&folder, "dependencies").into_iter();
            let uses = packages.filter(|package| package.starts_with("fairgate"));
            let one = Crate {
                description: value("description"),
                uses: uses.map(|package| short(&package)).collect(),
                folder: folder.clone(),
            };
            (short(&value("name")), one)
        })
        .collect();
    for one in crates.values() {
        assert!(one.uses.iter().all(|used| crates.contains_key(used)));
    }
    crates
}

fn short(package: &str) -> String {
    package
        .strip_prefix("fairgate-")
        .unwrap_or(package)
        .to_owned()
}

/// What a crate uses, directly and through others.
fn reached(crates: &BTreeMap<String, Crate>, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        for used in &crates[&name].uses {
            if reached.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    reached
}

#[test]
fn the_page_of_crates_is_that_of_their_manifests() {
    let crates = crates();
    let mut page = String::from(
        "# Crates\n\n\
         <!-- Generated from the manifests by tests/it/tidy/crates_page.rs. Do not edit. -->\n\n\
         An arrow points to a crate that another one uses. Arrows are left out where the use also follows from others. \
         [ARCHITECTURE.md](../../ARCHITECTURE.md) lists all uses, and says what each crate holds.\n\n\
         ```mermaid\nflowchart TD\n",
    );
    for (name, one) in &crates {
        let through: BTreeSet<String> = one
            .uses
            .iter()
            .flat_map(|used| reached(&crates, used))
            .collect();
        for used in one.uses.difference(&through) {
            let _ = writeln!(page, "  {name} --> {used}");
        }
    }
    page += "```\n\n| Crate | Folder | What it is | Uses |\n|---|---|---|---|\n";
    for (name, one) in &crates {
        let uses: Vec<_> = one.uses.iter().map(String::as_str).collect();
        let folder = if one.folder == "." {
            "src"
        } else {
            &one.folder
        };
        let _ = writeln!(
            page,
            "| {name} | `{folder}` | {} | {} |",
            one.description,
            uses.join(", ")
        );
    }
    is_up_to_date("docs/reference/crates.md", &page);
}
