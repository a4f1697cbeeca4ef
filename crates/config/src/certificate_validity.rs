//! Whether peers accept a certificate of the gateway: its time, and what it may be used for.
//!
//! A certificate that peers refuse is no error of the configuration: the gateway starts, and uses a renewed one
//! as soon as the file has it. Meanwhile `fairgate check`, the log and `/readyz` say what is wrong.
//!
//! Not here: whether peers trust the CA that signed it, which the gateway cannot know.

use std::{fmt, path::PathBuf};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::X509Certificate;

use crate::{config::Config, pem::CertificateAndKey};
use fairgate_core::finding::{Finding, Severity};

/// What the gateway uses a certificate for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUse {
    /// Clients see it.
    Server,
    /// The upstream sees it.
    Client,
}

/// When a chain is valid, and whether it is one for its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    usage: CertificateUse,
    /// Whether the first certificate may be used so.
    fits: bool,
    /// Seconds since 1970: when the last certificate of the chain begins to be valid, and when the first one expires.
    seconds: [i64; 2],
}

/// Why peers refuse a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    /// What is wrong; follows "the certificate".
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl CertificateValidity {
    /// That of `chain`, the leaf first, for this use. Certificates that cannot be read are left out.
    pub fn of(chain: &[CertificateDer<'_>], usage: CertificateUse) -> Self {
        let read = |der| Some(x509_parser::parse_x509_certificate(der).ok()?.1);
        let read: Vec<X509Certificate<'_>> = chain.iter().filter_map(|der| read(der)).collect();
        let starts = read.iter().map(|one| one.validity().not_before.timestamp());
        let ends = read.iter().map(|one| one.validity().not_after.timestamp());
        Self {
            usage,
            fits: read.first().is_none_or(|leaf| may_be_used(leaf, usage)),
            seconds: [starts.max().unwrap_or(0), ends.min().unwrap_or(0)],
        }
    }

    /// When the first certificate of the chain expires, in seconds since 1970; 0 if none can be read.
    pub fn expiry(&self) -> i64 {
        self.seconds[1]
    }

    /// Why peers refuse it at `now`, in seconds since 1970; `None` if nothing is known to be wrong.
    pub fn problem(&self, now: u64) -> Option<CertificateProblem> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let [start, end] = self.seconds;
        let (problem, remedy) = if end < now {
            (format!("expired at {}", shown(end)), "renew it".to_owned())
        } else if now < start {
            let problem = format!("is valid from {} only", shown(start));
            (
                problem,
                "check the clock of this machine, or issue another one".to_owned(),
            )
        } else if !self.fits {
            let (peers, name) = match self.usage {
                CertificateUse::Server => ("servers", "serverAuth"),
                CertificateUse::Client => ("clients", "clientAuth"),
            };
            (
                format!("is not one for {peers}"),
                format!("issue one with the extended key usage {name}"),
            )
        } else {
            return None;
        };
        Some(CertificateProblem { problem, remedy })
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

impl Config {
    /// A warning for each certificate of the gateway that its peers refuse at `now`, in seconds since 1970.
    pub fn refused_certificates(&self, now: u64) -> Vec<Finding> {
        let secure = self.admin.secure.as_ref();
        let of_secure = secure.and_then(|secure| secure.tls.as_ref());
        let all: [(_, Option<&CertificateAndKey>, _); 3] = [
            (
                "listen.tls",
                self.listen.tls.as_ref(),
                CertificateUse::Server,
            ),
            ("admin.secure.tls", of_secure, CertificateUse::Server),
            (
                "upstream.clientCertificate",
                self.upstream.client_certificate.as_ref(),
                CertificateUse::Client,
            ),
        ];
        let finding = |(field, own, usage): (&str, Option<&CertificateAndKey>, _)| {
            let own = own?;
            let wrong = CertificateValidity::of(&own.chain, usage).problem(now)?;
            let path: &PathBuf = &own.files[0].path;
            let origin = path.display().to_string();
            let message = format!("the certificate {}", wrong.problem);
            let finding = Finding::without_object(Severity::Warning, origin, message, wrong.remedy);
            Some(finding.in_field(field))
        };
        all.into_iter().filter_map(finding).collect()
    }
}

/// Whether a certificate says that it may be used so. One that does not say what it is for may be used for all.
fn may_be_used(leaf: &X509Certificate<'_>, usage: CertificateUse) -> bool {
    // Peers refuse a malformed or repeated extension; that is not about its use.
    let Ok(Some(usages)) = leaf.extended_key_usage() else {
        return true;
    };
    let usages = usages.value;
    match usage {
        CertificateUse::Server => usages.any || usages.server_auth,
        CertificateUse::Client => usages.any || usages.client_auth,
    }
}

/// RFC 3339 in whole seconds.
fn shown(seconds: i64) -> String {
    // Times after the year 9999 cannot be written, and no certificate has them.
    Timestamp::from_second(seconds)
        .map_or_else(|_| "a later time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};

    use super::*;

    /// 2026-01-02 and 2031-01-02.
    const TIMES: [u64; 2] = [1_767_312_000, 1_925_078_400];

    fn certificate(
        from: i32,
        to: i32,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 2);
        params.not_after = date_time_ymd(to, 1, 2);
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_chain_is_valid_while_all_of_its_certificates_are() {
        let chain = [certificate(2020, 2031, &[]), certificate(2026, 2040, &[])];
        let validity = CertificateValidity::of(&chain, CertificateUse::Server);
        assert_eq!(validity.expiry(), 1_925_078_400);
        for now in [TIMES[0], TIMES[1]] {
            assert_eq!(validity.problem(now), None, "at {now}");
        }
        let early = validity.problem(TIMES[0] - 1).unwrap().to_string();
        assert!(
            early.starts_with("is valid from 2026-01-02T00:00:00Z only; "),
            "{early}"
        );
        let late = validity.problem(TIMES[1] + 1).unwrap().to_string();
        assert_eq!(late, "expired at 2031-01-02T00:00:00Z; renew it");
        let empty = CertificateValidity::of(&[], CertificateUse::Server);
        assert_eq!(empty.expiry(), 0);
    }

    #[test]
    fn only_a_leaf_that_says_what_it_is_for_can_be_for_something_else() {
        use CertificateUse::{Client, Server};
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        for (usages, usage, fits) in [
            (vec![], Server, true),
            (vec![Any], Server, true),
            (vec![ServerAuth], Server, true),
            (vec![ClientAuth], Server, false),
            (vec![ClientAuth, ServerAuth], Server, true),
            (vec![ServerAuth], Client, false),
            (vec![ClientAuth], Client, true),
        ] {
            let chain = [
                certificate(2020, 2040, &usages),
                certificate(2020, 2040, &[ServerAuth]),
            ];
            let validity = CertificateValidity::of(&chain, usage);
            let problem = validity.problem(TIMES[0]);
            assert_eq!(
                problem.is_none(),
                fits,
                "{usages:?} for {usage:?}: {problem:?}"
            );
        }
    }
}
