//! The client connection to etcd, opened on first use, and the mapping of its errors.
//!
//! The client reconnects by itself, to any endpoint. Every call has a timeout. It is shorter while etcd is
//! known to be unreachable, so that waiting requests fail quickly.

use std::{error::Error as _, time::Duration};

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, Identity, KvClient, TlsOptions, WatchClient,
};
use tokio::sync::OnceCell;

use super::EtcdSettings;
use crate::{entry::MAX_VALUE_BYTES, error::StoreError};

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take while etcd is known to be unreachable.
const DEGRADED_CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an idle connection is probed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the response to a probe may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// etcd limits requests, but not responses, which may have many changes of long values.
const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// The client connection to one cluster.
pub(super) struct Link {
    endpoints: Vec<String>,
    options: ConnectOptions,
    client: OnceCell<Client>,
}

impl Link {
    pub(super) fn new(settings: &EtcdSettings) -> Result<Self, StoreError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(tls) = &settings.tls {
            let mut with = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.ca));
            if let Some((certificate, key)) = &tls.identity {
                with = with.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                with = with.domain_name(name);
            }
            options = options.with_tls(with);
        }
        if let Some((user, password)) = &settings.user {
            options = options.with_user(user, password);
        }
        check_endpoints(settings)?;
        Ok(Self {
            endpoints: settings.endpoints.clone(),
            options,
            client: OnceCell::new(),
        })
    }

    pub(super) async fn kv(&self) -> Result<KvClient, StoreError> {
        let kv = self.client().await?.kv_client();
        Ok(kv.max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    pub(super) async fn watches(&self) -> Result<WatchClient, StoreError> {
        let watches = self.client().await?.watch_client();
        Ok(watches.max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    /// Refuses etcd versions with unreliable watches. If the user may not read the version, the check is
    /// skipped.
    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let mut maintenance = self.client().await?.maintenance_client();
        let version = match call(false, maintenance.status()).await {
            Ok(status) => status.version().to_owned(),
            Err(StoreError::Denied(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if is_too_old(&version) {
            return Err(StoreError::Failed(format!(
                "etcd {version} can report the progress of a watch before it has sent all changes; use 3.4.25, \
                 3.5.8 or newer"
            )));
        }
        Ok(())
    }

    /// Creates the client on first use. With a user, this requests a token from etcd; without, it does not
    /// connect yet.
    async fn client(&self) -> Result<&Client, StoreError> {
        let connect = || Client::connect(&self.endpoints, Some(self.options.clone()));
        let connected = self.client.get_or_try_init(connect);
        match tokio::time::timeout(CALL_TIMEOUT, connected).await {
            Ok(client) => client.map_err(|error| explain(&error)),
            Err(_) => Err(timeout_error()),
        }
    }
}

/// Whether a version may send the response to a progress request before earlier changes
/// (etcd-io/etcd#15220). A version that does not parse counts as new.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    let patch = numbers.next().and_then(Result::ok).unwrap_or(0);
    match (major, minor) {
        (..3, _) | (3, ..4) => true,
        (3, 4) => patch < 25,
        (3, 5) => patch < 8,
        _ => false,
    }
}

/// Awaits a call with a timeout, which is shorter if etcd is known to be unreachable.
pub(super) async fn call<T>(
    is_degraded: bool,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, StoreError> {
    let timeout = if is_degraded {
        DEGRADED_CALL_TIMEOUT
    } else {
        CALL_TIMEOUT
    };
    match tokio::time::timeout(timeout, call).await {
        Ok(response) => response.map_err(|error| explain(&error)),
        Err(_) => Err(timeout_error()),
    }
}

fn timeout_error() -> StoreError {
    StoreError::Unavailable("etcd does not answer; check it, and the network to it".to_owned())
}

fn check_endpoints(settings: &EtcdSettings) -> Result<(), StoreError> {
    let wrong = |what: String| Err(StoreError::Failed(what));
    if settings.endpoints.is_empty() {
        return wrong("no endpoint of etcd is configured; name one".to_owned());
    }
    let scheme = if settings.tls.is_some() {
        "https://"
    } else {
        "http://"
    };
    for endpoint in &settings.endpoints {
        if !endpoint.starts_with(scheme) {
            return wrong(format!(
                "the endpoint {endpoint:?} of etcd must begin with {scheme}: use https with a CA, http without"
            ));
        }
    }
    Ok(())
}

/// Maps an error of the etcd client, by the codes and texts of etcd's API.
pub(super) fn explain(error: &Error) -> StoreError {
    let Error::GRpcStatus(status) = error else {
        let text = with_causes(error.to_string(), error);
        return StoreError::Unavailable(format!("etcd cannot be reached: {text}"));
    };
    let message = status.message();
    let has = |part: &str| message.contains(part);
    if has("mvcc: database space exceeded") {
        return StoreError::DatabaseFull;
    }
    if has("request is too large") || has("larger than max") {
        return StoreError::TooLarge {
            key: "the key".to_owned(),
            bytes: MAX_VALUE_BYTES,
            limit: MAX_VALUE_BYTES,
        };
    }
    if has("required revision has been compacted") {
        return StoreError::Compacted {
            requested: 0,
            floor: 0,
        };
    }
    let refused = [
        "permission denied",
        "authentication",
        "invalid auth token",
        "user name is empty",
    ];
    if refused.iter().any(|part| has(part)) {
        return StoreError::Denied(message.to_owned());
    }
    let text = match message {
        "" => status.code().description(),
        message => message,
    };
    StoreError::Unavailable(match status.source() {
        // The status was created by the client, not by etcd: its source is the cause.
        Some(_) => {
            let text = with_causes(text.to_owned(), status);
            format!("etcd cannot be reached: {text}")
        }
        None => format!("etcd says: {text}"),
    })
}

/// The text of an error and its causes in one line.
fn with_causes(mut text: String, error: &dyn std::error::Error) -> String {
    const MAX_CAUSES: usize = 8;
    let mut cause = error.source();
    for _ in 0..MAX_CAUSES {
        let Some(error) = cause else { break };
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::HistoryLimits;

    #[tokio::test]
    async fn the_error_for_an_unreachable_etcd_is_readable() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let settings = EtcdSettings {
            endpoints: vec![format!("http://{address}")],
            prefix: "/fairgate".to_owned(),
            tls: None,
            user: None,
            limits: HistoryLimits::default(),
            compaction: None,
        };
        let mut kv = Link::new(&settings).unwrap().kv().await.unwrap();
        let error = call(false, kv.get("/", None)).await.unwrap_err();
        let text = error.to_string();
        let expected = "the store is not available: etcd cannot be reached: tcp connect error";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("refused"), "{text}");
        assert!(!text.contains("source:") && !text.contains('{'), "{text}");
    }

    #[test]
    fn versions_with_unreliable_watches_are_recognised() {
        for old in ["2.3.8", "3.3.27", "3.4.24", "3.5.0", "3.5.7", "3.5.7-rc.1"] {
            assert!(is_too_old(old), "{old}");
        }
        for good in [
            "3.4.25",
            "3.4.40",
            "3.5.8",
            "3.6.16",
            "3.7.0-alpha.0",
            "4.0.0",
            "main",
        ] {
            assert!(!is_too_old(good), "{good}");
        }
    }
}
