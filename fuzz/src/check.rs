//! Runs a target on one input and turns panics, those of its tasks included, into an error.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use crate::{Outcome, Target};

thread_local! {
    /// Panics on this thread. A runtime catches those of its tasks, so that only the hook sees them.
    static PANICS: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs `target` on `data`.
///
/// # Errors
///
/// The text of the panic, if there was one on this thread.
pub fn check(target: &Target, data: &[u8]) -> Result<Outcome, String> {
    install_hook();
    let before = PANICS.get();
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    match result {
        Ok(outcome) if PANICS.get() == before => Ok(outcome),
        _ => Err(LAST.take().unwrap_or_default()),
    }
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            LAST.set(Some(info.to_string()));
            default(info);
        }));
    });
}
