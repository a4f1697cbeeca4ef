//! What the simulation in virtual time leaves out of a scenario, named for the reader of its results.
//!
//! Each key of a scenario has its full effect in virtual time, or is in [`IGNORED`], or there is a remark where its effect
//! is a different one. A test plays a scenario with two values of every key, so that none is missing here.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::{
    objects::StandInObjects,
    policy,
    scenario::{ClientSpec, LoadSpec, Scenario, policy_objects},
};
use fairgate_core::{
    apf::{Policy, policy::LevelKind},
    finding::Finding,
};

/// Keys without effect in virtual time; those below them have none either.
pub(crate) const IGNORED: &[&str] = &[
    "gateway.tls",
    "clients[].connection",
    "clients[].load.open.arrivals",
    "clients[].load.open.ramp",
    "clients[].requests[].body",
    "clients[].requests[].object",
    "clients[].retryAfter",
    "clients[].stops",
    "events[].at",
    "events[].slowdown",
    "events[].upstream",
    "events[].server",
    "events[].gateway",
    "upstream.servers",
    "upstream.degradation",
    "upstream.maxInFlight",
    "upstream.watches",
];

/// `limits.spoolPerAnswer` of a gateway in bytes, unless it is configured: so much of a response that is read slowly keeps
/// no seat.
const SPOOL_BYTES: u64 = 1 << 20;

/// What the simulation leaves out of `scenario`, whose file has these `keys`, one sentence each.
///
/// # Errors
///
/// The findings about the policy.
pub(crate) fn remarks(
    scenario: &Scenario,
    keys: &BTreeSet<String>,
) -> Result<Vec<String>, Vec<Finding>> {
    let policy = policy_objects::compile(scenario, scenario.lasting_policy())?;
    let mut remarks = Vec::new();
    if keys.contains("events[].policy") {
        remarks.push(
            "the policy does not change: the one that is in force for the longest part of the measured time counts from \
             the beginning"
                .to_owned(),
        );
    }
    for client in &scenario.clients {
        let of_client = client_remarks(scenario, &policy, client).into_iter();
        remarks.extend(of_client.map(|remark| format!("{}: {remark}", client.name)));
    }
    if keys.contains("gateway.requestTimeout") {
        remarks.extend(endless_waits(scenario));
    }
    if keys.contains("upstream.capacity") && can_overload(scenario, &policy) {
        remarks.push(
            "upstream.capacity has an effect without fairness only: with it, executing requests do not slow each other \
             down"
                .to_owned(),
        );
    }
    let ignored = ignored_keys(keys);
    if !ignored.is_empty() {
        remarks.push(format!(
            "in virtual time these keys have no effect: {}",
            ignored.join(", ")
        ));
    }
    Ok(remarks)
}

/// Those of [`IGNORED`] that are in `keys`, or contain one of them.
fn ignored_keys(keys: &BTreeSet<String>) -> Vec<&'static str> {
    let is_used = |ignored: &&&'static str| keys.iter().any(|key| is_below(key, ignored));
    IGNORED.iter().filter(is_used).copied().collect()
}

/// Whether `key` is `parent` or below it.
fn is_below(key: &str, parent: &str) -> bool {
    let rest = key.strip_prefix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What is different about one client: in virtual time it has one level, one kind of request, and each user one flow.
fn client_remarks(scenario: &Scenario, policy: &Policy, client: &ClientSpec) -> Vec<String> {
    let mut remarks = Vec::new();
    let first = &client.requests[0];
    if policy::levels_of(policy, client).len() > 1 {
        let level = policy.level(policy::level_of(policy, client, first));
        remarks.push(format!(
            "all its requests count for the level {}",
            level.name
        ));
    }
    if let Some(difference) = policy::flow_difference(policy, client) {
        remarks.push(format!(
            "all its requests count for the {difference} of the first one"
        ));
    }
    let kinds: BTreeSet<_> = client
        .requests
        .iter()
        .map(|request| {
            let distribution = scenario.upstream.service_of(&request.info).distribution;
            let width = policy::width(scenario, policy, client, request);
            let mean = scenario.upstream.mean_service(&request.info);
            (mean, distribution, width)
        })
        .collect();
    if kinds.len() > 1 {
        let widths = kinds.iter().map(|(_, _, width)| width);
        let (least, most) = (widths.clone().min(), widths.max());
        let (least, most) = (least.copied().unwrap_or(1), most.copied().unwrap_or(1));
        let seats = if least == most {
            String::new()
        } else {
            format!(", and {least} to {most} seats whatever their weights")
        };
        remarks.push(format!(
            "all its requests have the mean service time of the mix and the distribution of the first one{seats}"
        ));
    }
    remarks.extend(reading_remarks(scenario, client));
    if let LoadSpec::Open(open) = client.load {
        if open.burst.is_some() {
            remarks.push("its bursts only raise the mean rate".to_owned());
        }
        if client
            .requests
            .iter()
            .any(|request| request.info.is_watch())
        {
            remarks.push("its watches end at once, since its loop is open (hold)".to_owned());
        }
    }
    remarks
}

/// What is different about a client that reads slowly: its seats are free when the server is done, and it reads each
/// response in the same time.
fn reading_remarks(scenario: &Scenario, client: &ClientSpec) -> Vec<String> {
    let objects = StandInObjects::new(scenario.upstream.clone());
    let mut remarks = Vec::new();
    let requests = client.requests.iter();
    let times = requests.map(|request| objects.reading_seconds(request).to_bits());
    if times.collect::<BTreeSet<_>>().len() > 1 {
        remarks
            .push("it reads all its responses in the mean time of the mix (readRate)".to_owned());
    }
    let keeps_seats = client.requests.iter().any(|request| {
        objects.reading_seconds(request) > 0.0 && objects.body_bytes(&request.info) > SPOOL_BYTES
    });
    if keeps_seats {
        remarks.push(
            "its responses keep no seats while it reads them, though they are larger than limits.spoolPerAnswer of a \
             gateway (readRate)"
                .to_owned(),
        );
    }
    remarks
}

/// The remark about the clients whose waits do not end in virtual time, if there are any.
fn endless_waits(scenario: &Scenario) -> Option<String> {
    let closed = scenario
        .clients
        .iter()
        .filter(|client| matches!(client.load, LoadSpec::Closed { .. }));
    let names: Vec<&str> = closed.map(|client| client.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "gateway.requestTimeout ends no waits of closed loops ({})",
            names.join(", ")
        )
    })
}

/// Whether more requests than the capacity of the server can execute at once with fairness.
fn can_overload(scenario: &Scenario, policy: &Policy) -> bool {
    let is_exempt = |client: &ClientSpec| {
        let level = policy::level_of(policy, client, &client.requests[0]);
        policy.level(level).kind == LevelKind::Exempt
    };
    scenario.gateway.total_seats > scenario.upstream.capacity
        || scenario.clients.iter().any(is_exempt)
}
