//! The policy of a cluster, by a kubeconfig: contexts, credentials, and what cannot be used.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Request, Response, header::AUTHORIZATION};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Ran, explained, path, schema};
use crate::{
    pki::{Authority, Leaf},
    process::new_directory,
    upstream::{Speaks, TestReply, TestUpstream, full},
};

/// An API server, with TLS, that has one FlowSchema and lists it for one token.
fn api_server(authority: &Authority) -> TestUpstream {
    let listed = |request: &Request<Incoming>| -> (u16, Value) {
        let is_known = |value: &http::HeaderValue| value == "Bearer token-s3cret";
        let path = request.uri().path();
        let group = "/apis/flowcontrol.apiserver.k8s.io";
        if !request.headers().get(AUTHORIZATION).is_some_and(is_known) {
            let message = format!("flowschemas is forbidden: User \"bob\" cannot get {path}");
            return (
                403,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "Forbidden", "message": message, "code": 403}),
            );
        }
        let version = json!({"groupVersion": "flowcontrol.apiserver.k8s.io/v1", "version": "v1"});
        match path.strip_prefix(group) {
            Some("") => (
                200,
                json!({"kind": "APIGroup", "apiVersion": "v1", "name": "flowcontrol.apiserver.k8s.io",
                "versions": [version], "preferredVersion": version}),
            ),
            Some(kind) => {
                let items = if kind == "/v1/flowschemas" {
                    vec![schema("theirs", 5)]
                } else {
                    Vec::new()
                };
                (
                    200,
                    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "4711"}, "items": items}),
                )
            }
            None => (404, json!({"kind": "Status", "code": 404})),
        }
    };
    TestUpstream::start(
        Speaks::Tls(authority.server(&[b"http/1.1"])),
        move |request| {
            let (code, body) = listed(&request);
            let mut answer: TestReply = Response::new(full(body.to_string()));
            *answer.status_mut() = code.try_into().unwrap();
            async move { answer }
        },
    )
}

/// Writes a kubeconfig with this cluster and user, and returns its path.
fn kubeconfig(directory: &Path, cluster: &Value, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}, {"name": "none", "cluster": {}}],
        "users": [{"name": "u", "user": user}, {"name": "bob", "user": {"token": "other-s3cret"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "bobs", "context": {"cluster": "c", "user": "bob"}},
            {"name": "nowhere", "context": {"cluster": "none", "user": "u"}},
        ],
    });
    let path = path(directory, "kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cluster_is_asked_by_a_kubeconfig() {
    let authority = Authority::new("test root");
    let server = api_server(&authority);
    let scratch = Scratch(new_directory());
    let directory = &scratch.0;
    let address = format!("https://localhost:{}", server.address.port());
    let ca = BASE64_STANDARD.encode(authority.pem());
    let cluster = json!({"server": address, "certificate-authority-data": ca});
    let token = json!({"token": "token-s3cret"});
    let config = kubeconfig(directory, &cluster, &token);

    let found = explained(&["--kubeconfig", &config]);
    assert_eq!(
        (&found["flowSchema"], &found["policy"]["kind"]),
        (&json!("theirs"), &json!("cluster"))
    );
    assert_eq!(found["policy"]["revision"], "4711");
    assert_eq!(
        found["policy"]["source"],
        format!("the API server {address}")
    );
    // The mandatory ones are in force in any case; the suggested ones are not there.
    assert_eq!(found["policy"]["flowSchemas"], 3);
    let checked = Ran::fairgate(&["check", "--kubeconfig", &config, "--context", "here"]);
    assert!(
        checked
            .out
            .starts_with(&format!("Policy: the API server {address}: 3 FlowSchemas")),
        "{checked:?}"
    );

    let rights = "the rights to list flowschemas and prioritylevelconfigurations";
    let asked = format!(
        "GET {address}/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations: 403: "
    );
    Ran::explain(&["--kubeconfig", &config, "--context", "bobs"]).refuses(&[&asked, rights]);
    Ran::explain(&["--kubeconfig", &config, "--context", "gone"])
        .refuses(&["it has no context \"gone\""]);
    Ran::explain(&["--kubeconfig", &config, "--context", "nowhere"])
        .refuses(&["the cluster has no server"]);
    Ran::explain(&["--kubeconfig", "/nowhere/config"])
        .refuses(&["/nowhere/config", "No such file"]);
}

/// A user of a kubeconfig who is authenticated by what this command prints.
fn plugin(print: &str) -> Value {
    json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": ["-c", print], "interactiveMode": "Never"}})
}

#[test]
fn credentials_of_a_kubeconfig_are_in_files_by_relative_paths_or_of_a_plugin() {
    let authority = Authority::new("test root");
    let server = api_server(&authority);
    let scratch = Scratch(new_directory());
    let directory = &scratch.0;
    let address = format!("https://localhost:{}", server.address.port());
    fs::write(directory.join("token"), "token-s3cret").unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    let (certificate, key) = authority.issue_pem(&Leaf::new("alice"));
    fs::write(directory.join("own.pem"), certificate).unwrap();
    fs::write(directory.join("own.key"), key).unwrap();
    let cluster = json!({"server": address, "certificate-authority": "ca.pem"});
    let credential = r#"echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "token-s3cret"}}'"#;
    for user in [
        json!({"tokenFile": "token", "client-certificate": "own.pem", "client-key": "own.key"}),
        plugin(credential),
    ] {
        let config = kubeconfig(directory, &cluster, &user);
        assert_eq!(
            explained(&["--kubeconfig", &config])["flowSchema"],
            "theirs"
        );
    }
}

#[test]
fn what_cannot_be_used_of_a_kubeconfig_is_named_without_what_it_holds() {
    let authority = Authority::new("test root");
    let server = api_server(&authority);
    let scratch = Scratch(new_directory());
    let directory = &scratch.0;
    let address = format!("https://localhost:{}", server.address.port());
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    fs::write(directory.join("own.pem"), authority.pem()).unwrap();
    let cluster = json!({"server": address, "certificate-authority": "ca.pem"});
    let token = json!({"token": "token-s3cret"});
    for (cluster, user, part) in unusable(&address, &cluster, &token) {
        let config = kubeconfig(directory, &cluster, &user);
        Ran::explain(&["--kubeconfig", &config]).refuses(&[part]);
    }
}

/// Clusters and users that cannot be used, and a part of what is said of each.
fn unusable(address: &str, cluster: &Value, token: &Value) -> Vec<(Value, Value, &'static str)> {
    let other = BASE64_STANDARD.encode(Authority::new("other root").pem());
    vec![
        (
            json!({"server": address, "certificate-authority-data": other}),
            token.clone(),
            "certificate",
        ),
        (
            json!({"server": address}),
            token.clone(),
            "set certificate-authority in the kubeconfig",
        ),
        (
            json!({"server": address, "insecure-skip-tls-verify": true}),
            token.clone(),
            "insecure-skip-tls-verify",
        ),
        (
            json!({"server": "https://root:s3cret@localhost:1"}),
            token.clone(),
            "password",
        ),
        (
            json!({"server": address, "proxy-url": "http://root:s3cret@proxy"}),
            token.clone(),
            "proxy-url",
        ),
        (
            json!({"server": address, "certificate-authority": "gone.pem"}),
            token.clone(),
            "gone.pem",
        ),
        (cluster.clone(), json!({"tokenFile": "gone"}), "gone"),
        (
            cluster.clone(),
            json!({"client-certificate": "own.pem"}),
            "one is missing",
        ),
        (
            cluster.clone(),
            json!({"client-certificate": "own.pem", "client-key-data": "s3cret"}),
            "client-key-data is not base64",
        ),
        (
            cluster.clone(),
            plugin("echo s3cret; exit 3"),
            "the credential plugin failed: exit status: 3",
        ),
        (
            cluster.clone(),
            plugin("echo '{s3cret'"),
            "no usable credential",
        ),
        (
            cluster.clone(),
            json!({"exec": {"command": "/nowhere/s3cret-plugin"}}),
            "cannot be started",
        ),
        (
            cluster.clone(),
            json!({"token": {"s3cret": 1}}),
            "it is no kubeconfig",
        ),
    ]
}
