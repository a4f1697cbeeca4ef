//! A watch of etcd, which ends with an error when its member is away.

use std::{sync::Arc, time::Duration};

use etcd_client::{WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{failures::explain, link::Link, members::Used};
use crate::error::StoreError;

/// How often a progress request is sent while a reader waits.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// How long the first response to a new watch may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// A watch at one member. It ends when the member is away.
pub(super) struct EventStream {
    link: Arc<Link>,
    /// The member that sends it.
    used: Used,
    sender: WatchRequestSender,
    responses: WatchResponseStream,
    /// The first response, received while opening, not processed yet.
    first: Option<WatchResponse>,
}

impl EventStream {
    /// Opens a watch, and waits for its first response after `created`.
    pub(super) async fn open(
        link: &Arc<Link>,
        key: &[u8],
        options: &WatchOptions,
    ) -> Result<Self, StoreError> {
        let (stream, used) = link.watch(key, options).await?;
        let (sender, responses) = stream.split();
        let mut stream = Self {
            link: Arc::clone(link),
            used,
            sender,
            responses,
            first: None,
        };
        let opened = timeout(OPEN_TIMEOUT, stream.first()).await;
        stream.first = Some(opened.map_err(|_| ended())??);
        Ok(stream)
    }

    /// The first response, if etcd has cancelled the watch with it.
    pub(super) fn canceled(&self) -> Option<&WatchResponse> {
        self.first.as_ref().filter(|first| first.canceled())
    }

    /// The first response after `created`. Only this one reports that the start revision was compacted, so
    /// progress is requested until there is one.
    async fn first(&mut self) -> Result<WatchResponse, StoreError> {
        let mut progress_ticks = interval(PROGRESS_INTERVAL);
        progress_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                response = self.next() => {
                    let response = response?;
                    if response.canceled() || !response.created() {
                        return Ok(response);
                    }
                }
                _ = progress_ticks.tick() => self.request_progress().await?,
            }
        }
    }

    /// The next response. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, StoreError> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let response = tokio::select! {
            response = self.responses.message() => response,
            () = self.link.gone(self.used) => return Err(ended()),
        };
        let response = response.map_err(|error| explain(&error))?;
        response.ok_or_else(ended)
    }

    /// Requests a response with the revision up to which all changes were sent.
    pub(super) async fn request_progress(&mut self) -> Result<(), StoreError> {
        let sent = self.sender.request_progress().await;
        sent.map_err(|error| explain(&error))
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("etcd ended the watch; check it, and the network to it".to_owned())
}
