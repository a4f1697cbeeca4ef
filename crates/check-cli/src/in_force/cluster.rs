//! The policy of a cluster, from its API.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderMap;
use kube::{
    Client,
    client::{AuthError, ConfigExt as _},
};
use rustls::pki_types::CertificateDer;
use tower::{BoxError, Layer as _, util::MapErr};

use super::{
    NotRead, ServerUrl,
    connecting::{BY_KUBECONFIG, in_words, with_remedy},
    kubeconfig, one_line, run,
};
use fairgate_base::clock::Clock;
use fairgate_policy_sources::{
    DocumentSet,
    kube::{PolicyListError, list},
};
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse},
    informer::KubeTransport,
};

const RIGHTS: &str = "this takes the rights to list flowschemas and prioritylevelconfigurations (flowcontrol.apiserver.k8s.io)";
const PLUGIN: &str = "run the plugin of the kubeconfig by hand, or kubectl with this context";
const HOW_TO_TRUST: &str = "set certificate-authority in the kubeconfig";

/// How a cluster is asked.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Read the flow control policy of a cluster, by the server and user of a kubeconfig.
    ///
    /// The user needs the rights to list flowschemas and prioritylevelconfigurations. The server has to be verified by a
    /// certificate authority in the kubeconfig; a proxy is not used.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policies", "server"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; by default the current one.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

/// Lists the objects of the cluster that the kubeconfig at `path` names; returns them with the URL of the server.
pub(crate) fn read(path: &Path, args: &ClusterArgs) -> Result<(DocumentSet, String), NotRead> {
    run(&path.display().to_string(), async {
        let context = kubeconfig::read(path, args.context.as_deref()).await?;
        let from = format!("{}: server", path.display());
        let url = ServerUrl::parse(&from, &context.server)?;
        let listed = list(&client(&url, context)?).await;
        let set = listed.map_err(|error| not_listed(&url, &error))?;
        Ok((set, url.to_text()))
    })
}

fn client(url: &ServerUrl, context: kubeconfig::KubeContext) -> Result<Client, NotRead> {
    let kubeconfig::KubeContext {
        config, identity, ..
    } = context;
    let roots = config.root_cert.as_ref().map(|roots| {
        let roots = roots.iter().cloned();
        roots.map(CertificateDer::from).collect()
    });
    let name = config.tls_server_name.as_deref();
    let endpoint = url.endpoint(roots, identity, name, HOW_TO_TRUST)?;
    let none = Arc::new(HeaderMap::new);
    let client = ApiClient::new(endpoint, none, ConnectionReuse::PerRequest);
    let transport = KubeTransport::unobserved(client, Clock::system());
    let refused = |error: &kube::Error| {
        let (message, remedy) = credential_in_words(error);
        NotRead::new(url.to_text(), message, remedy)
    };
    let headers = config
        .extra_headers_layer()
        .map_err(|error| refused(&error))?;
    // Credentials may fail in other ways than requests.
    let transport = MapErr::new(headers.layer(transport), BoxError::from);
    Ok(
        match config.auth_layer().map_err(|error| refused(&error))? {
            Some(credential) => Client::new(credential.layer(transport), "default"),
            None => Client::new(transport, "default"),
        },
    )
}

fn not_listed(url: &ServerUrl, error: &PolicyListError) -> NotRead {
    let PolicyListError::Request { path, source } = error else {
        let remedy = "upgrade the server: v1 and v1beta3 are supported";
        return NotRead::new(url.to_text(), error.to_string(), remedy);
    };
    let asked = format!("GET {}{path}", url.to_text());
    let is_credential = match &**source {
        kube::Error::Auth(_) => true,
        kube::Error::Service(error) => error.is::<AuthError>(),
        _ => false,
    };
    if is_credential {
        let (message, remedy) = credential_in_words(source);
        return NotRead::new(asked, message, remedy);
    }
    match &**source {
        kube::Error::Api(status) => {
            let message = format!("{}: {}", status.code, one_line(&status.message));
            NotRead::new(asked, message, RIGHTS)
        }
        kube::Error::Service(error) => {
            let reason = fairgate_upstream::client::with_causes(&**error);
            let otherwise = "see whether the server of this context is reachable from here";
            let (message, remedy) = with_remedy(&in_words(&reason, &BY_KUBECONFIG), otherwise);
            NotRead::new(asked, message, remedy)
        }
        // Their texts may quote the response.
        _ => NotRead::new(
            asked,
            "the response is no list of FlowSchemas or PriorityLevelConfigurations",
            RIGHTS,
        ),
    }
}

/// Why there is no credential, without what a plugin printed.
fn credential_in_words(error: &kube::Error) -> (String, &'static str) {
    let error = match error {
        kube::Error::Auth(error) => Some(error),
        kube::Error::Service(error) => error.downcast_ref::<AuthError>(),
        _ => None,
    };
    match error {
        Some(AuthError::ReadTokenFile(error, path)) => (
            format!("the token file {}: {error}", path.display()),
            "name a file that this user may read",
        ),
        Some(AuthError::AuthExecStart(error)) => (
            format!("the credential plugin cannot be started: {error}"),
            PLUGIN,
        ),
        Some(AuthError::AuthExecRun { out, .. }) => (
            format!("the credential plugin failed: {}", out.status),
            PLUGIN,
        ),
        _ => ("there is no usable credential".to_owned(), PLUGIN),
    }
}
