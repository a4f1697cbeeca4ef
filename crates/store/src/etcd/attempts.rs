//! The attempts of one call to etcd, each at another member, as long as the call has time.
//!
//! An attempt ends with a response, with an error, or because [`Members`] says that it is lost: its member is away, or
//! etcd has a new leader. Then a call that may run twice is simply repeated. What a write may do is in `writes`.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use etcd_client::Error;
use tokio::{
    sync::watch::Receiver,
    time::{Sleep, sleep},
};

use super::{
    failures::{CallFailure, evaluate, timeout_error},
    members::{Members, Used},
};
use crate::error::StoreError;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take while all members are away, so that waiting requests fail quickly.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before members are tried again that were tried already.
const PAUSE: Duration = Duration::from_millis(50);

/// The attempts of one call.
pub(super) struct Attempts<'a> {
    /// Counts the attempts of all calls: members take turns.
    turn: &'a AtomicUsize,
    members: Receiver<Members>,
    tried: Vec<usize>,
    timeout: Pin<Box<Sleep>>,
    unreachable_timeout: Pin<Box<Sleep>>,
    /// Why the last attempt has failed.
    last: Option<StoreError>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(turn: &'a AtomicUsize, members: Receiver<Members>) -> Self {
        Self {
            turn,
            members,
            tried: Vec::new(),
            timeout: Box::pin(sleep(CALL_TIMEOUT)),
            unreachable_timeout: Box::pin(sleep(UNREACHABLE_TIMEOUT)),
            last: None,
        }
    }

    /// Makes an attempt at the next member.
    pub(super) async fn once<T, F>(
        &mut self,
        call: impl FnOnce(Used) -> F,
    ) -> Result<T, CallFailure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let used = self.next_member().await.map_err(CallFailure::Final)?;
        let mut members = self.members.clone();
        let attempt = async {
            tokio::select! {
                biased;
                ended = call(used) => ended.map_err(|error| evaluate(&error)),
                () = until(&mut members, |members| members.is_lost(used)) => {
                    Err(CallFailure::Disconnected(timeout_error()))
                }
            }
        };
        let ended = self.within(attempt).await.map_err(CallFailure::Final)?;
        if let Err(
            CallFailure::NotRun(error)
            | CallFailure::Unfinished(error)
            | CallFailure::Disconnected(error),
        ) = &ended
        {
            self.last = Some(error.clone());
        }
        ended
    }

    /// Waits for something in the time of the call.
    pub(super) async fn within<T>(
        &mut self,
        happens: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let (timeout, unreachable) = (&mut self.timeout, &mut self.unreachable_timeout);
        let members = &mut self.members;
        let is_unreachable = async {
            unreachable.await;
            until(members, Members::are_all_away).await;
        };
        tokio::select! {
            biased;
            happened = happens => Ok(happened),
            () = timeout => Err(self.last.take().unwrap_or_else(timeout_error)),
            () = is_unreachable => Err(self.last.take().unwrap_or_else(timeout_error)),
        }
    }

    async fn next_member(&mut self) -> Result<Used, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let used = self.members.borrow().choose(turn, &self.tried);
        if !self.tried.contains(&used.member) {
            self.tried.push(used.member);
            return Ok(used);
        }
        self.within(sleep(PAUSE)).await?;
        self.tried.clear();
        let used = self.members.borrow().choose(turn, &[]);
        self.tried.push(used.member);
        Ok(used)
    }
}

/// Waits until the members are in some state.
pub(super) async fn until(
    members: &mut Receiver<Members>,
    mut holds: impl FnMut(&Members) -> bool,
) {
    // The sender lives as long as the link.
    if members.wait_for(|members| holds(members)).await.is_err() {
        std::future::pending::<()>().await;
    }
}
