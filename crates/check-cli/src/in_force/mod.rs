//! Reads the policy in force: of a running gateway, of a cluster, or of the store of a gateway that is stopped.
//!
//! Each is read once, without a retry. An error says what was asked, what it answered and which rights that takes; it never
//! shows a credential, nor anything that a server or plugin sent except the message of a `Status`.

mod cluster;
mod connecting;
mod gateway;
mod kubeconfig;
mod store;

use std::{fs, io, net::IpAddr, path::Path, time::Duration};

use fairgate_core::finding::{Finding, Severity};
use http::{Uri, uri::Authority};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::Value;

use fairgate_upstream::{
    endpoint::Endpoint,
    tls::{UpstreamTls, client_config},
};

pub(super) use cluster::{ClusterArgs, read as of_cluster};
pub(super) use gateway::{ServerArgs, read as of_gateway};
pub(super) use store::read as of_store;

/// How long reading may take in all.
const LIMIT: Duration = Duration::from_secs(60);
/// How many characters of a server's message are shown.
const MAX_MESSAGE: usize = 300;

/// Why the policy in force could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotRead {
    /// What was asked: a URL without a credential, or a file.
    pub(super) from: String,
    /// What happened.
    pub(super) message: String,
    /// What to do.
    pub(super) remedy: String,
}

impl NotRead {
    fn new(from: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A file that cannot be read.
    fn file(path: &Path, error: &io::Error) -> Self {
        let remedy = "name a file that this user may read";
        Self::new(path.display().to_string(), error.to_string(), remedy)
    }

    pub(super) fn into_finding(self) -> Finding {
        Finding::without_object(Severity::Error, self.from, self.message, self.remedy)
    }
}

/// Runs a request to its end, or to its time limit. `from` is what is asked.
fn run<T>(from: &str, asking: impl Future<Output = Result<T, NotRead>>) -> Result<T, NotRead> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let failed = |error: io::Error| NotRead::new(from, error.to_string(), "repeat it");
    let asked = runtime
        .map_err(failed)?
        .block_on(async { tokio::time::timeout(LIMIT, asking).await });
    asked.unwrap_or_else(|_| {
        let message = format!("no complete response within {} s", LIMIT.as_secs());
        Err(NotRead::new(
            from,
            message,
            "see whether the server is healthy",
        ))
    })
}

/// A server's URL: scheme, host and port.
struct ServerUrl {
    authority: Authority,
    is_https: bool,
}

impl ServerUrl {
    /// Parses a URL that was given under `name`. It is not in any error, since it may contain a password.
    fn parse(name: &str, text: &str) -> Result<Self, NotRead> {
        let refused = |message: &str| {
            let remedy = "write scheme, host and port, such as http://127.0.0.1:9080";
            NotRead::new(name, message, remedy)
        };
        let uri: Uri = text.parse().map_err(|_| refused("is no URL"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refused("has no scheme http or https")),
        };
        let authority = uri.authority().ok_or_else(|| refused("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refused(
                "has a user or password in it, which would show in the list of processes",
            ));
        }
        if uri.path_and_query().is_some_and(|rest| rest != "/") {
            return Err(refused("has a path or query"));
        }
        Ok(Self {
            authority: authority.clone(),
            is_https,
        })
    }

    /// Scheme, host and port.
    fn to_text(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Whether what is sent there may be seen by others.
    fn is_exposed(&self) -> bool {
        let host = self.authority.host();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        !self.is_https && !is_local
    }

    /// Where to connect. With HTTPS `roots` verify the server, whose certificate has to be valid for `server_name` or the host.
    fn endpoint(
        &self,
        roots: Option<Vec<CertificateDer<'static>>>,
        own: Option<kubeconfig::ClientIdentity>,
        server_name: Option<&str>,
        how_to_trust: &str,
    ) -> Result<Endpoint, NotRead> {
        let from = self.to_text();
        if !self.is_https {
            return Ok(Endpoint::new(self.authority.clone(), None));
        }
        let roots = roots.ok_or_else(|| {
            let message = "there is no certificate authority to verify it by; those of the system are not used";
            NotRead::new(&from, message, how_to_trust)
        })?;
        let name = server_name.unwrap_or_else(|| self.authority.host());
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|_| {
            NotRead::new(&from, "the host is no name of a server", "correct the host")
        })?;
        let config = client_config(roots, own).map_err(|error| {
            let remedy = "see whether certificates and key are complete and belong together";
            NotRead::new(&from, error.to_string(), remedy)
        })?;
        let tls = UpstreamTls::new(config, name);
        Ok(Endpoint::new(self.authority.clone(), Some(tls)))
    }
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NotRead> {
    let pem = fs::read(path).map_err(|error| NotRead::file(path, &error))?;
    let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let read = read.unwrap_or_default();
    if read.is_empty() {
        let from = path.display().to_string();
        return Err(NotRead::new(
            from,
            "holds no certificate",
            "name a PEM file",
        ));
    }
    Ok(read)
}

/// The message of a `Status`, in one short line; empty if the body is none.
fn status_message(body: &[u8]) -> String {
    let read = serde_json::from_slice::<Value>(body).unwrap_or_default();
    one_line(read["message"].as_str().unwrap_or_default())
}

fn one_line(text: &str) -> String {
    let shown = text.chars().take(MAX_MESSAGE);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_scheme_host_and_port_and_is_never_repeated() {
        for (text, shown) in [
            ("http://127.0.0.1:9080", "http://127.0.0.1:9080"),
            ("https://[::1]:8443/", "https://[::1]:8443"),
            ("https://gateway", "https://gateway"),
        ] {
            assert_eq!(ServerUrl::parse("--server", text).unwrap().to_text(), shown);
        }
        for bad in [
            "",
            "s3cret",
            "s3cret:9080",
            "ftp://s3cret",
            "http://",
            "http://user:s3cret@gateway",
            "http://s3cret@gateway",
            "http://gateway/s3cret",
            "http://gateway?token=s3cret",
            "http://s3 cret",
        ] {
            let error = ServerUrl::parse("--server", bad).err();
            let error = error.unwrap_or_else(|| panic!("{bad}")).into_finding();
            assert!(!error.to_string().contains("s3"), "{error}");
        }
    }

    #[test]
    fn a_message_is_one_short_line() {
        let status = |message: &str| serde_json::json!({"message": message}).to_string();
        assert_eq!(
            status_message(status("a\n\u{1b}[31mb").as_bytes()),
            "a  [31mb"
        );
        assert_eq!(
            status_message(status(&"x".repeat(9999)).as_bytes()).len(),
            MAX_MESSAGE
        );
        assert_eq!(status_message(b"<html>"), "");
    }
}
