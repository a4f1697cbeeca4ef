//! Worlds of Kubernetes' suggested FlowSchemas in which a tenant has many flows, and what each client gets by the weight that
//! the flows of one tenant may have together.
//!
//! Of the suggested schemas, those of `workload-high` tell flows apart by namespace: kube-controller-manager,
//! kube-scheduler and the service accounts of kube-system are a tenant each, with a flow for each namespace they work in.
//! `service-accounts` tells flows of `workload-low` apart by user: the service accounts of a namespace are a tenant. The
//! levels have the seats and queues that they have of 600 seats. Service times are exponential with a mean of 20 ms.

use std::fmt::Write as _;

use super::{
    Arrivals, DEFAULT_TENANT_WEIGHT, FlowNames, FlowSpec, LevelShape, Service, Tenant, World, run,
};
use fairgate_core::apf::{policy::Semantics, units::Seats};

/// The weights that are compared.
const WEIGHTS: [u32; 4] = [1, 2, 4, 8];

const SERVICE_SECONDS: f64 = 0.020;

/// A client that sends a request as soon as one of its `threads` has got its response.
fn client(name: &str, threads: u32, names: FlowNames, tenant: Tenant) -> FlowSpec {
    FlowSpec {
        names,
        tenant,
        ..FlowSpec::closed(name, threads, Service::exponential(SERVICE_SECONDS), 0.0)
    }
}

fn polite(mut client: FlowSpec) -> FlowSpec {
    if let Arrivals::Closed { think_seconds, .. } = &mut client.arrivals {
        *think_seconds = 0.2;
    }
    client
}

fn world(name: &str, seats: Seats, flows: Vec<FlowSpec>) -> World {
    World {
        name: name.to_owned(),
        seed: 26,
        level: LevelShape {
            seats,
            queues: 128,
            hand_size: 6,
            queue_length_limit: 50,
            limits: Vec::new(),
            tenant_weight: DEFAULT_TENANT_WEIGHT,
        },
        flows,
        warm_up_seconds: 5.0,
        seconds: 60.0,
    }
}

/// The seats of `workload-high` and `workload-low`: 40 and 100 of 245 shares.
const HIGH: Seats = 98;
const LOW: Seats = 245;

/// All of them.
pub fn suggested_worlds() -> Vec<World> {
    let kube_system = || Tenant::Named("kube-system".to_owned());
    let controllers = |threads| client("controllers", threads, FlowNames::Of(200), kube_system());
    let one_thread = |name, tenant| polite(client(name, 1, FlowNames::One, tenant));
    let builds = |tenant| client("builds", 600, FlowNames::Of(100), tenant);
    let operators = |threads| client("operators", threads, FlowNames::Of(20), Tenant::EachName);
    vec![
        world(
            "workload-high: controllers in 200 namespaces beside a scheduler that binds pods in one",
            HIGH,
            vec![
                controllers(300),
                client("scheduler", 20, FlowNames::One, Tenant::Own),
                one_thread("kube-proxy", kube_system()),
            ],
        ),
        world(
            "workload-high: controllers and the scheduler in 200 namespaces each",
            HIGH,
            vec![
                controllers(300),
                client("scheduler", 100, FlowNames::Of(200), Tenant::Own),
                one_thread("kube-proxy", kube_system()),
            ],
        ),
        world(
            "workload-low: 100 service accounts of one namespace beside 20 namespaces of one each, all busy",
            LOW,
            vec![
                builds(Tenant::Own),
                operators(600),
                one_thread("newcomer", Tenant::Own),
            ],
        ),
        world(
            "workload-low: the same with fairgate.dev/tenant: user",
            LOW,
            vec![
                builds(Tenant::EachName),
                operators(600),
                one_thread("newcomer", Tenant::Own),
            ],
        ),
        world(
            "workload-low: 100 service accounts of one namespace beside 20 namespaces of one each that need little",
            LOW,
            vec![
                builds(Tenant::Own),
                operators(60),
                one_thread("newcomer", Tenant::Own),
            ],
        ),
    ]
}

/// What each client gets: seats on average, and the 99th percentile of waits in milliseconds, with the original and with
/// each weight.
pub fn figures(world: &World) -> String {
    let mut reports = vec![run(world, Semantics::Compatible)];
    for tenant_weight in WEIGHTS {
        let mut world = world.clone();
        world.level.tenant_weight = tenant_weight;
        reports.push(run(&world, Semantics::Improved));
    }
    let mut text = world.name.clone();
    for (place, flow) in world.flows.iter().enumerate() {
        let _ = write!(text, "\n  {:<12} seats", flow.name);
        for report in &reports {
            let _ = write!(text, " {:>7.2}", report.flows[place].seats);
        }
        let _ = write!(text, "   p99 ms");
        for report in &reports {
            let _ = write!(text, " {:>7.1}", report.flows[place].p99_wait * 1e3);
        }
    }
    text
}

/// What the columns of [`figures`] are.
pub fn heading() -> String {
    let mut text = "columns: original".to_owned();
    for weight in WEIGHTS {
        let _ = write!(text, ", {weight}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seats of the clients of the world with this number, with the default weight.
    fn seats(number: usize) -> Vec<f64> {
        let mut world = suggested_worlds().swap_remove(number);
        world.seconds = 10.0;
        let report = run(&world, Semantics::Improved);
        report.flows.iter().map(|flow| flow.seats).collect()
    }

    #[test]
    fn controllers_have_as_many_seats_as_their_tenant_weighs() {
        let beside_one_flow = seats(0);
        assert!(
            (beside_one_flow[0] - 98.0 * 0.8).abs() < 2.0,
            "{beside_one_flow:?}"
        );
        let beside_many = seats(1);
        // Flows that rarely have a second request are not served as evenly as those that always have.
        assert!(beside_many[0] > 0.85 * 49.0, "{beside_many:?}");
    }

    #[test]
    fn service_accounts_of_one_namespace_use_what_others_leave() {
        let beside_busy_ones = seats(2);
        assert!(
            beside_busy_ones[0] > 0.95 * 245.0 * 4.0 / 24.0,
            "{beside_busy_ones:?}"
        );
        let beside_others = seats(4);
        assert!(beside_others[0] > 180.0, "{beside_others:?}");
    }
}
