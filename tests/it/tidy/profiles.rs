//! The profiles of the workspace: what is deployed is optimised, whatever the quick profile leaves out.

use std::collections::BTreeSet;

use super::read;

/// The packages of a section of Cargo.toml that have this optimisation level.
fn optimised(section: &str, level: u8) -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once(&format!("\n[{section}]\n")).unwrap();
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let level = format!(".opt-level = {level}");
    lines
        .filter_map(|line| line.strip_suffix(&level).map(str::to_owned))
        .collect()
}

#[test]
fn what_release_does_not_optimise_dist_does() {
    let left_out = optimised("profile.release.package", 0);
    assert!(!left_out.is_empty());
    assert_eq!(left_out, optimised("profile.dist.package", 3));
}
