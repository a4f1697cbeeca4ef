//! Public type names: each stands for one thing in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{code, is_test, nothing_is, sources};

/// The names of public types that a source file declares outside of functions.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub ")?;
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    })
}

#[test]
fn no_public_type_name_is_declared_twice() {
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        for name in declared(&code(path)) {
            let of_name = files.entry(name.to_owned()).or_default();
            of_name.insert(path.display().to_string());
        }
    }
    assert!(files.len() > 300, "type names are found: {}", files.len());
    let mut wrong = Vec::new();
    for (name, files) in &files {
        if files.len() > 1 {
            wrong.push(format!(
                "`{name}` is declared in {files:?}; rename the one further from the core"
            ));
        }
    }
    nothing_is(&wrong);
}
