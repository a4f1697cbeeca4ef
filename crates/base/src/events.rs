//! Events, sent to a listener that counts them.
//!
//! The layers of the request path and the sources do not know who observes the gateway; the composition root
//! gives them a listener.

use std::{fmt, sync::Arc};

/// Accepts events from any thread. The listener must not block. The default drops them.
pub struct EventSink<E>(Option<Arc<Listener<E>>>);

type Listener<E> = dyn Fn(E) + Send + Sync;

impl<E> EventSink<E> {
    /// Calls `listener` with each event.
    pub fn new(listener: impl Fn(E) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Sends an event.
    pub fn send(&self, event: E) {
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}

impl<E> Default for EventSink<E> {
    fn default() -> Self {
        Self(None)
    }
}

impl<E> Clone for EventSink<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> fmt::Debug for EventSink<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSink").finish_non_exhaustive()
    }
}
