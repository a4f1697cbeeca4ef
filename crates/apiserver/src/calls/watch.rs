//! Watches: where they begin, and for how long they go on. What they send is in
//! [`crate::watching`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Answer, Fault, Scope, store_fault};
use crate::{
    answer::AnswerBody,
    list_options::{ListOptions, parse_version},
    negotiate::Media,
    random,
    watching::{Opening, Watching},
};
use fairgate_objects::object::Object;
use fairgate_store::{At, StoreError};

/// How long a watch goes on that does not say: between this and twice as long.
const LEAST: Duration = Duration::from_secs(1800);

impl Scope<'_> {
    pub(super) async fn watch(&self) -> Result<Answer, Fault> {
        let mut options = ListOptions::read(self.query)?;
        if !self.place.name.is_empty() {
            options.only(&self.place.name)?;
        }
        self.watch_with(options).await
    }

    /// Follows the changes of what `options` ask for.
    pub(super) async fn watch_with(&self, options: ListOptions) -> Result<Answer, Fault> {
        let version = parse_version(&options.resource_version).map_err(Fault::internal)?;
        let lasts = lasts(&options);
        let writer = self.writer()?;
        if self.output.media == Media::Yaml {
            return Err(Fault::not_acceptable(format!(
                "only the following media types are accepted: {}",
                crate::negotiate::STREAM_TYPES.join(", ")
            )));
        }
        let opening = match self.opening(&options, version.unwrap_or(0)).await {
            Ok(opening) => opening,
            // From here on what goes wrong is told in the stream, as clients expect it.
            Err(fault) => Opening::Failed(fault),
        };
        let mut answer = Answer::full(
            http::StatusCode::OK,
            match self.output.media {
                Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Media::Json | Media::Yaml => "application/json",
            },
            bytes::Bytes::new(),
        );
        let watching = Watching::new(writer, options, opening, lasts);
        answer.body = AnswerBody::Watch(Box::new(watching));
        Ok(answer)
    }

    /// With what a watch begins.
    async fn opening(&self, options: &ListOptions, version: u64) -> Result<Opening, Fault> {
        let store = &self.hosted.store;
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
            return Ok(Opening::Live { watch });
        }
        if version > 0 {
            self.wait_for(version).await?;
        } else if options.resource_version.is_empty() {
            // Not older than the request, as far as this process can see.
            let newest = store.revision().await;
            let newest = newest.map_err(|error| store_fault(&error))?;
            self.wait_for(newest).await?;
        }
        let page = store.list(&self.prefix(), None, None, At::Cached).await;
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
        Ok(Opening::Initial {
            objects,
            revision: page.revision,
            watch,
        })
    }
}

/// How long a watch goes on.
fn lasts(options: &ListOptions) -> Duration {
    match u64::try_from(options.timeout_seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => LEAST.mul_f64(1.0 + random::fraction()),
    }
}

/// What a fault of the store's is to a watch.
fn watch_fault(error: &StoreError) -> Fault {
    match error {
        StoreError::Compacted { asked, floor } => {
            Fault::expired(format!("too old resource version: {asked} ({floor})"))
        }
        _ => super::store_fault(error),
    }
}
