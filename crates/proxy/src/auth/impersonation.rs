//! Impersonation (`kubectl --as`), where [`AuthRules::impersonation`](super::layer::AuthRules::impersonation) allows it.
//!
//! Only `system:masters` may impersonate: they may do everything else, too. Elsewhere impersonation is refused (see
//! [`super::spoof`]), because the gateway itself sends these headers to the upstream to name the user.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::{
    extra_key,
    upstream::{SERVICE_ACCOUNTS, service_account_namespace},
};
use fairgate_core::digest::User;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const ANY: &str = "impersonate-";

/// Why impersonation fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImpersonationError {
    /// Answered with 403.
    #[error(
        "users {name:?} is forbidden: User {by:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    )]
    Forbidden { by: String, name: String },
    /// Answered with 400.
    #[error(
        "groups, uid or extra values cannot be impersonated without a user; set Impersonate-User"
    )]
    NoUser,
    /// Answered with 400.
    #[error("an Impersonate header is not UTF-8")]
    NotText,
}

/// Removes the impersonation headers from a request, and returns the impersonated user; `None` if there are none. `by`
/// is the authenticated user.
///
/// # Errors
///
/// [`ImpersonationError`]; the headers are unchanged then.
pub(super) fn take(headers: &mut HeaderMap, by: &User) -> Result<Option<User>, ImpersonationError> {
    if !headers.keys().any(|name| name.as_str().starts_with(ANY)) {
        return Ok(None);
    }
    let mut user = impersonated_user(headers)?;
    if !by.in_group(User::MASTERS) {
        return Err(ImpersonationError::Forbidden {
            by: by.name.clone(),
            name: user.name,
        });
    }
    add_groups(&mut user);
    let names: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(ANY))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
    Ok(Some(user))
}

fn impersonated_user(headers: &HeaderMap) -> Result<User, ImpersonationError> {
    let text = |value: &http::HeaderValue| {
        std::str::from_utf8(value.as_bytes())
            .map(str::to_owned)
            .map_err(|_| ImpersonationError::NotText)
    };
    let first = |name: &str| headers.get(name).map(text).transpose();
    let name = first(USER)?.filter(|name| !name.is_empty());
    let mut user = User::new(
        name.ok_or(ImpersonationError::NoUser)?,
        headers
            .get_all(GROUP)
            .iter()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?,
    );
    user.uid = first(UID)?.unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = extra_key::unescape(key).unwrap_or_else(|| key.to_owned());
            extra.entry(key).or_default().push(text(value)?);
        }
    }
    user.extra = extra;
    Ok(user)
}

/// Adds the groups that a user of this name always has. A service account has those of service accounts only if no group is given.
fn add_groups(user: &mut User) {
    if user.groups.is_empty()
        && let Some(namespace) = service_account_namespace(&user.name)
    {
        user.groups = vec![
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{namespace}"),
        ];
    }
    let added = if user.name == User::ANONYMOUS {
        User::UNAUTHENTICATED
    } else {
        User::AUTHENTICATED
    };
    if !user.in_group(User::UNAUTHENTICATED) && !user.in_group(added) {
        user.groups.push(added.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn root() -> User {
        User::new("root", [User::MASTERS])
    }

    #[test]
    fn masters_impersonate_users_with_groups_and_extra() {
        let mut headers = headers(&[
            (USER, "alice"),
            (GROUP, "a"),
            (GROUP, "b"),
            ("impersonate-extra-x%2fy", "z"),
            ("accept", "*/*"),
        ]);
        let user = take(&mut headers, &root()).unwrap().unwrap();
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["a", "b", User::AUTHENTICATED]);
        assert_eq!(user.extra["x/y"], ["z"]);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn service_accounts_and_anonymous_get_their_groups() {
        let groups = |name: &'static str| {
            let mut headers = headers(&[(USER, name)]);
            take(&mut headers, &root()).unwrap().unwrap().groups
        };
        assert_eq!(
            groups("system:serviceaccount:ns:sa"),
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                User::AUTHENTICATED
            ]
        );
        // Not the names of service accounts.
        for name in [
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount:NS:a",
            "system:serviceaccount:ns:",
            "system:serviceaccount::a",
        ] {
            assert_eq!(groups(name), [User::AUTHENTICATED], "{name}");
        }
        assert_eq!(groups(User::ANONYMOUS), [User::UNAUTHENTICATED]);
        let mut headers = headers(&[(USER, User::ANONYMOUS), (GROUP, User::AUTHENTICATED)]);
        let user = take(&mut headers, &root()).unwrap().unwrap();
        assert_eq!(user.groups, [User::AUTHENTICATED, User::UNAUTHENTICATED]);
    }

    #[test]
    fn other_users_may_not_impersonate() {
        let alice = User::new("alice", [User::AUTHENTICATED]);
        let mut impersonating = headers(&[(USER, "bob")]);
        let error = take(&mut impersonating, &alice).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("User \"alice\" cannot impersonate")
        );
        assert_eq!(impersonating.len(), 1);
        assert_eq!(take(&mut HeaderMap::new(), &alice), Ok(None));
        let mut groups = headers(&[(GROUP, "system:masters")]);
        assert_eq!(take(&mut groups, &root()), Err(ImpersonationError::NoUser));
    }
}
