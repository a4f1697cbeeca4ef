//! Watches: their start and duration. See [`crate::objects::watch_stream`] for the events that they send.

use std::time::Duration;

use super::{CallContext, HostedResponse, StatusError, store_fault};
use crate::{
    HostedBody,
    objects::watch_stream::{WatchStart, WatchStream},
};
use fairgate_apihttp::{
    list_parameters::{ListParameters, parse_version},
    negotiate::Media,
    random,
};
use fairgate_store::{ReadRevision, StoreError};

/// The duration of a watch without `timeoutSeconds` is random, between this and twice as long.
const MIN_DURATION: Duration = Duration::from_secs(1800);

impl CallContext<'_> {
    pub(super) async fn watch(&self) -> Result<HostedResponse, StatusError> {
        let mut options = ListParameters::read(self.query)?;
        if !self.place.name.is_empty() {
            options.only(&self.place.name)?;
        }
        self.watch_with(options).await
    }

    /// Watches the objects that `options` select.
    pub(super) async fn watch_with(
        &self,
        options: ListParameters,
    ) -> Result<HostedResponse, StatusError> {
        let version = parse_version(&options.resource_version).map_err(StatusError::internal)?;
        let duration = duration(&options);
        let writer = self.writer()?;
        if self.output.media == Media::Yaml {
            return Err(StatusError::not_acceptable(format!(
                "only the following media types are accepted: {}",
                fairgate_apihttp::negotiate::STREAM_TYPES.join(", ")
            )));
        }
        let start = match self.start(&options, version.unwrap_or(0)).await {
            Ok(start) => start,
            // As kube-apiserver: errors of the start are sent as an event of the stream.
            Err(error) => WatchStart::Failed(error),
        };
        let mut response = HostedResponse::full(
            http::StatusCode::OK,
            match self.output.media {
                Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Media::Json | Media::Yaml => "application/json",
            },
            bytes::Bytes::new(),
        );
        // A watch whose time is over before it begins says nothing but that it cannot begin.
        if options.timeout_seconds < 0 && !matches!(start, WatchStart::Failed(_)) {
            return Ok(response);
        }
        let stream = WatchStream::new(writer, options, start, duration);
        response.body = HostedBody::Stream(Box::new(stream));
        Ok(response)
    }

    /// Starts a watch: with the present objects, or with the changes after `version`.
    async fn start(
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
            // The initial objects must not be older than the request.
            let newest = store.revision().await;
            let newest = newest.map_err(|error| store_fault(&error))?;
            self.wait_for(newest).await?;
        }
        if options.timeout_seconds < 0 {
            // It ends before its first event.
            let watch = store
                .watch(&self.prefix(), store.cached_revision())
                .map_err(|error| watch_fault(&error))?;
            return Ok(WatchStart::Live { watch });
        }
        let page = store
            .list(&self.prefix(), None, None, ReadRevision::Cached)
            .await;
        let page = page.map_err(|error| store_fault(&error))?;
        let watch = store
            .watch(&self.prefix(), page.revision)
            .map_err(|error| watch_fault(&error))?;
        Ok(WatchStart::Initial {
            // They are decoded when they are sent: decoded, they take many times as much memory.
            objects: self
                .state
                .initial_objects
                .begin(page.entries, page.revision, store.floor()),
            sent: self.state.initial_events_of(self.kind),
            watch,
        })
    }
}

/// How long a watch runs before the server ends it. One whose time is negative ends immediately.
fn duration(options: &ListParameters) -> Duration {
    match u64::try_from(options.timeout_seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => MIN_DURATION.mul_f64(1.0 + random::fraction()),
    }
}

/// Maps an error of the store to the status that a watch sends.
fn watch_fault(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { requested, floor } => {
            StatusError::expired(format!("too old resource version: {requested} ({floor})"))
        }
        _ => super::store_fault(error),
    }
}
