//! Quotas of hosted objects: how many there may be of a kind, in each namespace if it has namespaces, and how many bytes
//! they may take as stored.
//!
//! The store keeps the counts and compares a write with them, at the write's turn ([`WriteBounds`]). Here is what a write
//! is compared with, and how a refusal reads: as one of Kubernetes' `ResourceQuota`.
//!
//! - Only growth is refused. Whatever is over its quota already can be changed, as long as it does not grow, and deleted.
//! - The gateway's own writes are counted and never refused: the conditions of policies, the statuses of budgets, and the
//!   pods that an eviction adds to one. There is a bounded number of each for an object.
//! - Clients that write statuses may exceed the bytes by half: a controller that cannot write a status would leave one
//!   that is out of date, by which evictions are granted.
//!
//! Not here: what the configuration has ([`HostedQuota`] is made of it), how full the disk is.

use fairgate_objects::kind::Kind;
use fairgate_store::{ExceededLimit, StoreLimit, StoreUsage, WriteBounds};

use fairgate_apihttp::status_error::{self, StatusError, gateway_reasons};
use fairgate_gotext::Quoted;

/// The quotas of hosted objects.
#[derive(Clone, Debug, Default)]
pub struct HostedQuota {
    /// The quotas of kinds, by the plural of the kind: for each namespace, if the kind has namespaces. Others have none.
    pub kinds: Vec<(String, Quota)>,
    /// The quota of everything in the store together.
    pub total: Option<Quota>,
}

/// One quota.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Its name in messages: the key of the configuration.
    pub name: String,
    /// The most objects and bytes; `u64::MAX`: any number.
    pub most: StoreUsage,
}

/// Objects that take more than their quota.
#[derive(Clone, Debug)]
pub struct OverQuota<'a> {
    /// The quota.
    pub quota: &'a Quota,
    /// The namespace of the objects; empty if they have none, and for all objects together.
    pub namespace: String,
    /// What they take.
    pub used: StoreUsage,
}

impl HostedQuota {
    /// The quota of a kind.
    pub fn of(&self, kind: &Kind) -> Option<&Quota> {
        let mut kinds = self.kinds.iter();
        let found = kinds.find(|(plural, _)| plural == kind.plural);
        found.map(|(_, quota)| quota)
    }

    /// What a client's write to an object of a kind must observe. `prefix` is that of the keys of its scope.
    pub(crate) fn bounds(&self, kind: &Kind, prefix: String, is_status: bool) -> WriteBounds {
        let more = |most: StoreUsage| StoreUsage {
            bytes: most.bytes.saturating_add(most.bytes / 2),
            ..most
        };
        let limit = |quota: &Quota, prefix| StoreLimit {
            prefix,
            most: if is_status {
                more(quota.most)
            } else {
                quota.most
            },
        };
        let of_kind = self.of(kind).map(|quota| limit(quota, prefix));
        let total = self.total.as_ref();
        let of_all = total.map(|quota| limit(quota, "/".to_owned()));
        WriteBounds {
            // The store names the first limit that would be exceeded: that of the kind tells a client more than that of everything.
            limits: of_kind.into_iter().chain(of_all).collect(),
            // Clients do not get the space that is reserved for deletions and for the gateway's own statuses.
            is_essential: false,
        }
    }

    /// The quotas that `usages`, by prefix of keys, exceed; those of the kinds in their order, then that of all.
    pub fn exceeded<'a>(
        &'a self,
        kinds: &[&Kind],
        usages: &[(impl AsRef<str>, StoreUsage)],
    ) -> Vec<OverQuota<'a>> {
        let mut found = Vec::new();
        let mut compare = |quota: &'a Quota, namespace: &str, used: StoreUsage| {
            if used.objects > quota.most.objects || used.bytes > quota.most.bytes {
                found.push(OverQuota {
                    quota,
                    namespace: namespace.to_owned(),
                    used,
                });
            }
        };
        for kind in kinds {
            let Some(quota) = self.of(kind) else { continue };
            for (namespace, used) in scopes(kind, usages) {
                compare(quota, namespace, used);
            }
        }
        // Usages of all other prefixes are parts of this one.
        let all = usages.iter().find(|(prefix, _)| prefix.as_ref() == "/");
        if let (Some(quota), Some((_, used))) = (&self.total, all) {
            compare(quota, "", *used);
        }
        found
    }
}

/// What the objects of a kind take by namespace; by the empty one, if the kind has no namespaces.
pub fn scopes<'u>(
    kind: &Kind,
    usages: &'u [(impl AsRef<str>, StoreUsage)],
) -> impl Iterator<Item = (&'u str, StoreUsage)> {
    let prefix = kind.key_prefix();
    let namespaced = kind.namespaced;
    usages.iter().filter_map(move |(key, used)| {
        let rest = key.as_ref().strip_prefix(&prefix)?;
        let namespace = rest.strip_suffix('/').unwrap_or(rest);
        (namespaced != rest.is_empty()).then_some((namespace, *used))
    })
}

/// The error for a write that would exceed a quota, in the words of Kubernetes.
pub(crate) fn refusal(
    quotas: &HostedQuota,
    kind: &Kind,
    name: &str,
    exceeded: &ExceededLimit,
) -> StatusError {
    let is_total = exceeded.limit.prefix == "/";
    let quota = if is_total {
        quotas.total.as_ref()
    } else {
        quotas.of(kind)
    };
    let quota = quota.map_or("", |quota| &quota.name);
    let resource = kind.group_resource();
    let (objects, bytes) = if is_total {
        ("objects".to_owned(), "bytes".to_owned())
    } else {
        (format!("count/{resource}"), format!("bytes/{resource}"))
    };
    let (requested, used, most) = (exceeded.requested, exceeded.used, exceeded.limit.most);
    let exceeds = |requested: u64, used: u64, most: u64| {
        requested > 0 && used.saturating_add(requested) > most
    };
    let too_many = exceeds(requested.objects, used.objects, most.objects);
    let too_long = exceeds(requested.bytes, used.bytes, most.bytes);
    let shown = |usage: StoreUsage| {
        let objects = too_many.then(|| format!("{objects}={}", usage.objects));
        let bytes = too_long.then(|| format!("{bytes}={}", usage.bytes));
        objects
            .into_iter()
            .chain(bytes)
            .collect::<Vec<_>>()
            .join(",")
    };
    let message = format!(
        "{resource} {} is forbidden: exceeded quota: {quota}, requested: {}, used: {}, limited: {}",
        Quoted(name),
        shown(requested),
        shown(used),
        shown(most),
    );
    let details = status_error::details(name, kind.group, kind.plural);
    StatusError::forbidden(message, details).because(gateway_reasons::EXCEEDED_QUOTA)
}

#[cfg(test)]
mod tests {
    use fairgate_objects::kinds::{FLOW_SCHEMA, POD_DISRUPTION_BUDGET};

    use super::*;

    fn used(objects: u64, bytes: u64) -> StoreUsage {
        StoreUsage { objects, bytes }
    }

    fn quota(name: &str, objects: u64, bytes: u64) -> Quota {
        Quota {
            name: name.to_owned(),
            most: used(objects, bytes),
        }
    }

    fn quotas() -> HostedQuota {
        let of = |plural: &str, quota| (plural.to_owned(), quota);
        HostedQuota {
            kinds: vec![
                of("poddisruptionbudgets", quota("budgets", 2, 1000)),
                of("flowschemas", quota("schemas", 5, u64::MAX)),
            ],
            total: Some(quota("total", 6, 5000)),
        }
    }

    #[test]
    fn a_refusal_names_what_is_exceeded_in_the_words_of_a_resource_quota() {
        let exceeded = |prefix: &str, most, used, requested| ExceededLimit {
            limit: StoreLimit {
                prefix: prefix.to_owned(),
                most,
            },
            used,
            requested,
        };
        let shop = "/policy/poddisruptionbudgets/shop/";
        let refused = |exceeded| refusal(&quotas(), &POD_DISRUPTION_BUDGET, "web", &exceeded);
        let by_count = refused(exceeded(shop, used(2, 1000), used(2, 100), used(1, 50)));
        assert_eq!(
            by_count.message,
            "poddisruptionbudgets.policy \"web\" is forbidden: exceeded quota: budgets, \
             requested: count/poddisruptionbudgets.policy=1, \
             used: count/poddisruptionbudgets.policy=2, \
             limited: count/poddisruptionbudgets.policy=2"
        );
        assert_eq!(
            (by_count.code.as_u16(), by_count.reason),
            (403, "Forbidden")
        );
        let by_both = refused(exceeded("/", used(6, 5000), used(6, 4990), used(1, 50)));
        assert_eq!(
            by_both.message,
            "poddisruptionbudgets.policy \"web\" is forbidden: exceeded quota: total, \
             requested: objects=1,bytes=50, used: objects=6,bytes=4990, limited: objects=6,bytes=5000"
        );
    }

    #[test]
    fn the_bytes_of_statuses_may_exceed_the_quota_by_half() {
        let of = |is_status| {
            let bounds = quotas().bounds(&POD_DISRUPTION_BUDGET, "/p/".to_owned(), is_status);
            bounds
                .limits
                .iter()
                .map(|limit| limit.most)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(false), [used(2, 1000), used(6, 5000)]);
        assert_eq!(of(true), [used(2, 1500), used(6, 7500)]);
    }

    #[test]
    fn each_namespace_is_compared_with_the_quota_of_its_kind() {
        let usages = [
            ("/", used(9, 2000)),
            ("/policy/", used(4, 1900)),
            ("/policy/poddisruptionbudgets/", used(4, 1900)),
            ("/policy/poddisruptionbudgets/shop/", used(3, 900)),
            ("/policy/poddisruptionbudgets/bank/", used(1, 1000)),
            ("/flowcontrol.apiserver.k8s.io/flowschemas/", used(5, 100)),
        ];
        let quotas = quotas();
        let kinds = [&FLOW_SCHEMA, &POD_DISRUPTION_BUDGET];
        let over = quotas.exceeded(&kinds, &usages);
        let over: Vec<_> = over
            .iter()
            .map(|over| (&*over.quota.name, &*over.namespace, over.used.objects))
            .collect();
        assert_eq!(over, [("budgets", "shop", 3), ("total", "", 9)]);
    }
}
