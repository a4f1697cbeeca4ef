//! The user of a request.
//!
//! Not here: how a user is authenticated (`auth`), and how it is sent to the upstream
//! ([`identity_headers`]).

pub(crate) mod header_names;
pub mod identity_headers;
pub(crate) mod peer_identity;

use std::sync::Arc;

use self::identity_headers::IdentityHeaderCache;
use fairgate_core::digest::User;

/// An authenticated user, or an impersonated user together with the user who impersonates.
#[derive(Debug)]
pub struct Identity {
    user: Arc<User>,
    impersonator: Option<Arc<User>>,
    /// The headers that carry this identity to the upstream. They live as long as the identity, which is
    /// cached with its credential, so they need no cache of their own.
    pub upstream_headers: IdentityHeaderCache,
}

impl Identity {
    /// The identity of `user`.
    pub fn new(user: User) -> Self {
        Self {
            user: Arc::new(user),
            impersonator: None,
            upstream_headers: IdentityHeaderCache::default(),
        }
    }

    /// The identity of an authenticated user. Adds the group `system:authenticated`, unless the credential
    /// says that the user is anonymous.
    pub fn authenticated(mut user: User) -> Self {
        let settled = user.name == User::ANONYMOUS
            || user.in_group(User::AUTHENTICATED)
            || user.in_group(User::UNAUTHENTICATED);
        if !settled {
            user.groups.push(User::AUTHENTICATED.to_owned());
        }
        Self::new(user)
    }

    /// The identity of `user`, impersonated by `impersonator`.
    pub fn impersonated(user: User, impersonator: Arc<User>) -> Self {
        Self {
            impersonator: Some(impersonator),
            ..Self::new(user)
        }
    }

    /// A copy that shares nothing with `self`. Its headers are made anew.
    pub(super) fn copied(&self) -> Self {
        let copied = |user: &Arc<User>| Arc::new(User::clone(user));
        Self {
            user: copied(&self.user),
            impersonator: self.impersonator.as_ref().map(copied),
            upstream_headers: IdentityHeaderCache::default(),
        }
    }

    /// The user who was authenticated, if that user impersonates another.
    pub fn impersonator(&self) -> Option<&Arc<User>> {
        self.impersonator.as_ref()
    }

    /// The user for whom the request is served.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }
}
