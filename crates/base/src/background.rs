//! Threads for work in the background, which takes long and much memory, and must not disturb those that serve clients.

use std::sync::OnceLock;

/// How much lower the priority of a thread in the background is, as a nice value: it gets a quarter of a core that one
/// other thread wants for itself, and all of one that nobody else wants.
#[cfg(target_os = "linux")]
const BACKGROUND: i32 = 5;

static OWN_MEMORY: OnceLock<fn()> = OnceLock::new();

/// Sets what [`use_own_memory`] does. It depends on the allocator, which a program chooses. Only the first call has an
/// effect.
pub fn set_own_memory(own_memory: fn()) {
    let _ = OWN_MEMORY.set(own_memory);
}

/// Has the current thread take its memory apart from threads that serve clients, as the program has set it.
pub fn use_own_memory() {
    if let Some(own_memory) = OWN_MEMORY.get() {
        own_memory();
    }
}

/// Lowers the priority of the current thread, so that it does not slow down those that serve clients. It cannot be raised
/// again. Does nothing where the operating system knows only priorities of processes, or refuses.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(BACKGROUND);
}
