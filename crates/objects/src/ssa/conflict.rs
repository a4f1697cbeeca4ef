//! Why an object cannot be applied, with kube-apiserver's messages.

use std::fmt;

use super::{
    managers::ManagerKey,
    path::{self, FieldPath},
    path_set::PathSet,
};
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
    Conflicts(Vec<Conflict>),
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

struct Summary<'a>(&'a [Conflict]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0 {
            return write!(f, "1 conflict: conflict with {}: {}", Owner(one), one.path);
        }
        write!(f, "{} conflicts: ", self.0.len())?;
        let mut last: Option<&Conflict> = None;
        for conflict in self.0 {
            if last.is_none_or(|last| !last.same_owner(conflict)) {
                let line_break = if last.is_some() { "\n" } else { "" };
                write!(f, "{line_break}conflicts with {}:", Owner(conflict))?;
            }
            write!(f, "\n- {}", conflict.path)?;
            last = Some(conflict);
        }
        Ok(())
    }
}

impl Conflict {
    fn same_owner(&self, other: &Self) -> bool {
        (&self.manager, &self.subresource, &self.api_version)
            == (&other.manager, &other.subresource, &other.api_version)
    }
}

/// Conflicts without their messages: by owner, and then in the order of paths.
#[derive(Debug, Default)]
pub(super) struct ConflictSet(Vec<(ManagerKey, FieldPath)>);

impl ConflictSet {
    /// Adds all paths of one owner. Owners must come in their order.
    pub(super) fn push(&mut self, owner: &ManagerKey, paths: &PathSet) {
        let paths = paths.paths().into_iter();
        self.0.extend(paths.map(|path| (owner.clone(), path)));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conflicts on other paths than the given ones.
    pub(super) fn except(mut self, paths: &PathSet) -> Self {
        self.0.retain(|(_, path)| !paths.contains(path));
        self
    }

    /// The conflicts with their messages.
    pub(super) fn describe(&self) -> Vec<Conflict> {
        let describe = |(owner, path): &(ManagerKey, FieldPath)| Conflict {
            manager: owner.manager().to_owned(),
            subresource: owner.subresource().to_owned(),
            api_version: owner.version().to_owned(),
            path: path::text(path),
        };
        self.0.iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(manager: &str, subresource: &str, api_version: &str, path: &str) -> Conflict {
        Conflict {
            manager: manager.to_owned(),
            subresource: subresource.to_owned(),
            api_version: api_version.to_owned(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn one_conflict_is_reported_in_one_line() {
        let error = ApplyError::Conflicts(vec![conflict("m", "", "policy/v1", ".spec.a")]);
        assert_eq!(
            error.to_string(),
            "Apply failed with 1 conflict: conflict with \"m\" using policy/v1: .spec.a"
        );
    }

    #[test]
    fn several_conflicts_are_reported_by_owner() {
        let error = ApplyError::Conflicts(vec![
            conflict("m1", "", "policy/v1", ".spec.a"),
            conflict("m1", "", "policy/v1", ".spec.b"),
            conflict("m2", "status", "", ".status.c"),
        ]);
        assert_eq!(
            error.to_string(),
            "Apply failed with 3 conflicts: conflicts with \"m1\" using policy/v1:\n- .spec.a\n\
             - .spec.b\nconflicts with \"m2\" with subresource \"status\":\n- .status.c"
        );
    }
}
