//! The disruption budgets of the hosted API, as the disruption controller follows them.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use fairgate_disruption::{
    controller::{ObjectKey, StatusWriteOutcome},
    procedure::calls::{CallOutcome, UpstreamCall},
};
use fairgate_disruption_controller::{BudgetEvent, BudgetEvents, BudgetFeed, StatusWriteFuture};
use fairgate_objects::{kinds::POD_DISRUPTION_BUDGET, object::Object};
use fairgate_store::{ReadRevision, Store, StoreEntry, StoreError, StoreEvent, Watch};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::hosted_budgets::HostedBudgets;

/// The pause after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);

/// The budgets of a hosted API, followed in its store. Writes are requests to that API.
pub(crate) struct FollowedBudgets {
    pub(crate) budgets: HostedBudgets,
    pub(crate) store: Arc<dyn Store>,
}

impl BudgetFeed for FollowedBudgets {
    fn watch(&self) -> BudgetEvents {
        let following = StoredBudgets {
            store: Arc::clone(&self.store),
            watch: None,
            ready: VecDeque::new(),
            failed: false,
        };
        stream::unfold(following, |mut following| async move {
            let event = following.next().await;
            Some((event, following))
        })
        .boxed()
    }

    fn write_status<'a>(&'a self, key: &'a ObjectKey, object: &'a Value) -> StatusWriteFuture<'a> {
        let call = UpstreamCall::PutBudgetStatus {
            name: key.name.to_string(),
            object: object.clone(),
        };
        Box::pin(async move {
            match self.budgets.outcome(&key.namespace, &call).await {
                CallOutcome::Success(_) => StatusWriteOutcome::Written,
                CallOutcome::Failure { code: 409, .. } => StatusWriteOutcome::Conflict,
                CallOutcome::Failure { response, .. } => {
                    let status: Option<Value> = serde_json::from_slice(&response.body).ok();
                    let message = status
                        .as_ref()
                        .and_then(|status| status["message"].as_str());
                    let text = message.unwrap_or(response.status.as_str());
                    StatusWriteOutcome::Failed(text.to_owned())
                }
                _ => StatusWriteOutcome::Failed("the store did not confirm the write".to_owned()),
            }
        })
    }
}

/// The list of the budgets in a store, then their changes.
struct StoredBudgets {
    store: Arc<dyn Store>,
    /// `None` until the budgets were listed, and after the watch fell behind.
    watch: Option<Watch>,
    ready: VecDeque<Ready>,
    failed: bool,
}

/// An event whose budget is not decoded before it is asked for: decoded, all of them take many times the memory that they take in
/// the store.
enum Ready {
    Init,
    InitApply(Arc<StoreEntry>),
    InitDone,
    Change(Arc<StoreEvent>),
}

impl StoredBudgets {
    async fn next(&mut self) -> Result<BudgetEvent, String> {
        loop {
            while let Some(ready) = self.ready.pop_front() {
                if let Some(event) = ready.decoded() {
                    return Ok(event);
                }
            }
            if std::mem::take(&mut self.failed) {
                tokio::time::sleep(PAUSE).await;
            }
            let advanced = match &mut self.watch {
                None => self.list().await,
                Some(watch) => {
                    if let Ok(events) = watch.next().await {
                        self.ready.extend(events.into_iter().map(Ready::Change));
                    } else {
                        // The watch fell too far behind: list everything again.
                        self.watch = None;
                    }
                    Ok(())
                }
            };
            if let Err(error) = advanced {
                self.failed = true;
                return Err(error.to_string());
            }
        }
    }

    async fn list(&mut self) -> Result<(), StoreError> {
        self.store.wait_for(1).await?;
        let prefix = POD_DISRUPTION_BUDGET.key_prefix();
        let page = self
            .store
            .list(&prefix, None, None, ReadRevision::Cached)
            .await?;
        self.watch = Some(self.store.watch(&prefix, page.revision)?);
        self.ready.push_back(Ready::Init);
        self.ready
            .extend(page.entries.into_iter().map(Ready::InitApply));
        self.ready.push_back(Ready::InitDone);
        Ok(())
    }
}

impl Ready {
    /// The event; `None` if its budget cannot be read.
    fn decoded(self) -> Option<BudgetEvent> {
        match self {
            Self::Init => Some(BudgetEvent::Init),
            Self::InitApply(entry) => decoded(&entry).map(BudgetEvent::InitApply),
            Self::InitDone => Some(BudgetEvent::InitDone),
            Self::Change(event) => match (&event.after, &event.before) {
                (Some(after), _) => decoded(after).map(BudgetEvent::Apply),
                (None, Some(before)) => decoded(before).map(BudgetEvent::Delete),
                (None, None) => None,
            },
        }
    }
}

/// The object of an entry; `None` if it cannot be read, which the hosted API reports.
fn decoded(entry: &StoreEntry) -> Option<Value> {
    match Object::decode(&POD_DISRUPTION_BUDGET, &entry.bytes(), entry.revision) {
        Ok(object) => Some(object.stored().clone()),
        Err(error) => {
            tracing::warn!(key = %entry.key, %error, "skipping a budget that cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use bytes::Bytes;
    use fairgate_base::clock::Clock;
    use fairgate_store::{HistoryLimits, Precondition, WriteOutcome, local};
    use serde_json::json;

    use super::*;

    fn budget(name: &str) -> Bytes {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "ns"}, "spec": {"minAvailable": 1},
        });
        budget.to_string().into()
    }

    fn shown(event: Result<BudgetEvent, String>) -> String {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        match event.unwrap() {
            BudgetEvent::Init => "init".to_owned(),
            BudgetEvent::InitApply(object) => format!("has {}", name(&object)),
            BudgetEvent::InitDone => "done".to_owned(),
            BudgetEvent::Apply(object) => format!("set {}", name(&object)),
            BudgetEvent::Delete(object) => format!("delete {}", name(&object)),
        }
    }

    #[tokio::test]
    async fn stored_budgets_are_listed_and_then_followed() {
        let directory = env::temp_dir().join(format!("fairgate-budgets-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let settings = local::LocalSettings {
            path: directory.join("store.redb"),
            limits: HistoryLimits::default(),
        };
        let store: Arc<dyn Store> =
            Arc::new(local::LocalStore::start(settings, Clock::system()).unwrap());
        let key = |name: &str| format!("{}ns/{name}", POD_DISRUPTION_BUDGET.key_prefix());
        let write = async |name: &str, expected, value| {
            let written = store.write(&key(name), expected, value).await.unwrap();
            let WriteOutcome::Done { revision, .. } = written else {
                panic!("{written:?}");
            };
            revision
        };
        write("a", Precondition::Absent, Some(budget("a"))).await;
        let mut following = StoredBudgets {
            store: Arc::clone(&store),
            watch: None,
            ready: VecDeque::new(),
            failed: false,
        };
        for expected in ["init", "has a", "done"] {
            assert_eq!(shown(following.next().await), expected);
        }
        let revision = write("b", Precondition::Absent, Some(budget("b"))).await;
        let Ok(BudgetEvent::Apply(object)) = following.next().await else {
            panic!("the new budget is seen");
        };
        assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
        write("b", Precondition::At(revision), None).await;
        assert_eq!(shown(following.next().await), "delete b");
        fs::remove_dir_all(&directory).unwrap();
    }
}
