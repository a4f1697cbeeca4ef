//! The defaults of policy objects, as an API server fills them in.
//!
//! Not here: the share rule of v1beta3, which applies before conversion (see [`super::v1beta3`]).

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};

/// `spec.matchingPrecedence` when absent or 0.
pub const DEFAULT_PRECEDENCE: i32 = 1000;
/// `spec.limited.nominalConcurrencyShares` when absent.
pub const DEFAULT_SHARES: i32 = 30;
/// `queuing.queues` when absent or 0.
pub const DEFAULT_QUEUES: i32 = 64;
/// `queuing.handSize` when absent or 0.
pub const DEFAULT_HAND_SIZE: i32 = 8;
/// `queuing.queueLengthLimit` when absent or 0.
pub const DEFAULT_QUEUE_LENGTH_LIMIT: i32 = 50;

/// Fills in what a FlowSchema leaves out.
pub fn flow_schema(object: &mut FlowSchema) {
    if let Some(spec) = &mut object.spec {
        zero_is(&mut spec.matching_precedence, DEFAULT_PRECEDENCE);
    }
}

/// Fills in what a v1 priority level leaves out. An explicit 0 of shares stays.
pub fn priority_level(object: &mut PriorityLevelConfiguration) {
    let Some(spec) = &mut object.spec else {
        return;
    };
    if let Some(exempt) = &mut spec.exempt {
        exempt.nominal_concurrency_shares.get_or_insert(0);
        exempt.lendable_percent.get_or_insert(0);
    }
    let Some(limited) = &mut spec.limited else {
        return;
    };
    limited
        .nominal_concurrency_shares
        .get_or_insert(DEFAULT_SHARES);
    limited.lendable_percent.get_or_insert(0);
    if let Some(queuing) = limited
        .limit_response
        .as_mut()
        .and_then(|response| response.queuing.as_mut())
    {
        zero_is(&mut queuing.queues, DEFAULT_QUEUES);
        zero_is(&mut queuing.hand_size, DEFAULT_HAND_SIZE);
        zero_is(&mut queuing.queue_length_limit, DEFAULT_QUEUE_LENGTH_LIMIT);
    }
}

fn zero_is(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::flowcontrol::v1::{
        ExemptPriorityLevelConfiguration, FlowSchemaSpec, LimitResponse,
        LimitedPriorityLevelConfiguration, PriorityLevelConfigurationSpec, QueuingConfiguration,
    };

    use super::*;

    #[test]
    fn a_precedence_of_zero_is_1000() {
        for (given, meant) in [(None, 1000), (Some(0), 1000), (Some(7), 7), (Some(-1), -1)] {
            let mut schema = FlowSchema {
                spec: Some(FlowSchemaSpec {
                    matching_precedence: given,
                    ..Default::default()
                }),
                ..Default::default()
            };
            flow_schema(&mut schema);
            assert_eq!(schema.spec.unwrap().matching_precedence, Some(meant));
        }
    }

    #[test]
    fn a_limited_level_gets_shares_and_queues_but_no_borrowing_limit() {
        let mut level = PriorityLevelConfiguration {
            spec: Some(PriorityLevelConfigurationSpec {
                limited: Some(LimitedPriorityLevelConfiguration {
                    limit_response: Some(LimitResponse {
                        queuing: Some(QueuingConfiguration {
                            hand_size: Some(0),
                            ..Default::default()
                        }),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        priority_level(&mut level);
        let limited = level.spec.unwrap().limited.unwrap();
        assert_eq!(limited.nominal_concurrency_shares, Some(30));
        assert_eq!(limited.lendable_percent, Some(0));
        assert_eq!(limited.borrowing_limit_percent, None);
        assert_eq!(
            limited.limit_response.unwrap().queuing,
            Some(QueuingConfiguration {
                queues: Some(64),
                hand_size: Some(8),
                queue_length_limit: Some(50),
            })
        );
    }

    #[test]
    fn an_explicit_zero_of_shares_stays_in_v1() {
        let mut level = PriorityLevelConfiguration {
            spec: Some(PriorityLevelConfigurationSpec {
                limited: Some(LimitedPriorityLevelConfiguration {
                    nominal_concurrency_shares: Some(0),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        priority_level(&mut level);
        let limited = level.spec.unwrap().limited.unwrap();
        assert_eq!(limited.nominal_concurrency_shares, Some(0));
    }

    #[test]
    fn the_exempt_part_is_filled_in_only_if_present() {
        let mut level = PriorityLevelConfiguration {
            spec: Some(PriorityLevelConfigurationSpec::default()),
            ..Default::default()
        };
        priority_level(&mut level);
        assert_eq!(level.spec.as_ref().unwrap().exempt, None);

        level.spec.as_mut().unwrap().exempt = Some(ExemptPriorityLevelConfiguration::default());
        priority_level(&mut level);
        assert_eq!(
            level.spec.unwrap().exempt,
            Some(ExemptPriorityLevelConfiguration {
                nominal_concurrency_shares: Some(0),
                lendable_percent: Some(0),
            })
        );
    }
}
