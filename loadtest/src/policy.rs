//! The policy of a scenario as fairgate compiles it: which client belongs to which level, and how many seats that level has.

use std::{collections::BTreeSet, sync::Arc};

use crate::scenario::{ClientSpec, RequestSpec, Scenario};
use fairgate_core::{
    apf::{
        Flow, LevelIndex, Policy, Seats,
        borrowing::LevelLimits,
        policy::{LevelKind, LevelSpec},
        work::{EstimatorSettings, ObjectStats},
    },
    digest::{RequestDigest, User},
};

/// The groups of a user of `client`, as the gateway sees them.
pub(crate) fn groups(client: &ClientSpec) -> Vec<String> {
    let mut groups = client.groups.clone();
    groups.push(User::AUTHENTICATED.to_owned());
    groups
}

/// The level of a request by a user of `client`.
pub(crate) fn level_of(policy: &Policy, client: &ClientSpec, request: &RequestSpec) -> LevelIndex {
    policy.classify(&digest(client, request)).level
}

/// The names of the levels of all requests of all users of `client`.
pub(crate) fn levels_of<'a>(policy: &'a Policy, client: &ClientSpec) -> BTreeSet<&'a str> {
    let digests = client.user_names().into_iter().flat_map(|user| {
        let requests = client.requests.iter();
        requests.map(move |request| digest_of(client, user.clone(), request))
    });
    digests
        .map(|digest| &*policy.level(policy.classify(&digest).level).name)
        .collect()
}

/// A request of the first user of `client`.
fn digest(client: &ClientSpec, request: &RequestSpec) -> RequestDigest {
    digest_of(client, client.user_names().swap_remove(0), request)
}

fn digest_of(client: &ClientSpec, name: String, request: &RequestSpec) -> RequestDigest {
    RequestDigest {
        info: request.info.clone(),
        user: Arc::new(User::new(name, groups(client))),
    }
}

/// What the gateway takes the first request of each user of `client` for, in the order of its users: the hashes of the flow
/// and of the tenant are those of the gateway.
pub(crate) fn flows_of(policy: &Policy, client: &ClientSpec) -> Vec<Flow> {
    let users = (1..).zip(client.user_names());
    let flow = |(number, name)| flow_of(policy, client, (number, name), &client.requests[0]);
    users.map(flow).collect()
}

/// What the gateway takes a request of the user with this number, from 1, and this name for.
fn flow_of(
    policy: &Policy,
    client: &ClientSpec,
    (number, name): (u32, String),
    request: &RequestSpec,
) -> Flow {
    policy.classify(&RequestDigest {
        info: request.info_of(number),
        user: Arc::new(User::new(name, groups(client))),
    })
}

/// In what the requests of a user of `client` differ, so that the gateway takes them for several flows of one level.
pub(crate) fn flow_difference(policy: &Policy, client: &ClientSpec) -> Option<&'static str> {
    let mut of_namespace = false;
    for (number, name) in (1..).zip(client.user_names()) {
        let flow = |request| flow_of(policy, client, (number, name.clone()), request);
        let first = flow(&client.requests[0]);
        for request in &client.requests[1..] {
            let other = flow(request);
            if other.level != first.level || other.hash == first.hash {
                continue;
            }
            if other.schema != first.schema {
                return Some("FlowSchema");
            }
            of_namespace = true;
        }
    }
    of_namespace.then_some("namespace")
}

/// The limits of a level.
pub(crate) fn limits(policy: &Policy, level: &LevelSpec) -> LevelLimits {
    let share_sum = LevelLimits::share_sum(policy.levels());
    LevelLimits::of(level, policy.settings().total_seats, share_sum)
}

/// The seats of a request, once the gateway has learnt how large the lists are.
pub(crate) fn width(
    scenario: &Scenario,
    policy: &Policy,
    client: &ClientSpec,
    request: &RequestSpec,
) -> Seats {
    let level = policy.level(level_of(policy, client, request));
    if level.kind == LevelKind::Exempt {
        return 1;
    }
    let (count, bytes) = scenario.upstream.objects_of(&request.info);
    let objects = ObjectStats::Known {
        count: count.into(),
        average_bytes: bytes.into(),
    };
    let estimator = EstimatorSettings {
        semantics: policy.settings().semantics,
        ..EstimatorSettings::default()
    };
    let cap = limits(policy, level).width_cap(&level.kind);
    estimator
        .estimate(&request.info, objects, 0, cap)
        .initial_seats
}
