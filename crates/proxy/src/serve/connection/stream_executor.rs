//! Runs the tasks of an HTTP/2 connection's streams, and resets streams whose clients stall.
//!
//! A client can keep the window of a stream closed for ever, and so hold the resources of its reply: its seat and
//! its upstream connection. hyper has no time limit for that. The task of a stream is therefore watched: if data of the
//! reply was handed to hyper, and hyper does not poll for more within the time limit, the task is dropped,
//! which resets the stream. The other streams continue.
//!
//! hyper's executor is given an opaque future and does not say which request it is for. But hyper calls the
//! connection's service for a request and spawns the task of its stream without yielding in between, so the task
//! belongs to the request that the service saw last.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::client_connection::ClientConnection;
use fairgate_call::{BodyActivity, RequestContext};

/// Spawns the tasks of one connection's streams on the current thread.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    connection: Rc<ClientConnection>,
    /// How long a client may leave data unread that is ready for it.
    stall_timeout: Duration,
}

impl StreamExecutor {
    pub(super) fn new(connection: Rc<ClientConnection>, stall_timeout: Duration) -> Self {
        Self {
            connection,
            stall_timeout,
        }
    }
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, task: F) {
        let request = self.connection.starting.take();
        debug_assert!(
            request.is_some(),
            "hyper calls the service before it spawns"
        );
        fairgate_base::turns::spawn_local(StreamTask {
            task,
            request,
            limit: self.stall_timeout,
            stalled: None,
            timer: None,
        });
    }
}

pin_project! {
    struct StreamTask<F> {
        #[pin]
        task: F,
        request: Option<Rc<RequestContext>>,
        limit: Duration,
        // When the client will have stalled for too long, while it has data to read.
        stalled: Option<Instant>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.task.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let activity = this
            .request
            .as_ref()
            .map_or(BodyActivity::NotPolled, |request| {
                request.reply_activity.take()
            });
        match activity {
            BodyActivity::NotPolled => {}
            BodyActivity::Pending => *this.stalled = None,
            BodyActivity::Data => {
                let sleep = tokio::time::sleep(*this.limit);
                *this.stalled = Some(sleep.deadline());
                if this.timer.is_none() {
                    *this.timer = Some(Box::pin(sleep));
                }
            }
        }
        let (Some(deadline), Some(timer)) = (*this.stalled, this.timer) else {
            return Poll::Pending;
        };
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_ready() {
            tracing::debug!("a client did not read data for too long; its stream is reset");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
