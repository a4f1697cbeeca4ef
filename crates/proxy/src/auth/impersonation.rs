//! Acting as somebody else (`kubectl --as`), on a gateway that has no other server to judge it.
//!
//! Only `system:masters` may: they may do everything else, too. Where an upstream judges what users may
//! do, impersonation is refused (see [`super::spoof`]), because the gateway itself tells the upstream of
//! users in these headers.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::extra_key;
use fairgate_core::digest::User;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const ANY: &str = "impersonate-";

/// Why nobody is impersonated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// To be answered 403.
    #[error(
        "users {wanted:?} is forbidden: User {by:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    )]
    Forbidden { by: String, wanted: String },
    /// To be answered 400.
    #[error(
        "groups, a uid or extra values are to be impersonated without a user; set Impersonate-User"
    )]
    NoUser,
    /// To be answered 400.
    #[error("an Impersonate header holds no text")]
    NotText,
}

/// Takes out of a request whom it impersonates; `None` if nobody. `by` is who makes it.
///
/// # Errors
///
/// [`ImpersonationError`], with the headers as they were.
pub(crate) fn take(headers: &mut HeaderMap, by: &User) -> Result<Option<User>, ImpersonationError> {
    if !headers.keys().any(|name| name.as_str().starts_with(ANY)) {
        return Ok(None);
    }
    let mut user = wanted(headers)?;
    if !by.in_group(User::MASTERS) {
        return Err(ImpersonationError::Forbidden {
            by: by.name.clone(),
            wanted: user.name,
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

fn wanted(headers: &HeaderMap) -> Result<User, ImpersonationError> {
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

/// Adds the groups that somebody of this name always has.
fn add_groups(user: &mut User) {
    if user.groups.is_empty()
        && let Some(account) = user.name.strip_prefix("system:serviceaccount:")
        && let Some((namespace, _)) = account.split_once(':')
    {
        user.groups.push("system:serviceaccounts".to_owned());
        user.groups
            .push(format!("system:serviceaccounts:{namespace}"));
    }
    let everybody = if user.name == User::ANONYMOUS {
        User::UNAUTHENTICATED
    } else {
        User::AUTHENTICATED
    };
    let told = [User::AUTHENTICATED, User::UNAUTHENTICATED];
    if !told.iter().any(|group| user.in_group(group)) {
        user.groups.push(everybody.to_owned());
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
    fn masters_act_as_others_with_all_that_others_have() {
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
    fn service_accounts_and_nobody_have_their_groups() {
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
        assert_eq!(groups(User::ANONYMOUS), [User::UNAUTHENTICATED]);
    }

    #[test]
    fn others_act_as_nobody() {
        let alice = User::new("alice", [User::AUTHENTICATED]);
        let mut asked = headers(&[(USER, "bob")]);
        let error = take(&mut asked, &alice).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("User \"alice\" cannot impersonate")
        );
        assert_eq!(asked.len(), 1);
        assert_eq!(take(&mut HeaderMap::new(), &alice), Ok(None));
        let mut groups = headers(&[(GROUP, "system:masters")]);
        assert_eq!(take(&mut groups, &root()), Err(ImpersonationError::NoUser));
    }
}
