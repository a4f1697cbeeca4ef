//! What a gateway opens before everything else: what its requests are evaluated by, and its hosted API.

use std::sync::Arc;

use tokio::runtime::Runtime;

use super::{
    ServeError, access_reviews,
    admission::{UpstreamAdmission, admission_recorder::LoggingRecorder, type_checks},
    followed_files::FollowedFiles,
    hosted_api::{self, HostedApi},
    settings::UpstreamClients,
};
use fairgate_apiserver::{HostedAdmission, UpstreamNamespaces, namespaces::Namespaces};
use fairgate_base::clock::Clock;
use fairgate_call::ResponseMemory;
use fairgate_config::{Config, GatewayMode};
use fairgate_observe::{GatewayMetrics, catalogue};

/// What requests are evaluated by in front of an upstream, and the hosted API; each if this gateway has it. Also the memory for
/// responses that the gateway makes itself, and the files whose renewed contents the store uses.
///
/// # Errors
///
/// The store or the audit log cannot be opened.
pub(super) fn open(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    control: &Runtime,
) -> Result<Opened, ServeError> {
    let responses = response_memory(config, metrics);
    let evaluating = UpstreamAdmission::new(config, clients, clock, metrics, control.handle())?;
    let reached = (clients, evaluating.as_ref());
    let with = (control, &responses);
    let (hosting, files) = open_api(config, reached, clock, metrics, with)?;
    Ok((evaluating, hosting, responses, files))
}

/// See [`open`].
type Opened = (
    Option<UpstreamAdmission>,
    Option<HostedApi>,
    Arc<ResponseMemory>,
    Option<FollowedFiles>,
);

/// The memory for responses that the gateway makes itself, and its metrics.
fn response_memory(config: &Config, metrics: &GatewayMetrics) -> Arc<ResponseMemory> {
    let total = usize::try_from(config.limits.response_budget).unwrap_or(usize::MAX / 2);
    let memory = ResponseMemory::new(total);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |bytes: usize| bytes as f64;
    let of = [(); 4].map(|()| Arc::clone(&memory));
    let [now, most, refused, given_up] = of;
    metrics.observe_gauge(&catalogue::RESPONSE_BYTES, move || number(now.held().now));
    metrics.observe_gauge(&catalogue::RESPONSE_PEAK, move || number(most.held().most));
    metrics.observe_counter(&catalogue::RESPONSES_REFUSED, move || refused.refused());
    metrics.observe_counter(&catalogue::RESPONSES_GIVEN_UP, move || given_up.given_up());
    memory
}

/// Opens the hosted API and its store, if this gateway has one.
fn open_api(
    config: &Config,
    (clients, evaluating): (&UpstreamClients, Option<&UpstreamAdmission>),
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    (control, responses): (&Runtime, &Arc<ResponseMemory>),
) -> Result<(Option<HostedApi>, Option<FollowedFiles>), ServeError> {
    if !config.mode.hosts() {
        return Ok((None, None));
    }
    let _inside = control.enter();
    let (store, files) = hosted_api::open_store(config, clock)?;
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
        Arc::new(UpstreamNamespaces::new(client)) as Arc<dyn Namespaces>
    });
    let admission = match evaluating {
        Some(evaluating) => HostedAdmission::OfGateway(evaluating.of_hosted_objects()),
        None if config.has_upstream => HostedAdmission::Off,
        None => HostedAdmission::OfStore {
            recorder: Some(LoggingRecorder::start(
                &config.admission.audit,
                clock,
                metrics,
            )?),
        },
    };
    let mut hosting = HostedApi::new(
        config,
        store,
        access,
        namespaces,
        (admission, responses),
        clock,
    );
    hosting
        .check_against(|| type_checks::kinds(config, evaluating, clients, clock, control.handle()));
    control.block_on(hosting.prepare());
    Ok((Some(hosting), files))
}
