//! The policy of a scenario as fairgate compiles it: which client belongs to which level, and how many seats that level has.

use std::{collections::BTreeSet, sync::Arc};

use crate::scenario::{ClientSpec, RequestSpec, Scenario};
use fairgate_core::{
    apf::{
        LevelIndex, Policy, Seats,
        borrowing::LevelLimits,
        policy::{Distinguisher, LevelKind, LevelSpec},
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

/// The names of the namespaces that tell the requests of `client` apart; empty if the policy tells them apart by user, or not
/// at all.
pub(crate) fn flow_namespaces<'a>(policy: &Policy, client: &'a ClientSpec) -> BTreeSet<&'a [u8]> {
    let schema = policy.classify(&digest(client, &client.requests[0])).schema;
    match policy.schema(schema).distinguisher {
        Some(Distinguisher::ByNamespace) => client
            .requests
            .iter()
            .map(|request| request.info.namespace())
            .collect(),
        _ => BTreeSet::new(),
    }
}

/// The number of flows of the users of `client`: one for each user, or one for all if the policy does not tell them apart
/// by user and their requests name one namespace.
pub(crate) fn flows_of(policy: &Policy, client: &ClientSpec) -> u32 {
    let request = &client.requests[0];
    let schema = policy.classify(&digest(client, request)).schema;
    match policy.schema(schema).distinguisher {
        Some(Distinguisher::ByUser) => client.users,
        Some(Distinguisher::ByNamespace) if request.target.contains("{user}") => client.users,
        _ => 1,
    }
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
