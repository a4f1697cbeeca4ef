//! Priorities of threads.

/// How much lower the priority of a thread in the background is, as a nice value: it gets a quarter of a core that one
/// other thread wants for itself, and all of one that nobody else wants.
#[cfg(target_os = "linux")]
const BACKGROUND: i32 = 5;

/// Lowers the priority of the current thread, so that it does not slow down those that serve clients. It cannot be raised
/// again. Does nothing where the operating system knows only priorities of processes, or refuses.
pub fn lower_for_background() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(BACKGROUND);
}
