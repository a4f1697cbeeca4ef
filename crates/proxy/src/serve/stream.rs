//! Runs the tasks of an HTTP/2 connection's streams.
//!
//! A client can keep a stream's window shut for ever and so hold whatever the answer holds: its
//! seat, its upstream connection. hyper waits patiently. The task of a stream is therefore watched:
//! once a piece of the answer was handed out and none is asked for within the time allowed, the task
//! is dropped, which resets the stream. The other streams go on.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use fairgate_call::reply_body::{Activity, take_activity};

/// Spawns the streams' tasks on the current thread, each watched for a stalled client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor {
    /// How long a client may refuse what is ready for it.
    pub stall_timeout: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, task: F) {
        tokio::task::spawn_local(Watched {
            task,
            limit: self.stall_timeout,
            stalled: None,
            timer: None,
        });
    }
}

pin_project! {
    struct Watched<F> {
        #[pin]
        task: F,
        limit: Duration,
        // When the client will have stalled for too long, if it owes us anything.
        stalled: Option<Instant>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        take_activity();
        if this.task.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match take_activity() {
            Activity::None => {}
            Activity::Waiting => *this.stalled = None,
            Activity::HandedOut => {
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
            tracing::debug!("a client took nothing for too long; its stream is reset");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
