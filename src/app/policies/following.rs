//! Follows a source of flow control policies, and puts into force what it brings.
//!
//! Not here: where policies come from, and how they are compiled ([`super`]).

use std::sync::Arc;

use super::{Applier, ConfiguredSource};
use crate::app::{hosted_api::HostedApi, throttle::Throttle};
use fairgate_core::sync::lock;
use fairgate_policy_sources::PolicySource;

/// Follows a source of policy objects, until it is dropped, or another has taken its place since this call. `name` is that of the source, in
/// what is kept of it.
pub(in crate::app) fn follow(
    source: ConfiguredSource,
    name: String,
    applier: Applier,
) -> impl Future<Output = ()> {
    let number = lock(&applier.compiling).source_number;
    async move {
        let completing = complete(name.clone(), applier.clone());
        tokio::join!(completing, follow_sets(source, number, name, applier));
    }
}

/// Applies the set in force as a complete one, and keeps it, once all built-in objects are in the store of the hosted API. That
/// need not change the objects, and so there may be no other set.
async fn complete(name: String, applier: Applier) {
    let Some(hosting) = applier.hosting.clone() else {
        return;
    };
    hosting.completed().await;
    let outcome = applier.clone();
    let applied = tokio::task::spawn_blocking(move || {
        let is_whole = lock(&applier.compiling).whole;
        (!is_whole).then(|| applier.apply(|compiling| compiling.whole = true))
    });
    match applied.await {
        Ok(None) => {}
        Ok(Some((applied, findings))) => {
            if applied {
                outcome.keep(&name);
            } else {
                outcome.sync.refused(&findings);
            }
            hosting.report_findings(&findings);
        }
        Err(_) => {
            tracing::error!("compiling the policies failed; the last good policy stays in force");
        }
    }
}

async fn follow_sets(mut source: ConfiguredSource, number: u64, name: String, applier: Applier) {
    let clock = applier.clock.clone();
    let outcome = applier.clone();
    loop {
        let set = source.next().await;
        let pace = Throttle::begin(&clock);
        let revision = set.revision.clone();
        let applier = applier.clone();
        let hosting = applier.hosting.clone();
        let hosted = hosting.clone();
        let applied = tokio::task::spawn_blocking(move || {
            applier.apply(|compiling| {
                if compiling.source_number != number {
                    // A reload has taken another source while this set waited for its turn: its policy stays.
                    return;
                }
                // Here, where `complete` comes either before, or after.
                let complete = hosted.as_ref().map(HostedApi::is_complete);
                compiling.whole = complete.unwrap_or(compiling.whole);
                compiling.documents = Some(Arc::new(set));
            })
        });
        let Ok((applied, findings)) = applied.await else {
            outcome.sync.refused(&[]);
            tracing::error!("compiling the policies failed; the last good policy stays in force");
            continue;
        };
        if lock(&outcome.compiling).source_number != number {
            return;
        }
        if applied {
            outcome.sync.in_sync();
            outcome.keep(&name);
        } else {
            outcome.sync.refused(&findings);
        }
        if let Some(hosting) = hosting {
            hosting.report_findings(&findings);
        }
        source.report(&revision, applied, &findings).await;
        pace.rest().await;
    }
}
