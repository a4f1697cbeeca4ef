//! Sends the user of a request to the upstream, in headers.
//!
//! Either by impersonation, with a credential that is limited by RBAC, or as a front proxy that the upstream trusts.
//! In both cases a request without an identity would execute as the gateway itself, so an identity that cannot be
//! expressed exactly is refused, never trimmed or left out.
//!
//! The headers are made once for a user and cached with its [`Identity`]; after that a request only clones reference
//! counts.
//!
//! Not here: the client's own headers, which are removed before (`spoof`), and the gateway's credential.

use http::{HeaderName, HeaderValue};

use super::{extra_key, spoof};
use fairgate_call::{
    HeaderLines, Identity, RequestHeaderNames,
    identity_headers::{IdentityError, IdentityHeaders, UpstreamIdentity},
};
use fairgate_core::digest::User;
use fairgate_gotext::names::{is_label, is_subdomain};

/// The header lines that name `user`, in the form that `upstream` expects.
///
/// # Errors
///
/// [`IdentityError`] when no header can carry a part of it.
pub fn headers(upstream: &UpstreamIdentity, user: &User) -> Result<IdentityHeaders, IdentityError> {
    let mut lines = Lines::default();
    match upstream {
        UpstreamIdentity::Impersonate => lines.impersonate(user)?,
        UpstreamIdentity::RequestHeader(names) => lines.request_header(names, user)?,
    }
    Ok(IdentityHeaders::new(lines.0))
}

/// Adds the lines that name `user` to `out`, the headers of a request to the upstream. There must be none in it that
/// [`is_identity_header`].
///
/// # Errors
///
/// As [`headers`]; nothing is added then.
pub fn write(
    upstream: &UpstreamIdentity,
    user: &User,
    out: &mut dyn HeaderLines,
) -> Result<(), IdentityError> {
    add(&headers(upstream, user)?, out);
    Ok(())
}

/// As [`write()`], with the lines cached from an earlier request of the same identity.
///
/// # Errors
///
/// As [`write()`].
pub fn write_identity(
    upstream: &UpstreamIdentity,
    identity: &Identity,
    out: &mut dyn HeaderLines,
) -> Result<(), IdentityError> {
    let lines = identity
        .upstream_headers
        .get(upstream, || headers(upstream, identity.user()))?;
    add(&lines, out);
    Ok(())
}

/// Whether a header of this name, in lower case, could carry an identity to `upstream`, next to that of [`write()`].
pub fn is_identity_header(upstream: &UpstreamIdentity, name: &str) -> bool {
    let names = match upstream {
        UpstreamIdentity::Impersonate => None,
        UpstreamIdentity::RequestHeader(names) => Some(&**names),
    };
    spoof::carries_identity(name, names)
}

fn add(lines: &IdentityHeaders, out: &mut dyn HeaderLines) {
    for (name, value) in lines.iter() {
        out.add(name, value);
    }
}

/// Lines under construction.
#[derive(Default)]
struct Lines(Vec<(HeaderName, HeaderValue)>);

impl Lines {
    fn impersonate(&mut self, user: &User) -> Result<(), IdentityError> {
        self.user(HeaderName::from_static("impersonate-user"), &user.name)?;
        if !user.uid.is_empty() {
            self.push(HeaderName::from_static("impersonate-uid"), "uid", &user.uid)?;
        }
        if user.name == User::ANONYMOUS && !user.in_group(User::UNAUTHENTICATED) {
            return Err(IdentityError::AnonymousWithoutGroup);
        }
        for group in groups_to_impersonate(user) {
            self.group(HeaderName::from_static("impersonate-group"), group)?;
        }
        self.extra("impersonate-extra-", user)
    }

    fn request_header(
        &mut self,
        names: &RequestHeaderNames,
        user: &User,
    ) -> Result<(), IdentityError> {
        // `RequestHeaderNames` has at least one name of each but the uid.
        for name in names.user.iter().take(1) {
            self.user(name.clone(), &user.name)?;
        }
        for name in names.uid.iter().take(1).filter(|_| !user.uid.is_empty()) {
            self.push(name.clone(), "uid", &user.uid)?;
        }
        for name in names.group.iter().take(1) {
            for group in &user.groups {
                self.group(name.clone(), group)?;
            }
        }
        for prefix in names.extra_prefix.iter().take(1) {
            self.extra(prefix, user)?;
        }
        Ok(())
    }

    fn user(&mut self, name: HeaderName, value: &str) -> Result<(), IdentityError> {
        if value.is_empty() {
            return Err(IdentityError::Empty { part: "name" });
        }
        self.push(name, "name", value)
    }

    fn group(&mut self, name: HeaderName, value: &str) -> Result<(), IdentityError> {
        if value.is_empty() {
            return Err(IdentityError::Empty { part: "group" });
        }
        self.push(name, "group", value)
    }

    fn extra(&mut self, prefix: &str, user: &User) -> Result<(), IdentityError> {
        for (key, values) in &user.extra {
            if key.is_empty() {
                return Err(IdentityError::Empty { part: "extra key" });
            }
            let name = format!("{prefix}{}", extra_key::escape(key));
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_too_long| unrepresentable("extra key", key))?;
            for value in values {
                self.push(name.clone(), "extra value", value)?;
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        name: HeaderName,
        part: &'static str,
        value: &str,
    ) -> Result<(), IdentityError> {
        let blank = |end: Option<char>| end.is_some_and(char::is_whitespace);
        let chars = || value.chars();
        if chars().any(char::is_control) || blank(chars().next()) || blank(chars().next_back()) {
            return Err(unrepresentable(part, value));
        }
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_invalid| unrepresentable(part, value))?;
        self.0.push((name, value));
        Ok(())
    }
}

fn unrepresentable(part: &'static str, value: &str) -> IdentityError {
    IdentityError::Unrepresentable {
        part,
        value: value.chars().take(64).collect(),
    }
}

/// The groups to send so that the server ends up with exactly the user's groups.
///
/// Each group costs the server an authorization check, so groups that it adds itself are left out, but only where it
/// adds exactly these.
fn groups_to_impersonate(user: &User) -> Vec<&str> {
    let all = || user.groups.iter().map(String::as_str);
    if user.name == User::ANONYMOUS {
        return if all().eq([User::UNAUTHENTICATED]) {
            Vec::new()
        } else {
            all().collect()
        };
    }
    if user.in_group(User::UNAUTHENTICATED) {
        return all().collect(); // with it the server adds nothing
    }
    let rest: Vec<&str> = all().filter(|g| *g != User::AUTHENTICATED).collect();
    if rest.is_empty() && user.name.starts_with(NODE) {
        // Without any group line, a server that lets the gateway impersonate nodes would add their group.
        return vec![User::AUTHENTICATED];
    }
    let Some(namespace) = service_account_namespace(&user.name) else {
        return rest;
    };
    if rest == [SERVICE_ACCOUNTS, &format!("{SERVICE_ACCOUNTS}:{namespace}")] {
        return Vec::new();
    }
    if rest.is_empty() {
        // Without any group line the server would add the service account groups.
        return vec![User::AUTHENTICATED];
    }
    rest
}

/// What the names of nodes begin with.
const NODE: &str = "system:node:";
/// The group of all service accounts. With a colon and a namespace, that of the accounts in it.
pub(super) const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The namespace in the name of a service account; `None` if the name is not of that form.
///
/// Source: Kubernetes `apiserver/pkg/authentication/serviceaccount/util.go` (`SplitUsername`).
pub(super) fn service_account_namespace(name: &str) -> Option<&str> {
    let (namespace, account) = name.strip_prefix(User::ACCOUNT_PREFIX)?.split_once(':')?;
    (is_label(namespace.as_bytes()) && is_subdomain(account.as_bytes())).then_some(namespace)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;

    fn sent(upstream: &UpstreamIdentity, user: &User) -> Vec<(String, String)> {
        let mut out = HeaderMap::new();
        write(upstream, user, &mut out).unwrap();
        out.iter()
            .map(|(name, value)| {
                let value = String::from_utf8(value.as_bytes().to_vec()).unwrap();
                (name.to_string(), value)
            })
            .collect()
    }

    fn lines(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn impersonated_groups(name: &str, groups: &[&str]) -> Vec<String> {
        let user = User::new(name, groups.iter().copied());
        sent(&UpstreamIdentity::Impersonate, &user)
            .into_iter()
            .filter(|(name, _)| name == "impersonate-group")
            .map(|(_, value)| value)
            .collect()
    }

    fn front_proxy() -> UpstreamIdentity {
        UpstreamIdentity::RequestHeader(Arc::default())
    }

    fn full_user() -> User {
        let mut user = User::new("jürgen", ["dev,ops", "a b", User::AUTHENTICATED]);
        user.uid = "42".into();
        user.extra.insert(
            "example.com/Project".into(),
            vec!["x".into(), "y, z".into()],
        );
        user.extra.insert("scopes".into(), vec![String::new()]);
        user
    }

    #[test]
    fn impersonation_sends_everything_but_what_the_server_adds() {
        assert_eq!(
            sent(&UpstreamIdentity::Impersonate, &full_user()),
            lines(&[
                ("impersonate-user", "jürgen"),
                ("impersonate-uid", "42"),
                ("impersonate-group", "dev,ops"),
                ("impersonate-group", "a b"),
                ("impersonate-extra-example.com%2f%50roject", "x"),
                ("impersonate-extra-example.com%2f%50roject", "y, z"),
                ("impersonate-extra-scopes", ""),
            ])
        );
    }

    #[test]
    fn a_front_proxy_sends_everything() {
        assert_eq!(
            sent(&front_proxy(), &full_user()),
            lines(&[
                ("x-remote-user", "jürgen"),
                ("x-remote-uid", "42"),
                ("x-remote-group", "dev,ops"),
                ("x-remote-group", "a b"),
                ("x-remote-group", "system:authenticated"),
                ("x-remote-extra-example.com%2f%50roject", "x"),
                ("x-remote-extra-example.com%2f%50roject", "y, z"),
                ("x-remote-extra-scopes", ""),
            ])
        );
    }

    #[test]
    fn a_front_proxy_uses_the_first_of_the_configured_names() {
        let names = RequestHeaderNames::new(
            &["My-User", "Old-User"],
            &[] as &[&str],
            &["My-Group"],
            &["My-X-"],
        );
        let upstream = UpstreamIdentity::RequestHeader(Arc::new(names.unwrap()));
        let mut user = User::new("alice", ["dev"]);
        user.uid = "no name for it".into();
        user.extra.insert("k".into(), vec!["v".into()]);
        assert_eq!(
            sent(&upstream, &user),
            lines(&[("my-user", "alice"), ("my-group", "dev"), ("my-x-k", "v")])
        );
    }

    #[test]
    fn the_anonymous_user_is_always_sent_by_name() {
        assert_eq!(
            sent(&UpstreamIdentity::Impersonate, &User::anonymous()),
            lines(&[("impersonate-user", "system:anonymous")])
        );
        assert_eq!(
            sent(&front_proxy(), &User::anonymous()),
            lines(&[
                ("x-remote-user", "system:anonymous"),
                ("x-remote-group", "system:unauthenticated")
            ])
        );
    }

    #[test]
    fn groups_are_left_out_only_where_the_server_adds_the_same() {
        let auth = User::AUTHENTICATED;
        let unauth = User::UNAUTHENTICATED;
        let all = SERVICE_ACCOUNTS;
        let ns = "system:serviceaccounts:ns";
        let account = "system:serviceaccount:ns:builder";
        for (name, groups, sent) in [
            ("alice", &[auth][..], &[][..]),
            ("alice", &[auth, "dev"], &["dev"]),
            ("alice", &["dev", unauth], &["dev", unauth]),
            ("alice", &[auth, unauth], &[auth, unauth]),
            (account, &[all, ns, auth], &[]),
            (account, &[all, ns], &[]),
            (account, &[all, ns, "dev", auth], &[all, ns, "dev"]),
            (account, &[all, auth], &[all]),
            // Without a line the server would make it a member of both.
            (account, &[auth], &[auth]),
            (
                "system:serviceaccount:other:a",
                &[all, ns, auth],
                &[all, ns],
            ),
            ("system:serviceaccount:NS:a", &[auth], &[]),
            ("system:serviceaccount:ns:a:b", &[auth], &[]),
            (User::ANONYMOUS, &[unauth], &[]),
            (User::ANONYMOUS, &[unauth, "dev"], &[unauth, "dev"]),
            (User::ANONYMOUS, &[unauth, auth], &[unauth, auth]),
            // Without a line a server that constrains impersonation may make it a member of system:nodes.
            ("system:node:a", &[auth], &[auth]),
            ("system:node:a", &["system:nodes", auth], &["system:nodes"]),
            ("system:nodes", &[auth], &[]),
        ] {
            assert_eq!(impersonated_groups(name, groups), sent, "{name} {groups:?}");
        }
    }

    #[test]
    fn an_anonymous_user_to_whom_the_server_would_add_a_group_is_not_impersonated() {
        for groups in [&[User::AUTHENTICATED][..], &["dev"], &[]] {
            let user = User::new(User::ANONYMOUS, groups.iter().copied());
            let mut out = HeaderMap::new();
            let end = write(&UpstreamIdentity::Impersonate, &user, &mut out);
            assert!(matches!(end, Err(IdentityError::AnonymousWithoutGroup)));
            assert!(out.is_empty());
            // A front proxy's groups are all that a server takes.
            assert!(write(&front_proxy(), &user, &mut out).is_ok());
        }
    }

    #[test]
    fn an_identity_that_no_header_can_carry_is_refused_and_nothing_is_written() {
        let with = |change: &dyn Fn(&mut User)| {
            let mut user = User::new("alice", ["dev"]);
            change(&mut user);
            user
        };
        let odd = [
            " x", "x ", "\tx", "x\u{a0}", "x\ny", "x\0", "x\u{7f}", "a\tb", "\u{85}x",
        ];
        let mut users = vec![
            with(&|u| u.name.clear()),
            with(&|u| u.groups.push(String::new())),
            with(&|u| drop(u.extra.insert(String::new(), vec!["v".into()]))),
            with(&|u| drop(u.extra.insert("k".repeat(70_000), vec!["v".into()]))),
        ];
        for value in odd {
            users.push(with(&|u| u.name = value.into()));
            users.push(with(&|u| u.uid = value.into()));
            users.push(with(&|u| u.groups.push(value.into())));
            users.push(with(&|u| {
                drop(u.extra.insert("k".into(), vec![value.into()]));
            }));
        }
        for user in users {
            for upstream in [UpstreamIdentity::Impersonate, front_proxy()] {
                let mut out = HeaderMap::new();
                assert!(write(&upstream, &user, &mut out).is_err(), "{user:?}");
                assert!(out.is_empty());
            }
        }
    }

    #[test]
    fn what_could_carry_an_identity_is_known_in_any_spelling() {
        for name in [
            "impersonate-group",
            "x-remote-user",
            "x_remote_user",
            "impersonate_x",
        ] {
            for upstream in [UpstreamIdentity::Impersonate, front_proxy()] {
                assert!(is_identity_header(&upstream, name), "{name}");
                assert!(!is_identity_header(&upstream, "accept"));
            }
        }
    }

    #[test]
    fn an_identity_caches_its_headers_for_one_upstream_and_still_serves_another() {
        let identity = Identity::new(full_user());
        let upstream = front_proxy();
        let mut made = 0;
        for _ in 0..2 {
            let make = || {
                made += 1;
                headers(&upstream, identity.user())
            };
            let lines = identity.upstream_headers.get(&upstream, make).unwrap();
            assert_eq!(lines.iter().next().unwrap().0, "x-remote-user");
        }
        assert_eq!(made, 1);

        let other = UpstreamIdentity::Impersonate;
        let mut out = HeaderMap::new();
        write_identity(&other, &identity, &mut out).unwrap();
        assert!(out.contains_key("impersonate-user"));
    }
}
