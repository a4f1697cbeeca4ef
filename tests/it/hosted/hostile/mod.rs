//! Invalid requests to the hosted API: each is rejected with the response of kube-apiserver 1.36, and stores nothing.

mod bodies;
mod media_types;
mod objects;
mod parameters;

use super::Server;

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn revision(server: &Server) -> u64 {
    server.store().revision().await.unwrap()
}
