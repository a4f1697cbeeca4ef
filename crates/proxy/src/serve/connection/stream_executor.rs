//! Runs the tasks of an HTTP/2 connection's streams, and resets streams whose clients stall.
//!
//! A client can keep the window of a stream closed for ever, and so hold the resources of its reply: its seat and
//! its upstream connection. hyper has no time limit for that. The task of a stream is therefore watched: if data of the
//! reply was handed to hyper, and hyper does not poll for more within the time limit (`stall_limits`), the task is dropped,
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
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::{
    client_connection::ClientConnection,
    stall_limits::{StallLimits, may_pause},
};
use fairgate_call::{BodyActivity, RequestContext};

/// Spawns the tasks of one connection's streams on the current thread.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    connection: Rc<ClientConnection>,
    limits: StallLimits,
}

impl StreamExecutor {
    pub(super) fn new(connection: Rc<ClientConnection>, limits: StallLimits) -> Self {
        Self { connection, limits }
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
            limits: self.limits,
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
        limits: StallLimits,
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
        if let Some(request) = this.request {
            match request.reply_activity.take() {
                BodyActivity::NotPolled => {}
                BodyActivity::Pending => *this.stalled = None,
                BodyActivity::Data => {
                    let limit = this.limits.limit(may_pause(request.kind.get()));
                    let sleep = tokio::time::sleep(limit);
                    *this.stalled = Some(sleep.deadline());
                    if this.timer.is_none() {
                        *this.timer = Some(Box::pin(sleep));
                    }
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

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use fairgate_call::RequestKind;
    use http::Method;
    use tokio::time::timeout;

    use super::*;
    use crate::serve::settings::ServeSettings;

    #[tokio::test(start_paused = true)]
    async fn only_clients_that_may_pause_are_not_cut_off_soon() {
        let settings = ServeSettings {
            stall_timeout: Duration::from_secs(60),
            pause_timeout: Duration::from_secs(4 * 3600),
            ..ServeSettings::default()
        };
        for (kind, limit) in [
            (RequestKind::Read, settings.stall_timeout),
            (RequestKind::Watch, settings.stall_timeout),
            (RequestKind::LongRunning, settings.pause_timeout),
        ] {
            let request = Rc::new(RequestContext::new(Method::GET, None, 0));
            request.kind.set(kind);
            request.reply_activity.set(BodyActivity::Data);
            let mut stream = pin!(StreamTask {
                task: std::future::pending(),
                request: Some(request),
                limits: StallLimits::of(&settings),
                stalled: None,
                timer: None,
            });
            // A timer of tokio is no finer than a millisecond.
            let second = Duration::from_secs(1);
            let before = limit.saturating_sub(second);
            assert!(timeout(before, stream.as_mut()).await.is_err(), "{kind:?}");
            assert!(timeout(second * 2, stream).await.is_ok(), "{kind:?}");
        }
    }
}
