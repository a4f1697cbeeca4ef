//! Metrics of the objects that the hosted API stores. kube-apiserver counts them once a minute; here that costs less.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fairgate_apiserver::Hosted;
use fairgate_objects::kind::Kind;
use fairgate_observe::{GatewayMetrics, catalogue};
use fairgate_store::{ReadRevision, Store};

/// How often objects are counted.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counts the objects of each kind.
pub(super) struct StoredObjects {
    store: Arc<dyn Store>,
    counts: Vec<(&'static Kind, Arc<AtomicI64>)>,
}

impl StoredObjects {
    /// Registers the metrics of `kinds`.
    pub(super) fn register(
        metrics: &GatewayMetrics,
        store: &Arc<dyn Store>,
        hosted: &Arc<Hosted>,
        kinds: impl Iterator<Item = &'static Kind>,
    ) -> Self {
        let register = |kind: &'static Kind| {
            let count = Arc::new(AtomicI64::new(-1));
            let read = Arc::clone(&count);
            let resource = format!("{}.{}", kind.plural, kind.group);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            metrics.observe_labelled_gauge(
                &catalogue::STORAGE_OBJECTS,
                ("resource", resource),
                move || read.load(Ordering::Relaxed) as f64,
            );
            let of = Arc::downgrade(hosted);
            metrics.observe_counter_of_two_labels(
                &catalogue::INIT_EVENTS,
                [("group", kind.group), ("resource", kind.plural)],
                move || of.upgrade().map_or(0, |hosted| hosted.initial_events(kind)),
            );
            (kind, count)
        };
        Self {
            store: Arc::clone(store),
            counts: kinds.map(register).collect(),
        }
    }

    /// Counts until it is dropped. To be spawned on the control runtime.
    pub(super) async fn run(self) {
        // Until the store was read for the first time, there is nothing to count.
        if self.store.wait_for(1).await.is_err() {
            return;
        }
        loop {
            for (kind, count) in &self.counts {
                let (prefix, at) = (kind.key_prefix(), ReadRevision::Cached);
                let page = self.store.list(&prefix, None, None, at).await;
                let found = page.map(|page| i64::try_from(page.entries.len()).unwrap_or(i64::MAX));
                count.store(found.unwrap_or(-1), Ordering::Relaxed);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
