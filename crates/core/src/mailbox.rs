//! Messages to the core that owns a request.
//!
//! A decision made on one core may concern a request of another. It is put into that core's mailbox;
//! a batch wakes the core once, and not at all while it has messages it has not fetched yet. std only.

use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock};

/// A mailbox: many write, one reads.
#[derive(Debug)]
pub struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    messages: Vec<T>,
    reader: Option<Waker>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                messages: Vec::new(),
                reader: None,
            }),
        }
    }
}

impl<T> Mailbox<T> {
    /// Delivers `messages`; wakes the reader if it may be asleep.
    pub fn post(&self, messages: impl IntoIterator<Item = T>) {
        let reader = {
            let mut inner = lock(&self.inner);
            inner.messages.extend(messages);
            if inner.messages.is_empty() {
                None
            } else {
                inner.reader.take()
            }
        };
        // Not under the lock, which the reader takes first of all.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Fetches all messages into `into`, which is empty; pending while there are none.
    pub fn poll_fetch(&self, cx: &mut Context<'_>, into: &mut Vec<T>) -> Poll<()> {
        debug_assert!(into.is_empty(), "messages are read before more are fetched");
        let mut inner = lock(&self.inner);
        if inner.messages.is_empty() {
            inner.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // The empty buffer is put back, so that none is allocated again.
        std::mem::swap(&mut inner.messages, into);
        Poll::Ready(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_batch_wakes_a_sleeping_reader_once() {
        let (mailbox, count) = (Mailbox::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut messages = Vec::new();
        assert!(mailbox.poll_fetch(&mut cx, &mut messages).is_pending());
        mailbox.post([1, 2]);
        mailbox.post([3]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(mailbox.poll_fetch(&mut cx, &mut messages).is_ready());
        assert_eq!(messages, [1, 2, 3]);
        messages.clear();
        assert!(mailbox.poll_fetch(&mut cx, &mut messages).is_pending());
        mailbox.post([]);
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "an empty batch wakes nobody"
        );
    }
}

/// Every interleaving of a writer and the reader.
#[cfg(all(test, loom))]
mod loom_tests {
    use std::task::Wake;

    use loom::thread;

    use super::*;
    use crate::sync::{Arc, AtomicU32, Ordering};

    struct Count(Arc<AtomicU32>);

    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_reader_that_found_nothing_is_woken_by_the_next_message() {
        loom::model(|| {
            let (mailbox, woken) = (Arc::new(Mailbox::default()), Arc::new(AtomicU32::new(0)));
            let writing = Arc::clone(&mailbox);
            let writer = thread::spawn(move || {
                writing.post([1]);
                writing.post([2]);
            });
            let waker = Waker::from(std::sync::Arc::new(Count(Arc::clone(&woken))));
            let mut cx = Context::from_waker(&waker);
            let mut messages = Vec::new();
            let slept = mailbox.poll_fetch(&mut cx, &mut messages).is_pending();
            writer.join().expect("the writer ends");
            assert_eq!(
                woken.load(Ordering::SeqCst),
                u32::from(slept),
                "once, if it slept"
            );
            let mut rest = Vec::new();
            let _ = mailbox.poll_fetch(&mut cx, &mut rest);
            messages.extend(rest);
            assert_eq!(messages, [1, 2], "nothing is lost");
        });
    }
}
