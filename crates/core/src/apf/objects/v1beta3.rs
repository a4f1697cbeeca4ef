//! The objects of `flowcontrol.apiserver.k8s.io/v1beta3`, and their conversion from and to v1.
//!
//! One field differs: `spec.limited.nominalConcurrencyShares` is a plain integer in which 0 means
//! "default", unless an annotation preserves the 0. A FlowSchema has the same fields in both
//! versions, so the v1 type serves for it.

use std::collections::BTreeMap;

use k8s_openapi::{api::flowcontrol::v1 as current, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};

use super::defaults::DEFAULT_SHARES;

pub use current::FlowSchema;

/// The annotation that makes 0 shares mean zero. Its value is ignored.
pub const PRESERVE_ZERO_SHARES: &str =
    "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// A priority level as v1beta3 has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityLevelConfiguration {
    /// The standard metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: PriorityLevelConfigurationSpec,
    /// The status, which consists of conditions; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<current::PriorityLevelConfigurationStatus>,
}

/// The spec of a priority level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityLevelConfigurationSpec {
    /// `Exempt` or `Limited`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Only with type `Limited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<LimitedPriorityLevelConfiguration>,
    /// Only with type `Exempt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exempt: Option<current::ExemptPriorityLevelConfiguration>,
}

/// How a limited level holds requests back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LimitedPriorityLevelConfiguration {
    /// Concurrency shares; 0 means 30 unless the object has [`PRESERVE_ZERO_SHARES`].
    pub nominal_concurrency_shares: i32,
    /// What happens to requests that find no seat.
    pub(crate) limit_response: current::LimitResponse,
    /// Percent of the nominal limit that others may borrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lendable_percent: Option<i32>,
    /// Percent of the nominal limit that it may borrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) borrowing_limit_percent: Option<i32>,
}

impl PriorityLevelConfiguration {
    /// Replaces 0 shares by 30, unless the annotation preserves the 0.
    pub fn set_defaults(&mut self) {
        let zero_is_meant = annotations(&self.metadata).contains_key(PRESERVE_ZERO_SHARES);
        if let Some(limited) = &mut self.spec.limited
            && limited.nominal_concurrency_shares == 0
            && !zero_is_meant
        {
            limited.nominal_concurrency_shares = DEFAULT_SHARES;
        }
    }
}

/// Shares are copied as they are, so set the defaults first. The annotation is removed.
impl From<PriorityLevelConfiguration> for current::PriorityLevelConfiguration {
    fn from(old: PriorityLevelConfiguration) -> Self {
        let mut metadata = old.metadata;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(PRESERVE_ZERO_SHARES);
        }
        let limited = old
            .spec
            .limited
            .map(|limited| current::LimitedPriorityLevelConfiguration {
                nominal_concurrency_shares: Some(limited.nominal_concurrency_shares),
                limit_response: Some(limited.limit_response),
                lendable_percent: limited.lendable_percent,
                borrowing_limit_percent: limited.borrowing_limit_percent,
            });
        Self {
            metadata,
            spec: Some(current::PriorityLevelConfigurationSpec {
                type_: old.spec.type_,
                limited,
                exempt: old.spec.exempt,
            }),
            status: old.status,
        }
    }
}

/// Absent shares become 0; a limited level of 0 shares gets the annotation.
impl From<current::PriorityLevelConfiguration> for PriorityLevelConfiguration {
    fn from(new: current::PriorityLevelConfiguration) -> Self {
        let mut metadata = new.metadata;
        let spec = new.spec.unwrap_or_default();
        let limited = spec
            .limited
            .map(|limited| LimitedPriorityLevelConfiguration {
                nominal_concurrency_shares: limited.nominal_concurrency_shares.unwrap_or_default(),
                limit_response: limited.limit_response.unwrap_or_default(),
                lendable_percent: limited.lendable_percent,
                borrowing_limit_percent: limited.borrowing_limit_percent,
            });
        if limited
            .as_ref()
            .is_some_and(|limited| limited.nominal_concurrency_shares == 0)
        {
            metadata
                .annotations
                .get_or_insert_default()
                .insert(PRESERVE_ZERO_SHARES.to_owned(), String::new());
        }
        Self {
            metadata,
            spec: PriorityLevelConfigurationSpec {
                type_: spec.type_,
                limited,
                exempt: spec.exempt,
            },
            status: new.status,
        }
    }
}

fn annotations(metadata: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    metadata.annotations.as_ref().unwrap_or(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(shares: i32, annotated: bool) -> PriorityLevelConfiguration {
        let mut level = PriorityLevelConfiguration {
            spec: PriorityLevelConfigurationSpec {
                type_: "Limited".into(),
                limited: Some(LimitedPriorityLevelConfiguration {
                    nominal_concurrency_shares: shares,
                    ..Default::default()
                }),
                exempt: None,
            },
            ..Default::default()
        };
        if annotated {
            level.metadata.annotations =
                Some([(PRESERVE_ZERO_SHARES.to_owned(), "any".to_owned())].into());
        }
        level
    }

    fn converted(shares: i32, annotated: bool) -> current::PriorityLevelConfiguration {
        let mut level = level(shares, annotated);
        level.set_defaults();
        level.into()
    }

    fn shares(level: &current::PriorityLevelConfiguration) -> Option<i32> {
        level
            .spec
            .as_ref()?
            .limited
            .as_ref()?
            .nominal_concurrency_shares
    }

    #[test]
    fn zero_shares_become_30_unless_annotated() {
        assert_eq!(shares(&converted(0, false)), Some(30));
        assert_eq!(shares(&converted(0, true)), Some(0));
        assert_eq!(shares(&converted(7, false)), Some(7));
        assert_eq!(shares(&converted(7, true)), Some(7));
    }

    #[test]
    fn the_annotation_does_not_reach_v1() {
        assert!(annotations(&converted(0, true).metadata).is_empty());
        assert!(annotations(&converted(7, true).metadata).is_empty());
    }

    #[test]
    fn zero_shares_go_back_with_an_empty_annotation() {
        let back = PriorityLevelConfiguration::from(converted(0, true));
        assert_eq!(
            annotations(&back.metadata).get(PRESERVE_ZERO_SHARES),
            Some(&String::new())
        );
        let again = {
            let mut again = back.clone();
            again.set_defaults();
            again
        };
        assert_eq!(again, back, "zero survives the round trip");

        let other = PriorityLevelConfiguration::from(converted(7, false));
        assert!(annotations(&other.metadata).is_empty());
    }
}
