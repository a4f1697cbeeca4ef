//! A kubeconfig: the server of a context, and how to authenticate there.
//!
//! Reading is kube-rs': contexts, relative paths, data and files, tokens, credential plugins. Its errors may quote what they could
//! not read, such as a token, so their texts are not shown.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::NotRead;

/// A client certificate with its chain, and its key.
pub(super) type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A context of a kubeconfig.
pub(super) struct KubeContext {
    /// The URL as written.
    pub(super) server: String,
    /// What kube-rs makes of it.
    pub(super) config: kube::Config,
    pub(super) identity: Option<ClientIdentity>,
}

/// Reads the context `name`, or the current one, of the file at `path`.
pub(super) async fn read(path: &Path, name: Option<&str>) -> Result<KubeContext, NotRead> {
    let file = path.display().to_string();
    let refused = |message: String| {
        let remedy = "see whether kubectl can use the file and the context";
        NotRead::new(&file, message, remedy)
    };
    let whole = Kubeconfig::read_from(path).map_err(|error| refused(in_words(&error)))?;
    let context = name
        .or(whole.current_context.as_deref())
        .unwrap_or_default()
        .to_owned();
    let cluster = {
        let named = whole.contexts.iter().find(|one| one.name == context);
        let cluster = named
            .and_then(|one| one.context.as_ref())
            .map(|one| &one.cluster);
        let mut clusters = whole.clusters.iter();
        let found = clusters.find(|one| Some(&one.name) == cluster);
        found
            .and_then(|one| one.cluster.clone())
            .unwrap_or_default()
    };
    if cluster.proxy_url.is_some_and(|url| !url.is_empty()) {
        return Err(refused("proxy-url is not supported".to_owned()));
    }
    let options = KubeConfigOptions {
        context: name.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(whole, &options).await;
    let config = config.map_err(|error| refused(in_words(&error)))?;
    if config.accept_invalid_certs {
        let message =
            "insecure-skip-tls-verify is not supported: the credential could go to anybody";
        return Err(refused(message.to_owned()));
    }
    Ok(KubeContext {
        server: cluster.server.unwrap_or_default(),
        identity: identity(&config.auth_info).map_err(refused)?,
        config,
    })
}

/// An error without what it may quote.
fn in_words(error: &KubeconfigError) -> String {
    let of_data = |what: &str, error: &LoadDataError| match error {
        LoadDataError::ReadFile(error, path) => {
            format!("{what}: {}: {error}", path.display())
        }
        _ => format!("{what} is neither in the file nor in one that it names"),
    };
    match error {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current context; pass --context".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::MissingClusterUrl => "the cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(_) => "the server is no URL".to_owned(),
        KubeconfigError::LoadCertificateAuthority(error) => {
            of_data("the certificate authority", error)
        }
        KubeconfigError::ParseCertificates(_) => "the certificate authority is not PEM".to_owned(),
        _ => "it is no kubeconfig".to_owned(),
    }
}

/// The client certificate, if the user has one.
fn identity(user: &AuthInfo) -> Result<Option<ClientIdentity>, String> {
    // The key is wrapped so that it cannot be printed. Its text is what the file has.
    let written = serde_json::to_value(user).unwrap_or_default();
    let data = |field: &str| written[field].as_str().map(str::to_owned);
    let certificate = pem(
        "client-certificate",
        data("client-certificate-data"),
        user.client_certificate.as_deref(),
    )?;
    let key = pem(
        "client-key",
        data("client-key-data"),
        user.client_key.as_deref(),
    )?;
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err("of client-certificate and client-key one is missing".to_owned()),
    };
    let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| "client-certificate is not PEM".to_owned())?;
    let key = PrivateKeyDer::from_pem_slice(&key);
    let key = key.map_err(|_| "client-key is no PEM key, or encrypted".to_owned())?;
    Ok(Some((chain, key)))
}

/// The PEM text of data in base64, or of a file.
fn pem(what: &str, data: Option<String>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let decoded = BASE64_STANDARD.decode(data.trim());
        return decoded
            .map(Some)
            .map_err(|_| format!("{what}-data is not base64"));
    }
    let Some(path) = file.filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return Ok(None);
    };
    let read = fs::read(&path);
    read.map(Some)
        .map_err(|error| format!("{what}: {}: {error}", path.display()))
}
