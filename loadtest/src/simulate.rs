//! A scenario in virtual time: each priority level is a world of `fairgate-simulate`, and they lend each other seats.
//!
//! The same file gives the same figures, in a fraction of a second. What the simulation cannot show is named; see
//! `left_out`.
//!
//! Without fairness all requests wait in one queue in front of the server, which executes as many as its capacity.
//! The stand-in server divides itself among all of them instead, so that its latencies differ somewhat.
//!
//! Clients that read slowly (`readRate`) are no part of a world: their seats are free when the server is done, as fairgate
//! keeps the rest of their responses in memory. Reading is a pause of a closed loop, and a part of each latency, which over
//! sockets counts to the end of the response, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    figures::{ClientFigures, LatencyFigures, real},
    objects::StandInObjects,
    policy,
    scenario::{
        ClientSpec, LoadSpec, RequestSpec, Scenario, ServiceSpread, expectation::ComparisonBase,
        policy_objects,
    },
    verdict::Evidence,
};
use fairgate_core::fairness::jain_index;
use fairgate_core::{
    apf::{
        LevelIndex, Policy, Seats,
        policy::{LevelKind, LevelSpec, LimitResponse, Queuing},
    },
    finding::Finding,
};
use fairgate_simulate::world::{
    Arrivals, FlowReport, FlowSpec, LevelShape, Service, ServiceDistribution, Tenant, World,
    WorldReport, run_fifo, run_lending,
};

/// Seats of a level that has no limit.
const UNLIMITED: Seats = 100_000;

/// Plays `scenario` with fairness, without, and the clients alone that its expectations name.
///
/// # Errors
///
/// The findings about the policy.
pub(crate) fn play(scenario: &Scenario) -> Result<Evidence, Vec<Finding>> {
    let policy = Arc::new(policy_objects::compile(
        scenario,
        scenario.lasting_policy(),
    )?);
    let everybody: Vec<&ClientSpec> = scenario.clients.iter().collect();
    let clients = with_fairness(scenario, &policy, &everybody);
    let alone = scenario
        .expect
        .iter()
        .filter(|e| e.refers_to(ComparisonBase::Alone));
    let alone: BTreeSet<&str> = alone.filter_map(|e| e.who.as_deref()).collect();
    let alone: BTreeMap<String, Vec<ClientFigures>> = alone
        .into_iter()
        .filter_map(|name| scenario.client(name))
        .map(|client| {
            (
                client.name.clone(),
                with_fairness(scenario, &policy, &[client]),
            )
        })
        .collect();
    let without = without_fairness(scenario, &policy, &everybody);
    Ok(Evidence {
        clients,
        alone,
        without: Some(without),
    })
}

/// What the load of a client costs, and what it would get in the ideal.
#[derive(Clone, Debug)]
pub(crate) struct ClientBaseline {
    /// Mean seats by max-min fair sharing when all clients send.
    pub(crate) ideal_share: f64,
    /// Mean seat-seconds of each request of its mix.
    pub(crate) work: Vec<f64>,
}

/// The baseline of each client, in the order of the scenario.
pub(crate) fn baselines(scenario: &Scenario, policy: &Arc<Policy>) -> Vec<ClientBaseline> {
    let mut brief = scenario
        .clone()
        .shortened(std::time::Duration::from_millis(100));
    for (brief, client) in brief.clients.iter_mut().zip(&scenario.clients) {
        // Watches that are held for a shorter time would begin more often.
        brief.requests.clone_from(&client.requests);
    }
    let everybody: Vec<&ClientSpec> = brief.clients.iter().collect();
    let figures = with_fairness(&brief, policy, &everybody);
    let clients = scenario.clients.iter().zip(figures);
    let baselines = clients.map(|(client, figures)| {
        let work = client.requests.iter().map(|request| {
            let width = policy::width(scenario, policy, client, request);
            f64::from(width) * scenario.upstream.mean_service(&request.info).as_secs_f64()
        });
        ClientBaseline {
            ideal_share: figures.ideal_share,
            work: work.collect(),
        }
    });
    baselines.collect()
}

/// All clients; each level is a world, and they lend each other seats.
fn with_fairness(
    scenario: &Scenario,
    policy: &Arc<Policy>,
    clients: &[&ClientSpec],
) -> Vec<ClientFigures> {
    let mut levels: BTreeMap<&str, (LevelIndex, Vec<&ClientSpec>)> = BTreeMap::new();
    for client in clients {
        let level = policy::level_of(policy, client, &client.requests[0]);
        levels
            .entry(&policy.level(level).name)
            .or_insert((level, Vec::new()))
            .1
            .push(client);
    }
    let levels: Vec<_> = levels.into_values().collect();
    let worlds: Vec<(LevelIndex, World)> = levels
        .iter()
        .map(|(index, clients)| {
            let shape = level_shape(policy, policy.level(*index));
            (*index, world(scenario, policy, clients, shape))
        })
        .collect();
    let mut figures = BTreeMap::new();
    for ((_, clients), report) in levels.iter().zip(run_lending(policy, &worlds)) {
        figures.extend(collect(scenario, clients, &report));
    }
    clients
        .iter()
        .filter_map(|client| figures.remove(&client.name))
        .collect()
}

/// All clients in one FIFO queue in front of the server.
fn without_fairness(
    scenario: &Scenario,
    policy: &Policy,
    clients: &[&ClientSpec],
) -> Vec<ClientFigures> {
    let shape = LevelShape {
        seats: scenario.upstream.capacity,
        queues: 1,
        hand_size: 1,
        queue_length_limit: u32::MAX,
        limits: Vec::new(),
        tenant_weight: policy.settings().tenant_weight,
    };
    let report = run_fifo(&world(scenario, policy, clients, shape));
    let mut figures = collect(scenario, clients, &report);
    clients
        .iter()
        .filter_map(|client| figures.remove(&client.name))
        .collect()
}

fn level_shape(policy: &Policy, level: &LevelSpec) -> LevelShape {
    let no_queue = LevelShape {
        seats: UNLIMITED,
        queues: 1,
        hand_size: 1,
        queue_length_limit: 1,
        limits: Vec::new(),
        tenant_weight: policy.settings().tenant_weight,
    };
    let LevelKind::Limited { response, .. } = level.kind else {
        return no_queue;
    };
    let seats = policy::limits(policy, level).nominal.max(1);
    match response {
        LimitResponse::Reject => LevelShape { seats, ..no_queue },
        LimitResponse::Queue(Queuing {
            queues,
            hand_size,
            queue_length_limit,
        }) => LevelShape {
            seats,
            queues,
            hand_size,
            queue_length_limit,
            ..no_queue
        },
    }
}

fn world(
    scenario: &Scenario,
    policy: &Policy,
    clients: &[&ClientSpec],
    level: LevelShape,
) -> World {
    let users = || clients.iter().flat_map(|c| policy::flows_of(policy, c));
    let of_flow = counts(users().map(|flow| flow.hash));
    let of_tenant = counts(users().map(|flow| flow.tenant));
    let specs = clients.iter().flat_map(|client| {
        let spec = flow(scenario, policy, client);
        let names = client.user_names().into_iter();
        names.map(move |name| FlowSpec {
            name,
            ..spec.clone()
        })
    });
    // Users of one flow, or of one tenant, have the name of its hash in common. No user is called so by chance.
    let flows = specs.zip(users()).map(|(spec, flow)| FlowSpec {
        shared_name: (of_flow[&flow.hash] > 1).then(|| format!("flow {:016x}", flow.hash)),
        tenant: if of_tenant[&flow.tenant] > 1 {
            Tenant::Named(format!("tenant {:016x}", flow.tenant))
        } else {
            Tenant::Own
        },
        ..spec
    });
    World {
        name: scenario.name.clone(),
        seed: scenario.seed,
        level,
        flows: flows.collect(),
        warm_up_seconds: scenario.warm_up.as_secs_f64(),
        seconds: scenario.duration.as_secs_f64(),
    }
}

/// How often each of `values` occurs.
fn counts(values: impl Iterator<Item = u64>) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// One user of `client`, whichever flow its requests belong to.
fn flow(scenario: &Scenario, policy: &Policy, client: &ClientSpec) -> FlowSpec {
    let requests = || client.requests.iter();
    let widths = || requests().map(|request| policy::width(scenario, policy, client, request));
    let deadline = scenario.gateway.request_timeout / 4;
    let arrivals = match client.load {
        LoadSpec::Closed { threads, think } => Arrivals::Closed {
            threads,
            think_seconds: think.as_secs_f64() + mean_held(client) + mean_reading(scenario, client),
        },
        LoadSpec::Open(open) => {
            let bursts = open
                .burst
                .map_or(0.0, |(size, every)| f64::from(size) / every.as_secs_f64());
            Arrivals::Open {
                rate: open.rate + bursts,
                deadline_seconds: deadline.as_secs_f64(),
            }
        }
    };
    let first = scenario.upstream.service_of(&client.requests[0].info);
    let service = Service {
        mean_seconds: mean_service(scenario, client).max(1e-6),
        shape: match first.distribution {
            ServiceSpread::Constant => ServiceDistribution::Constant,
            ServiceSpread::Exponential => ServiceDistribution::Exponential,
            ServiceSpread::Bimodal => ServiceDistribution::Bimodal,
        },
    };
    FlowSpec {
        width: (
            widths().min().unwrap_or(1).max(1),
            widths().max().unwrap_or(1).max(1),
        ),
        starts_seconds: client.starts.as_secs_f64(),
        ..FlowSpec::new(client.name.clone(), arrivals, service)
    }
}

/// The mean of a property over the request mix of `client`.
fn mean(client: &ClientSpec, of: impl Fn(&RequestSpec) -> f64) -> f64 {
    let weights: f64 = client
        .requests
        .iter()
        .map(|request| f64::from(request.weight))
        .sum();
    let sum: f64 = client
        .requests
        .iter()
        .map(|request| f64::from(request.weight) * of(request))
        .sum();
    sum / weights
}

/// Mean seconds of a request of `client` at a server that is not overloaded.
pub(crate) fn mean_service(scenario: &Scenario, client: &ClientSpec) -> f64 {
    mean(client, |request| {
        scenario.upstream.mean_service(&request.info).as_secs_f64()
    })
}

/// Mean seconds for which a client holds a response that is a watch.
fn mean_held(client: &ClientSpec) -> f64 {
    mean(client, |request| {
        if request.info.is_watch() {
            request.hold.as_secs_f64()
        } else {
            0.0
        }
    })
}

/// Mean seconds in which a client reads a response, other than a watch.
fn mean_reading(scenario: &Scenario, client: &ClientSpec) -> f64 {
    let objects = StandInObjects::new(scenario.upstream.clone());
    mean(client, |request| objects.reading_seconds(request))
}

/// The figures of each client from those of its users.
fn collect(
    scenario: &Scenario,
    clients: &[&ClientSpec],
    report: &WorldReport,
) -> BTreeMap<String, ClientFigures> {
    let mut flows = report.flows.iter();
    let mut collected = BTreeMap::new();
    for client in clients {
        let users: Vec<&FlowReport> = flows.by_ref().take(client.users as usize).collect();
        let reading = mean_reading(scenario, client);
        let mut latencies: Vec<f64> = users
            .iter()
            .flat_map(|user| user.latencies.iter().map(|served| served + reading))
            .collect();
        latencies.sort_by(f64::total_cmp);
        let ok: u64 = users.iter().map(|user| u64::from(user.executed)).sum();
        let refused: u64 = users.iter().map(|user| u64::from(user.lost)).sum();
        let rate = real(ok) / scenario.duration.as_secs_f64();
        let figures = ClientFigures {
            name: client.name.clone(),
            requests: ok + refused,
            ok,
            refused,
            rate,
            latency: percentiles(&latencies, refused),
            share: users.iter().map(|user| user.seats).sum(),
            ideal_share: users.iter().map(|user| user.ideal.seats).sum(),
            jain: jain_index(users.iter().map(|user| f64::from(user.executed))).unwrap_or(0.0),
            ..ClientFigures::default()
        };
        collected.insert(client.name.clone(), figures);
    }
    collected
}

/// Percentiles by nearest rank of values in ascending order, and of requests that were refused.
fn percentiles(values: &[f64], refused: u64) -> LatencyFigures {
    let ok = values.len() as u64;
    let nth = |rank: u64| {
        let value = usize::try_from(rank - 1).ok().and_then(|at| values.get(at));
        value.copied().unwrap_or(f64::INFINITY)
    };
    LatencyFigures::new(ok + refused, ok, nth)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        scenario::{ArrivalProcess, OpenLoad, parse},
        verdict::{holds, judge},
    };

    fn elephant_and_mice() -> Scenario {
        let text = include_bytes!("../../config/scenarios/elephant-and-mice.yaml");
        parse("a.yaml", "a", text).usable().unwrap()
    }

    #[test]
    fn fairness_meets_what_the_scenario_expects_and_one_queue_does_not() {
        let scenario = elephant_and_mice();
        let played = play(&scenario).unwrap();
        let judged = judge(&scenario.expect, &played);
        assert!(holds(&judged), "{judged:?}");
        let without = Evidence {
            clients: played.without.clone().unwrap(),
            ..played
        };
        let judged = judge(&scenario.expect, &without);
        assert!(!holds(&judged), "{judged:?}");
    }

    /// The scenario of an elephant and mice with another way of telling flows apart.
    fn told_apart(distinguisher: &str) -> Scenario {
        let mut scenario = elephant_and_mice();
        let schema = scenario
            .policy
            .iter_mut()
            .find(|object| object["kind"] == "FlowSchema");
        let spec = &mut schema.unwrap()["spec"];
        spec["distinguisherMethod"] = match distinguisher {
            "" => serde_json::Value::Null,
            method => serde_json::json!({"type": method}),
        };
        scenario
    }

    #[test]
    fn a_mouse_waits_behind_an_elephant_from_which_the_policy_does_not_tell_it_apart() {
        // Neither by user nor at all; and by namespace where both are in one.
        for distinguisher in ["", "ByNamespace"] {
            let scenario = told_apart(distinguisher);
            let judged = judge(&scenario.expect, &play(&scenario).unwrap());
            let mouse = judged.iter().filter(|j| j.expectation.starts_with("mouse"));
            assert!(!holds(&mouse.cloned().collect::<Vec<_>>()), "{judged:?}");
        }
    }

    #[test]
    fn clients_in_one_namespace_have_the_share_of_one_flow_by_namespace() {
        let mut scenario = told_apart("ByNamespace");
        let elephant = scenario.clients[0].clone();
        let clients = [("a", "one"), ("b", "one"), ("c", "two")];
        scenario.clients = clients
            .map(|(name, namespace)| {
                let mut client = elephant.clone();
                client.name = name.to_owned();
                client.load = LoadSpec::Closed {
                    threads: 20,
                    think: Duration::ZERO,
                };
                client.requests[0].target = format!("/api/v1/namespaces/{namespace}/configmaps/d");
                client.requests[0].info = client.requests[0].info_of(1);
                client
            })
            .to_vec();
        let played = play(&scenario).unwrap().clients;
        let policy = policy_objects::compile(&scenario, &scenario.policy).unwrap();
        let baselines = baselines(&scenario, &Arc::new(policy));
        for ((client, baseline), expected) in played.iter().zip(baselines).zip([2.5, 2.5, 5.0]) {
            assert!((client.ideal_share - expected).abs() < 0.01, "{client:?}");
            assert!(
                (baseline.ideal_share - expected).abs() < 0.01,
                "{baseline:?}"
            );
            assert!((client.share - expected).abs() < 0.2, "{client:?}");
        }
    }

    #[test]
    fn levels_lend_each_other_seats() {
        let text = include_bytes!("../../config/scenarios/borrowing-burst.yaml");
        let mut scenario = parse("a.yaml", "a", text).usable().unwrap();
        let played = play(&scenario).unwrap();
        let judged = judge(&scenario.expect, &played);
        assert!(holds(&judged), "{judged:?}");
        // Batch may not use more than its own ten seats if nothing is lent.
        for object in &mut scenario.policy {
            if object["kind"] == "PriorityLevelConfiguration" {
                object["spec"]["limited"]["lendablePercent"] = 0.into();
            }
        }
        let share = |played: &Evidence| played.clients[0].share;
        let alone = play(&scenario).unwrap();
        assert!(share(&played) > 10.5 && share(&alone) < 10.01);
    }

    #[test]
    fn a_closed_loop_reads_a_response_before_its_next_request() {
        let text = include_bytes!("../../config/scenarios/slow-readers.yaml");
        let scenario = parse("a.yaml", "a", text).usable().unwrap();
        let played = play(&scenario).unwrap();
        let judged = judge(&scenario.expect, &played);
        assert!(holds(&judged), "{judged:?}");
        // 300 objects of 1 kB at 100 KiB a second take three seconds, and latency counts to the end of the response.
        let slow = &played.clients[0];
        assert!((12.0..14.0).contains(&slow.rate), "{slow:?}");
        assert!((2.9..3.4).contains(&slow.latency.p50), "{slow:?}");
    }

    #[test]
    fn reading_delays_no_requests_of_an_open_loop() {
        let fast = with_load(4.0, None);
        let mut slow = fast.clone();
        slow.clients[0].requests[0].read_rate = 1000;
        let [fast, slow] =
            [fast, slow].map(|scenario| play(&scenario).unwrap().clients.swap_remove(0));
        assert_eq!(fast.requests, slow.requests);
        let reading = slow.latency.p50 - fast.latency.p50;
        // An object of 500 bytes.
        assert!((0.45..0.6).contains(&reading), "{reading}");
    }

    #[test]
    fn the_same_scenario_gives_the_same_figures() {
        let play = || format!("{:?}", play(&elephant_and_mice()).unwrap());
        assert_eq!(play(), play());
    }

    /// The scenario with another load of its first client.
    fn with_load(rate: f64, burst: Option<(u32, Duration)>) -> Scenario {
        let mut scenario = elephant_and_mice();
        scenario.clients[0].load = LoadSpec::Open(OpenLoad {
            rate,
            arrivals: ArrivalProcess::Poisson,
            ramp: None,
            burst,
        });
        scenario
    }

    #[test]
    fn bursts_raise_the_mean_rate() {
        let bursts = with_load(1.0, Some((10, Duration::from_secs(2))));
        let even = with_load(6.0, None);
        let (played, same) = (play(&bursts).unwrap(), play(&even).unwrap());
        assert_eq!(played.clients[0].requests, same.clients[0].requests);
        let ideal = |scenario: &Scenario| {
            let policy = policy_objects::compile(scenario, &scenario.policy).unwrap();
            baselines(scenario, &Arc::new(policy))[0]
                .ideal_share
                .to_bits()
        };
        assert_eq!(ideal(&bursts), ideal(&even));
    }
}
