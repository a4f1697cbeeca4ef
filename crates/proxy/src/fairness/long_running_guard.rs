//! Counts a long-running request until the upstream is known to be done with it.
//!
//! Such a request may never end. So when its client disconnects, it continues for a limited number of bytes, and is
//! then cancelled. Since nothing shows whether the upstream stops working on it, it counts for as long as an ordinary
//! request may take, unless its response ends sooner.

use std::{future::poll_fn, rc::Rc, time::Duration};

use super::{
    abandoned::{AbandonedRequest, MAX_DISCARDED_BYTES},
    gate::Gate,
    long_running::LongRunningEntry,
};
use fairgate_call::{BodyEnd, RemainingReply, ReplyGuard, RequestContext};

/// Counts a long-running request until the upstream is known to be done with it.
pub(super) struct LongRunningGuard {
    entry: LongRunningEntry,
    gate: Rc<Gate>,
    context: Rc<RequestContext>,
    /// Whether the limits are enforced. If not, they do not limit how many abandoned requests continue, so a request
    /// stops counting when it is cancelled.
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

    /// How long the request counts at most after its client disconnected.
    pub(super) fn time_left(&self) -> Duration {
        self.gate.policy().request_timeout
    }

    /// To be called when the client disconnected; `None` if the request is to be cancelled.
    pub(super) fn abandon(&self) -> Option<AbandonedRequest> {
        self.gate.flow_control().abandoned.begin(self.enforced)
    }

    /// Counts the request for as long as possible, because nothing will show its end.
    pub(super) fn keep(self) {
        if !self.enforced {
            return;
        }
        fairgate_base::turns::spawn_local_boxed(async move {
            tokio::time::sleep(self.time_left()).await;
            drop(self.entry);
        });
    }

    /// Reads and discards the rest of the response.
    async fn discard(self, mut rest: RemainingReply, mut abandoned: AbandonedRequest) {
        let until = self.gate.now().plus(self.time_left());
        let until = self.gate.clock().instant(until);
        let read = async {
            let mut left = MAX_DISCARDED_BYTES;
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
        if self.enforced {
            tokio::time::sleep_until(until).await;
        }
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
            fairgate_base::turns::spawn_local_boxed(self.discard(rest, abandoned));
        } else {
            drop(rest);
            self.keep();
        }
    }
}
