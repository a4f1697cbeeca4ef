//! Users by client certificate: the common name is the user, the organizations are the groups.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::{bundle::CaBundle, x509::CertificateSubject};
use fairgate_call::{CertificateError, Identity, Verification};
use fairgate_core::digest::User;

/// The extra attribute that names the credential by which a user was authenticated.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user of `chain`, which is not empty; `None`, without an error, if the certificate has no common name.
pub(super) fn authenticate(
    authorities: &CaBundle,
    chain: &[CertificateDer<'_>],
    unix_seconds: i64,
) -> Verification<Option<Arc<Identity>>, CertificateError> {
    let until = authorities.verify(chain, unix_seconds)?;
    let Some(leaf) = chain.first() else {
        return Ok((None, until));
    };
    let subject = CertificateSubject::parse(leaf)?;
    if subject.common_name.is_empty() {
        return Ok((None, until));
    }
    let uid = subject.uid()?.to_owned();
    let credential_id = format!("X509SHA256={:x}", Sha256::digest(leaf));
    let user = User {
        name: subject.common_name,
        uid,
        groups: subject.organizations,
        extra: [(CREDENTIAL_ID.to_owned(), vec![credential_id])].into(),
    };
    Ok((Some(Arc::new(Identity::authenticated(user))), until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_call::SubjectError;
    use fairgate_testkit::pki::{Authority, Leaf, NOW};

    fn user(leaf: &Leaf) -> Result<Option<User>, CertificateError> {
        let authority = Authority::new("clients");
        let bundle = CaBundle::from_pem(authority.pem().as_bytes()).unwrap();
        let (identity, _until) = authenticate(&bundle, &authority.issue(leaf), NOW)?;
        Ok(identity.map(|identity| User::clone(identity.user())))
    }

    #[test]
    fn a_certificate_names_user_groups_uid_and_itself() {
        let leaf = Leaf::new("system:node:a")
            .organization("system:nodes")
            .uid("1001");
        let user = user(&leaf).unwrap().unwrap();
        assert_eq!(user.name, "system:node:a");
        assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
        assert_eq!(user.uid, "1001");
        let id = &user.extra["authentication.kubernetes.io/credential-id"];
        let hex = id[0].strip_prefix("X509SHA256=").unwrap();
        assert!(id.len() == 1 && hex.len() == 64, "{id:?}");
        assert!(hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    }

    #[test]
    fn a_certificate_without_a_common_name_names_no_user() {
        assert_eq!(user(&Leaf::new("").organization("dev")), Ok(None));
        assert_eq!(user(&Leaf::new("").uid("")), Ok(None));
    }

    #[test]
    fn an_empty_uid_is_an_error() {
        assert_eq!(
            user(&Leaf::new("alice").uid("")),
            Err(CertificateError::Subject(SubjectError::Uid))
        );
    }
}
