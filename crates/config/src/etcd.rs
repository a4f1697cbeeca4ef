//! How an etcd is reached, by the hosted API and by a fleet.

use crate::secret::Secret;

/// How an etcd is reached.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// `http://` or `https://` addresses of its members; not empty.
    pub endpoints: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// CA certificates (PEM) that verify the members.
    pub authorities_pem: Option<Vec<u8>>,
    /// The gateway's own certificate and key (PEM).
    pub client_pem: Option<(Vec<u8>, Secret<Vec<u8>>)>,
    /// User and password.
    pub user: Option<(String, Secret<String>)>,
    /// Whether the gateway compacts the cluster's history.
    pub compaction: bool,
}
