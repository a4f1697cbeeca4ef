//! What a gateway opens before everything else: what its requests are judged by, and its hosted API.

use std::sync::Arc;

use tokio::runtime::Runtime;

use super::{
    ServeError, access_reviews,
    admission::UpstreamAdmission,
    admission_recorder::LoggingRecorder,
    hosted_api::{self, HostedApi},
    namespaces::UpstreamNamespaces,
    settings::UpstreamClients,
};
use fairgate_apiserver::{HostedAdmission, namespaces::Namespaces};
use fairgate_base::clock::Clock;
use fairgate_call::ResponseMemory;
use fairgate_config::{Config, GatewayMode};
use fairgate_observe::GatewayMetrics;

/// What requests are judged by in front of an upstream, and the hosted API; each if this gateway has it.
///
/// # Errors
///
/// The store or the audit log cannot be opened.
pub(super) fn open(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    (control, responses): (&Runtime, &Arc<ResponseMemory>),
) -> Result<(Option<UpstreamAdmission>, Option<HostedApi>), ServeError> {
    let judging = UpstreamAdmission::new(config, clients, clock, metrics, control.handle())?;
    let reached = (clients, judging.as_ref());
    let hosting = open_api(config, reached, clock, metrics, (control, responses))?;
    Ok((judging, hosting))
}

/// Opens the hosted API and its store, if this gateway has one.
fn open_api(
    config: &Config,
    (clients, judging): (&UpstreamClients, Option<&UpstreamAdmission>),
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    (control, responses): (&Runtime, &Arc<ResponseMemory>),
) -> Result<Option<HostedApi>, ServeError> {
    if !config.mode.hosts() {
        return Ok(None);
    }
    let _inside = control.enter();
    let store = hosted_api::open_store(config, clock)?;
    let access = match config.mode {
        GatewayMode::Overlay => Some(access_reviews::reviews(
            config,
            clients,
            clock,
            metrics,
            control.handle(),
        )),
        _ => None,
    };
    let namespaces = config.has_upstream.then(|| {
        let client = clients.reviews.clone();
        Arc::new(UpstreamNamespaces { client }) as Arc<dyn Namespaces>
    });
    let admission = match judging {
        Some(judging) => HostedAdmission::OfGateway(judging.of_hosted_objects()),
        None if config.has_upstream => HostedAdmission::Off,
        None => HostedAdmission::OfStore {
            recorder: Some(LoggingRecorder::start(
                &config.admission.audit,
                clock,
                metrics,
            )?),
        },
    };
    let hosting = HostedApi::new(
        config,
        store,
        access,
        namespaces,
        (admission, responses),
        clock,
    );
    control.block_on(hosting.prepare());
    Ok(Some(hosting))
}
