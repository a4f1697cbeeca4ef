//! TLS, and users with passwords.

use std::{fs, path::PathBuf, time::Duration};

use bytes::Bytes;

use super::{create, open, settings};
use crate::{
    Precondition, ReadRevision, Store as _, StoreError, StoreHealth, conformance,
    etcd::{EtcdSettings, EtcdStore, EtcdTls},
};
use fairgate_testkit::{
    client::soon,
    etcd::EtcdServer,
    pki::{Authority, Leaf},
};

/// Certificates in PEM, and the files that etcd reads them from.
struct Pki {
    directory: PathBuf,
    authority: Authority,
}

impl Pki {
    fn new(name: &str) -> Self {
        let authority = Authority::new("etcd");
        let name = format!("fairgate-etcd-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ca"), authority.pem()).unwrap();
        Self {
            directory,
            authority,
        }
    }

    /// Certificate and key. etcd takes the common name for the user.
    fn issue(&self, name: &str) -> (String, String) {
        self.authority.issue_pem(&Leaf::named(name))
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.directory.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// An etcd that shows a certificate of this authority, and wants one of clients.
fn serving(pki: &Pki) -> Vec<String> {
    let (certificate, key) = pki.issue("etcd.test");
    vec![
        "--cert-file".to_owned(),
        pki.file("cert", &certificate),
        "--key-file".to_owned(),
        pki.file("key", &key),
        "--client-cert-auth".to_owned(),
        "--trusted-ca-file".to_owned(),
        pki.file("ca", &pki.authority.pem()),
    ]
}

/// What a client of such an etcd uses.
fn trusting(pki: &Pki, server: &EtcdServer) -> EtcdSettings {
    let (certificate, key) = pki.issue("fairgate");
    let tls = EtcdTls {
        ca: pki.authority.pem().into(),
        identity: Some((certificate.into(), key.into())),
        server_name: Some("etcd.test".to_owned()),
    };
    EtcdSettings {
        tls: Some(tls),
        ..settings(server.endpoint().replace("http:", "https:"), "/fairgate")
    }
}

#[tokio::test]
async fn new_certificates_are_used_without_a_new_start() {
    let old = Pki::new("old");
    let mut server = EtcdServer::with(serving(&old));
    let store = EtcdStore::start(&trusting(&old, &server), conformance::clock()).unwrap();
    let connections = store.connections();
    store.wait_for(1).await.unwrap();
    create(&store, "/a", "1").await;

    // etcd is given certificates of another authority, in the same files.
    server.stop();
    let new = Pki::new("new");
    serving(&new);
    for file in ["cert", "key", "ca"] {
        fs::copy(new.directory.join(file), old.directory.join(file)).unwrap();
    }
    server.restart();
    let read = async || store.get("/a", ReadRevision::Newest).await;
    soon(async {
        while !read()
            .await
            .unwrap_err()
            .to_string()
            .contains("certificate")
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    connections.renew(&trusting(&new, &server));
    soon(async {
        while read().await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    create(&store, "/b", "2").await;
}

#[tokio::test]
async fn with_tls_both_sides_need_a_trusted_certificate() {
    let pki = Pki::new("tls");
    let server = EtcdServer::with(serving(&pki));
    let trusted = trusting(&pki, &server);
    let tls = trusted.tls.clone().unwrap();
    let secure = |tls: EtcdTls| EtcdSettings {
        tls: Some(tls),
        ..trusted.clone()
    };
    let store = open(trusted.clone()).await;
    create(&*store, "/a", "1").await;

    let stranger = Pki::new("stranger");
    for wrong in [
        EtcdTls {
            identity: None,
            ..tls.clone()
        },
        EtcdTls {
            ca: stranger.authority.pem().into(),
            ..tls.clone()
        },
        EtcdTls {
            server_name: Some("another.test".to_owned()),
            ..tls.clone()
        },
    ] {
        let refused = EtcdStore::start(&secure(wrong), conformance::clock()).unwrap();
        while !matches!(refused.health(), StoreHealth::Degraded(_)) {
            assert_ne!(refused.health(), StoreHealth::Ready);
            tokio::task::yield_now().await;
        }
        let read = refused.get("/a", ReadRevision::Cached).await;
        assert!(read.is_err(), "{read:?}");
    }
}

#[tokio::test]
async fn a_user_needs_rights_below_the_prefix_only_and_a_wrong_password_is_reported() {
    let server = EtcdServer::start();
    let mut client = server.client().await;
    client.user_add("root", "r", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("fairgate", "secret", None).await.unwrap();
    client.role_add("fairgate").await.unwrap();
    let below = etcd_client::Permission::read_write("/fairgate/").with_prefix();
    client
        .role_grant_permission("fairgate", below)
        .await
        .unwrap();
    client
        .user_grant_role("fairgate", "fairgate")
        .await
        .unwrap();
    client.auth_enable().await.unwrap();

    let user = |name: &str, password: &str, prefix: &str| EtcdSettings {
        user: Some((name.to_owned(), password.to_owned())),
        ..settings(server.endpoint(), prefix)
    };
    let store = open(user("fairgate", "secret", "/fairgate")).await;
    create(&*store, "/a", "1").await;
    assert_eq!(
        store
            .list("/", None, None, ReadRevision::Newest)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );

    for wrong in [
        user("fairgate", "guess", "/fairgate"),
        user("fairgate", "secret", "/elsewhere"),
        settings(server.endpoint(), "/fairgate"),
    ] {
        let refused = EtcdStore::start(&wrong, conformance::clock()).unwrap();
        let reported = loop {
            match refused
                .write("/b", Precondition::Absent, Some(Bytes::new()))
                .await
            {
                Err(StoreError::Unavailable(why)) if why.contains("not read yet") => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                reported => break reported,
            }
        };
        let reported = reported.unwrap_err().to_string();
        assert!(reported.contains("check user, password"), "{reported}");
    }
}
