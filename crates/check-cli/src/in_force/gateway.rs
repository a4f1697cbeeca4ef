//! The policy of a running gateway, by its debug endpoint.

use std::{fs, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION, uri::PathAndQuery};

use super::{
    NotRead, ServerUrl, certificates,
    connecting::{BY_ARGUMENTS, in_words, with_remedy},
    run, status_message,
};
use fairgate_policy_sources::policy_in_force::{PATH, PolicyInForce};
use fairgate_upstream::client::{ApiClient, ConnectionReuse};

/// The largest policy that is read, in bytes. One of 100 000 FlowSchemas takes about 50 MiB.
const MAX_BYTES: usize = 256 << 20;
const RIGHTS: &str = "the admin port (admin.address) asks for none; the secure admin port takes the right to get this path as a \
                      non-resource URL, the main port a member of system:masters: pass its token with --token-file";
const HOW_TO_TRUST: &str = "pass it with --certificate-authority";

/// How a gateway is asked.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// Read the flow control policy that a running gateway has in force, by the URL of its admin port, its secure
    /// admin port or its main port.
    ///
    /// The admin port asks for no rights; the secure admin port asks for the right to get the path of the debug endpoint
    /// (docs/policies.md) as a non-resource URL, the main port for a member of system:masters.
    #[arg(long, value_name = "URL", conflicts_with = "policies")]
    pub(crate) server: Option<String>,
    /// The file with the bearer token for --server.
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// The file with the certificates (PEM) that verify --server, if its URL is https.
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
}

/// Reads the policy in force from the gateway at `url`; returns it with the URL as it may be shown.
pub(crate) fn read(url: &str, args: &ServerArgs) -> Result<(PolicyInForce, String), NotRead> {
    let url = ServerUrl::parse("--server", url)?;
    let roots = args.certificate_authority.as_deref();
    let roots = roots.map(certificates).transpose()?;
    let endpoint = url.endpoint(roots, None, None, HOW_TO_TRUST)?;
    let credential = credential(args)?;
    if credential.is_some() && url.is_exposed() {
        let remedy = "write https, or ask the admin port, which takes no token";
        let message = "the token would be sent without encryption";
        return Err(NotRead::new(url.to_text(), message, remedy));
    }
    let headers: HeaderMap = credential
        .into_iter()
        .map(|value| (AUTHORIZATION, value))
        .collect();
    let asked = format!("GET {}{PATH}", url.to_text());
    let policy = run(&asked, async {
        let credentials = Arc::new(move || headers.clone());
        let client = ApiClient::new(endpoint, credentials, ConnectionReuse::PerRequest);
        let path = PathAndQuery::from_static(PATH);
        let answer = client.get(path, "application/json", MAX_BYTES).await;
        let (status, body) = answer.map_err(|error| {
            let message = in_words(&error.to_string(), &BY_ARGUMENTS);
            let otherwise =
                "see whether a gateway listens there: admin.address of its configuration";
            let (message, remedy) = with_remedy(&message, otherwise);
            NotRead::new(&asked, message, remedy)
        })?;
        policy_of(&asked, status, &body)
    })?;
    Ok((policy, url.to_text()))
}

fn credential(args: &ServerArgs) -> Result<Option<HeaderValue>, NotRead> {
    let Some(path) = &args.token_file else {
        return Ok(None);
    };
    let token = fs::read_to_string(path).map_err(|error| NotRead::file(path, &error))?;
    let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| {
        let from = path.display().to_string();
        NotRead::new(
            from,
            "holds no bearer token",
            "write the token alone into it",
        )
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn policy_of(asked: &str, status: StatusCode, body: &Bytes) -> Result<PolicyInForce, NotRead> {
    let message = match status_message(body).as_str() {
        "" => format!("{}", status.as_u16()),
        message => format!("{}: {message}", status.as_u16()),
    };
    let remedy = match status {
        StatusCode::OK => {
            return serde_json::from_slice(body).map_err(|_| {
                let message = "the response is not the flow control policy of a gateway";
                NotRead::new(
                    asked,
                    message,
                    "name a fairgate of this version or a later one",
                )
            });
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RIGHTS,
        StatusCode::NOT_FOUND => {
            "no fairgate of this version is there; for an API server, pass --kubeconfig instead"
        }
        StatusCode::BAD_REQUEST => "see whether that port speaks https",
        _ => "see the log of that gateway",
    };
    Err(NotRead::new(asked, message, remedy))
}
