//! What holds the place of a long-running request: the upstream, until it is known to be done.
//!
//! Such a request may never end by itself, so when its client leaves it runs on for a bounded number of
//! bytes and then is cancelled. A cancel hides whether the upstream heeds it: the place is kept for as
//! long as an ordinary request may take, unless the answer's end tells more.

use std::{future::poll_fn, rc::Rc, time::Duration};

use super::{
    abandoned::{AbandonedRequest, FEW_BYTES},
    gate::Gate,
    long_running::LongRunningEntry,
};
use fairgate_call::{BodyEnd, RemainingReply, ReplyGuard, RequestContext};

/// Holds the place of a long-running request until the upstream is known to be done with it.
pub(super) struct LongRunningGuard {
    entry: LongRunningEntry,
    gate: Rc<Gate>,
    context: Rc<RequestContext>,
    /// Whether the caps are enforced: else there is no bound to how many run on.
    enforced: bool,
}

impl LongRunningGuard {
    pub(super) fn new(
        entry: LongRunningEntry,
        gate: &Rc<Gate>,
        context: &Rc<RequestContext>,
        enforced: bool,
    ) -> Self {
        Self {
            entry,
            gate: Rc::clone(gate),
            context: Rc::clone(context),
            enforced,
        }
    }

    /// How long the place is kept at most once the client has left.
    pub(super) fn time_left(&self) -> Duration {
        self.gate.policy().request_timeout
    }

    /// The client has left; `None` if the request is to be cancelled.
    pub(super) fn abandon(&self) -> Option<AbandonedRequest> {
        self.gate.hub().abandoned.begin(self.enforced)
    }

    /// Keeps the place for as long as it may be kept, there being nothing that would tell of the end.
    pub(super) fn keep(self) {
        if !self.enforced {
            return;
        }
        tokio::task::spawn_local(async move {
            tokio::time::sleep(self.time_left()).await;
            drop(self.entry);
        });
    }

    /// Reads and throws away what the upstream still sends.
    async fn run_out(self, mut rest: RemainingReply, mut abandoned: AbandonedRequest) {
        let until = self.gate.now().plus(self.time_left());
        let until = self.gate.clock().instant(until);
        let read = async {
            let mut left = FEW_BYTES;
            while let Some(data) = poll_fn(|cx| rest.poll_data(cx)).await {
                match left.checked_sub(data.len() as u64) {
                    Some(less) => left = less,
                    None => return false,
                }
            }
            !self.context.client_body_failed.get()
        };
        let ended = tokio::time::timeout_at(until, read).await;
        drop(rest);
        if ended == Ok(true) {
            abandoned.ended();
            return;
        }
        drop(abandoned);
        tokio::time::sleep_until(until).await;
        drop(self.entry);
    }
}

impl ReplyGuard for LongRunningGuard {
    fn end(self: Box<Self>, how: BodyEnd) {
        let unknown = match how {
            BodyEnd::Complete => false,
            BodyEnd::Failed => self.context.client_body_failed.get(),
            BodyEnd::Abandoned => true,
        };
        if unknown && !std::thread::panicking() {
            self.keep();
        }
    }

    fn abandoned(self: Box<Self>, rest: RemainingReply) {
        let abandoned = self.abandon().filter(|_| !std::thread::panicking());
        if let Some(abandoned) = abandoned {
            tokio::task::spawn_local(self.run_out(rest, abandoned));
        } else {
            drop(rest);
            self.keep();
        }
    }
}
