//! The body of a large reply that the gateway made, which must not stay in memory for long.
//!
//! A connection takes data only as fast as its client reads. After its time limit what is left of the body is
//! dropped, even if the connection never asks for more.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fairgate_base::tasks::AbortOnDrop;
use http_body::{Body, Frame, SizeHint};

use crate::BodyError;

/// Bytes that are passed to the connection at once. They may not be sent yet when the rest is dropped.
const PIECE: usize = 16 << 10;

/// The body of a large reply. It holds a `P`, a permit for its memory, for as long as it is in memory.
pub(super) struct MemoryBody<P> {
    rest: Rc<RefCell<Option<RestInMemory<P>>>>,
    _limit: AbortOnDrop,
}

struct RestInMemory<P> {
    bytes: Bytes,
    _permit: P,
}

impl<P: 'static> MemoryBody<P> {
    /// A body that exists for at most `limit`. To be called on a data core.
    pub(super) fn new(bytes: Bytes, permit: P, limit: Duration) -> Self {
        let rest = Rc::new(RefCell::new(Some(RestInMemory {
            bytes,
            _permit: permit,
        })));
        let expiring = Rc::clone(&rest);
        let limit = fairgate_base::turns::spawn_local(async move {
            tokio::time::sleep(limit).await;
            expiring.take();
        });
        Self {
            rest,
            _limit: AbortOnDrop::new(limit),
        }
    }
}

impl<P> Body for MemoryBody<P> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut rest = self.rest.borrow_mut();
        let Some(RestInMemory { bytes, .. }) = &mut *rest else {
            return Poll::Ready(Some(Err(BodyError::TooSlow)));
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        let len = bytes.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(bytes.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest.borrow();
        rest.as_ref().is_some_and(|rest| rest.bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.borrow();
        let len = rest.as_ref().map_or(0, |rest| rest.bytes.len());
        SizeHint::with_exact(len as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use tokio::task::LocalSet;

    use super::*;

    fn poll(body: &mut MemoryBody<Arc<()>>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn taken(body: &mut MemoryBody<Arc<()>>) -> usize {
        match poll(body) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().map_or(0, |data| data.len()),
            _ => 0,
        }
    }

    #[tokio::test]
    async fn after_its_limit_the_memory_is_free_although_nobody_reads() {
        let bodies = async {
            let permit = Arc::new(());
            let bytes = Bytes::from(vec![0; 40_000]);
            let memory = bytes.clone();
            let limit = Duration::from_millis(1);
            let mut body = MemoryBody::new(bytes, Arc::clone(&permit), limit);
            assert_eq!(body.size_hint().exact(), Some(40_000));
            assert_eq!(taken(&mut body), PIECE);
            assert_eq!(Arc::strong_count(&permit), 2);
            assert!(!memory.is_unique());
            while Arc::strong_count(&permit) > 1 || !memory.is_unique() {
                tokio::time::sleep(limit).await;
            }
            assert!(!body.is_end_stream(), "it is not complete");
            let end = poll(&mut body);
            assert!(matches!(end, Poll::Ready(Some(Err(BodyError::TooSlow)))));
        };
        let limited = tokio::time::timeout(Duration::from_secs(60), bodies);
        LocalSet::new().run_until(limited).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_keeps_up_gets_all_of_it() {
        let bodies = async {
            let permit = Arc::new(());
            let bytes = Bytes::from(vec![0; 40_000]);
            let mut body = MemoryBody::new(bytes, Arc::clone(&permit), Duration::from_secs(30));
            let pieces = [(); 3].map(|()| taken(&mut body));
            assert_eq!(pieces, [PIECE, PIECE, 40_000 - 2 * PIECE]);
            assert!(body.is_end_stream());
            assert!(matches!(poll(&mut body), Poll::Ready(None)));
            drop(body);
        };
        LocalSet::new().run_until(bodies).await;
    }
}
