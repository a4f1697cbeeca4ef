//! What flow control makes of requests that policies refuse.

use fairgate_admission::AdmissionMode;
use std::{rc::Rc, sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_call::{ResetLimits, SpoolLimits};
use fairgate_core::{
    apf::{ObjectSet, Policy, PolicySettings, Semantics, work::EstimatorSettings},
    digest::RequestInfo,
    time::Time,
};
use fairgate_proxy::fairness::{
    BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::{Layer, Service};

use super::world::{World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const START: Time = Time::from_nanos(1_000_000_000);

fn flow_control() -> Arc<FlowControl> {
    let settings = PolicySettings {
        total_seats: 100,
        semantics: Semantics::Improved,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let policy = Policy::compile(&ObjectSet::default(), &settings).unwrap();
    let settings = FlowControlSettings {
        enforcement: Enforcement::Enforce,
        request_timeout: Duration::from_secs(60),
        max_queued: 100,
        borrowing_period: Duration::from_secs(10),
        estimator: EstimatorSettings::default(),
        long_running: Caps::NONE,
        watches: Caps::NONE,
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits::NONE,
        bodies: BodyLimits::NONE,
        long_head_bytes: usize::MAX,
    };
    FlowControl::new(1, Arc::new(policy.policy), settings, START)
}

/// The seats that are in use at the present time, which does not pass by itself.
fn seats_in_use(flow_control: &FlowControl, now: Time) -> u32 {
    let levels = flow_control.dispatcher().report(now);
    levels.iter().map(|level| level.summary.seats_in_use).sum()
}

#[test]
fn a_refused_write_has_no_final_seats() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "object.data.a != 'refused'")]);
        let flow_control = flow_control();
        let clock = Clock::manual(START);
        let gate = Gate::new(Arc::clone(&flow_control), 0, clock.clone(), 1);
        fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
        let layer = FairnessLayer::new(gate);
        let mut stack = layer.layer(world.layer.layer(world.inside.clone()));
        let watch = RequestInfo::from_target("GET", &format!("{MAPS}?watch=1")).unwrap();
        flow_control.with_watchers(|watchers| {
            for _ in 0..30 {
                let _ = watchers.register(&watch).unwrap();
            }
        });
        for (data, code, lingering) in [("stored", 200, 3), ("refused", 422, 0)] {
            let body = json!({"metadata": {"name": "m"}, "data": {"a": data}});
            let body = body.to_string().into();
            let mut call = world.call("POST", MAPS, "application/json", body);
            call.received = clock.now();
            let context = Rc::clone(&call.context);
            let reply = stack.call(call).await.unwrap();
            assert_eq!(reply.status().as_u16(), code);
            assert_eq!(context.trace.final_seats.get(), 3, "watchers were counted");
            reply.into_body().collect().await.unwrap();
            assert_eq!(
                seats_in_use(&flow_control, clock.now()),
                lingering,
                "{data}"
            );
            clock.advance(Duration::from_secs(1));
        }
    });
}
