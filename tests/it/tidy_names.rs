//! Names of types: a type that more than one file uses has a unique name.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{code, is_test, nothing_is, sources};

/// Who may use a type, from the narrowest reach to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    File,
    Crate,
    Workspace,
}

/// The types that a source file declares outside of functions and implementations.
fn declared(code: &str) -> impl Iterator<Item = (Reach, &str)> {
    code.lines().filter_map(|line| {
        let (reach, rest) = if let Some(rest) = line.strip_prefix("pub ") {
            (Reach::Workspace, rest)
        } else if let Some(rest) = line.strip_prefix("pub(") {
            (Reach::Crate, rest.split_once(") ")?.1)
        } else {
            (Reach::File, line)
        };
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
        Some((reach, name.into_iter().next()?))
    })
}

/// Whether these declarations of one name are ambiguous: a public type must share its name with no other type, and a
/// type that its crate uses with none that more than one file uses.
fn ambiguous(reaches: &[Reach]) -> bool {
    let widest = reaches.iter().max();
    let shared = reaches.iter().filter(|reach| **reach > Reach::File).count();
    reaches.len() > 1 && (widest == Some(&Reach::Workspace) || shared > 1)
}

#[test]
fn a_name_stands_for_one_type() {
    let mut files: BTreeMap<String, BTreeSet<(Reach, String)>> = BTreeMap::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        for (reach, name) in declared(&code(path)) {
            let of_name = files.entry(name.to_owned()).or_default();
            of_name.insert((reach, path.display().to_string()));
        }
    }
    assert!(files.len() > 1000, "types are found: {}", files.len());
    let mut wrong = Vec::new();
    for (name, files) in &files {
        let reaches: Vec<Reach> = files.iter().map(|(reach, _)| *reach).collect();
        if ambiguous(&reaches) {
            wrong.push(format!(
                "`{name}` is declared in {files:?}; rename the one that fewer use"
            ));
        }
    }
    nothing_is(&wrong);
}

#[test]
fn declarations_are_found_with_their_reach() {
    let code = "pub struct A;\npub(crate) enum B {\nstruct C<T>(T);\npub(in crate::x) type D = A;\n    type E = A;\nuse F;";
    let found: Vec<_> = declared(code).collect();
    let expected = [
        (Reach::Workspace, "A"),
        (Reach::Crate, "B"),
        (Reach::File, "C"),
        (Reach::Crate, "D"),
    ];
    assert_eq!(found, expected);
    assert!(!ambiguous(&[Reach::File, Reach::File]));
    assert!(!ambiguous(&[Reach::File, Reach::Crate]));
    assert!(ambiguous(&[Reach::Crate, Reach::Crate]));
    assert!(ambiguous(&[Reach::File, Reach::Workspace]));
}
