//! The gateway of the bench: the request path of a deployed one, from `serve` to `forward`, with one data core.
//!
//! Not here: the hosted API, admission and evictions, which most requests pass without being touched.

use std::{net::SocketAddr, num::NonZero, rc::Rc, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use fairgate::app::{AppSettings, CoreContext, Gateway, runtimes::control_runtime};
use fairgate_base::{account::ByteBudget, clock::Clock};
use fairgate_call::{Call, HeaderLines, Refusal, ResetLimits, SpoolLimits};
use fairgate_core::{
    apf::{ObjectSet, Policy, work::EstimatorSettings},
    digest::User,
    time::Time,
};
use fairgate_observe::{GatewayMetrics, Telemetry};
use fairgate_proxy::{
    auth::{
        AnonymousAccess, AuthSettings, Authenticator, ConfiguredNames, TokenKey, TokenTable,
        UpstreamIdentity,
        layer::{AuthLayer, AuthRules},
        upstream::write_identity,
    },
    fairness::{
        BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
    },
    forward::{Forward, UpstreamSettings},
    stack::{AdmissionLayers, EvictionLayers, stack},
};
use serde_json::json;
use tower::layer::util::Identity;

use crate::support;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The defaults of `config/fairgate.yaml`.
pub(crate) fn flow_control_settings(enforcement: Enforcement) -> FlowControlSettings {
    FlowControlSettings {
        enforcement,
        request_timeout: REQUEST_TIMEOUT,
        max_queued: 10_000,
        estimator: EstimatorSettings::default(),
        borrowing_period: Duration::from_secs(1),
        long_running: Caps {
            per_user: 500,
            total: 5_000,
        },
        watches: Caps {
            per_user: 4_000,
            total: 40_000,
        },
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits {
            per_answer: 1 << 20,
            total: 64 << 20,
            min_read_bytes: 128 << 10,
        },
        bodies: BodyLimits {
            unfinished_bytes: 32 << 20,
            min_send_rate: 64 << 10,
        },
        long_head_bytes: 64 << 20,
    }
}

/// The built-in policy.
pub(crate) fn flow_control(enforcement: Enforcement) -> Arc<FlowControl> {
    let settings = flow_control_settings(enforcement);
    FlowControl::new(1, support::policy(0, 600), settings, Time::ZERO)
}

/// A policy with a level for unauthenticated users that has no seats, so all their requests are refused.
pub(crate) fn refusing_flow_control() -> Arc<FlowControl> {
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let level = json!({
        "apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "none"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let schema = json!({
        "apiVersion": api, "kind": "FlowSchema", "metadata": {"name": "none"},
        "spec": {
            "priorityLevelConfiguration": {"name": "none"}, "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": User::UNAUTHENTICATED}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                                   "namespaces": ["*"], "clusterScope": true}],
            }],
        },
    });
    let objects = ObjectSet::read([level, schema].map(|object| ("bench".to_owned(), object)));
    let compiled = Policy::compile(&objects, &support::settings(600)).expect("it is valid");
    let settings = flow_control_settings(Enforcement::Enforce);
    FlowControl::new(1, Arc::new(compiled.policy), settings, Time::ZERO)
}

/// The line of a token file.
pub(crate) fn token_line(token: &str) -> String {
    format!("{token},alice,1001,\"developers,reviewers\"\n")
}

/// Starts a gateway that knows the users of a token file, and lets everybody else in as anonymous.
pub(crate) fn start(
    flow_control: &Arc<FlowControl>,
    token_file: &str,
    upstream: SocketAddr,
) -> Gateway {
    let key = TokenKey::random().expect("the system has randomness");
    let tokens = TokenTable::parse(token_file.as_bytes(), &key);
    let rules = Arc::new(ArcSwap::from_pointee(AuthRules {
        authentication: Authenticator::new(AuthSettings {
            token_file: Some(tokens.expect("it is a token file").0),
            anonymous: AnonymousAccess::Everywhere,
            ..AuthSettings::default()
        }),
        names: ConfiguredNames::new([]),
        impersonation: false,
        request_timeout: REQUEST_TIMEOUT,
    }));
    let mut settings = AppSettings {
        cores: NonZero::<usize>::MIN,
        ..AppSettings::default()
    };
    settings.serve.listen.set_port(0);
    let authority = upstream.to_string().parse();
    let authority = authority.expect("an address is an authority");
    let upstream = Arc::new(UpstreamSettings::new(authority, None));
    let (flow_control, metrics) = (Arc::clone(flow_control), GatewayMetrics::new());
    let shared = Arc::clone(&flow_control);
    let telemetry = Telemetry::new(shared, Clock::system(), "bench", metrics, 10);
    let control = control_runtime().expect("a runtime can be made");
    let build = move |core: CoreContext| {
        let gate = Gate::new(Arc::clone(&flow_control), 0, core.clock.clone(), 1);
        fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
        let auth = AuthLayer::new(
            Arc::clone(&rules),
            ByteBudget::new(64 << 20),
            core.clock.clone(),
        );
        let forward = Forward::new(Arc::clone(&upstream), Rc::new(impersonate), core.clock);
        let none = Identity::new();
        stack(
            &telemetry.trace_layer(0),
            &auth,
            &FairnessLayer::new(gate),
            &none,
            &AdmissionLayers::none(),
            &EvictionLayers::none(),
            &none,
            forward,
        )
    };
    Gateway::start(settings, control, build).expect("loopback has ports")
}

/// Names the user to the upstream, as a gateway does by default.
fn impersonate(call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal> {
    let identity = call.identity.as_ref().expect("auth is in the stack");
    write_identity(&UpstreamIdentity::Impersonate, identity, lines)
        .map_err(|error| Refusal::Internal(error.to_string().into()))
}
