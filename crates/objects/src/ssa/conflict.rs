//! Why an object cannot be applied, with kube-apiserver's messages.

use std::{fmt, ops::ControlFlow};

use super::{managers::ManagerKey, path_set::PathSet};
use fairgate_gotext::Quoted;

/// Why an object cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The applied object is not allowed here: 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The applied object does not fit its schema, or the stored entries cannot be read: 500 without
    /// a reason.
    #[error("{0}")]
    Internal(String),
    /// Others own what the object would change: 409 `Conflict`. The display text is the top-level
    /// message; each conflict is a cause.
    #[error("Apply failed with {}", Summary(.0))]
    Conflicts(ConflictList),
}

/// What the response to an apply says about its conflicts: no more of them after 1 MiB of names and paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictList {
    /// The first conflicts: by owner, and then in the order of paths. At least one, and ordinarily all.
    pub listed: Vec<Conflict>,
    /// The number of conflicts beyond these.
    pub unlisted: usize,
}

/// One path that the applied object would change, and one manager that owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The name of the owner.
    pub manager: String,
    /// The subresource it wrote to; empty for the object itself.
    pub subresource: String,
    /// The version it used; empty for appliers.
    pub api_version: String,
    /// The path, such as `.spec.matchingPrecedence`.
    pub path: String,
}

impl Conflict {
    /// The message of its cause, whose reason is `FieldManagerConflict` and whose field is the path.
    pub fn message(&self) -> String {
        format!("conflict with {}", Owner(self))
    }
}

struct Owner<'a>(&'a Conflict);

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conflict = self.0;
        Quoted(&conflict.manager).fmt(f)?;
        if !conflict.subresource.is_empty() {
            write!(f, " with subresource {}", Quoted(&conflict.subresource))?;
        }
        if !conflict.api_version.is_empty() {
            write!(f, " using {}", conflict.api_version)?;
        }
        Ok(())
    }
}

struct Summary<'a>(&'a ConflictList);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConflictList { listed, unlisted } = self.0;
        if let ([one], 0) = (listed.as_slice(), *unlisted) {
            return write!(f, "1 conflict: conflict with {}: {}", Owner(one), one.path);
        }
        write!(f, "{} conflicts: ", listed.len() + unlisted)?;
        let mut last: Option<&Conflict> = None;
        for conflict in listed {
            if last.is_none_or(|last| !last.same_owner(conflict)) {
                let line_break = if last.is_some() { "\n" } else { "" };
                write!(f, "{line_break}conflicts with {}:", Owner(conflict))?;
            }
            write!(f, "\n- {}", conflict.path)?;
            last = Some(conflict);
        }
        match unlisted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl Conflict {
    fn new(owner: &ManagerKey, path: &str) -> Self {
        Self {
            manager: owner.manager().to_owned(),
            subresource: owner.subresource().to_owned(),
            api_version: owner.version().to_owned(),
            path: path.to_owned(),
        }
    }

    /// The bytes of its parts.
    fn bytes(&self) -> usize {
        let owner = self.manager.len() + self.subresource.len() + self.api_version.len();
        owner + self.path.len()
    }

    fn same_owner(&self, other: &Self) -> bool {
        (&self.manager, &self.subresource, &self.api_version)
            == (&other.manager, &other.subresource, &other.api_version)
    }
}

/// Bytes of names and paths after which no more conflicts are listed. Clients choose both, and each conflict
/// repeats them: without a bound, a long one is written for each of many fields.
const MOST_TEXT: usize = 1 << 20;

/// Conflicts without their messages: what is lost by each owner.
#[derive(Debug, Default)]
pub(super) struct ConflictSet(Vec<(ManagerKey, PathSet)>);

impl ConflictSet {
    /// Adds all paths of one owner. Owners must come in their order.
    pub(super) fn push(&mut self, owner: ManagerKey, paths: PathSet) {
        if !paths.is_empty() {
            self.0.push((owner, paths));
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conflicts on other paths than the given ones.
    pub(super) fn except(self, paths: &PathSet) -> Self {
        let mut others = Self::default();
        for (owner, lost) in self.0 {
            others.push(owner, lost.difference(paths));
        }
        others
    }

    /// The conflicts with their messages. Linear in the sizes of the sets.
    pub(super) fn describe(&self) -> ConflictList {
        let mut listed = Vec::new();
        let mut room = MOST_TEXT;
        for (owner, paths) in &self.0 {
            let _ = paths.for_each_text(&mut |path| {
                if room == 0 {
                    return ControlFlow::Break(());
                }
                let conflict = Conflict::new(owner, path);
                room = room.saturating_sub(conflict.bytes());
                listed.push(conflict);
                ControlFlow::Continue(())
            });
        }
        let all: usize = self.0.iter().map(|(_, paths)| paths.len()).sum();
        let unlisted = all - listed.len();
        ConflictList { listed, unlisted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssa::{managers::ManagerOperation, path::PathElement};

    fn conflict(manager: &str, subresource: &str, api_version: &str, path: &str) -> Conflict {
        Conflict {
            manager: manager.to_owned(),
            subresource: subresource.to_owned(),
            api_version: api_version.to_owned(),
            path: path.to_owned(),
        }
    }

    fn message(listed: Vec<Conflict>, unlisted: usize) -> String {
        ApplyError::Conflicts(ConflictList { listed, unlisted }).to_string()
    }

    /// The conflicts with one updater over so many members of this length.
    fn conflicts(manager: &str, count: usize, length: usize) -> ConflictSet {
        let mut paths = PathSet::default();
        for number in 0..count {
            let name = format!("{number}{}", "x".repeat(length));
            paths.insert(&[PathElement::Name(name)]);
        }
        let mut conflicts = ConflictSet::default();
        let owner = ManagerKey::new(manager, ManagerOperation::Update, "v1", "");
        conflicts.push(owner, paths);
        conflicts
    }

    #[test]
    fn one_conflict_is_reported_in_one_line() {
        let one = vec![conflict("m", "", "policy/v1", ".spec.a")];
        assert_eq!(
            message(one, 0),
            "Apply failed with 1 conflict: conflict with \"m\" using policy/v1: .spec.a"
        );
    }

    #[test]
    fn several_conflicts_are_reported_by_owner() {
        let several = vec![
            conflict("m1", "", "policy/v1", ".spec.a"),
            conflict("m1", "", "policy/v1", ".spec.b"),
            conflict("m2", "status", "", ".status.c"),
        ];
        assert_eq!(
            message(several, 0),
            "Apply failed with 3 conflicts: conflicts with \"m1\" using policy/v1:\n- .spec.a\n\
             - .spec.b\nconflicts with \"m2\" with subresource \"status\":\n- .status.c"
        );
    }

    #[test]
    fn conflicts_beyond_the_bound_are_only_counted() {
        assert_eq!(
            message(vec![conflict("m", "", "", ".a")], 4),
            "Apply failed with 5 conflicts: conflicts with \"m\":\n- .a\nand 4 more"
        );
        let long = "m".repeat(MOST_TEXT / 4);
        for (manager, length) in [("m", MOST_TEXT / 4), (&long, 5)] {
            let list = conflicts(manager, 10, length).describe();
            assert_eq!((list.listed.len(), list.unlisted), (4, 6));
        }
        // One that is longer by itself is listed all the same.
        let list = conflicts("m", 1, MOST_TEXT * 2).describe();
        assert_eq!((list.listed.len(), list.unlisted), (1, 0));
    }

    #[test]
    fn thousands_of_ordinary_conflicts_are_all_listed() {
        let list = conflicts("kubectl-client-side-apply", 5_000, 100).describe();
        assert_eq!((list.listed.len(), list.unlisted), (5_000, 0));
    }
}
