//! Users named by a front proxy: another proxy that has authenticated the client.
//!
//! The proxy authenticates itself by a client certificate of an authority that is only used for this, and by its common
//! name if names are configured. Only then are its headers read.
//!
//! Not here: the removal of the headers from the request (`spoof`).

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;

use super::{extra_key, settings::FrontProxySettings, x509::CertificateSubject};
use fairgate_call::{CachedVerification, FrontProxyError, Identity, Verification};
use fairgate_core::digest::User;

impl FrontProxySettings {
    /// The user that the front proxy names; `None` if it names no user.
    ///
    /// `chain` is not empty, and `verified` is the result of an earlier request of the connection.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'_>],
        verified: &mut CachedVerification<(), FrontProxyError>,
        unix_seconds: i64,
    ) -> Result<Option<Arc<Identity>>, FrontProxyError> {
        verified
            .get(unix_seconds, || self.verify(chain, unix_seconds))
            .map_err(Clone::clone)?;
        Ok(self
            .user(headers)?
            .map(|user| Arc::new(Identity::authenticated(user))))
    }

    fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        unix_seconds: i64,
    ) -> Verification<(), FrontProxyError> {
        let until = self.authorities.verify(chain, unix_seconds)?;
        // Part of what is cached: a client cannot change its certificate within a connection.
        if let (false, Some(leaf)) = (self.allowed_names.is_empty(), chain.first()) {
            let common_name = CertificateSubject::parse(leaf)?.common_name;
            if !self.allowed_names.contains(&common_name) {
                return Err(FrontProxyError::NotAllowed {
                    common_name: common_name.into(),
                });
            }
        }
        Ok(((), until))
    }

    fn user(&self, headers: &HeaderMap) -> Result<Option<User>, FrontProxyError> {
        let Some(name) = first_value(headers, &self.headers.user)? else {
            return Ok(None);
        };
        let uid = first_value(headers, &self.headers.uid)?.unwrap_or_default();
        let mut groups = Vec::new();
        for name in &self.headers.group {
            for value in headers.get_all(name) {
                // Empty groups are left out, as kube-apiserver leaves them out.
                groups.extend(Some(text(name, value)?).filter(|group| !group.is_empty()));
            }
        }
        Ok(Some(User {
            name,
            uid,
            groups,
            extra: self.extra(headers)?,
        }))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, FrontProxyError> {
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        // In the order of the prefixes: values of one key come in that order, not in that of the headers.
        for prefix in &self.headers.extra_prefix {
            for (name, value) in headers {
                let Some(suffix) = name.as_str().strip_prefix(&**prefix) else {
                    continue;
                };
                let key = extra_key::unescape(suffix)
                    .ok_or_else(|| FrontProxyError::NotText { name: name.clone() })?;
                extra.entry(key).or_default().push(text(name, value)?);
            }
        }
        Ok(extra)
    }
}

/// The first value of the first of these headers whose first value is not empty.
fn first_value(
    headers: &HeaderMap,
    names: &[HeaderName],
) -> Result<Option<String>, FrontProxyError> {
    for name in names {
        if let Some(value) = headers.get(name).filter(|value| !value.is_empty()) {
            return text(name, value).map(Some);
        }
    }
    Ok(None)
}

fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, FrontProxyError> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(FrontProxyError::NotText { name: name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{CaBundle, RequestHeaderNames};
    use fairgate_testkit::pki::{Authority, Leaf, NOW};

    struct Scene {
        authority: Authority,
        proxy: FrontProxySettings,
    }

    impl Scene {
        fn new(allowed_names: &[&str], headers: RequestHeaderNames) -> Self {
            let authority = Authority::new("proxies");
            let proxy = FrontProxySettings {
                authorities: CaBundle::from_pem(authority.pem().as_bytes())
                    .unwrap()
                    .into(),
                allowed_names: allowed_names.iter().map(|n| (*n).to_owned()).collect(),
                headers,
            };
            Self { authority, proxy }
        }

        fn says(
            &self,
            common_name: &str,
            lines: &[(&str, &str)],
        ) -> Result<Option<User>, FrontProxyError> {
            let headers = lines
                .iter()
                .map(|(name, value)| {
                    let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                    (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
                })
                .collect();
            let chain = self.authority.issue(&Leaf::new(common_name));
            let identity = self.proxy.authenticate(
                &headers,
                &chain,
                &mut CachedVerification::default(),
                NOW,
            )?;
            Ok(identity.map(|identity| User::clone(identity.user())))
        }
    }

    #[test]
    fn a_front_proxy_names_the_user() {
        let scene = Scene::new(
            &["other", "front-proxy-client"],
            RequestHeaderNames::default(),
        );
        let user = scene.says(
            "front-proxy-client",
            &[
                ("X-Remote-User", "jürgen"),
                ("X-Remote-User", "ignored"),
                ("X-Remote-Uid", "42"),
                ("x-remote-group", "dev,ops"),
                ("x-remote-group", ""),
                ("X-Remote-Group", "admins"),
                ("X-Remote-Extra-Example.com%2FProject", "a"),
                ("X-Remote-Extra-example.com%2fproject", "b"),
                ("X-Remote-Extra-%54eam", "c"),
                ("X-Remote-Extra-50%", ""),
            ],
        );
        let mut expected = User::new("jürgen", ["dev,ops", "admins", "system:authenticated"]);
        expected.uid = "42".into();
        expected.extra = [
            ("example.com/project".into(), vec!["a".into(), "b".into()]),
            ("Team".into(), vec!["c".into()]),
            ("50%".into(), vec![String::new()]),
        ]
        .into();
        assert_eq!(user, Ok(Some(expected)));
    }

    #[test]
    fn configured_names_are_tried_in_order() {
        let names = RequestHeaderNames::new(
            &["X-One", "X-Two"],
            &["X-Uid"],
            &["X-Group", "X-Role"],
            &["X-More-", "X-Also-"],
        );
        let scene = Scene::new(&[], names.unwrap());
        let user = scene
            .says(
                "anything",
                &[
                    ("x-role", "b"),
                    ("x-one", ""),
                    ("x-one", "not the first value"),
                    ("x-two", "alice"),
                    ("x-group", "a"),
                    ("x-remote-group", "system:masters"),
                    ("x-also-k", "2"),
                    ("x-more-k", "1"),
                ],
            )
            .unwrap()
            .unwrap();
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["k"], ["1", "2"]);
    }

    #[test]
    fn a_front_proxy_request_without_a_user_is_left_to_other_authenticators() {
        let scene = Scene::new(&[], RequestHeaderNames::default());
        assert_eq!(scene.says("proxy", &[("x-remote-group", "dev")]), Ok(None));
        assert_eq!(scene.says("proxy", &[("x-remote-user", "")]), Ok(None));
    }

    #[test]
    fn only_allowed_common_names_are_trusted() {
        let scene = Scene::new(&["front-proxy-client"], RequestHeaderNames::default());
        let error = scene
            .says("mallory", &[("x-remote-user", "alice")])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "x509: subject with cn=mallory is not in the allowed list"
        );
    }

    #[test]
    fn a_header_that_is_not_utf8_is_refused() {
        let scene = Scene::new(&[], RequestHeaderNames::default());
        let said = scene.says("p", &[("x-remote-user", "a"), ("x-remote-extra-%ff", "v")]);
        assert!(matches!(said, Err(FrontProxyError::NotText { .. })));
    }

    #[test]
    fn the_anonymous_user_of_a_proxy_stays_anonymous() {
        let scene = Scene::new(&[], RequestHeaderNames::default());
        let lines = [
            ("x-remote-user", "system:anonymous"),
            ("x-remote-group", "system:unauthenticated"),
        ];
        assert_eq!(scene.says("p", &lines), Ok(Some(User::anonymous())));
    }
}
