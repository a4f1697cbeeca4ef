//! The spec of a PriorityLevelConfiguration: shares, percentages, queues.

use k8s_openapi::api::flowcontrol::v1::{
    ExemptPriorityLevelConfiguration, LimitResponse, LimitedPriorityLevelConfiguration,
    PriorityLevelConfigurationSpec, QueuingConfiguration,
};

use super::{Errors, MAX_QUEUES};
use crate::apf::{objects::bootstrap, shard};

pub(super) fn check_level_spec(
    name: &str,
    spec: &PriorityLevelConfigurationSpec,
    errors: &mut Errors,
) {
    let kind = spec.type_.as_str();
    let is_exempt = name == bootstrap::EXEMPT;
    if is_exempt != (kind == "Exempt") {
        let remedy = if is_exempt {
            "set it to Exempt, or give the level another name"
        } else {
            "set it to Limited, or send its requests to the level exempt"
        };
        errors.invalid(
            "spec.type",
            kind,
            "must be 'Exempt' if and only if `name` is 'exempt'",
            remedy,
        );
    }
    match kind {
        "Exempt" => {
            if spec.limited.is_some() {
                let remedy = if is_exempt {
                    "remove limited; the shares of this level are in spec.exempt"
                } else {
                    "keep it, and set spec.type to Limited"
                };
                let detail = "must be nil if the type is not Limited";
                errors.forbidden_with("spec.limited", detail, remedy);
            }
            if let Some(exempt) = &spec.exempt {
                check_exempt(exempt, errors);
            }
        }
        "Limited" => {
            if spec.exempt.is_some() {
                let remedy = if is_exempt {
                    "keep it, and set spec.type to Exempt"
                } else if spec.limited.is_some() {
                    "remove exempt, and keep limited"
                } else {
                    "rename it to limited, which has a limitResponse"
                };
                let detail = "must be nil if the type is Limited";
                errors.forbidden_with("spec.exempt", detail, remedy);
            }
            match &spec.limited {
                None => errors.required(
                    "spec.limited",
                    "must not be empty when type is Limited",
                    if is_exempt {
                        "set spec.type to Exempt"
                    } else {
                        "add limited with its limitResponse"
                    },
                ),
                Some(limited) => check_limited(limited, errors),
            }
        }
        "" if is_exempt => errors.required("spec.type", "", "set it to Exempt"),
        "" => errors.required("spec.type", "", "set it to Limited"),
        _ => errors.unsupported("spec.type", kind, &["Exempt", "Limited"]),
    }
}

fn check_exempt(exempt: &ExemptPriorityLevelConfiguration, errors: &mut Errors) {
    check_shares(
        exempt.nominal_concurrency_shares,
        "spec.exempt.nominalConcurrencyShares",
        errors,
    );
    check_lendable(
        exempt.lendable_percent,
        "spec.exempt.lendablePercent",
        errors,
    );
}

fn check_limited(limited: &LimitedPriorityLevelConfiguration, errors: &mut Errors) {
    check_shares(
        limited.nominal_concurrency_shares,
        "spec.limited.nominalConcurrencyShares",
        errors,
    );
    let absent = LimitResponse::default();
    check_response(limited.limit_response.as_ref().unwrap_or(&absent), errors);
    check_lendable(
        limited.lendable_percent,
        "spec.limited.lendablePercent",
        errors,
    );
    if let Some(percent) = limited.borrowing_limit_percent
        && percent < 0
    {
        errors.invalid(
            "spec.limited.borrowingLimitPercent",
            &percent,
            "if specified, must be a non-negative integer",
            "set it to 0 or more, or leave it out for no limit",
        );
    }
}

fn check_shares(shares: Option<i32>, field: &str, errors: &mut Errors) {
    if let Some(shares) = shares
        && shares < 0
    {
        let text = "must be a non-negative integer";
        errors.invalid(field, &shares, text, "set it to 0 or more");
    }
}

fn check_lendable(percent: Option<i32>, field: &str, errors: &mut Errors) {
    if let Some(percent) = percent
        && !(0..=100).contains(&percent)
    {
        let text = "must be between 0 and 100, inclusive";
        errors.invalid(field, &percent, text, "set it to a percentage");
    }
}

fn check_response(response: &LimitResponse, errors: &mut Errors) {
    let field = "spec.limited.limitResponse.queuing";
    match (response.type_.as_str(), &response.queuing) {
        // The server's text: it says "Limited" where it means "Queue".
        ("Reject", Some(_)) => errors.forbidden(
            field,
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        ("Reject", None) => {}
        ("Queue", None) => errors.required(
            field,
            "must not be empty if limited.limitResponse.type is Limited",
            "add queuing; {} gives its defaults",
        ),
        ("Queue", Some(queuing)) => check_queuing(queuing, field, errors),
        ("", _) => errors.required(
            "spec.limited.limitResponse.type",
            "",
            "set it to Queue or Reject",
        ),
        (other, _) => errors.unsupported(
            "spec.limited.limitResponse.type",
            other,
            &["Queue", "Reject"],
        ),
    }
}

fn check_queuing(queuing: &QueuingConfiguration, path: &str, errors: &mut Errors) {
    let limit = queuing.queue_length_limit.unwrap_or_default();
    let queues = queuing.queues.unwrap_or_default();
    let hand = queuing.hand_size.unwrap_or_default();
    let positive = "must be positive";
    if limit <= 0 {
        let field = format!("{path}.queueLengthLimit");
        errors.invalid(&field, &limit, positive, "set it to 1 or more");
    }
    let field = format!("{path}.queues");
    if queues <= 0 {
        errors.invalid(&field, &queues, positive, "set it to 1 or more");
    } else if queues > MAX_QUEUES {
        let text = format!("must not be greater than {MAX_QUEUES}");
        errors.invalid(&field, &queues, &text, "a few hundred are plenty");
    }
    let field = format!("{path}.handSize");
    if hand <= 0 {
        errors.invalid(&field, &hand, positive, "set it to 1 or more");
    } else if hand > queues {
        let text = format!("should not be greater than queues ({queues})");
        errors.invalid(&field, &hand, &text, "lower handSize or raise queues");
    } else {
        // Both are positive here, and `hand` is at most `queues`; the formula means nothing otherwise.
        let bits = shard::entropy_bits(queues.unsigned_abs(), hand.unsigned_abs());
        if bits > shard::MAX_ENTROPY_BITS {
            let text = format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be \
                 greater than {}",
                shard::MAX_ENTROPY_BITS
            );
            errors.invalid(&field, &hand, &text, "lower handSize or queues");
        }
    }
}

pub(super) fn check_fixed_level(
    name: &str,
    spec: &PriorityLevelConfigurationSpec,
    errors: &mut Errors,
) {
    if !bootstrap::is_mandatory(name) {
        return;
    }
    let Some(fixed) = bootstrap::priority_level(name).and_then(|level| level.spec.as_ref()) else {
        return;
    };
    let exempt = name == bootstrap::EXEMPT;
    let mut compared = spec.clone();
    if exempt {
        // The one part of a mandatory level that administrators may change.
        compared.exempt.clone_from(&fixed.exempt);
    }
    if &compared != fixed {
        let (except, remedy) = if exempt {
            (
                " except the 'spec.exempt' field",
                "keep only spec.type and spec.exempt",
            )
        } else {
            ("", "leave the object out; it is built in")
        };
        let text = format!("spec of '{name}'{except} must equal the fixed value");
        errors.invalid("spec", spec, &text, remedy);
    }
}
