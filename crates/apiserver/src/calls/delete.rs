//! `DELETE`: one object, or all objects that a selector matches.
//!
//! There is no garbage collector for dependents, so an object is removed at once with every propagation
//! policy. Finalizers are honoured: the object is only marked, and is removed with the last finalizer.

use http::StatusCode;
use serde_json::{Value, json};

use super::{CallContext, HostedResponse, StatusError, delete_options::DeleteOptions, write_fault};
use fairgate_apihttp::{deletion_checks, list_parameters::ListParameters, status_error};
use fairgate_objects::{metadata, object};
use fairgate_store::{Precondition, ReadRevision, WriteBounds, WriteOutcome};

/// How often a deletion is tried again after a concurrent write.
const TRIES: usize = 100;

/// The result of a deletion.
enum Deleted {
    /// The object was removed; its last state.
    Gone(Value),
    /// The object has finalizers and was marked; its present state.
    Kept(Value),
}

impl CallContext<'_> {
    pub(super) async fn delete(&self) -> Result<HostedResponse, StatusError> {
        let options = self.delete_options()?;
        let name = &self.place.name;
        match self.delete_one(name, &options).await? {
            Deleted::Gone(object) => {
                let mut details = status_error::details(name, self.kind.group, self.kind.plural);
                details["uid"] = json!(metadata::text(&object, "uid"));
                let status = json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": details,
                });
                Ok(HostedResponse::status(StatusCode::OK, &status, self.output))
            }
            Deleted::Kept(object) => {
                let status = if options.orphan == Some(false) {
                    StatusCode::ACCEPTED
                } else {
                    StatusCode::OK
                };
                self.answer(status, object)
            }
        }
    }

    pub(super) async fn delete_collection(&self) -> Result<HostedResponse, StatusError> {
        let mut list = ListParameters::read(self.query)?;
        list.watch = false;
        // kube-apiserver lists in pages here, so a resource version means exactly this version.
        if list.version_match.is_empty() && !["", "0"].contains(&list.resource_version.as_str()) {
            "Exact".clone_into(&mut list.version_match);
        }
        let options = self.delete_options()?;
        let list = self.collect(&list).await?;
        // Before anything is deleted.
        let response = self.answer_list(&list)?;
        for object in &list.objects {
            let object = object.object()?;
            let name = metadata::name(object.stored());
            match self.delete_one(name, &options).await {
                Ok(_) => {}
                Err(error) if error.code == StatusCode::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        Ok(response)
    }

    async fn delete_one(
        &self,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, StatusError> {
        let key = self.key(name);
        let store = &self.state.store;
        for _ in 0..TRIES {
            let found = self.find(name, ReadRevision::Newest).await?;
            let entry = found.ok_or_else(|| StatusError::not_found(self.kind, name))?;
            let live = self.decode(&entry)?;
            let live = live.stored();
            deletion_checks::check_preconditions(
                self.kind.kind,
                self.kind.group,
                live,
                &options.sent,
            )?;
            let audit = self.evaluate_deletion(live, options).await?;
            let kept = metadata::finalizers(live).next().is_some();
            if kept && metadata::is_deleting(live) {
                return Ok(Deleted::Kept(live.clone()));
            }
            let mut marked = live.clone();
            if kept {
                self.mark(&mut marked);
            }
            if options.dry_run {
                return Ok(if kept {
                    Deleted::Kept(marked)
                } else {
                    Deleted::Gone(marked)
                });
            }
            let bytes = kept.then(|| object::encode(self.kind, &marked));
            // The mark makes an object longer, once. Without it, nothing with finalizers could be deleted from a full disk.
            let bounds = WriteBounds {
                limits: Vec::new(),
                is_essential: kept,
            };
            let expected = Precondition::At(entry.revision);
            let written = store.write_within(&key, expected, bytes, bounds).await;
            match written.map_err(|error| write_fault(&error))? {
                WriteOutcome::Done { revision, .. } => {
                    self.log_change("delete", name, Some(entry.revision), Some(revision));
                    if !kept {
                        return Ok(Deleted::Gone(marked));
                    }
                    metadata::set(&mut marked, "resourceVersion", json!(revision.to_string()));
                    return Ok(Deleted::Kept(marked));
                }
                WriteOutcome::Lost(_) => audit.withdraw(),
            }
        }
        Err(StatusError::modified(self.kind, name))
    }

    /// Marks an object as being deleted.
    fn mark(&self, object: &mut Value) {
        metadata::set(object, "deletionTimestamp", json!(self.state.now_text()));
        metadata::set(object, "deletionGracePeriodSeconds", json!(0));
        let generation = metadata::generation(object) + 1;
        metadata::set(object, "generation", json!(generation));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairgate_apihttp::request::{ApiRequest, Caller};
    use fairgate_base::clock::Clock;
    use fairgate_call::ResponseMemory;
    use fairgate_core::digest::{RequestDigest, RequestInfo, User};
    use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
    use fairgate_store::Store as _;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::test_api;

    const PATH: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets/web";

    fn budget(finalizers: &Value) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "a", "finalizers": finalizers},
            "spec": {"minAvailable": 1},
        })
    }

    fn deletion(query: &str) -> ApiRequest {
        ApiRequest {
            method: Method::DELETE,
            path: PATH.to_owned(),
            query: query.to_owned(),
            headers: HeaderMap::new(),
            body: Some(bytes::Bytes::new()),
            caller: Caller::Client { impersonator: None },
            audit_id: None,
            digest: Arc::new(RequestDigest {
                info: RequestInfo::parse("DELETE", PATH, Some(query)).unwrap(),
                user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
            }),
        }
    }

    #[tokio::test]
    async fn empty_preconditions_in_the_query_are_none() {
        let clock = Clock::system();
        let store = test_api::store(&clock);
        let key = format!("{}a/web", POD_DISRUPTION_BUDGET.key_prefix());
        let value = Some(budget(&json!([])).to_string().into());
        let written = store.write(&key, Precondition::Absent, value).await;
        written.unwrap();
        let responses = ResponseMemory::new(64 << 20);
        let kinds = vec![&POD_DISRUPTION_BUDGET];
        let hosted = test_api::hosted(&store, kinds, clock, responses);
        for (query, status) in [
            ("uid=x", StatusCode::CONFLICT),
            ("uid=&resourceVersion=1", StatusCode::CONFLICT),
            ("uid=&resourceVersion=", StatusCode::OK),
        ] {
            let response = hosted.serve(&deletion(query)).await;
            assert_eq!(response.status, status, "{query}");
        }
    }

    #[tokio::test]
    async fn an_object_with_finalizers_is_marked_on_a_full_disk() {
        let clock = Clock::system();
        let store = test_api::store(&clock);
        let key = format!("{}a/web", POD_DISRUPTION_BUDGET.key_prefix());
        let budget = budget(&json!(["a.example/b"]));
        let value = Some(budget.to_string().into());
        let written = store.write(&key, Precondition::Absent, value).await;
        written.unwrap();
        store.fill_disk();
        let responses = ResponseMemory::new(64 << 20);
        let kinds = vec![&POD_DISRUPTION_BUDGET];
        let hosted = test_api::hosted(&store, kinds, clock, responses);
        let request = deletion("");
        for _ in 0..2 {
            assert_eq!(hosted.serve(&request).await.status, StatusCode::OK);
        }
        let entry = store.get(&key, ReadRevision::Newest).await.unwrap();
        let marked: Value = serde_json::from_slice(&entry.unwrap().bytes()).unwrap();
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
    }
}
