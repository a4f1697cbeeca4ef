//! Watches: where they begin, and for how long they go on. What they send is in
//! [`crate::watch_stream`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{ApiResponse, CallContext, StatusError, store_fault};
use crate::{
    list_parameters::{ListParameters, parse_version},
    negotiate::Media,
    random,
    response::ApiBody,
    watch_stream::{WatchStart, WatchStream},
};
use fairgate_objects::object::Object;
use fairgate_store::{ReadRevision, StoreError};

/// How long a watch goes on that does not say: between this and twice as long.
const LEAST: Duration = Duration::from_secs(1800);

impl CallContext<'_> {
    pub(super) async fn watch(&self) -> Result<ApiResponse, StatusError> {
        let mut options = ListParameters::read(self.query)?;
        if !self.place.name.is_empty() {
            options.only(&self.place.name)?;
        }
        self.watch_with(options).await
    }

    /// Follows the changes of what `options` ask for.
    pub(super) async fn watch_with(
        &self,
        options: ListParameters,
    ) -> Result<ApiResponse, StatusError> {
        let version = parse_version(&options.resource_version).map_err(StatusError::internal)?;
        let lasts = lasts(&options);
        let writer = self.writer()?;
        if self.output.media == Media::Yaml {
            return Err(StatusError::not_acceptable(format!(
                "only the following media types are accepted: {}",
                crate::negotiate::STREAM_TYPES.join(", ")
            )));
        }
        let opening = match self.opening(&options, version.unwrap_or(0)).await {
            Ok(opening) => opening,
            // From here on what goes wrong is told in the stream, as clients expect it.
            Err(fault) => WatchStart::Failed(fault),
        };
        let mut answer = ApiResponse::full(
            http::StatusCode::OK,
            match self.output.media {
                Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Media::Json | Media::Yaml => "application/json",
            },
            bytes::Bytes::new(),
        );
        let watching = WatchStream::new(writer, options, opening, lasts);
        answer.body = ApiBody::Watch(Box::new(watching));
        Ok(answer)
    }

    /// With what a watch begins.
    async fn opening(
        &self,
        options: &ListParameters,
        version: u64,
    ) -> Result<WatchStart, StatusError> {
        let store = &self.state.store;
        let initial = match options.initial_events {
            Some(initial) => initial,
            None => version == 0,
        };
        if !initial {
            let after = if version == 0 {
                let newest = store.revision().await;
                newest.map_err(|error| store_fault(&error))?
            } else {
                version
            };
            let watch = store
                .watch(&self.prefix(), after)
                .map_err(|error| watch_fault(&error))?;
            return Ok(WatchStart::Live { watch });
        }
        if version > 0 {
            self.wait_for(version).await?;
        } else if options.resource_version.is_empty() {
            // Not older than the request, as far as this process can see.
            let newest = store.revision().await;
            let newest = newest.map_err(|error| store_fault(&error))?;
            self.wait_for(newest).await?;
        }
        let page = store
            .list(&self.prefix(), None, None, ReadRevision::Cached)
            .await;
        let page = page.map_err(|error| store_fault(&error))?;
        let mut objects: VecDeque<Arc<Object>> = VecDeque::new();
        for entry in &page.entries {
            let object = self.decode(entry)?;
            if options.select(object.stored()) {
                objects.push_back(object);
            }
        }
        let watch = store
            .watch(&self.prefix(), page.revision)
            .map_err(|error| watch_fault(&error))?;
        Ok(WatchStart::Initial {
            objects,
            revision: page.revision,
            watch,
        })
    }
}

/// How long a watch goes on.
fn lasts(options: &ListParameters) -> Duration {
    match u64::try_from(options.timeout_seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => LEAST.mul_f64(1.0 + random::fraction()),
    }
}

/// What a fault of the store's is to a watch.
fn watch_fault(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { asked, floor } => {
            StatusError::expired(format!("too old resource version: {asked} ({floor})"))
        }
        _ => super::store_fault(error),
    }
}
