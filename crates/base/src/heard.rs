//! Who hears of what happens, to count it.
//!
//! The layers of the request path and the sources do not know who watches the gateway; whoever puts
//! them together gives them a listener.

use std::{fmt, sync::Arc};

/// Is told of events, from any thread. Must not wait. The default does not listen.
pub struct Heard<E>(Option<Arc<Listener<E>>>);

type Listener<E> = dyn Fn(E) + Send + Sync;

impl<E> Heard<E> {
    /// Tells `listener`.
    pub fn by(listener: impl Fn(E) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Tells of an event.
    pub fn tell(&self, event: E) {
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}

impl<E> Default for Heard<E> {
    fn default() -> Self {
        Self(None)
    }
}

impl<E> Clone for Heard<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> fmt::Debug for Heard<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").finish_non_exhaustive()
    }
}
