//! A client of the hosted API: lists, creates, watches and deletes policy objects with kube-rs.
//!
//! ```sh
//! cargo run --example hosted_client
//! ```
//!
//! The example starts a gateway of its own, with plain HTTP and a static token. Against a gateway of
//! `fairgate serve`, use `kube::Config::from_kubeconfig` with `.fairgate/admin.kubeconfig`, which
//! needs the feature `rustls-tls` of kube-rs. Nothing here is particular to fairgate: the calls are
//! those for a kube-apiserver.

use std::{env, error::Error, fs, net::SocketAddr, path::Path, process, time::Duration};

use fairgate::{app, config, observe::GatewayMetrics};
use futures_util::{TryStreamExt as _, pin_mut};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{from_value, json};

const CONFIGURATION: &str = "
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
authentication:
  tokenFile: tokens.csv
  tokenReview: {enabled: false}
drain: {delay: 0s, grace: 1s}
";

fn client(address: SocketAddr) -> Result<Client, Box<dyn Error>> {
    let mut config = kube::Config::new(format!("http://{address}").parse()?);
    config.auth_info.token = Some("secret".to_owned().into());
    Ok(Client::try_from(config)?)
}

async fn use_the_api(client: Client) -> Result<(), Box<dyn Error>> {
    let levels: Api<PriorityLevelConfiguration> = Api::all(client.clone());
    let schemas: Api<FlowSchema> = Api::all(client);

    println!("FlowSchemas of a new gateway:");
    for schema in schemas.list(&ListParams::default()).await? {
        let precedence = schema
            .spec
            .as_ref()
            .and_then(|spec| spec.matching_precedence);
        println!("  {:5} {}", precedence.unwrap_or(1000), schema.name_any());
    }

    let schema: FlowSchema = from_value(json!({
        "metadata": {"name": "reports"},
        "spec": {
            "priorityLevelConfiguration": {"name": "reports"},
            "matchingPrecedence": 2000,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "report"}}],
                "resourceRules": [{
                    "verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"],
                }],
            }],
        },
    }))?;
    schemas.create(&PostParams::default(), &schema).await?;
    println!("created FlowSchema reports");

    // The level does not exist yet, so the FlowSchema is dangling. The gateway maintains the condition.
    let level: PriorityLevelConfiguration = from_value(json!({
        "metadata": {"name": "reports"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}},
    }))?;
    let only_reports = watcher::Config::default().fields("metadata.name=reports");
    let changes = watcher(schemas.clone(), only_reports).applied_objects();
    pin_mut!(changes);
    let mut level_exists = false;
    while let Some(schema) = changes.try_next().await? {
        match dangling(&schema) {
            Some("True") if !level_exists => {
                println!("watch: reports is dangling");
                levels.create(&PostParams::default(), &level).await?;
                println!("created PriorityLevelConfiguration reports");
                level_exists = true;
            }
            Some("False") => {
                println!("watch: reports is not dangling any more");
                break;
            }
            _ => {}
        }
    }

    schemas.delete("reports", &DeleteParams::default()).await?;
    levels.delete("reports", &DeleteParams::default()).await?;
    println!("deleted both");
    Ok(())
}

/// The status of the condition `Dangling`.
fn dangling(schema: &FlowSchema) -> Option<&str> {
    let conditions = schema.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|c| c.type_.as_deref() == Some("Dangling"))?;
    condition.status.as_deref()
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    // token,user,uid,groups: members of system:masters may change policy objects.
    fs::write(
        directory.join("tokens.csv"),
        "secret,admin,1,system:masters\n",
    )?;
    let reading = config::Config::parse("client.yaml", directory, CONFIGURATION.as_bytes());
    let gateway = app::start(reading.usable()?.0, None, GatewayMetrics::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = gateway.address();
    let used = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), use_the_api(client(address)?)).await?
    });
    // Ends the client's connections first, so that the gateway has nothing to wait for.
    drop(runtime);
    gateway.shut_down();
    used
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::temp_dir().join(format!("fairgate-client-{}", process::id()));
    fs::create_dir_all(&directory)?;
    let result = run(&directory);
    fs::remove_dir_all(&directory)?;
    result
}
