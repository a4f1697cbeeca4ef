//! The subject and the validity of a certificate, as Kubernetes reads them.
//!
//! Not here: whether the certificate is trusted (`bundle`).

use rustls::pki_types::CertificateDer;
use x509_parser::{
    asn1_rs::{Any, Oid, Tag, oid},
    certificate::X509Certificate,
    oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME},
    prelude::FromDer,
};

use fairgate_call::SubjectError;

/// The subject attribute in which a certificate carries a uid.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateSubject {
    /// The last common name; empty if there is none.
    pub(crate) common_name: String,
    /// All organizations, in order.
    pub(crate) organizations: Vec<String>,
    /// All uid attributes; several are an error only if the uid is used.
    uids: Vec<String>,
}

/// When a certificate is valid, in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The first second of the validity.
    pub(crate) not_before: i64,
    /// The last second of the validity.
    pub(crate) not_after: i64,
}

impl CertificateSubject {
    /// Parses the subject of a certificate.
    ///
    /// # Errors
    ///
    /// [`SubjectError::Malformed`] or [`SubjectError::NotText`].
    pub(crate) fn parse(certificate: &CertificateDer<'_>) -> Result<Self, SubjectError> {
        let certificate = parse(certificate)?;
        let mut subject = Self {
            common_name: String::new(),
            organizations: Vec::new(),
            uids: Vec::new(),
        };
        for attribute in certificate.subject().iter_attributes() {
            let kind = attribute.attr_type();
            if *kind == OID_X509_COMMON_NAME {
                subject.common_name = text(attribute.attr_value())?;
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                subject.organizations.push(text(attribute.attr_value())?);
            } else if *kind == UID {
                subject.uids.push(text(attribute.attr_value())?);
            }
        }
        Ok(subject)
    }

    /// The uid; empty if there is none.
    ///
    /// # Errors
    ///
    /// [`SubjectError::Uid`] if there are several, or an empty one.
    pub(crate) fn uid(&self) -> Result<&str, SubjectError> {
        match self.uids.as_slice() {
            [] => Ok(""),
            [uid] if !uid.is_empty() => Ok(uid),
            _ => Err(SubjectError::Uid),
        }
    }
}

impl Validity {
    /// Parses the validity of a certificate.
    ///
    /// # Errors
    ///
    /// [`SubjectError::Malformed`].
    pub(crate) fn parse(certificate: &CertificateDer<'_>) -> Result<Self, SubjectError> {
        let certificate = parse(certificate)?;
        let validity = certificate.validity();
        Ok(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// Whether it is valid at this second since 1970.
    pub(crate) fn contains(self, unix_seconds: i64) -> bool {
        (self.not_before..=self.not_after).contains(&unix_seconds)
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, SubjectError> {
    match X509Certificate::from_der(certificate) {
        Ok((_rest, certificate)) => Ok(certificate),
        Err(_) => Err(SubjectError::Malformed),
    }
}

/// The text of an attribute, by the rules of its string type.
fn text(value: &Any<'_>) -> Result<String, SubjectError> {
    let bytes = value.data;
    let ascii = || {
        std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.is_ascii())
    };
    match value.tag() {
        Tag::Utf8String => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString => ascii().map(str::to_owned),
        // In practice it is Latin 1, and all other implementations read it as such.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => utf16(bytes),
        _ => None,
    }
    .ok_or(SubjectError::NotText)
}

fn utf16(bytes: &[u8]) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
    char::decode_utf16(units).collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(attributes: Vec<(DnType, DnValue)>) -> CertificateDer<'static> {
        let mut name = DistinguishedName::new();
        for (kind, value) in attributes {
            name.push(kind, value);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn subject(attributes: Vec<(DnType, DnValue)>) -> Result<CertificateSubject, SubjectError> {
        CertificateSubject::parse(&certificate(attributes))
    }

    /// The same attribute under another key of the generator's map, which holds one value per key.
    fn again(oid: &[u64]) -> DnType {
        DnType::CustomDnType(oid.to_vec())
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    const CN: &[u64] = &[2, 5, 4, 3];
    const O: &[u64] = &[2, 5, 4, 10];
    const UID_PATH: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

    #[test]
    fn a_subject_gives_the_last_common_name_and_every_organization() {
        let subject = subject(vec![
            (DnType::CommonName, utf8("first")),
            (DnType::OrganizationName, utf8("dev,ops")),
            (DnType::OrganizationalUnitName, utf8("not a group")),
            (again(O), utf8("system:masters")),
            (again(CN), utf8("alice")),
        ])
        .unwrap();
        assert_eq!(subject.common_name, "alice");
        assert_eq!(subject.organizations, ["dev,ops", "system:masters"]);
        assert_eq!(subject.uid(), Ok(""));
    }

    #[test]
    fn a_subject_without_names_is_empty() {
        let subject = subject(vec![(DnType::CountryName, utf8("CH"))]).unwrap();
        assert_eq!(subject.common_name, "");
        assert!(subject.organizations.is_empty());
    }

    #[test]
    fn every_string_type_is_read() {
        let bmp: rcgen::string::BmpString = "jürgen".try_into().unwrap();
        let printable: rcgen::string::PrintableString = "dev".try_into().unwrap();
        let subject = subject(vec![
            (DnType::CommonName, DnValue::BmpString(bmp)),
            (
                DnType::OrganizationName,
                DnValue::PrintableString(printable),
            ),
            (again(O), utf8("zürich")),
        ])
        .unwrap();
        assert_eq!(subject.common_name, "jürgen");
        assert_eq!(subject.organizations, ["dev", "zürich"]);
    }

    #[test]
    fn several_uids_and_an_empty_uid_are_errors() {
        let one = subject(vec![(again(UID_PATH), utf8("1001"))]).unwrap();
        assert_eq!(one.uid(), Ok("1001"));
        let empty = subject(vec![(again(UID_PATH), utf8(""))]).unwrap();
        assert_eq!(empty.uid(), Err(SubjectError::Uid));
        let two = CertificateSubject {
            uids: vec!["1".into(), "2".into()],
            ..one
        };
        assert_eq!(two.uid(), Err(SubjectError::Uid));
    }

    #[test]
    fn a_truncated_certificate_is_an_error_not_a_panic() {
        let good = certificate(vec![(DnType::CommonName, utf8("alice"))]);
        for cut in 0..good.len() {
            let part = CertificateDer::from(good[..cut].to_vec());
            assert_eq!(
                CertificateSubject::parse(&part),
                Err(SubjectError::Malformed)
            );
            assert_eq!(Validity::parse(&part), Err(SubjectError::Malformed));
        }
    }

    #[test]
    fn text_that_its_type_does_not_allow_is_refused() {
        let any = |tag, data| Any::from_tag_and_data(tag, data);
        for (tag, data) in [
            (Tag::Utf8String, &b"\xff"[..]),
            (Tag::PrintableString, b"\xc3\xbc"),
            (Tag::BmpString, b"\x00"),
            (Tag::BmpString, b"\xd8\x00"),
            (Tag::Integer, b"\x01"),
        ] {
            assert_eq!(text(&any(tag, data)), Err(SubjectError::NotText), "{tag}");
        }
        assert_eq!(text(&any(Tag::T61String, b"\xfc")), Ok("ü".to_owned()));
    }
}
