//! The profiles of the workspace: what is deployed is optimised, whatever the quick profile leaves out.

use std::collections::BTreeMap;

use super::read;

/// The packages of a section of Cargo.toml that have an optimisation level of their own.
fn levels(section: &str) -> BTreeMap<String, String> {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once(&format!("\n[{section}]\n")).unwrap();
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split_once(".opt-level = "))
        .map(|(package, level)| (package.to_owned(), level.to_owned()))
        .collect()
}

#[test]
fn dist_optimises_what_release_does_not() {
    let mut lower = levels("profile.release.package");
    assert!(!lower.is_empty());
    for level in lower.values_mut() {
        "3".clone_into(level);
    }
    assert_eq!(lower, levels("profile.dist.package"));
}
