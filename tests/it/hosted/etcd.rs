//! Tests of the local store, repeated on etcd.
//!
//! `FAIRGATE_ETCD` names the program etcd; the tests start it, and fail without it.

use super::{Home, Server, budgets, conformance, enforcement, policies, watching};
use fairgate_testkit::etcd::EtcdServer;

/// A gateway with its objects in an etcd.
async fn gateway_on(etcd: &EtcdServer, home: &Home) -> Server {
    // A gateway does not wait for long for an etcd that is still starting.
    etcd.client().await;
    let endpoint = etcd.endpoint();
    let store = format!("store: {{type: etcd, etcd: {{endpoints: ['{endpoint}']}}}}\n");
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
