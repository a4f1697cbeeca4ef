//! The user of a request: the outcome of authentication.

use std::collections::BTreeMap;

/// An authenticated (or anonymous) user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The user name; never empty.
    pub name: String,
    /// The UID; empty when the authenticator knows none.
    pub uid: String,
    /// The groups, in the order in which the authenticator gave them.
    pub groups: Vec<String>,
    /// Further attributes, each key with its values in order.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The group of all authenticated users.
    pub const AUTHENTICATED: &str = "system:authenticated";
    /// The group of all unauthenticated users.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// The name of the anonymous user, for requests without credentials.
    pub const ANONYMOUS: &str = "system:anonymous";
    /// What the names of service accounts begin with; their namespace, a colon and their own name follow.
    pub const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
    /// The group that no flow control and no authorization holds back.
    pub const MASTERS: &str = "system:masters";

    /// A user of this name and these groups, nothing added.
    pub fn new<G: Into<String>>(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The anonymous user, for requests without credentials.
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS, [Self::UNAUTHENTICATED])
    }

    /// Whose requests they are where many flows could be made for one: the user; for a service account its namespace,
    /// written as the beginning of its name up to the last colon.
    pub fn tenant(&self) -> &str {
        let namespace = self.name.strip_prefix(Self::ACCOUNT_PREFIX);
        match namespace.and_then(|rest| rest.find(':')) {
            Some(end) => &self.name[..=Self::ACCOUNT_PREFIX.len() + end],
            None => &self.name,
        }
    }

    /// Whether the user is in `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
