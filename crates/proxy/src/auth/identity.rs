//! What all methods of authentication have in common: the identity they result in.

use std::sync::Arc;

use fairgate_call::Identity;
use fairgate_core::digest::User;

/// The identity of an authenticated user, who is thereby a member of `system:authenticated`, unless the
/// credential says that the user is anonymous.
pub(super) fn authenticated(mut user: User) -> Arc<Identity> {
    let settled = user.name == User::ANONYMOUS
        || user.in_group(User::AUTHENTICATED)
        || user.in_group(User::UNAUTHENTICATED);
    if !settled {
        user.groups.push(User::AUTHENTICATED.to_owned());
    }
    Arc::new(Identity::new(user))
}
