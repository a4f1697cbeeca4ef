//! Certificates, keys and tokens that are renewed in their files while the gateway runs.
//!
//! New connections use renewed certificates; connections that are open stay open.
//!
//! Not here: those for an etcd (`settings::etcd`), which are followed with these.

pub(super) mod followed_certificate;

use self::followed_certificate::{CertificateRole, FollowedCertificate};
use super::{
    followed_files::FollowedFiles,
    secure_admin::SecureAdmin,
    settings::{self, identity::UpstreamCredential},
};
use fairgate_base::clock::Clock;
use fairgate_config::{Authorities, BearerTokenFile, CertificateAndKey, CertificateUse, Config};
use fairgate_observe::Telemetry;
use fairgate_proxy::serve::tls::ServingCertificate;
use fairgate_upstream::tls::UpstreamTls;

/// The certificates that clients are shown.
pub(super) struct ServingCertificates {
    /// On the main port.
    main: Option<ServingCertificate>,
    /// On the secure admin port, if it has one of its own.
    admin: Option<ServingCertificate>,
}

impl ServingCertificates {
    /// That of the main port, and that of the secure admin port.
    pub(super) fn new(main: Option<ServingCertificate>, port: Option<&SecureAdmin>) -> Self {
        let admin = port.and_then(|port| port.certificate.clone());
        Self { main, admin }
    }
}

/// What is renewed in files while the gateway runs.
pub(super) struct Renewals {
    /// The files whose renewed contents are used at once.
    pub(super) files: Vec<FollowedFiles>,
    /// The certificates of the gateway among them.
    pub(super) certificates: Vec<FollowedCertificate>,
}

impl Renewals {
    /// The files to follow for this configuration. Also exposes when their certificates expire, and warns about those that
    /// peers refuse.
    pub(super) fn new(
        config: &Config,
        serving: ServingCertificates,
        upstream: Vec<(UpstreamTls, Option<Authorities>)>,
        credential: &UpstreamCredential,
        telemetry: &Telemetry,
        clock: &Clock,
    ) -> Self {
        let mut renewals = Self {
            files: Vec::new(),
            certificates: Vec::new(),
        };
        let metrics = telemetry.metrics();
        let mut follow = |key, label, usage, own: &CertificateAndKey| {
            let role = CertificateRole { key, label, usage };
            let followed = FollowedCertificate::register(metrics, role, own, clock);
            renewals.certificates.push(followed.clone());
            followed
        };
        if let Some((own, shown)) = config.listen.tls.clone().zip(serving.main) {
            let followed = follow("listen.tls", "serving", CertificateUse::Server, &own);
            let files = serving_files("listen.tls", own, shown, followed);
            renewals.files.push(files);
        }
        let secure = config.admin.secure.as_ref();
        let secure = secure.and_then(|secure| secure.tls.clone());
        if let Some((own, shown)) = secure.zip(serving.admin) {
            let followed = follow("admin.secure.tls", "admin", CertificateUse::Server, &own);
            let files = serving_files("admin.secure.tls", own, shown, followed);
            renewals.files.push(files);
        }
        if !upstream.is_empty() {
            let own = config.upstream.client_certificate.clone();
            let own = own.map(|own| {
                let key = "upstream.clientCertificate";
                let followed = follow(key, "upstream", CertificateUse::Client, &own);
                (own, followed)
            });
            let files = upstream
                .into_iter()
                .filter_map(|(tls, authorities)| upstream_files(authorities, own.clone(), tls));
            renewals.files.extend(files);
        }
        let token = config.upstream.token.clone();
        let token = token.map(|token| token_file(token, credential.clone()));
        renewals.files.extend(token);
        renewals
    }
}

impl Renewals {
    /// The same, and more files.
    pub(super) fn with(mut self, files: Option<FollowedFiles>) -> Self {
        self.files.extend(files);
        self
    }
}

/// A serving certificate and its key.
fn serving_files(
    key: &'static str,
    own: CertificateAndKey,
    shown: ServingCertificate,
    followed: FollowedCertificate,
) -> FollowedFiles {
    FollowedFiles::new(key, own.files.clone().into(), move |contents| {
        let [certificate, key] = contents else {
            return Ok(()); // there are as many as were named above
        };
        let renewed = own.with_contents(certificate, key)?;
        let chain = renewed.chain.clone();
        let renewed = ServingCertificate::new(renewed.chain, renewed.key);
        shown.replace(&renewed.map_err(|error| error.to_string())?);
        followed.set(&chain);
        Ok(())
    })
}

/// The CA bundle and the client certificate, which one TLS configuration contains.
fn upstream_files(
    authorities: Option<Authorities>,
    own: Option<(CertificateAndKey, FollowedCertificate)>,
    tls: UpstreamTls,
) -> Option<FollowedFiles> {
    let bundle = authorities.iter().map(|authorities| &authorities.file);
    let pair = own.iter().flat_map(|(own, _)| &own.files);
    let files: Vec<_> = bundle.chain(pair).cloned().collect();
    if files.is_empty() {
        return None;
    }
    let apply = move |contents: &[Vec<u8>]| {
        let mut contents = contents.iter();
        let mut next = || contents.next().map(Vec::as_slice).unwrap_or_default();
        let authorities = authorities.as_ref();
        let authorities = authorities.map(|authorities| authorities.with_contents(next()));
        let renewed = own
            .as_ref()
            .map(|(own, _)| own.with_contents(next(), next()));
        let (authorities, renewed) = (authorities.transpose()?, renewed.transpose()?);
        let made = settings::client_tls(authorities.as_ref(), renewed.as_ref());
        tls.replace(made.map_err(|error| error.to_string())?);
        if let Some(((_, followed), renewed)) = own.as_ref().zip(renewed) {
            followed.set(&renewed.chain);
        }
        Ok(())
    };
    Some(FollowedFiles::new("upstream", files, apply))
}

fn token_file(token: BearerTokenFile, credential: UpstreamCredential) -> FollowedFiles {
    FollowedFiles::new(
        "upstream.tokenFile",
        vec![token.file.clone()],
        move |contents| {
            credential.replace(&token.with_contents(&contents.concat())?);
            Ok(())
        },
    )
}
