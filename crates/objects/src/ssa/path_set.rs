//! Sets of paths, as tries.
//!
//! A node of the trie says whether the path up to it is a member, and has the nodes below; a path may be a
//! member without the paths above or below it. No node is kept that neither is a member nor has members below.
//!
//! Sets are as deep as what they are made from: a schema table, or a stored set, whose depth
//! [`super::fields_v1`] bounds; so everything here may recurse. Each operation is linear in the sizes
//! of its sets, times the logarithm of the widest level.
//!
//! Not here: the sets of an object ([`super::field_set`], [`super::compare`]).

use std::{collections::BTreeMap, fmt::Write as _, ops::ControlFlow};

use super::path::PathElement;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathSet {
    nodes: BTreeMap<PathElement, PathNode>,
}

/// One step of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathNode {
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The longer paths that begin with this one.
    pub(super) below: PathSet,
}

impl PathNode {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl PathSet {
    /// A set of fields by their names, with dots between those on the way.
    pub(super) fn of_names(names: &[&str]) -> Self {
        let mut set = Self::default();
        for name in names {
            let mut steps = name.rsplit('.').map(PathElement::name);
            let Some(last) = steps.next() else { continue };
            let (mut step, mut is_member, mut below) = (last, true, Self::default());
            for parent in steps {
                let mut around = Self::default();
                around.add(step, is_member, below);
                (step, is_member, below) = (parent, false, around);
            }
            set.add(step, is_member, below);
        }
        set
    }

    /// Merges a node into the one at a step.
    pub(super) fn add(&mut self, step: PathElement, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        let node = self.nodes.entry(step).or_default();
        node.member |= member;
        if node.below.is_empty() {
            node.below = below;
        } else {
            node.below.unite(below);
        }
    }

    /// Whether the set has no member.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node at a step.
    pub(super) fn get(&self, step: &PathElement) -> Option<&PathNode> {
        self.nodes.get(step)
    }

    /// All steps of this level, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathElement, &PathNode)> {
        self.nodes.iter()
    }

    /// Adds a path.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => self.nodes.entry(last.clone()).or_default().member = true,
            [first, rest @ ..] => self
                .nodes
                .entry(first.clone())
                .or_default()
                .below
                .insert(rest),
        }
    }

    /// Adds all paths of another set.
    pub(super) fn unite(&mut self, other: Self) {
        for (step, node) in other.nodes {
            self.add(step, node.member, node.below);
        }
    }

    /// The paths of both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.zipped(other, |node, theirs| {
            let theirs = theirs?;
            Some(PathNode {
                member: node.member && theirs.member,
                below: node.below.intersection(&theirs.below),
            })
        })
    }

    /// The paths that are not in the other set.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.zipped(other, |node, theirs| {
            let Some(theirs) = theirs else {
                return Some(node.clone());
            };
            Some(PathNode {
                member: node.member && !theirs.member,
                below: node.below.difference(&theirs.below),
            })
        })
    }

    /// The paths that neither are in the other set nor begin with one that is.
    pub(super) fn without_trees(&self, other: &Self) -> Self {
        self.zipped(other, |node, theirs| match theirs {
            None => Some(node.clone()),
            Some(theirs) if theirs.member => None,
            Some(theirs) => Some(PathNode {
                member: node.member,
                below: node.below.without_trees(&theirs.below),
            }),
        })
    }

    fn zipped(
        &self,
        other: &Self,
        f: impl Fn(&PathNode, Option<&PathNode>) -> Option<PathNode>,
    ) -> Self {
        let nodes = self
            .nodes
            .iter()
            .filter_map(|(step, node)| {
                let node = f(node, other.get(step)).filter(|node| !node.is_empty())?;
                Some((step.clone(), node))
            })
            .collect();
        Self { nodes }
    }

    /// The number of members.
    pub(super) fn len(&self) -> usize {
        let nodes = self.nodes.values();
        nodes
            .map(|node| usize::from(node.member) + node.below.len())
            .sum()
    }

    /// Gives `f` the texts of the members until it breaks: those of a level first, then those below each of its steps.
    ///
    /// A member's text may be as long as the set is large, so texts are lent: who keeps them has to bound their sum.
    pub(super) fn for_each_text(
        &self,
        f: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.texts_below(&mut String::new(), f)
    }

    fn texts_below(
        &self,
        path: &mut String,
        f: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let length = path.len();
        let at = |path: &mut String, step: &PathElement| {
            path.truncate(length);
            let _ = write!(path, "{step}");
        };
        for (step, _) in self.iter().filter(|(_, node)| node.member) {
            at(path, step);
            f(path)?;
        }
        for (step, node) in self.iter().filter(|(_, node)| !node.below.is_empty()) {
            at(path, step);
            node.below.texts_below(path, f)?;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> PathSet {
        let mut set = PathSet::default();
        for path in paths {
            set.insert(&steps(path));
        }
        set
    }

    fn steps(path: &str) -> Vec<PathElement> {
        path.split('.').map(PathElement::name).collect()
    }

    #[test]
    fn a_path_and_the_paths_below_it_are_separate_members() {
        let parent_and_child = set(&["a", "a.b"]);
        assert_eq!(parent_and_child.difference(&set(&["a"])), set(&["a.b"]));
        assert_eq!(parent_and_child.difference(&set(&["a.b"])), set(&["a"]));
        assert_eq!(
            parent_and_child.intersection(&set(&["a.b", "c"])),
            set(&["a.b"])
        );
        assert!(
            set(&["a.b"])
                .get(&PathElement::name("a"))
                .is_some_and(|node| !node.member)
        );
    }

    #[test]
    fn removing_a_path_removes_the_paths_below_it() {
        let all = set(&["a", "a.b", "a.c.d", "e"]);
        assert_eq!(all.without_trees(&set(&["a"])), set(&["e"]));
        assert_eq!(all.without_trees(&set(&["a.c"])), set(&["a", "a.b", "e"]));
        assert_eq!(all.without_trees(&set(&["a.c.d.x"])), all);
    }

    #[test]
    fn names_with_dots_are_fields_within_others() {
        let names = ["spec", "metadata.labels", "metadata.a.b"];
        assert_eq!(PathSet::of_names(&names), set(&names));
    }

    #[test]
    fn nothing_is_left_of_nodes_without_members() {
        assert!(set(&["a.b.c"]).difference(&set(&["a.b.c"])).is_empty());
        assert!(set(&["a.b"]).intersection(&set(&["a.c"])).is_empty());
    }

    #[test]
    fn members_of_a_level_come_before_those_below() {
        let set = set(&["b", "a.z", "a", "a.c.d", "c"]);
        let first_texts = |most: usize| {
            let mut texts = Vec::new();
            let _ = set.for_each_text(&mut |text| {
                texts.push(text.to_owned());
                if texts.len() < most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            texts
        };
        let all = [".a", ".b", ".c", ".a.z", ".a.c.d"];
        assert_eq!(first_texts(9), all);
        assert_eq!(first_texts(4), all[..4]);
        assert_eq!(set.len(), all.len());
    }
}
