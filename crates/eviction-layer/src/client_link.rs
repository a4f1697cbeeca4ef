//! The link between a request on its data core and its procedure on the control runtime.
//!
//! The procedure is notified when the client disconnects. Before its first change it requests permission from the
//! request. The request grants it only while it is polled, and from then on keeps its seat until the procedure has
//! ended. So a client that disconnects either prevents every change, or its seat is held until the changes are done.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

/// The request's end.
#[derive(Debug)]
pub(crate) struct RequestEnd {
    wanted: Option<oneshot::Receiver<oneshot::Sender<()>>>,
    presence: Option<oneshot::Sender<Infallible>>,
}

/// The procedure's end.
#[derive(Debug)]
pub(crate) struct ProcedureEnd {
    permission: Option<oneshot::Sender<oneshot::Sender<()>>>,
    presence: oneshot::Receiver<Infallible>,
    has_left: bool,
}

/// A link, for one procedure.
pub(crate) fn link() -> (RequestEnd, ProcedureEnd) {
    let (permission, wanted) = oneshot::channel();
    let (present, presence) = oneshot::channel();
    (
        RequestEnd {
            wanted: Some(wanted),
            presence: Some(present),
        },
        ProcedureEnd {
            permission: Some(permission),
            presence,
            has_left: false,
        },
    )
}

impl RequestEnd {
    /// Signals to the procedure that its result is no longer awaited.
    pub(crate) fn leave(&mut self) {
        self.presence = None;
    }

    /// Permits the first change, if the procedure has requested that. `prepare` is called before.
    pub(crate) fn poll_permit(&mut self, cx: &mut Context<'_>, prepare: impl FnOnce()) {
        let Some(wanted) = &mut self.wanted else {
            return;
        };
        if let Poll::Ready(asked) = Pin::new(wanted).poll(cx) {
            self.wanted = None;
            if let Ok(permission) = asked
                && self.presence.is_some()
            {
                prepare();
                let _ = permission.send(());
            }
        }
    }
}

impl ProcedureEnd {
    /// Completes when the client has disconnected; never again after that.
    pub(crate) async fn left(&mut self) {
        if self.has_left {
            return std::future::pending().await;
        }
        let _ = (&mut self.presence).await;
        self.has_left = true;
    }

    /// Requests permission to make the first change. `false` if the client has disconnected.
    pub(crate) async fn may_change(&mut self) -> bool {
        let Some(permission) = self.permission.take() else {
            return true;
        };
        let (permit, permitted) = oneshot::channel();
        permission.send(permit).is_ok() && permitted.await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_change_needs_a_client_that_is_there() {
        let (mut request, mut procedure) = link();
        let mut prepared = 0;
        let asking = tokio::spawn(async move { (procedure.may_change().await, procedure) });
        let permitting = poll_fn(|cx| {
            request.poll_permit(cx, || prepared += 1);
            match &request.wanted {
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            }
        });
        permitting.await;
        let (permitted, mut procedure) = asking.await.unwrap();
        assert!(permitted && procedure.may_change().await);
        assert_eq!(prepared, 1);
        request.leave();
        procedure.left().await;
        assert!(procedure.has_left);
    }

    #[tokio::test]
    async fn without_a_client_nothing_may_change() {
        let (request, mut procedure) = link();
        drop(request);
        assert!(!procedure.may_change().await);
        procedure.left().await;
    }
}
