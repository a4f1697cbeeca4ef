//! Certificates, keys and tokens that are renewed in their files while the gateway runs.
//!
//! New connections use renewed certificates; connections that are open stay open.

use super::{
    certificate_expiry::CertificateExpiry, followed_files::FollowedFiles,
    identity::UpstreamCredential, secure_admin::SecureAdmin, settings,
};
use fairgate_config::{Authorities, BearerTokenFile, CertificateAndKey, Config};
use fairgate_observe::{GatewayMetrics, Telemetry};
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

/// The files to follow for this configuration. Also exposes when their certificates expire.
pub(super) fn files(
    config: &Config,
    serving: ServingCertificates,
    upstream: Option<UpstreamTls>,
    credential: &UpstreamCredential,
    telemetry: &Telemetry,
) -> Vec<FollowedFiles> {
    let metrics = telemetry.metrics();
    let main = config.listen.tls.clone().zip(serving.main);
    let main =
        main.map(|(own, shown)| serving_files(["listen.tls", "serving"], own, shown, metrics));
    let secure = config.admin.secure.as_ref();
    let admin = secure
        .and_then(|secure| secure.tls.clone())
        .zip(serving.admin);
    let admin =
        admin.map(|(own, shown)| serving_files(["admin.secure.tls", "admin"], own, shown, metrics));
    let upstream = upstream.and_then(|tls| {
        let authorities = config.upstream.authorities.clone();
        upstream_files(
            authorities,
            config.upstream.client_certificate.clone(),
            tls,
            metrics,
        )
    });
    let token = config.upstream.token.clone();
    let token = token.map(|token| token_file(token, credential.clone()));
    let files = [main, admin, upstream, token];
    files.into_iter().flatten().collect()
}

/// A serving certificate: the key of the configuration, and the value of the metric's label.
fn serving_files(
    [field, label]: [&'static str; 2],
    own: CertificateAndKey,
    shown: ServingCertificate,
    metrics: &GatewayMetrics,
) -> FollowedFiles {
    let expiry = CertificateExpiry::register(metrics, label, &own.chain);
    FollowedFiles::new(field, own.files.clone().into(), move |contents| {
        let [certificate, key] = contents else {
            return Ok(()); // there are as many as were named above
        };
        let renewed = own.with_contents(certificate, key)?;
        let chain = renewed.chain.clone();
        let renewed = ServingCertificate::new(renewed.chain, renewed.key);
        shown.replace(&renewed.map_err(|error| error.to_string())?);
        expiry.set(&chain);
        Ok(())
    })
}

/// The CA bundle and the client certificate, which one TLS configuration contains.
fn upstream_files(
    authorities: Option<Authorities>,
    own: Option<CertificateAndKey>,
    tls: UpstreamTls,
    metrics: &GatewayMetrics,
) -> Option<FollowedFiles> {
    let expiry =
        (own.as_ref()).map(|own| CertificateExpiry::register(metrics, "upstream", &own.chain));
    let bundle = authorities.iter().map(|authorities| &authorities.file);
    let pair = own.iter().flat_map(|own| &own.files);
    let files: Vec<_> = bundle.chain(pair).cloned().collect();
    if files.is_empty() {
        return None;
    }
    let apply = move |contents: &[Vec<u8>]| {
        let mut contents = contents.iter();
        let mut next = || contents.next().map(Vec::as_slice).unwrap_or_default();
        let authorities = authorities.as_ref();
        let authorities = authorities.map(|authorities| authorities.with_contents(next()));
        let own = own.as_ref().map(|own| own.with_contents(next(), next()));
        let (authorities, own) = (authorities.transpose()?, own.transpose()?);
        let renewed = settings::client_tls(authorities.as_ref(), own.as_ref());
        tls.replace(renewed.map_err(|error| error.to_string())?);
        if let (Some(expiry), Some(own)) = (&expiry, &own) {
            expiry.set(&own.chain);
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
