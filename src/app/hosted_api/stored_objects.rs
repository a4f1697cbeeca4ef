//! Metrics of the objects that the hosted API stores and of their quotas, and the warning about objects over a quota.
//!
//! The store keeps the counts, so a scrape reads them at once, except for the greatest use of a quota by a namespace: that is
//! computed every ten seconds.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fairgate_apiserver::{
    Hosted,
    quota::{HostedQuota, OverQuota, Quota, scopes},
};
use fairgate_base::account::BytesHeld;
use fairgate_config::{HostedQuotaConfig, ObjectQuota};
use fairgate_objects::kind::Kind;
use fairgate_observe::{GatewayMetrics, catalogue};
use fairgate_store::{Store, StoreUsage};

/// How often the use of quotas is computed.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many scopes over their quota the log names.
const NAMED: usize = 20;
/// The value of the label `resource` for all objects together.
const TOTAL: &str = "total";

/// Computes how much of the quotas is used.
pub(crate) struct StoredObjects {
    store: Arc<dyn Store>,
    quotas: HostedQuota,
    /// The greatest part of its quota that a namespace uses, as the bits of a number, by kind.
    ratios: Vec<(&'static Kind, Arc<AtomicU64>)>,
    total: Arc<AtomicU64>,
}

impl StoredObjects {
    /// The quotas as configured.
    pub(crate) fn quotas(config: &HostedQuotaConfig) -> HostedQuota {
        let of = |key: &str, quota: &ObjectQuota| Quota {
            name: format!("hostedApi.quota.{key}"),
            most: StoreUsage {
                objects: quota.objects.unwrap_or(u64::MAX),
                bytes: quota.bytes.unwrap_or(u64::MAX),
            },
        };
        let kinds = config.kinds.iter();
        HostedQuota {
            kinds: kinds
                .map(|(key, quota)| (key.to_lowercase(), of(key, quota)))
                .collect(),
            total: Some(of(TOTAL, &config.total)),
        }
    }

    /// Registers the metrics of those `kinds` that are hosted.
    pub(crate) fn register(
        metrics: &GatewayMetrics,
        store: &Arc<dyn Store>,
        hosted: &Arc<Hosted>,
        kinds: Vec<&'static Kind>,
    ) -> Self {
        let quotas = hosted.quotas().clone();
        register_bodies(metrics, hosted);
        let kinds = kinds.into_iter().filter(|kind| hosted.has(kind));
        let register = |kind: &'static Kind| {
            register_usage(metrics, store, kind);
            let ratio = register_quota(metrics, &kind.group_resource(), quotas.of(kind));
            let labels = [("group", kind.group), ("resource", kind.plural)];
            let of = Arc::downgrade(hosted);
            metrics.observe_counter_of_two_labels(&catalogue::INIT_EVENTS, labels, move || {
                of.upgrade().map_or(0, |hosted| hosted.initial_events(kind))
            });
            let of = Arc::downgrade(hosted);
            metrics.observe_counter_of_two_labels(
                &catalogue::HOSTED_QUOTA_REFUSALS,
                labels,
                move || of.upgrade().map_or(0, |hosted| hosted.quota_refusals(kind)),
            );
            (kind, ratio)
        };
        Self {
            store: Arc::clone(store),
            ratios: kinds.map(register).collect(),
            total: register_quota(metrics, TOTAL, quotas.total.as_ref()),
            quotas,
        }
    }

    /// Computes until it is dropped. To be spawned on the control runtime.
    pub(crate) async fn run(self) {
        // Until the store was read for the first time, there is nothing to count.
        if self.store.wait_for(1).await.is_err() {
            return;
        }
        self.warn(&self.store.usages());
        loop {
            let usages = self.store.usages();
            for (kind, ratio) in &self.ratios {
                let Some(quota) = self.quotas.of(kind) else {
                    continue;
                };
                let parts = scopes(kind, &usages).map(|(_, used)| part(used, quota));
                set(ratio, parts.fold(0.0, f64::max));
            }
            if let Some(quota) = &self.quotas.total {
                set(&self.total, part(self.store.usage("/"), quota));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Warns of objects that were stored before there was a quota, or a lower one.
    fn warn(&self, usages: &[(Arc<str>, StoreUsage)]) {
        let kinds: Vec<&Kind> = self.ratios.iter().map(|(kind, _)| *kind).collect();
        let over = self.quotas.exceeded(&kinds, usages);
        for OverQuota {
            quota,
            namespace,
            used,
        } in over.iter().take(NAMED)
        {
            let shown = |limit: u64| match limit {
                u64::MAX => "none".to_owned(),
                limit => limit.to_string(),
            };
            tracing::warn!(
                quota = %quota.name,
                %namespace,
                used_objects = used.objects,
                used_bytes = used.bytes,
                limit_objects = %shown(quota.most.objects),
                limit_bytes = %shown(quota.most.bytes),
                "stored objects exceed their quota: they are served, and may be deleted and made smaller; \
                 writes that make them grow get 403"
            );
        }
        if let Some(more @ 1..) = over.len().checked_sub(NAMED) {
            tracing::warn!(more, "objects of further namespaces exceed their quota");
        }
    }
}

/// The part of a quota that is used: of objects or bytes, whichever is greater.
fn part(used: StoreUsage, quota: &Quota) -> f64 {
    let of = |used: u64, most: u64| {
        if most == u64::MAX {
            0.0
        } else {
            number(used) / number(most)
        }
    };
    let objects = of(used.objects, quota.most.objects);
    objects.max(of(used.bytes, quota.most.bytes))
}

fn set(cell: &AtomicU64, value: f64) {
    cell.store(value.to_bits(), Ordering::Relaxed);
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(count: u64) -> f64 {
    count as f64
}

/// Registers the metrics of bodies of requests in progress.
fn register_bodies(metrics: &GatewayMetrics, hosted: &Arc<Hosted>) {
    let held = |hosted: &Weak<Hosted>| {
        let hosted = hosted.upgrade();
        hosted.map_or_else(BytesHeld::default, |hosted| hosted.held_bodies())
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |bytes: usize| bytes as f64;
    let of = Arc::downgrade(hosted);
    metrics.observe_gauge(&catalogue::HOSTED_BODIES, move || number(held(&of).now));
    let of = Arc::downgrade(hosted);
    metrics.observe_gauge(&catalogue::HOSTED_BODIES_PEAK, move || {
        number(held(&of).most)
    });
}

/// Registers what the objects of a kind take.
fn register_usage(metrics: &GatewayMetrics, store: &Arc<dyn Store>, kind: &'static Kind) {
    let label = || ("resource", kind.group_resource());
    let prefix = kind.key_prefix();
    let (of, below) = (Arc::clone(store), prefix.clone());
    metrics.observe_labelled_gauge(&catalogue::STORAGE_OBJECTS, label(), move || {
        match of.cached_revision() {
            0 => -1.0,
            _ => number(of.usage(&below).objects),
        }
    });
    let of = Arc::clone(store);
    metrics.observe_labelled_gauge(&catalogue::HOSTED_BYTES, label(), move || {
        number(of.usage(&prefix).bytes)
    });
}

/// Registers a quota. Returns the cell of the part that is used.
fn register_quota(
    metrics: &GatewayMetrics,
    resource: &str,
    quota: Option<&Quota>,
) -> Arc<AtomicU64> {
    let limit = |of: fn(&StoreUsage) -> u64| {
        let most = quota.map_or(u64::MAX, |quota| of(&quota.most));
        if most == u64::MAX {
            f64::INFINITY
        } else {
            number(most)
        }
    };
    let (objects, bytes) = (limit(|most| most.objects), limit(|most| most.bytes));
    let label = || ("resource", resource.to_owned());
    metrics.observe_labelled_gauge(&catalogue::HOSTED_QUOTA_OBJECTS, label(), move || objects);
    metrics.observe_labelled_gauge(&catalogue::HOSTED_QUOTA_BYTES, label(), move || bytes);
    let ratio = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&ratio);
    metrics.observe_labelled_gauge(&catalogue::HOSTED_QUOTA_USED, label(), move || {
        f64::from_bits(read.load(Ordering::Relaxed))
    });
    ratio
}
