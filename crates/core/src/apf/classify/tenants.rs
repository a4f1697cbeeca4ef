//! Whose requests they are: the tenant of a request, by hash and by name.
//!
//! How the tenant of a schema's requests is found is worked out when the policy is compiled. The hash of a flow stands for
//! its tenant where a tenant has one flow in the schema, so most requests need no other hash.
//!
//! Not here: what the flows of a tenant weigh (`queueset`).

use std::{fmt, hash::Hasher};

use siphasher::sip::SipHasher13;

use super::account_namespace;
use crate::{
    apf::spec::{Distinguisher, TenantRule},
    digest::{RequestDigest, readable},
};

/// How the tenant of a schema's requests is found.
#[derive(Clone, Copy)]
pub(super) enum TenantSource {
    /// Each flow is a tenant.
    Flow,
    /// The user, who has one flow.
    UserOfOneFlow,
    /// The user.
    User,
    /// The user, who has one flow; for a service account its namespace.
    AccountOfOneFlow,
    /// The user; for a service account its namespace.
    Account,
    /// The namespace of the request; without one as [`TenantSource::AccountOfOneFlow`].
    Namespace,
}

impl TenantSource {
    pub(super) fn new(rule: TenantRule, flows: Option<Distinguisher>) -> Self {
        use Distinguisher::{ByNamespace, ByUser};
        match (rule, flows) {
            (_, None) | (TenantRule::Flow, _) | (TenantRule::Namespace, Some(ByNamespace)) => {
                Self::Flow
            }
            (TenantRule::Default, Some(ByUser)) => Self::AccountOfOneFlow,
            (TenantRule::Default, Some(ByNamespace)) => Self::Account,
            (TenantRule::User, Some(ByUser)) => Self::UserOfOneFlow,
            (TenantRule::User, Some(ByNamespace)) => Self::User,
            (TenantRule::Namespace, Some(ByUser)) => Self::Namespace,
        }
    }

    /// The tenant of a request.
    pub(super) fn name(self, digest: &RequestDigest) -> TenantName<'_> {
        let user = digest.user.name.as_str();
        let account =
            || account_namespace(user).map_or(TenantName::User(user), TenantName::ServiceAccounts);
        match self {
            Self::Flow => TenantName::Flow,
            Self::UserOfOneFlow | Self::User => TenantName::User(user),
            Self::AccountOfOneFlow | Self::Account => account(),
            Self::Namespace => match digest.info.namespace() {
                b"" => account(),
                namespace => TenantName::Namespace(namespace),
            },
        }
    }
}

/// Hashes tenants.
pub(super) struct TenantHash(SipHasher13);

impl TenantHash {
    pub(super) fn new(key: [u8; 16]) -> Self {
        let mut hasher = SipHasher13::new_with_key(&key);
        // No schema has a name like this, so no flow has such a hash.
        hasher.write(b"\0tenant\0");
        Self(hasher)
    }

    /// The hash of a request's tenant, whose flow has the hash `flow`.
    pub(super) fn of(&self, source: TenantSource, digest: &RequestDigest, flow: u64) -> u64 {
        match source {
            TenantSource::Flow | TenantSource::UserOfOneFlow => flow,
            TenantSource::User => self.of_text(digest.user.name.as_bytes()),
            TenantSource::Account => self.of_text(digest.user.tenant().as_bytes()),
            TenantSource::AccountOfOneFlow => self.of_account(digest, flow),
            TenantSource::Namespace => match digest.info.namespace() {
                b"" => self.of_account(digest, flow),
                namespace => self.of_namespace(namespace),
            },
        }
    }

    /// Another user than a service account has one flow, which may stand for the tenant.
    fn of_account(&self, digest: &RequestDigest, flow: u64) -> u64 {
        let namespace = account_namespace(&digest.user.name);
        namespace.map_or(flow, |_| self.of_text(digest.user.tenant().as_bytes()))
    }

    fn of_namespace(&self, namespace: &[u8]) -> u64 {
        let mut hasher = self.0;
        // No user has a name like this.
        hasher.write(b"\0namespace\0");
        hasher.write(namespace);
        hasher.finish()
    }

    fn of_text(&self, tenant: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write(tenant);
        hasher.finish()
    }
}

/// Whose requests they are where flows of the same tenant weigh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantName<'a> {
    /// Nobody's but the flow's: each flow is a tenant.
    Flow,
    /// Those of the user of this name.
    User(&'a str),
    /// Those of the service accounts of this namespace.
    ServiceAccounts(&'a str),
    /// Those in this namespace.
    Namespace(&'a [u8]),
}

impl TenantName<'_> {
    /// What kind of tenant it is, in one word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::User(_) => "user",
            Self::ServiceAccounts(_) => "serviceAccounts",
            Self::Namespace(_) => "namespace",
        }
    }

    /// The name of the user or namespace; empty for a flow.
    pub fn name(&self) -> String {
        match self {
            Self::Flow => String::new(),
            Self::User(name) | Self::ServiceAccounts(name) => (*name).to_owned(),
            Self::Namespace(name) => readable(name).into_owned(),
        }
    }
}

impl fmt::Display for TenantName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Flow => f.write_str("the flow itself"),
            Self::User(_) => write!(f, "user {name:?}"),
            Self::ServiceAccounts(_) => write!(f, "service accounts of namespace {name:?}"),
            Self::Namespace(_) => write!(f, "namespace {name:?}"),
        }
    }
}
