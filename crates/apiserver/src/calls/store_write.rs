//! Writes to the store within the quotas of the caller.

use std::sync::Arc;

use bytes::Bytes;

use super::{CallContext, StatusError, store_fault, write_fault};
use crate::limits::quota;
use fairgate_apihttp::request::Caller;
use fairgate_store::{Precondition, StoreEntry, StoreError, WriteBounds, WriteOutcome};

impl CallContext<'_> {
    /// What a write of this call must observe.
    fn bounds(&self) -> WriteBounds {
        if self.request.caller == Caller::Gateway {
            return WriteBounds {
                limits: Vec::new(),
                is_essential: true,
            };
        }
        let quotas = &self.state.quotas;
        quotas.bounds(self.kind, self.prefix(), self.place.status)
    }

    /// Writes the object `name`, or removes it.
    pub(super) async fn write(
        &self,
        name: &str,
        expected: Precondition,
        value: Option<Bytes>,
    ) -> Result<WriteOutcome, StatusError> {
        let key = self.key(name);
        let store = &self.state.store;
        let written = store
            .write_within(&key, expected, value, self.bounds())
            .await;
        written.map_err(|error| match error {
            StoreError::OverLimit(_) => self.over_quota(name, &error),
            error => write_fault(&error),
        })
    }

    /// Checks the quotas for a dry run.
    pub(super) fn check_quota(
        &self,
        name: &str,
        before: Option<&Arc<StoreEntry>>,
        after: &Bytes,
    ) -> Result<(), StatusError> {
        let store = &*self.state.store;
        let before = before.map(|entry| entry.length());
        let checked = store.check(&self.bounds(), before, Some(after.len()));
        checked.map_err(|error| self.over_quota(name, &error))
    }

    fn over_quota(&self, name: &str, error: &StoreError) -> StatusError {
        let StoreError::OverLimit(exceeded) = error else {
            return store_fault(error);
        };
        self.state.count_refusal(self.kind);
        quota::refusal(&self.state.quotas, self.kind, name, exceeded)
    }
}
