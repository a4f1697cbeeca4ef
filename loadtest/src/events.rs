//! Events during a run: another policy, a slow or unavailable server, a restarted gateway.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full};

use crate::{
    gateway::{GatewayProcess, write_policy},
    scenario::{ConnectionSpec, EventKind, EventServer, Scenario, ScenarioEvent},
    transport::{connection::ConnectionPool, target::LoadTarget},
};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use fairgate_upstream::dial::HttpVersion;

/// What events act on. An event that lacks what it acts on does not happen, which is reported.
#[derive(Debug, Default)]
pub(crate) struct EventRunner {
    /// The control addresses of the stand-in servers.
    pub(crate) controls: Vec<Arc<LoadTarget>>,
    /// The gateway, if it was started here.
    pub(crate) gateway: Option<GatewayProcess>,
    /// The gateway's directory with policy files.
    pub(crate) policies: Option<PathBuf>,
    /// What could not be done.
    pub(crate) failures: Vec<String>,
}

impl EventRunner {
    /// Lets the events of `scenario` happen at their times, counted from `from`. Never ends.
    pub(crate) async fn play(&mut self, scenario: &Scenario, clock: &Clock, from: Time) {
        let mut events: Vec<&ScenarioEvent> = scenario.events.iter().collect();
        events.sort_by_key(|event| event.at);
        for event in events {
            tokio::time::sleep_until(clock.instant(from.plus(event.at))).await;
            if let Err(error) = self.happen(&event.what).await {
                self.failures.push(format!(
                    "the event at {:?} did not happen: {error:#}",
                    event.at
                ));
            }
        }
        std::future::pending::<()>().await;
    }

    async fn happen(&mut self, what: &EventKind) -> anyhow::Result<()> {
        match what {
            EventKind::Policy(objects) => {
                let directory = self.policies.as_ref();
                let directory = directory.ok_or_else(|| {
                    anyhow::anyhow!("the policy directory of the target is not known")
                })?;
                write_policy(directory, objects)
            }
            EventKind::Slowdown(factor, server) => {
                self.control(*server, &format!("/slowdown/{factor}")).await
            }
            EventKind::UpstreamDown(down, server) => {
                let command = if *down { "/down" } else { "/up" };
                self.control(*server, command).await
            }
            EventKind::RestartGateway => {
                let gateway = self.gateway.as_mut();
                let gateway =
                    gateway.ok_or_else(|| anyhow::anyhow!("the gateway was not started here"))?;
                gateway.restart().await
            }
        }
    }

    /// Sends a command to stand-in servers.
    async fn control(&self, server: EventServer, path: &str) -> anyhow::Result<()> {
        let known = &self.controls[..];
        let chosen = match server {
            EventServer::All => known,
            EventServer::Numbered(number) => known
                .get(number as usize - 1..number as usize)
                .unwrap_or_default(),
        };
        anyhow::ensure!(
            !chosen.is_empty(),
            "no --upstream-control names the stand-in server"
        );
        for target in chosen {
            request(target, Method::POST, path).await?;
        }
        Ok(())
    }
}

/// Sends a request to the control address of a stand-in server; returns the body of its response.
///
/// # Errors
///
/// When there is no response, or its status is not a success.
pub(crate) async fn request(
    target: &Arc<LoadTarget>,
    method: Method,
    path: &str,
) -> anyhow::Result<Bytes> {
    let spec = ConnectionSpec {
        protocol: HttpVersion::Http1,
        connections: Some(1),
        streams: 1,
        reconnect: Duration::ZERO,
    };
    let pool = ConnectionPool::new(Arc::clone(target), spec, 1, false);
    let mut request = Request::new(Full::<Bytes>::default());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse()?;
    request.headers_mut().insert(
        header::HOST,
        HeaderValue::try_from(target.authority.as_str())?,
    );
    let mut pooled = pool.send(&request).await?;
    let status = pooled.response.status();
    let body = pooled.response.body_mut().collect().await?.to_bytes();
    pooled.finish();
    anyhow::ensure!(
        status.is_success(),
        "{} responded with {status}",
        target.url
    );
    Ok(body)
}
