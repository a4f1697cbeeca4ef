//! What present requests are: the core of each is asked, because only the core that serves a request knows.
//!
//! Not here: what is shown of them ([`crate::dumps`], [`crate::flow_metrics`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use fairgate_core::digest::RequestDigest;
use fairgate_proxy::fairness::{FlowControl, GateMessage, Waiter};

/// How long a core may take to describe its requests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has the cores describe the requests of `waiters`. Waits at most [`PATIENCE`].
pub(crate) async fn describe(
    flow_control: &FlowControl,
    waiters: impl Iterator<Item = Waiter>,
) -> HashMap<Waiter, Arc<RequestDigest>> {
    let mut by_core: BTreeMap<u16, Vec<Waiter>> = BTreeMap::new();
    for waiter in waiters {
        by_core.entry(waiter.core).or_default().push(waiter);
    }
    let asked: Vec<_> = by_core
        .into_iter()
        .map(|(core, waiters)| {
            let (reply, replied) = oneshot::channel();
            flow_control
                .mailbox(core)
                .post([GateMessage::Describe(waiters.clone(), reply)]);
            (waiters, replied)
        })
        .collect();
    let mut known = HashMap::new();
    let _ = tokio::time::timeout(PATIENCE, async {
        for (waiters, replied) in asked {
            let digests = replied.await.unwrap_or_default();
            let found = waiters.into_iter().zip(digests);
            known.extend(found.filter_map(|(waiter, digest)| Some((waiter, digest?))));
        }
    })
    .await;
    known
}
