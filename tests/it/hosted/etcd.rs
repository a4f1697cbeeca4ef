//! Tests of the local store, repeated on etcd.
//!
//! `FAIRGATE_ETCD` names the program etcd; the tests start it, and fail without it.

use std::time::Duration;

use super::{
    Home, Server,
    api::Api,
    budgets::{self, POLICY, web},
    conformance, enforcement, policies, watching,
};
use crate::client::soon;
use fairgate_testkit::{
    etcd::EtcdServer,
    pki::{Authority, Leaf},
};
use http::Method;
use serde_json::json;

/// A gateway with its objects in an etcd.
async fn gateway_on(etcd: &EtcdServer, home: &Home) -> Server {
    gateway_on_members(std::slice::from_ref(etcd), home).await
}

/// The same with an etcd of several members.
async fn gateway_on_members(members: &[EtcdServer], home: &Home) -> Server {
    let mut endpoints = Vec::new();
    for member in members {
        // A gateway does not wait for long for an etcd that is still starting.
        member.client().await;
        endpoints.push(format!("'{}'", member.endpoint()));
    }
    let endpoints = endpoints.join(", ");
    let store = format!("store: {{type: etcd, etcd: {{endpoints: [{endpoints}]}}}}\n");
    let server = Server::start(home.config_with(&store)).await;
    server.settled().await;
    server
}

#[tokio::test]
async fn the_api_operations_of_both_kinds_are_supported() {
    let home = Home::new();
    let etcd = EtcdServer::start();
    let server = gateway_on(&etcd, &home).await;
    conformance::supports_api_operations(&server).await;
    conformance::classifies_by_new_objects(&server).await;
}

#[tokio::test]
async fn budgets_are_stored_by_namespace() {
    let home = Home::new();
    let etcd = EtcdServer::start();
    let server = gateway_on(&etcd, &home).await;
    budgets::supports_namespaced_operations(&server).await;
}

#[tokio::test]
async fn policies_and_bindings_are_stored_with_their_defaults() {
    let home = Home::new();
    let etcd = EtcdServer::start();
    let server = gateway_on(&etcd, &home).await;
    policies::supports_policy_operations(&server).await;
}

#[tokio::test]
async fn policies_are_enforced() {
    let home = Home::new();
    let etcd = EtcdServer::start();
    let server = gateway_on(&etcd, &home).await;
    enforcement::enforces_policies(&server).await;
}

#[tokio::test]
async fn every_watch_sees_every_change_once_and_in_order() {
    let home = Home::new();
    let etcd = EtcdServer::start();
    let server = gateway_on(&etcd, &home).await;
    watching::all_watches_see_all_changes(&server).await;
}

#[tokio::test]
async fn what_the_alarm_of_a_full_etcd_stops_is_said_and_deletions_and_reads_go_on() {
    let home = Home::new();
    let quota = ["--quota-backend-bytes", "4194304"].map(str::to_owned);
    let etcd = EtcdServer::with(quota.into());
    let server = gateway_on(&etcd, &home).await;
    let api = server.root().await;
    let shop = format!("{POLICY}/namespaces/shop/poddisruptionbudgets");
    let mut stored = 0;
    let refused = loop {
        let mut budget = web(&format!("b{stored}"));
        budget["metadata"]["annotations"] = json!({"note": "x".repeat(200_000)});
        let posted = api.post(&shop, &budget).await;
        if posted.status != 201 {
            break posted;
        }
        stored += 1;
    };
    assert!(stored > 5, "{stored} are stored");
    let what_to_do = "raise --quota-backend-bytes, or compact, defragment and disarm its alarm";
    let message = refused.refused(500, "");
    assert!(message.contains(what_to_do), "{message}");
    // The mirror can be read, and so can etcd.
    let ready = api.get("/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    let ready = ready.text();
    let line = ready.lines().find(|line| line.starts_with("[!]store: "));
    let line = line.unwrap_or_else(|| panic!("no warning in {ready}"));
    assert!(line.contains(what_to_do), "{line}");
    assert!(
        line.ends_with("; objects can be read and deleted, and not changed"),
        "{line}"
    );
    let metrics = api.get("/metrics").await.text();
    assert!(metrics.contains("\nfairgate_store_up 0\n"), "{metrics}");
    // What would make an object smaller stores a value, too.
    let smaller = json!({"metadata": {"annotations": {"note": null}}});
    let refused = api.merge(&format!("{shop}/b0"), &smaller).await;
    assert!(refused.refused(500, "").contains(what_to_do));
    let list = api.get(&shop).await.object();
    let names: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(super::name)
        .collect();
    // The write that raised the alarm may have taken place.
    let refused = format!("b{stored}");
    assert_eq!(
        names.iter().filter(|name| **name != refused).count(),
        stored
    );
    let classified = api.send(api.request(Method::GET, "/api/v1/pods"), "");
    assert!(
        !classified
            .await
            .header("x-kubernetes-pf-flowschema-uid")
            .is_empty()
    );
    for name in names {
        api.delete(&format!("{shop}/{name}")).await.object();
    }
    let list = api.get(&shop).await.object();
    assert_eq!(list["items"], json!([]));
}

/// Waits for a line of the readiness check.
async fn until_ready_says(api: &Api, expected: impl Fn(&str) -> bool) -> String {
    soon(async {
        loop {
            let ready = api.get("/readyz?verbose").await;
            assert_eq!(ready.status, 200);
            let ready = ready.text();
            if let Some(line) = ready.lines().find(|line| expected(line)) {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_gateway_names_the_member_that_is_away_and_reads_and_writes_through_the_others() {
    let home = Home::new();
    let mut members = EtcdServer::cluster(3);
    let server = gateway_on_members(&members, &home).await;
    let api = server.root().await;
    let ready = until_ready_says(&api, |line| line.ends_with("store ok")).await;
    assert_eq!(ready, "[+]store ok");
    let away = async || {
        let metrics = api.get("/metrics").await.text();
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("fairgate_store_"));
        lines
            .filter(|line| !line.contains("revision"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        away().await,
        ["fairgate_store_members_away 0", "fairgate_store_up 1"]
    );

    members[1].freeze();
    let line = until_ready_says(&api, |line| line.starts_with("[!]store: ")).await;
    let expected = format!(
        "[!]store: members of etcd are away: {}: it does not answer; objects can be read and changed",
        members[1].endpoint()
    );
    assert_eq!(line, expected);
    assert_eq!(
        away().await,
        ["fairgate_store_members_away 1", "fairgate_store_up 1"]
    );
    let shop = format!("{POLICY}/namespaces/shop/poddisruptionbudgets");
    for number in 0..30 {
        let name = format!("b{number}");
        assert_eq!(api.post(&shop, &web(&name)).await.status, 201);
        assert_eq!(api.get(&format!("{shop}/{name}")).await.status, 200);
        let list = api.get(&shop).await.object();
        assert_eq!(list["items"].as_array().unwrap().len(), number + 1);
    }
    members[1].thaw();
    until_ready_says(&api, |line| line == "[+]store ok").await;
}

/// Writes the certificates of an etcd on 127.0.0.1 and the CA that gateways trust, of a new authority.
fn issue_certificates(home: &Home) {
    let authority = Authority::new("etcd");
    let (certificate, key) = authority.issue_pem(&Leaf::named("127.0.0.1"));
    for (name, content) in [("cert", certificate), ("key", key), ("ca", authority.pem())] {
        std::fs::write(home.path().join(format!("etcd-{name}.pem")), content).unwrap();
    }
}

#[tokio::test]
async fn a_certificate_of_etcd_that_is_renewed_with_its_authority_needs_no_new_start() {
    let home = Home::new();
    issue_certificates(&home);
    let file = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("etcd-cert.pem"), file("etcd-key.pem"));
    let mut etcd = EtcdServer::with(vec![
        "--cert-file".to_owned(),
        certificate,
        "--key-file".to_owned(),
        key,
    ]);
    // A gateway that starts before it says that it cannot be reached.
    etcd.listens().await;
    let endpoint = etcd.endpoint().replace("http:", "https:");
    let store = format!(
        "store: {{type: etcd, etcd: {{endpoints: ['{endpoint}'], caFile: etcd-ca.pem}}}}\n"
    );
    let server = Server::start(home.config_with(&store)).await;
    server.settled().await;
    let api = server.root().await;
    let shop = format!("{POLICY}/namespaces/shop/poddisruptionbudgets");
    assert_eq!(api.post(&shop, &web("before")).await.status, 201);

    etcd.stop();
    issue_certificates(&home);
    etcd.restart();
    soon(async {
        // An attempt that got no answer in time may have been carried out: then the next one finds the object.
        while !matches!(
            api.post(&shop, &web("after")).await.status.as_u16(),
            201 | 409
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let list = api.get(&shop).await.object();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}
