//! Whether figures are measured and evaluated, too. It is set once, from the arguments.

use std::sync::atomic::{AtomicBool, Ordering};

static MEASURES: AtomicBool = AtomicBool::new(false);

/// From now on figures are measured.
pub(crate) fn measure() {
    MEASURES.store(true, Ordering::Relaxed);
}

/// Whether figures are measured.
pub(crate) fn measures() -> bool {
    MEASURES.load(Ordering::Relaxed)
}
