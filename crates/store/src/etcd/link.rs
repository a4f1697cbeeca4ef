//! The client connections to the members of an etcd, each opened on first use.
//!
//! There is one connection to each endpoint, so that it is known which member a call is sent to. Calls take turns among the
//! members that are not away, and are repeated at another one where that is safe; see `members` and `attempts`.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use arc_swap::ArcSwap;
use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, GetResponse, Identity, KvClient,
    TlsOptions, Txn, TxnResponse, WatchOptions, WatchStream,
};
use tokio::sync::{OnceCell, watch};

use super::{
    EtcdSettings,
    attempts::{Attempts, until},
    failures::CallFailure,
    members::{Members, Used},
};
use crate::error::StoreError;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// etcd limits requests, but not responses, which may have many changes of long values.
const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// The connections to one cluster.
pub(super) struct Link {
    endpoints: Vec<MemberConnection>,
    /// How connections are opened from now on.
    options: ArcSwap<ConnectOptions>,
    pub(super) members: watch::Sender<Members>,
    /// The number of attempts so far: members take turns.
    turn: AtomicUsize,
}

struct MemberConnection {
    url: String,
    connection: ArcSwap<OnceCell<Client>>,
}

impl Link {
    pub(super) fn new(settings: &EtcdSettings) -> Result<Self, StoreError> {
        check_endpoints(settings)?;
        let endpoint = |url: &String| MemberConnection {
            url: url.clone(),
            connection: ArcSwap::default(),
        };
        let endpoints: Vec<_> = settings.endpoints.iter().map(endpoint).collect();
        Ok(Self {
            members: watch::Sender::new(Members::new(endpoints.len())),
            endpoints,
            options: ArcSwap::from_pointee(connect_options(settings)),
            turn: AtomicUsize::new(0),
        })
    }

    /// Uses other certificates and another password from now on. Calls and watches on the connections that are open go on there.
    pub(super) fn renew(&self, settings: &EtcdSettings) {
        self.options.store(Arc::new(connect_options(settings)));
        for member in 0..self.count() {
            self.reconnect(member);
        }
    }

    /// Reads keys.
    pub(super) async fn get(
        &self,
        key: impl Into<Vec<u8>>,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, StoreError> {
        let (key, options) = (&key.into(), &options);
        self.call(async |used| {
            let mut kv = self.kv(used.member).await?;
            kv.get(key.clone(), options.clone()).await
        })
        .await
    }

    /// Commits a transaction that may run twice: its condition does not hold a second time, or nothing changes then.
    pub(super) async fn commit(&self, transaction: &Txn) -> Result<TxnResponse, StoreError> {
        self.call(|used| self.commit_at(used, transaction)).await
    }

    /// Commits a transaction at one member.
    pub(super) async fn commit_at(
        &self,
        used: Used,
        transaction: &Txn,
    ) -> Result<TxnResponse, Error> {
        self.kv(used.member).await?.txn(transaction.clone()).await
    }

    /// Drops all history before a revision.
    pub(super) async fn compact(&self, revision: i64) -> Result<(), StoreError> {
        self.call(|used| async move {
            let mut kv = self.kv(used.member).await?;
            kv.compact(revision, None).await.map(drop)
        })
        .await
    }

    /// Opens a watch, and tells at which member.
    pub(super) async fn watch(
        &self,
        key: &[u8],
        options: &WatchOptions,
    ) -> Result<(WatchStream, Used), StoreError> {
        self.call(|used| async move {
            let client = self.client(used.member).await?;
            let watches = client.get().expect("it is connected").watch_client();
            let mut watches = watches.max_decoding_message_size(MAX_RESPONSE_BYTES);
            let stream = watches.watch(key, Some(options.clone())).await?;
            Ok((stream, used))
        })
        .await
    }

    /// Completes once a watch should be opened at another member.
    pub(super) async fn gone(&self, used: Used) {
        let mut members = self.members.subscribe();
        until(&mut members, |members| members.is_gone(used)).await;
    }

    /// Refuses etcd versions with unreliable watches. If the user may not read the version, the check is
    /// skipped.
    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let status = self.call(|used| async move {
            let client = self.client(used.member).await?;
            let client = client.get().expect("it is connected");
            client.maintenance_client().status().await
        });
        let version = match status.await {
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

    /// The attempts of a call that begins now.
    pub(super) fn attempts(&self) -> Attempts<'_> {
        Attempts::new(&self.turn, self.members.subscribe())
    }

    /// Makes a call that may run twice, at one member after the other until one responds.
    async fn call<T, F>(&self, call: impl Fn(Used) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut attempts = self.attempts();
        loop {
            match attempts.once(&call).await {
                Ok(response) => return Ok(response),
                Err(CallFailure::Final(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    pub(super) async fn kv(&self, member: usize) -> Result<KvClient, Error> {
        let client = self.client(member).await?;
        let kv = client.get().expect("it is connected").kv_client();
        Ok(kv.max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    /// The client of a member, which is created on first use. With a user, this requests a token from the member;
    /// without, it does not connect yet.
    async fn client(&self, member: usize) -> Result<Arc<OnceCell<Client>>, Error> {
        let endpoint = &self.endpoints[member];
        let client = endpoint.connection.load_full();
        let connect = || {
            let options = ConnectOptions::clone(&self.options.load());
            Box::pin(Client::connect([&endpoint.url], Some(options)))
        };
        // Calls that come meanwhile wait for this connection. If it fails, the cell stays empty and the next call
        // connects.
        client.get_or_try_init(connect).await?;
        Ok(client)
    }

    /// Gives up the connection to a member. The next call opens another one.
    pub(super) fn reconnect(&self, member: usize) {
        // A new cell: calls on the old connection end by themselves.
        self.endpoints[member].connection.store(Arc::default());
    }

    pub(super) fn url(&self, member: usize) -> &str {
        &self.endpoints[member].url
    }

    /// How many members there are.
    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    pub(super) fn are_all_away(&self) -> bool {
        self.members.borrow().are_all_away()
    }

    /// The members that are away, and why; `None` if there are none.
    pub(super) fn away(&self) -> Option<String> {
        let members = self.members.borrow();
        let away = members
            .away()
            .map(|(member, why)| format!("{}: {why}", self.url(member)));
        let away: Vec<_> = away.collect();
        (!away.is_empty()).then(|| away.join("; "))
    }
}

fn connect_options(settings: &EtcdSettings) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        // Without, a member that is cut off from the others keeps its watches open, and says nothing on them.
        .with_require_leader(true)
        // etcd's simple tokens expire after five minutes by default.
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
    options
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
        // The first releases with the fix of each branch.
        (..3, _) | (3, ..4) => true,
        (3, 4) => patch < 25,
        (3, 5) => patch < 8,
        _ => false,
    }
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

#[cfg(test)]
mod tests {
    use fairgate_testkit::ports;

    use super::*;
    use crate::HistoryLimits;

    #[tokio::test]
    async fn the_error_for_an_unreachable_etcd_is_readable() {
        let address = ports::unused();
        let settings = EtcdSettings {
            endpoints: vec![format!("http://{address}")],
            prefix: "/fairgate".to_owned(),
            tls: None,
            user: None,
            limits: HistoryLimits::default(),
            compaction: None,
        };
        let error = Link::new(&settings).unwrap().get("/", None).await;
        let error = error.unwrap_err();
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
