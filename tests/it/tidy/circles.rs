//! No two modules of a folder use each other, directly or through others: what both need is in a third module.
//!
//! A module is a file, or a folder with all that is in it. Its uses are the paths of its `use` items and of its
//! code, followed through what `mod.rs` and `lib.rs` re-export. A module may name its parents and its children.

use std::collections::{BTreeMap, BTreeSet};

use super::{code, files, is_test, nothing_is, word};

/// Known circles: a folder, and how many of its modules are in one. The list may only shrink: a change that ends a
/// circle lowers the number, or removes the line.
const KNOWN: &[(&str, usize)] = &[];

/// The path of a module, or of an item in it, from the root of its crate.
type ModulePath = Vec<String>;
/// For each module of a folder: the modules of the same folder that it uses, and a file with such a use.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The modules of one crate.
struct Modules {
    /// The code of each module.
    code: BTreeMap<ModulePath, String>,
    /// Names that a module re-exports from its children, and their paths.
    re_exported: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Modules {
    /// Reads the crate whose sources are in `root`.
    fn read(root: &str) -> Self {
        let mut all = BTreeMap::new();
        for path in files(root, "rs").iter().filter(|path| !is_test(path)) {
            let inside = path.strip_prefix(root).unwrap().with_extension("");
            let mut module: ModulePath = inside
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            if module
                .last()
                .is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str()))
            {
                module.pop();
            }
            all.entry(module)
                .or_insert_with(String::new)
                .push_str(&code(path));
        }
        let mut modules = Self {
            code: all,
            re_exported: BTreeMap::new(),
        };
        modules.re_exported = modules
            .code
            .iter()
            .map(|(module, code)| (module.clone(), modules.names_of_children(module, code)))
            .collect();
        modules
    }

    fn names_of_children(&self, module: &[String], code: &str) -> BTreeMap<String, ModulePath> {
        let uses = used_items(code).into_iter().map(|mut path| {
            if path[0] == "self" {
                path.remove(0);
            }
            path
        });
        uses.filter(|path| path.len() > 1 && self.code.contains_key(&child(module, &path[0])))
            .map(|path| (path.last().unwrap().clone(), path))
            .collect()
    }

    /// The module that declares what `path` names in the code of `module`; `None` if that is in another crate.
    fn target(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "super" | "self" => {
                while let Some(first) = rest
                    .first()
                    .filter(|p| ["super", "self"].contains(&p.as_str()))
                {
                    if first == "super" {
                        base.pop();
                    }
                    rest = &rest[1..];
                }
            }
            name if self.code.contains_key(&child(module, name)) => {}
            _ => return None,
        }
        for (at, name) in rest.iter().enumerate() {
            let next = child(&base, name);
            if self.code.contains_key(&next) {
                base = next;
                continue;
            }
            // What is re-exported belongs to the child that declares it.
            let re_exported = self
                .re_exported
                .get(&base)
                .and_then(|names| names.get(name));
            if let Some(path) = re_exported.filter(|_| base != module) {
                let path: Vec<_> = path.iter().chain(&rest[at + 1..]).cloned().collect();
                return self.target(&base, &path);
            }
            break;
        }
        Some(base)
    }

    /// For each folder: which modules use which other modules of it.
    fn uses(&self) -> BTreeMap<ModulePath, Uses> {
        let mut uses: BTreeMap<ModulePath, Uses> = BTreeMap::new();
        for (module, code) in &self.code {
            for path in used_items(code).into_iter().chain(inline_paths(code)) {
                let Some(target) = self.target(module, &path) else {
                    continue;
                };
                let common = module
                    .iter()
                    .zip(&target)
                    .take_while(|(a, b)| a == b)
                    .count();
                if common == module.len() || common == target.len() {
                    continue; // a parent and its child
                }
                uses.entry(module[..common].to_vec())
                    .or_default()
                    .entry(module[common].clone())
                    .or_default()
                    .insert(target[common].clone(), module.join("::"));
            }
        }
        uses
    }
}

fn child(module: &[String], name: &str) -> ModulePath {
    module
        .iter()
        .map(String::as_str)
        .chain([name])
        .map(str::to_owned)
        .collect()
}

/// The paths of all `use` items.
fn used_items(code: &str) -> Vec<ModulePath> {
    let mut paths = Vec::new();
    for line_start in std::iter::once(0).chain(code.match_indices('\n').map(|(at, _)| at + 1)) {
        let line = code[line_start..].trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest
                .split_once("use ")
                .filter(|(visibility, _)| {
                    visibility.trim().is_empty() || visibility.trim().ends_with(')')
                })
                .map(|(_, tree)| tree),
            None => line.strip_prefix("use "),
        };
        if let Some((tree, _)) = line.and_then(|line| line.split_once(';')) {
            unfold(&mut Vec::new(), tree, &mut paths);
        }
    }
    paths
}

/// The paths of a `use` tree.
fn unfold(before: &mut ModulePath, tree: &str, paths: &mut Vec<ModulePath>) {
    let tree = tree.trim();
    let length = before.len();
    let mut rest = tree;
    while let Some((name, after)) = rest
        .split_once("::")
        .filter(|(name, _)| !name.contains(['{', ',']))
    {
        before.push(name.trim().to_owned());
        rest = after.trim_start();
    }
    if let Some(group) = rest
        .strip_prefix('{')
        .and_then(|group| group.strip_suffix('}'))
    {
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    unfold(before, &group[start..at], paths);
                    start = at + 1;
                }
                _ => {}
            }
        }
        unfold(before, &group[start..], paths);
    } else if !rest.is_empty() {
        let name = word(rest);
        let last = (!name.is_empty()).then_some(name);
        paths.push(before.iter().cloned().chain(last).collect());
    }
    before.truncate(length);
}

/// The paths in code outside of `use` items, such as `super::level::Ticket`.
fn inline_paths(code: &str) -> Vec<ModulePath> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c| !is_path(c))
        .filter(|text| text.contains("::") && !text.starts_with(':'))
        .map(|text| {
            text.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .filter(|path: &ModulePath| path.len() > 1)
        .collect()
}

/// The modules of each circle of `uses`.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|start| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start.as_str()]);
            while let Some(module) = open.pop() {
                let next = uses.get(module).into_iter().flat_map(BTreeMap::keys);
                open.extend(next.map(String::as_str).filter(|next| seen.insert(*next)));
            }
            (start.as_str(), seen)
        })
        .collect();
    let in_circle = reached
        .iter()
        .filter(|(module, seen)| seen.contains(*module));
    in_circle
        .map(|(module, seen)| {
            let back = |other: &&&str| {
                reached
                    .get(**other)
                    .is_some_and(|seen| seen.contains(module))
            };
            seen.iter().filter(back).copied().collect()
        })
        .collect()
}

#[test]
fn modules_of_a_folder_use_each_other_in_no_circle() {
    let mut wrong = Vec::new();
    let mut known: BTreeMap<&str, usize> = KNOWN.iter().copied().collect();
    for root in roots() {
        for (folder, uses) in Modules::read(&root).uses() {
            let folder = [vec![root.clone()], folder].concat().join("/");
            let circles = circles(&uses);
            let modules = circles.iter().map(BTreeSet::len).sum::<usize>();
            let known = known.remove(&*folder).unwrap_or(0);
            if modules > known {
                let circles = circles.iter().map(|circle| describe(&uses, circle));
                wrong.push(format!("{folder}: modules use each other:"));
                wrong.extend(circles);
            } else if modules < known {
                wrong.push(format!(
                    "{folder}: {modules} modules in circles, not {known}: update KNOWN"
                ));
            }
        }
    }
    wrong.extend(
        known
            .keys()
            .map(|folder| format!("{folder}: has no circle any more: remove it from KNOWN")),
    );
    nothing_is(&wrong);
}

fn describe(uses: &Uses, circle: &BTreeSet<&str>) -> String {
    let mut lines = vec!["  a circle:".to_owned()];
    for module in circle {
        for (used, file) in &uses[*module] {
            if circle.contains(used.as_str()) {
                lines.push(format!("    {module} uses {used} (in {file})"));
            }
        }
    }
    lines.join("\n")
}

/// The directories of the sources of all crates.
fn roots() -> Vec<String> {
    let mut roots = vec!["src".to_owned(), "loadtest/src".to_owned()];
    for manifest in files("crates", "toml") {
        let sources = manifest.with_file_name("src");
        if manifest.ends_with("Cargo.toml") && super::root().join(&sources).is_dir() {
            roots.push(sources.to_str().unwrap().to_owned());
        }
    }
    roots
}

#[test]
fn paths_are_found_in_every_form() {
    let code = "use super::{a, b::{C, self}, d as e};\npub(crate) use f::G;\nfn h(x: super::i::J) -> crate::K { l::m() }";
    let join = |paths: Vec<ModulePath>| -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    };
    assert_eq!(
        join(used_items(code)),
        [
            "super::a",
            "super::b::C",
            "super::b::self",
            "super::d",
            "f::G"
        ]
    );
    let inline = join(inline_paths(code));
    for path in ["super::i::J", "crate::K", "l::m"] {
        assert!(inline.contains(&path.to_owned()), "{path}: {inline:?}");
    }
}

#[test]
fn a_circle_is_found_also_through_what_a_parent_re_exports() {
    let code = [
        ("", "pub use a::One;\nmod a; mod b; mod c;"),
        ("a", "use crate::b::Two;"),
        ("b", "fn f(_: crate::One) {}"),
        ("c", "use super::{One, b};"),
    ];
    let code = code.map(|(module, code)| {
        (
            module
                .split("::")
                .filter(|m| !m.is_empty())
                .map(str::to_owned)
                .collect(),
            code.to_owned(),
        )
    });
    let mut modules = Modules {
        code: code.into(),
        re_exported: BTreeMap::new(),
    };
    let re_exported = modules.names_of_children(&[], &modules.code[&Vec::new()]);
    modules.re_exported = [(Vec::new(), re_exported)].into();
    let uses = modules.uses();
    let circle: BTreeSet<_> = ["a", "b"].into();
    assert_eq!(circles(&uses[&Vec::new()]), [circle].into());
}
