//! Warnings about what is valid but probably not intended.

use super::{
    PolicySettings,
    candidates::{LevelCandidate, SchemaCandidate},
};
use crate::{
    apf::{
        borrowing::LevelLimits,
        classify::{Classifier, Cover},
        objects::{CompactFlowSchema, FLOW_SCHEMA, PRIORITY_LEVEL, bootstrap, is_pattern},
        spec::{LevelKind, LimitResponse, Queuing, Semantics, TenantRule},
        units::Seats,
    },
    finding::{Finding, Severity},
};

/// The seats of the widest request that a level without queues may see: a list of everything.
const WIDEST_REQUEST: Seats = 100;

/// More queues than any load needs.
const MANY_QUEUES: u32 = 100_000;

/// How the message begins that reports a schema whose requests all match earlier ones.
const NEVER_REACHED: &str = "is never reached";

/// The message that reports a schema without anything to match.
const MATCHES_NOTHING: &str = "can match no request";

/// How many schemas a message names.
const NAMES_SHOWN: usize = 3;

/// Whether `finding` reports a schema that no request can reach. Such a finding follows from the objects
/// alone, not from the settings of this gateway.
pub fn is_unreachable(finding: &Finding) -> bool {
    finding.message.starts_with(NEVER_REACHED) || finding.message == MATCHES_NOTHING
}

/// Warnings about levels.
pub(super) fn on_levels(
    levels: &[LevelCandidate],
    candidates: &[SchemaCandidate],
    settings: &PolicySettings,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let share_sum = LevelLimits::share_sum(levels.iter().map(|level| &level.spec));
    let mut used = vec![false; levels.len()];
    for candidate in candidates {
        used[candidate.schema.level.0 as usize] = true;
    }
    for (level, used) in levels.iter().zip(used) {
        let mut warn = |field: &str, message: String, remedy: &str| {
            findings.push(warning(
                PRIORITY_LEVEL,
                &level.spec.name,
                &level.origin,
                field,
                message,
                remedy,
            ));
        };
        if !used && !bootstrap::is_mandatory(&level.spec.name) {
            warn(
                "",
                "no FlowSchema sends requests to it, but its shares reduce the seats of all others"
                    .to_owned(),
                "add a FlowSchema for it or remove it",
            );
        }
        let LevelKind::Limited {
            borrowing_limit_percent,
            response,
        } = level.spec.kind
        else {
            continue;
        };
        if level.spec.shares == 0 && borrowing_limit_percent.is_some() {
            warn(
                "spec.limited.nominalConcurrencyShares",
                jail(response, settings.semantics).to_owned(),
                "give it a share, or remove borrowingLimitPercent",
            );
            continue;
        }
        if let LimitResponse::Queue(queuing) = response
            && queuing.queues > MANY_QUEUES
        {
            warn(
                "spec.limited.limitResponse.queuing.queues",
                format!("{} queues take memory without any benefit", queuing.queues),
                "a few hundred are plenty",
            );
        }
        // That of a built-in level is nobody's mistake.
        if !level.is_built_in && settings.total_seats > 0 {
            let limits = LevelLimits::of(&level.spec, settings.total_seats, share_sum);
            let cap = limits.width_cap(&level.spec.kind).seats();
            if let Some(message) = too_narrow(response, limits.nominal, cap) {
                warn(
                    "spec.limited.nominalConcurrencyShares",
                    message,
                    "raise its shares or the server concurrency limit",
                );
            }
        }
    }
    findings
}

fn jail(response: LimitResponse, semantics: Semantics) -> &'static str {
    match (response, semantics) {
        (LimitResponse::Queue(_), _) => {
            "is 0 and borrowing is limited, so the level never has a seat and its requests wait \
             until they time out"
        }
        (LimitResponse::Reject, Semantics::Compatible) => {
            "is 0 and borrowing is limited, so the level never has a seat and serves one request \
             at a time"
        }
        (LimitResponse::Reject, Semantics::Improved) => {
            "is 0 and borrowing is limited, so the level never has a seat and all its requests are \
             refused"
        }
    }
}

/// The warning about a level whose nominal seats are fewer than the width of its widest request.
fn too_narrow(response: LimitResponse, nominal: Seats, cap: Option<Seats>) -> Option<String> {
    match response {
        LimitResponse::Reject if nominal < WIDEST_REQUEST => Some(format!(
            "gives it {nominal} seats, but one request can take up to {WIDEST_REQUEST} seats: \
             such a request is served only while the level executes nothing else"
        )),
        LimitResponse::Queue(Queuing { hand_size, .. }) if cap == Some(1) => Some(format!(
            "gives it {nominal} seats, too few for hands of {hand_size}, so every request counts \
            as one seat, whatever its estimated width"
        )),
        _ => None,
    }
}

/// Warnings about schemas.
pub(super) fn on_schemas(candidates: &[SchemaCandidate], classifier: &Classifier) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, candidate) in (0..).zip(candidates) {
        let schema = &candidate.schema;
        let mut warn = |field: &str, message: String, remedy: &str| {
            let origin = &candidate.object.origin;
            findings.push(warning(
                FLOW_SCHEMA,
                &schema.name,
                origin,
                field,
                message,
                remedy,
            ));
        };
        for (field, resource) in idle_resources(&candidate.object.object) {
            warn(
                &field,
                format!("{resource:?} matches no request: only * stands for more than itself"),
                "name each resource and each resource/subresource",
            );
        }
        if let Err(value) = &candidate.object.object.tenant {
            let names = TenantRule::ALL.map(TenantRule::as_str).join(", ");
            warn(
                &format!("metadata.annotations[{}]", TenantRule::ANNOTATION),
                format!("{value:?} names no tenant, so the default applies"),
                &format!("write one of {names}, or remove the annotation"),
            );
        }
        if bootstrap::is_mandatory(&schema.name) {
            continue;
        }
        let remedy = "lower its matchingPrecedence, narrow the others, or remove it";
        match classifier.cover(at) {
            Cover::Open => {}
            Cover::Nothing => warn(
                "spec.rules",
                MATCHES_NOTHING.to_owned(),
                "add a rule or remove the schema",
            ),
            Cover::Whole(takers) => warn(
                "spec.matchingPrecedence",
                format!(
                    "{NEVER_REACHED}: all its requests match earlier: {}",
                    names(candidates, takers)
                ),
                remedy,
            ),
            Cover::AllButGroupless(takers) => warn(
                "spec.matchingPrecedence",
                format!(
                    "is reached only by users who are in neither system:authenticated nor \
                     system:unauthenticated: all others match earlier: {}",
                    names(candidates, takers)
                ),
                remedy,
            ),
        }
    }
    findings
}

/// Entries of `resources` that look like patterns, which do not exist.
fn idle_resources(schema: &CompactFlowSchema) -> Vec<(String, String)> {
    let mut idle = Vec::new();
    if !schema.has_pattern {
        return idle;
    }
    for (i, rule) in schema.rules.unpack().into_iter().enumerate() {
        for (j, part) in rule.resource_rules.into_iter().flatten().enumerate() {
            for (k, resource) in part.resources.into_iter().enumerate() {
                if is_pattern(&resource) {
                    let field = format!("spec.rules[{i}].resourceRules[{j}].resources[{k}]");
                    idle.push((field, resource));
                }
            }
        }
    }
    idle
}

fn names(candidates: &[SchemaCandidate], takers: impl IntoIterator<Item = u32>) -> String {
    let mut names = takers
        .into_iter()
        .map(|taker| format!("{:?}", candidates[taker as usize].schema.name));
    let shown: Vec<String> = names.by_ref().take(NAMES_SHOWN).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn warning(
    kind: &str,
    name: &str,
    origin: &str,
    field: &str,
    message: String,
    remedy: &str,
) -> Finding {
    Finding {
        severity: Severity::Warning,
        origin: origin.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        field: field.to_owned(),
        message,
        remedy: remedy.to_owned(),
    }
}
